"""Probes of teams: credit to the right member, one bit through communication, coordination; and what must fail."""

import math

import pytest
import torch

from learn.test_probes import QUIET, greedy_return
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer
from selection import matrix_but

pytestmark = pytest.mark.slow

REPLAY = {"capacity": 4_000, "min_fill": 64, "batch_size": 64, "updates_per_step": 0.5}
CRITICS = {"lr": 0.01, "policy_lr": 0.005, "tau": 0.05, "noise": 0.3, "warmup": 100}
MIXED = {"lr": 0.01, "target_every": 20, "epsilon": 1.0, "embed": 8, "hyper": 16}
SETTINGS = {
    "coma": {
        "algo": {
            "name": "coma", "lr": 0.01, "critic_lr": 0.03, "optimiser": "adam", "rollout": 8, "target_every": 10,
            "entropy_bonus": 0.1,
        },
        "model": {"hidden": [16]},
        "env": {"num": 8},
    },
    "maddpg": {"algo": {"name": "maddpg", **CRITICS}, "model": {"hidden": [32]}, "store": REPLAY},
    "atoc": {"algo": {"name": "atoc", "channel": 8, **CRITICS}, "model": {"hidden": [32]}, "store": REPLAY},
    "collaq": {"algo": {"name": "collaq", "attention": 8, **MIXED}, "model": {"hidden": [16]}, "store": REPLAY},
    "qmix": {"algo": {"name": "qmix", **MIXED}, "model": {"hidden": [16]}, "store": REPLAY},
}  # fmt: skip


def trained(name, probe, steps, algo=None, **kwargs):
    tree = {**SETTINGS[name], **QUIET, "train": {"max_steps": steps}}
    tree["algo"] = tree["algo"] | (algo or {})
    env = {"id": f"rookery/{probe}-v0", "kwargs": kwargs, "api": "parallel", "num": 2}
    tree["env"] = env | {"teams": {"team": {"members": "*", "reward": "mean"}}} | tree.get("env", {})
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    return trainer


@pytest.mark.parametrize("shared", matrix_but([False, True], False))
def test_credit_goes_to_the_member_whose_action_pays(shared):
    """b learns; a, whose action changes nothing, stays as unsure as its entropy bonus wants: log 2 = 0.693 nats."""
    trainer = trained("coma", "Credit", 6_400, {"shared": shared})
    assert greedy_return(trainer) == 1.0
    obs = {"agents": torch.zeros(1, 2, 1), "present": torch.ones(1, 2, dtype=torch.int8)}
    with torch.no_grad():
        a, b = trainer.learner.eager.policy(obs)[0].softmax(-1)
    assert b[1] >= 0.95
    assert -(a * a.log()).sum().item() >= math.log(2) - 0.03


WHISPER = [("atoc", True), ("atoc", False), ("collaq", False)]


@pytest.mark.parametrize(("algo", "continuous"), matrix_but(WHISPER, ("atoc", True), ("collaq", False)))
def test_one_bit_is_communicated(algo, continuous):
    assert greedy_return(trained(algo, "Whisper", 1_200 if algo == "collaq" else 800, continuous=continuous)) >= 0.95


SILENT = [("maddpg", True), ("maddpg", False), ("qmix", False)]


@pytest.mark.parametrize(("algo", "continuous"), matrix_but(SILENT, ("maddpg", True), ("qmix", False)))
def test_without_communication_the_bit_is_a_coin(algo, continuous):
    """Right in half of the episodes: a return of 0 ± 0.16 over 40 of them."""
    assert abs(greedy_return(trained(algo, "Whisper", 800, continuous=continuous))) <= 0.65


def test_two_vectors_sum_to_what_only_one_member_sees():
    """1 needs b at 1; if b stays at 0 the best is 1 − ∫₁² (t − 1)² ½ dt = ⅚."""
    assert greedy_return(trained("maddpg", "Summing", 1_500)) >= 0.95
