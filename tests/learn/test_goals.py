"""Sparse goals are learnt in hindsight and not without it, with discrete and with continuous actions."""

import pytest

from rookery.run.config.resolve import load_config
from rookery.run.evaluate import evaluate
from rookery.run.trainer import Trainer

pytestmark = pytest.mark.slow
QUIET = {
    "eval": {"every_steps": 0, "at_end": False},
    "checkpoint": {"every_steps": 0},
    "log": {"every_steps": 100_000},
    "learning": {"mode": "eager"},
}
BITS = {
    "algo": {
        "name": "dqn",
        "gamma": 0.98,
        "target_every": 50,
        "epsilon": {"kind": "linear", "start": 1, "end": 0.1, "steps": 1000},
    },
    "env": {"id": "rookery/BitFlip-v0"},
    "model": {"hidden": [128, 128]},
    "store": {"capacity": 5_000, "min_fill": 200, "batch_size": 128},
    "train": {"max_steps": 1_500},
}
POINT = {
    "algo": {"name": "sac", "gamma": 0.9, "lr": 3e-3, "alpha_lr": 3e-3, "tau": 0.02, "warmup": 300, "alpha": 0.1},
    "env": {"id": "rookery/Reach-v0", "kwargs": {"tolerance": 0.15}},
    "model": {"hidden": [32]},
    "store": {"capacity": 5_000, "min_fill": 300, "batch_size": 64},
    "train": {"max_steps": 1_500},
}


def success(tree, hindsight):
    tree = {**tree, **QUIET, "store": {**tree["store"], "hindsight": hindsight}}
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    assert trainer.store.size == 1_500
    judge = trainer.parts.judge(10)
    try:
        return evaluate(judge, 100).success
    finally:
        judge.close()
        trainer.shut()


def test_bits_are_flipped_to_the_goal_only_with_goals_in_hindsight():
    """A random policy finds 8 bits in about one episode of 30; the rest of the reward says nothing."""
    assert success(BITS, {"k": 4}) >= 0.9
    assert success(BITS, None) < 0.3


def test_a_point_is_pushed_to_the_goal_only_with_goals_in_hindsight():
    with_it, without = success(POINT, {"strategy": "future", "k": 4}), success(POINT, None)
    assert with_it >= 0.9
    assert without < with_it - 0.2
