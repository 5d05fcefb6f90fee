"""The probes for algorithms of continuous actions and for discrete SAC; numbers worked out by hand (LEARNING.md)."""

import numpy as np
import pytest
import torch

from learn.test_probes import GAMMA, PRIORITISED, QUIET, REPLAY, greedy_return
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer
from selection import matrix_but

pytestmark = pytest.mark.slow

SOFT = {"gamma": GAMMA, "lr": 5e-3, "alpha": 0.01, "tune_alpha": False, "warmup": 200}
PURE = {"gamma": GAMMA, "lr": 5e-3, "tau": 0.1, "noise": 0.3, "warmup": 200}
ALGOS = {
    "ddpg": PURE | {"policy_lr": 2e-3},
    "td3": PURE | {"policy_lr": 5e-3, "smoothing": 0.05},
    "redq": SOFT | {"tau": 0.1, "critics": 3, "policy_every": 1},
    "tqc": SOFT
    | {"tau": 0.1, "critics": 2, "quantiles": 5, "drop": 0},  # deterministic returns: all quantiles are equal
    "crossq": SOFT | {"policy_every": 2, "renorm_momentum": 0.05, "renorm_warmup": 100},
    "sac-discrete": {"gamma": GAMMA, "lr": 5e-3, "tau": 0.1, "alpha": 0.01, "tune_alpha": False},
}
ALL = pytest.mark.parametrize("algo", ALGOS)


def trained(name, probe, steps=600, **more):
    kind = "" if name == "sac-discrete" else "Continuous"
    tree = {"algo": {"name": name, **ALGOS[name]}, "model": {"hidden": [32]}, "store": REPLAY, **QUIET}
    tree["store"] = tree["store"] | {"updates_per_step": 1}  # REDQ would do 20
    tree |= {"env": {"id": f"rookery/Probe{probe}{kind}-v0"}, "train": {"max_steps": steps}}
    for section, values in more.items():
        tree[section] = {**tree[section], **values}
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    return trainer


def value(trainer, *obs):
    """Q of the greedy action, as the policy is judged by."""
    s, x, algo = trainer.learner.eager, torch.tensor(obs, dtype=torch.float32), trainer.algo.name
    with torch.no_grad():
        if algo == "sac-discrete":
            return s.q.least(x).gather(-1, s.policy(x).argmax(-1, keepdim=True)).squeeze(-1).tolist()
        action = s.policy(x) if algo in ("ddpg", "td3") else s.policy(x)[0].tanh()
        judged = s.q(x, action)
        means = {"redq": lambda: judged.mean(0), "tqc": lambda: judged.mean((0, -1)), "ddpg": lambda: judged}
        return means.get(algo, lambda: judged.amin(0))().tolist()


@pytest.mark.matrix  # this, the next and the right action without observation follow from the harder ones
@ALL
def test_the_value_of_a_constant_reward_is_that_reward(algo):
    assert value(trained(algo, "Constant", 350), [0.0]) == pytest.approx([1.0], abs=0.05)


@pytest.mark.matrix
@ALL
def test_the_value_depends_on_the_observation(algo):
    assert value(trained(algo, "Obs"), [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.1)


@ALL
def test_a_reward_one_step_later_is_discounted_once(algo):
    assert value(trained(algo, "Discount"), [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.08)


@pytest.mark.matrix
@ALL
def test_the_right_action_is_found(algo):
    assert greedy_return(trained(algo, "Action", 800)) >= 0.95


@ALL
def test_the_right_action_depends_on_the_observation(algo):
    assert greedy_return(trained(algo, "ObsAction", 800)) >= 0.95


@ALL
def test_a_time_limit_does_not_lower_the_value(algo):
    """Endless reward 1, cut after 10 steps: V = 1 / (1 − γ) = 5; summing only to the
    limit would give 3.4 on average."""
    found = value(trained(algo, "Endless", 1_200), *np.eye(4).tolist())
    assert found == pytest.approx([5.0] * 4, rel=0.06)


@pytest.mark.parametrize("algo", matrix_but(ALGOS, "td3", "tqc"))
def test_prioritised_replay_and_several_steps_learn_discounted_values(algo):
    trainer = trained(algo, "Discount", store=PRIORITISED, algo={"n_step": 2})
    assert value(trainer, [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.08)


EXPLORES = {"alpha": 0.3, "lr": 2e-3}  # a policy that is certain too early unlearns an error only slowly


def test_discrete_sac_never_takes_an_illegal_action_and_finds_the_best_legal_one():
    assert greedy_return(trained("sac-discrete", "Mask", 1_200, algo=EXPLORES)) >= 0.95


def test_discrete_sac_sees_nested_observations_whole():
    assert greedy_return(trained("sac-discrete", "Nested", 1_200, algo=EXPLORES)) >= 0.9


def test_drifting_noise_explores_as_well():
    more = {"noise_kind": "ornstein_uhlenbeck", "noise": 0.2, "warmup": 0}
    assert greedy_return(trained("ddpg", "ObsAction", algo=more)) >= 0.95
