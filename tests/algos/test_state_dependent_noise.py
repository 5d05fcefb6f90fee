"""Generalised state-dependent exploration (ENV-11): by hand, smooth, in checkpoints, and not in evaluation."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from interrupted import straight_and_resumed
from rookery import ConfigError, Trainer, load_config
from rookery.acting.noise import StateDependentGaussian
from rookery.core.spec import spec_of
from rookery.equations.distributions import gaussian_logp
from rookery.nets.policy import StateDependentHead
from selection import slow_but

BOX = spec_of(spaces.Box(-9, 9, (2,), np.float32))


def outputs(latent):
    """Of a head whose mean is 0 and whose scales are (1, 2), (3, 4)."""
    scale, latent = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.asarray(latent, np.float32)
    log_std = 0.5 * np.log(latent**2 @ scale**2)
    return {"mean": np.zeros((len(latent), 2), np.float32), "log_std": log_std, "latent": latent, "scale": scale}


def test_the_deviation_depends_on_the_features_by_hand():
    head = StateDependentHead(2, BOX)
    with torch.no_grad():
        head.log_scale[:] = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).log()
    features = torch.tensor([[1.0, 0.5]], requires_grad=True)
    out = head(features)
    # 1² · 1² + 0.5² · 3² = 3.25, 1² · 2² + 0.5² · 4² = 8
    assert out["log_std"].exp().tolist()[0] == pytest.approx([math.sqrt(3.25), math.sqrt(8.0)], rel=1e-4)
    out["log_std"].sum().backward()
    assert features.grad is None  # features are not learnt from the noise
    assert head.log_scale.grad.abs().min() > 0


def test_features_of_size_one_give_the_deviation_that_was_asked_for():
    out = StateDependentHead(16, BOX, log_std=-1.0)(torch.ones(1, 16))
    assert out["log_std"].tolist()[0] == pytest.approx([-1.0, -1.0], abs=1e-3)


def test_equal_states_get_equal_noise_for_a_while_and_the_density_is_the_learners():
    rule, rng = StateDependentGaussian(BOX, every=3), np.random.default_rng(0)
    first = np.array([True, False])
    actions = []
    for t in range(6):
        rule.begin(first if t == 0 else np.zeros(2, bool))
        out = outputs([[1.0, 0.5], [1.0, 0.5]])
        made = rule(out, rng, {}, None, False)
        actions.append(made["action"])
        tensors = [torch.from_numpy(x) for x in (made["action"], out["mean"], out["log_std"])]
        assert made["logp"] == pytest.approx(gaussian_logp(*tensors).numpy(), rel=1e-4)
    assert all(np.array_equal(actions[0], actions[t]) for t in (1, 2))
    assert all(np.array_equal(actions[3], actions[t]) for t in (4, 5))
    assert not np.isclose(actions[0], actions[3]).any()
    assert not np.isclose(actions[0][0], actions[0][1]).any()  # every column has its own


def test_noise_is_a_linear_function_of_the_features_and_as_wide_as_it_says():
    rule, rng = StateDependentGaussian(BOX, every=1), np.random.default_rng(0)
    many = rule(outputs(np.tile([[1.0, 0.5]], (20_000, 1))), rng, {}, None, False)["action"]
    assert many.std(0) == pytest.approx([math.sqrt(3.25), math.sqrt(8.0)], rel=0.03)
    rule.age[:] = 0  # the same function again
    doubled = rule(outputs(np.tile([[2.0, 1.0]], (20_000, 1))), rng, {}, None, False)["action"]
    assert np.allclose(doubled, 2 * many, rtol=1e-4, atol=1e-5)


def test_an_episode_begins_with_another_function_and_what_was_not_done_is_undone():
    rule, rng = StateDependentGaussian(BOX, every=100), np.random.default_rng(0)
    out = outputs([[1.0, 0.5], [1.0, 0.5]])
    before = rule(out, rng, {}, None, False)["action"]
    rule.begin(np.array([False, True]))
    after = rule(out, rng, {}, None, False)["action"]
    assert np.array_equal(before[0], after[0])
    assert not np.isclose(before[1], after[1]).any()
    rule.undo(np.array([1]))
    assert rule.age.tolist() == [2, 100]  # the second column draws again at its next step
    assert np.array_equal(rule(out, None, {}, None, True)["action"], np.zeros((2, 2)))  # greedy: no noise


def trainer_of(algo, *words):
    short = ["env.num=2", "algo.rollout=8", "model.hidden=[8]", "train.max_steps=96", "log.sinks=[]"]
    quiet = ["eval.every_steps=0", "eval.at_end=false", "learning.mode=eager", "algo.sde_every=4"]
    more = ["algo.minibatches=2"] if algo in ("ppo", "appo") else []
    return Trainer(load_config(algo=algo, env="Pendulum-v1", overrides=[*short, *quiet, *more, *words]))


CASES = {
    "ppo": [],
    "ppo-lstm": ["model.core={kind: lstm, size: 4}"],
    "a2c": [],
    "impala": [],
    "appo": [],
}


@pytest.mark.parametrize("name", slow_but(CASES, "ppo"))
def test_a_run_with_it_is_resumed_exactly(name, tmp_path):
    algo = name.partition("-")[0]
    with straight_and_resumed(lambda: trainer_of(algo, *CASES[name]), tmp_path, rounds=3) as (straight, resumed):
        assert resumed.evaluate().returns == straight.evaluate().returns


def test_it_is_for_continuous_actions_alone():
    with pytest.raises(ConfigError, match=r"algo\.sde_every=4 is noise of continuous actions, but .* discrete of 2"):
        Trainer(load_config(algo="ppo", env="CartPole-v1", overrides=["algo.sde_every=4"]))
