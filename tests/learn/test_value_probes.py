"""Probes of the cousins of DQN: each isolates one faculty and asserts a number worked out by hand (LEARNING.md)."""

import numpy as np
import pytest
import torch

from learn.test_probes import GAMMA, QUIET, REPLAY, greedy_return
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer
from selection import matrix_but

pytestmark = pytest.mark.slow

Q = {"gamma": GAMMA, "lr": 5e-3, "target_every": 8, "epsilon": 0.5}
STORE = REPLAY | {"updates_per_step": 0.5}
REPLAYED = {"model": {"hidden": [32]}, "store": STORE, "train": {"max_steps": 700}}
SETTINGS = {
    # returns lie in [−1, 5]; atoms at whole and half numbers
    "c51": REPLAYED | {"algo": Q | {"name": "c51", "v_min": -2.0, "v_max": 6.0, "atoms": 17}},
    "rainbow": REPLAYED
    | {
        "algo": Q | {"name": "rainbow", "v_min": -2.0, "v_max": 6.0, "atoms": 17, "n_step": 1},
        "store": STORE | {"priority": {"alpha": 0.6}},
    },
    "qrdqn": REPLAYED | {"algo": Q | {"name": "qrdqn", "quantiles": 8}},
    "iqn": REPLAYED
    | {"algo": Q | {"name": "iqn", "samples": 8, "target_samples": 8, "acting_samples": 8, "cosines": 8}},
    "fqf": REPLAYED | {"algo": Q | {"name": "fqf", "fractions": 4, "cosines": 8, "fraction_lr": 1e-5}},
    # α and τ so small that the log-policy changes no value by more than the tolerance
    "mdqn": REPLAYED | {"algo": Q | {"name": "mdqn", "alpha": 0.1, "temperature": 0.01}},
    "pqn": {
        "algo": {
            "name": "pqn",
            "gamma": GAMMA,
            "lr": 1e-2,
            "rollout": 16,
            "epochs": 4,
            "minibatches": 2,
            "epsilon": 0.5,
        },
        "model": {"hidden": [32]},
        "env": {"num": 8},
        "train": {"max_steps": 5_120},
    },
}
LONGER = {"pqn": 12_800}  # steps where values must travel; the others: 1400
ALL = pytest.mark.parametrize("algo", list(SETTINGS))
PLAIN = pytest.mark.parametrize("algo", [name for name in SETTINGS if name != "rainbow"])  # which is c51, with options


def trained(name, probe, steps=None, **algo):
    tree = {**SETTINGS[name], **QUIET}
    tree["env"] = {**tree.get("env", {}), "id": f"rookery/Probe{probe}-v0"}
    tree["algo"] = tree["algo"] | algo
    tree["train"] = tree["train"] if steps is None else {"max_steps": steps}
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    return trainer


def value(trainer, *obs):
    """max_a Q of observations, without noise."""
    with torch.no_grad():
        x = torch.tensor(obs, dtype=torch.float32)
        return trainer.algo.outputs(trainer.learner.eager.quiet, x, None, None)[0]["q"].amax(-1).tolist()


@pytest.mark.matrix  # this, the next and the right action without observation follow from the harder ones
@PLAIN
def test_the_value_of_a_constant_reward_is_that_reward(algo):
    assert value(trained(algo, "Constant"), [0.0]) == pytest.approx([1.0], abs=0.05)


@pytest.mark.matrix
@PLAIN
def test_the_value_depends_on_the_observation(algo):
    assert value(trained(algo, "Obs"), [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.1)


@ALL
def test_a_reward_one_step_later_is_discounted_once(algo):
    assert value(trained(algo, "Discount"), [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.08)


@pytest.mark.parametrize(
    ("algo", "probe"),
    matrix_but(
        [(name, probe) for name in SETTINGS for probe in ("ObsAction", "Action")],
        *((name, "ObsAction") for name in SETTINGS),
    ),
)
def test_the_right_action_is_found(algo, probe):
    assert greedy_return(trained(algo, probe)) >= 0.95


@ALL
def test_a_time_limit_does_not_lower_the_value(algo):
    """Endless reward 1, cut after 10 steps: V = 1 / (1 − γ) = 5; summing only to the
    limit would give 3.4 on average."""
    found = value(trained(algo, "Endless", LONGER.get(algo, 1_400)), *np.eye(4).tolist())
    assert found == pytest.approx([5.0] * 4, rel=0.06)


@pytest.mark.parametrize("algo", ["c51", "pqn"])
def test_several_steps_do_not_see_beyond_a_time_limit_either(algo):
    further = {"lam": 0.9} if algo == "pqn" else {"n_step": 3}
    trainer = trained(algo, "Endless", LONGER.get(algo, 1_400), **further)
    assert value(trainer, *np.eye(4).tolist()) == pytest.approx([5.0] * 4, rel=0.06)


@pytest.mark.parametrize("algo", ["iqn", "mdqn", "pqn"])
def test_illegal_actions_are_never_taken_and_the_best_legal_one_is_found(algo):
    assert greedy_return(trained(algo, "Mask", LONGER.get(algo, 1_400))) >= 0.95


@pytest.mark.parametrize("algo", ["c51", "pqn"])
def test_nested_observations_are_seen_whole(algo):
    assert greedy_return(trained(algo, "Nested", LONGER.get(algo, 1_400))) >= 0.9
