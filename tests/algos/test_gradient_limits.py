"""`algo.grad`: the same limits of gradients for every algorithm, before `algo.max_grad_norm`."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import ConfigError, Trainer, load_config
from rookery.algos.dqn import DQN
from rookery.core.registry import lookup
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig

OBS = spec_of(spaces.Box(-1, 1, (3,), np.float32))
ACTIONS = {"dqn": spaces.Discrete(2), "r2d2": spaces.Discrete(2), "ppo": spaces.Discrete(2), "sac": None}
LEARN = {"dqn": ["q"], "r2d2": ["q"], "ppo": ["ac"], "sac": ["q", "policy"]}
ACTIONS |= {name: spaces.Discrete(2) for name in ("a2c", "impala", "appo", "reinforce", "trpo", "ppg")}
LEARN |= {
    "a2c": ["ac"],
    "impala": ["ac"],
    "appo": ["ac"],
    "reinforce": ["policy", "value"],
    "trpo": ["value"],
    "ppg": ["policy", "value", "auxiliary"],
}
VALUES = ("c51", "rainbow", "qrdqn", "iqn", "fqf", "mdqn", "pqn")
ACTIONS |= dict.fromkeys(VALUES, spaces.Discrete(2))
LEARN |= {name: ["q"] for name in VALUES}


def made(name, **options):
    cls = lookup("algo", name)
    space = ACTIONS[name] or spaces.Box(-1, 1, (2,), np.float32)
    core = {"kind": "gru", "size": 4} if name == "r2d2" else None
    return cls(cls.Config(**options), OBS, spec_of(space), ModelConfig(hidden=(8,), core=core))


@pytest.mark.parametrize("name", ACTIONS)
def test_every_algorithm_takes_the_limits(name):
    optimisers = made(
        name, max_grad_norm=7.0, grad={"kind": "ignore_momentum_norm", "at": 3.0, "beta": 0.9}
    ).optimisers()
    for network in LEARN[name]:
        found = optimisers[network]
        assert (found.limit, found.limit_at, found.limit_beta, found.clip_norm) == (
            "ignore_momentum_norm",
            3.0,
            0.9,
            7.0,
        )


@pytest.mark.parametrize("name", ACTIONS)
def test_without_them_nothing_changes(name):
    for optimiser in made(name).optimisers().values():
        assert optimiser.limit is None
        assert optimiser.limit_slots == ()


def step(**options):
    """The weights of DQN before and after an update whose gradient is 1000 times too large for any bound below."""
    learner = Learner(made("dqn", **options), Streams(0))
    learner.set_knobs({"lr": 0.1, "epsilon": 0.0})
    before = learner.tensors["q.value"].clone()
    batch = {
        "obs": torch.ones(4, 3),
        "action": torch.zeros(4, dtype=torch.int64),
        "reward": torch.full((4,), 1e4),
        "next_obs": torch.ones(4, 3),
        "discount": torch.zeros(4),
        "weight": torch.ones(4),
    }
    out = learner.step(batch)[0].metrics
    return before, learner.tensors["q.value"], out["q/grad_norm"]


def test_an_ignored_gradient_leaves_the_weights_and_its_norm_is_reported():
    before, after, norm = step(loss="squared", max_grad_norm=None, grad={"kind": "ignore_norm", "at": 1.0})
    assert norm > 1000
    assert torch.equal(before, after)
    before, after, _ = step(loss="squared", max_grad_norm=None, grad={"kind": "ignore_norm", "at": 1e9})
    assert not torch.equal(before, after)


TREE = {
    "algo": {"name": "dqn"},
    "env": {"id": "CartPole-v1", "num": 1},
    "model": {"hidden": [8]},
    "store": {"min_fill": 32, "batch_size": 8},
    "train": {"max_steps": 64},
    "eval": {"every_steps": 0, "at_end": False},
    "learning": {"mode": "eager"},
}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("algo.grad.kind=clip_nrom", r"algo\.grad\.kind: expected clip_value \| clip_norm"),
        ("algo.grad.at=-1", r"algo\.grad\.at: expected a number > 0"),
        ("algo.grad.beta=1", r"algo\.grad\.beta: expected a number ≥ 0 and < 1"),
        ("algo.grad.at=3", r"algo\.grad\.at=3 would be ignored: set algo\.grad\.kind"),
        ("algo.grad={kind: clip_value, beta: 0.5}", r"algo\.grad\.beta=0\.5 would be ignored: .*clip_value"),
        ("algo.grad=3", r"algo\.grad: expected a mapping with kind, at, beta"),
    ],
)
def test_wrong_limits_are_refused_in_a_sentence(override, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_config(tree={**TREE, "env": {"id": "CartPole-v1"}}, overrides=[override])


def test_a_config_with_limits_survives_a_dump_and_a_run_with_them_is_resumed_exactly(tmp_path):
    tree = {**TREE, "env": {"id": "CartPole-v1"}, "algo": {"name": "dqn", "grad": {"kind": "clip_momentum", "at": 2.0}}}
    config = load_config(tree=tree)
    assert load_config(tree=config.dump()).sha256() == config.sha256()
    with Trainer(config) as straight:
        for _ in straight:
            pass
    with Trainer(config) as first:
        for _ in range(45):
            first.round()
        first.save(tmp_path)
    with Trainer(config) as second:
        second.load(tmp_path)
        for _ in second:
            pass
    assert second.learner.weights_sha256() == straight.learner.weights_sha256()
    assert second.learner.tensors["q.limit_count"] == second.learner.updates > 0


def test_the_default_config_of_dqn_says_no_limit():
    assert DQN.Config().grad.kind is None
