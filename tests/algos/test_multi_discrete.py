"""Several choices at once in the DQN family (ENV-10): a head for each, the loss averaged over them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from interrupted import straight_and_resumed
from learning.toys import distance
from rookery import ConfigError, Trainer, load_config
from rookery.acting.actor import Actor
from rookery.acting.rules import EpsilonGreedy, EpsilonGreedyParts
from rookery.algos.multi_discrete import Choices
from rookery.core.registry import lookup
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig
from rookery.nets.heads import Parts
from selection import slow_but

OBS = spaces.Box(-1, 1, (1,), np.float32)
FAMILY = ("dqn", "mdqn", "c51", "rainbow", "qrdqn", "iqn", "fqf", "r2d2", "pqn")
OPTIONS = {
    "c51": {"atoms": 5},
    "rainbow": {"atoms": 5},
    "qrdqn": {"quantiles": 3},
    "r2d2": {"sequence": 4, "overlap": 2, "burn_in": 0},
}
OPTIONS |= {"iqn": {"samples": 3, "target_samples": 3, "acting_samples": 3, "cosines": 4}}
OPTIONS |= {"fqf": {"fractions": 3, "cosines": 4}}


def learner_of(name, action, obs=OBS, hidden=(), **options):
    cls = lookup("algo", name)
    core = {"kind": "gru", "size": 4} if name == "r2d2" else None
    model = ModelConfig(hidden=hidden, core=core)
    algo = cls(cls.Config(**OPTIONS.get(name, {}) | options), spec_of(obs), spec_of(action), model)
    learner = Learner(algo, Streams(0))
    learner.set_knobs({knob: schedule.at(0) for knob, schedule in algo.knobs().items()})
    return learner


def with_values(learner, values):
    """Q is `values` [K, A], whatever is observed."""
    for name in ("q.value", "q_target.value"):
        learner.tensors[name].zero_()
        learner.tensors[name][-len(values) * len(values[0]) :] = torch.tensor(values).flatten()
    return learner


def row(**changes):
    batch = {
        "obs": torch.zeros(1, 1), "next_obs": torch.zeros(1, 1), "action": torch.tensor([[0, 2]]),
        "reward": torch.tensor([1.0]), "discount": torch.tensor([0.5]), "weight": torch.tensor([1.0]),
    }  # fmt: skip
    return batch | changes


def test_dqn_of_two_choices_by_hand():
    """Q of the first choice: 1, 2 (and 100 where there is no action); of the second: 0, 1, 3."""
    options = {"optimiser": "sgd", "lr": 1.0, "max_grad_norm": None, "epsilon": 0.0}
    learner = with_values(
        learner_of("dqn", spaces.MultiDiscrete([2, 3]), **options), [[1.0, 2.0, 100.0], [0.0, 1.0, 3.0]]
    )
    (out, *_) = learner.step(row())
    # y = 1 + ½ · 2 = 2 and 1 + ½ · 3 = 2.5; td = 2 − 1 = 1 and 2.5 − 3 = −0.5; L = ½ (½ + ⅛)
    assert out.metrics["q/loss"] == pytest.approx(0.5 * (0.5 + 0.125))
    assert out.metrics["target_mean"] == pytest.approx(2.25)
    assert out.arrays["priority"].tolist() == pytest.approx([0.75])
    # ∂L/∂Q = −½ td, so a step of length 1 moves both by ½ td
    after = learner.tensors["q.value"][-6:].reshape(2, 3)
    assert after.tolist() == [[1.5, 2.0, 100.0], [0.0, 1.0, 2.75]]


@pytest.mark.parametrize("double", [True, False])
def test_masks_of_both_choices_are_kept_by_hand(double):
    space = spaces.Dict({"obs": OBS, "action_mask": spaces.MultiBinary(5)})
    learner = learner_of("dqn", spaces.MultiDiscrete([2, 3]), space, double=double, epsilon=0.0)
    with_values(learner, [[1.0, 2.0, 100.0], [0.0, 1.0, 3.0]])
    seen = lambda *mask: {"obs": torch.zeros(1, 1), "action_mask": torch.tensor([mask], dtype=torch.int8)}  # noqa: E731
    (out, *_) = learner.step(row(obs=seen(1, 1, 1, 1, 1), next_obs=seen(1, 0, 1, 1, 0)))
    assert out.metrics["target_mean"] == pytest.approx(0.5 * ((1 + 0.5 * 1) + (1 + 0.5 * 1)))
    (out, *_) = learner.step(row(obs=seen(1, 1, 1, 1, 1), next_obs=seen(0, 0, 0, 1, 0)))  # no first choice: all count
    assert out.metrics["target_mean"] == pytest.approx(0.5 * ((1 + 0.5 * 2) + (1 + 0.5 * 1)), abs=1e-2)


def batch_of(name, rng, sizes=(3,)):
    """Random rows for an algorithm, with actions of so many choices [.., K]."""
    n = 8
    draw = lambda *shape: torch.from_numpy(rng.normal(size=shape).astype(np.float32))  # noqa: E731
    if name == "r2d2":
        lead = (4, n)
        ended, first = torch.from_numpy(rng.random((4, n)) < 0.2), torch.from_numpy(rng.random((4, n)) < 0.2)
        valid = torch.from_numpy((rng.random((4, n)) < 0.9).astype(np.float32))
        more = {"terminated": ended, "done": ended, "first": first, "valid": valid, "weight": torch.ones(n)}
        more["state"] = {"h": torch.zeros(1, n, 4)}
    else:
        lead, more = (n,), {"discount": torch.full((n,), 0.9), "weight": draw(n).abs()}
    if name == "pqn":
        more = {"target": draw(n, len(sizes)), "valid": torch.ones(n)}
    action = torch.from_numpy(np.stack([rng.integers(0, size, lead) for size in sizes], -1))
    batch = {"obs": draw(*lead, 1), "next_obs": draw(*lead, 1), "action": action, "reward": draw(*lead)} | more
    return batch


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_a_single_choice_written_as_multi_discrete_learns_as_discrete_does(name, dueling):
    one = learner_of(name, spaces.Discrete(3), hidden=(6,), dueling=dueling)
    several = learner_of(name, spaces.MultiDiscrete([3]), hidden=(6,), dueling=dueling)
    assert torch.equal(one.tensors["q.value"], several.tensors["q.value"])
    for seed in range(3):
        parts = batch_of(name, np.random.default_rng(seed))
        batch = parts | {"action": parts["action"].squeeze(-1)}
        if name == "pqn":
            batch["target"] = batch["target"].squeeze(-1)
        (a, *_), (b, *_) = one.step(batch), several.step(parts)
        assert a.metrics == pytest.approx(b.metrics, rel=1e-4, abs=1e-5)
        for key, array in a.arrays.items():
            assert array.shape == b.arrays[key].shape
            assert torch.allclose(array, b.arrays[key], rtol=1e-4, atol=1e-5)
    assert torch.allclose(one.tensors["q.value"], several.tensors["q.value"], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_what_fills_a_choice_up_is_never_learnt_from(name, dueling):
    """The first of [2, 4] choices has two entries too many: whatever stands there, nothing changes."""
    one, other = (learner_of(name, spaces.MultiDiscrete([2, 4]), hidden=(6,), dueling=dueling) for _ in range(2))
    for network in set(other.nets) & {"q", "q_target"}:
        own = other.nets[network]
        head = next(module for module in own.module.modules() if isinstance(module, Parts))
        for key, weights in zip(own.params, own.views(own.value)):
            if key.startswith("head.all"):
                weights.view(*head.shape, *weights.shape[1:])[0, 2 + dueling :] += 1e3
    for seed in range(3):
        batch = batch_of(name, np.random.default_rng(seed), (2, 4))
        (a, *_), (b, *_) = one.step(batch), other.step(batch)
        assert a.metrics == b.metrics
        for key, array in a.arrays.items():
            assert torch.equal(array, b.arrays[key])


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("sizes", [[3, 3], [2, 4]])
def test_they_act_by_the_quick_way(sizes, dueling):
    learner = learner_of("dqn", spaces.MultiDiscrete(sizes), hidden=(6,), dueling=dueling)
    actor = Actor(learner.algo.outputs, learner.algo.rule(), learner.eager, "cpu", learner.algo.memory())
    actor.act(np.ones((3, 1), np.float32), np.random.default_rng(0), greedy=True)
    assert actor._quick is not None


def test_dueling_takes_off_the_mean_of_the_real_actions_of_each_choice():
    learner = learner_of("dqn", spaces.MultiDiscrete([2, 3]), dueling=True)
    with_values(learner, [[10.0, 1.0, 3.0, 100.0], [20.0, 0.0, 3.0, 6.0]])  # V in front
    q = learner.eager.q(torch.zeros(1, 1))[0]
    assert q[0, :2].tolist() == [9.0, 11.0]
    assert q[1].tolist() == [17.0, 20.0, 23.0]


def test_each_choice_has_a_coin_of_its_own_and_stays_within_its_actions_and_mask():
    rule = Choices(spec_of(spaces.MultiDiscrete([2, 3]))).rule(0.0, 0, None)
    assert isinstance(rule, EpsilonGreedyParts)
    assert isinstance(Choices(spec_of(spaces.Discrete(2))).rule(0.0, 0, None), EpsilonGreedy)
    q = np.tile(np.array([[1.0, 2.0, 100.0], [0.0, 1.0, 3.0]], np.float32), (4000, 1, 1))
    rng = np.random.default_rng(0)
    assert set(map(tuple, rule({"q": q}, rng, {}, None, True)["action"].tolist())) == {(1, 2)}
    action = rule({"q": q}, rng, {"epsilon": 0.5}, None, False)["action"]
    first, second = (action[:, 0] == 1).mean(), (action[:, 1] == 2).mean()
    assert first == pytest.approx(0.75, abs=0.03)  # ½ + ½ · ½
    assert second == pytest.approx(0.5 + 0.5 / 3, abs=0.03)
    assert ((action[:, 0] == 1) & (action[:, 1] == 2)).mean() == pytest.approx(first * second, abs=0.03)
    mask = np.tile(np.array([1, 0, 1, 1, 0]), (4000, 1))
    action = rule({"q": q}, rng, {"epsilon": 0.5}, mask, False)["action"]
    assert set(map(tuple, action.tolist())) == {(0, 0), (0, 1)}


WORDS = {
    "pqn": ["env.num=2", "algo.rollout=8", "algo.minibatches=2"],
    "r2d2": ["model.core={kind: gru, size: 4}", "algo.sequence=4", "algo.overlap=2", "algo.burn_in=0"],
}


def trainer_of(name, *words, mode="eager"):
    replay = [] if name == "pqn" else ["store.min_fill=32", "store.batch_size=8", "store.capacity=200"]
    options = [f"algo.{key}={value}" for key, value in OPTIONS.get(name, {}).items() if name != "r2d2"]
    short = ["model.hidden=[8]", "train.max_steps=96", "eval.every_steps=0", "eval.at_end=false", "log.sinks=[]"]
    overrides = [*short, *replay, *options, *WORDS.get(name, []), f"learning.mode={mode}", *words]
    return Trainer(load_config(algo=name, env="rookery/ProbeMultiDiscrete-v0", overrides=overrides))


@pytest.mark.parametrize("name", slow_but(list(FAMILY), "dqn", "pqn"))
def test_a_run_with_several_choices_is_resumed_exactly_and_evaluated(name, tmp_path):
    with straight_and_resumed(lambda: trainer_of(name), tmp_path, steps=60) as (straight, resumed):
        assert resumed.evaluate().returns == straight.evaluate().returns


@pytest.mark.matrix
def test_compiled_updates_learn_nearly_the_same(tmp_path):
    found = []
    for mode in ("eager", "compiled"):
        with trainer_of("dqn", f"learning.cache={tmp_path}", "train.max_updates=4", mode=mode) as trainer:
            for _ in trainer:
                pass
            assert trainer.updates == 4
            found.append(trainer.learner.tensors["q.value"].clone())
    assert distance(*found) < 1e-2


def test_initial_priorities_from_the_actor_are_of_one_choice():
    with pytest.raises(ConfigError, match=r"store\.priority\.initial=actor needs .* one choice"):
        trainer_of("dqn", "store.priority={initial: actor}")
