"""Probes of A2C, REINFORCE, TRPO, PPG, IMPALA and APPO, and deep exploration with and without curiosity."""

import numpy as np
import pytest
import torch

from learn.test_probes import GAMMA, QUIET, greedy_return
from rookery.core.tree import tree_map
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer

pytestmark = pytest.mark.slow

SMALL = {"model": {"hidden": [32]}, "env": {"num": 8}, "train": {"max_steps": 5_120}}
SETTINGS = {
    "a2c": {"algo": {"name": "a2c", "lr": 1e-2, "optimiser": "adam", "rollout": 8, "entropy_bonus": 0.003}},
    "reinforce": {"algo": {"name": "reinforce", "lr": 1e-2, "value_lr": 2e-2, "rollout": 10, "entropy_bonus": 0.003}},
    "impala": {"algo": {"name": "impala", "lr": 1e-2, "optimiser": "adam", "rollout": 8, "entropy_bonus": 0.003}},
    "appo": {
        "algo": {"name": "appo", "lr": 1e-2, "rollout": 20, "epochs": 4, "minibatches": 2, "entropy_bonus": 0.003}
    },
    "trpo": {"algo": {"name": "trpo", "lr": 1e-2, "rollout": 20, "epochs": 6, "minibatches": 2, "radius": 0.05}},
    "ppg": {
        "algo": {
            "name": "ppg",
            "lr": 1e-2,
            "rollout": 20,
            "epochs": 4,
            "minibatches": 2,
            "phase": 4,
            "auxiliary_epochs": 2,
            "auxiliary_minibatches": 4,
            "entropy_bonus": 0.003,
        }
    },
    "a2c-gru": {
        "algo": {"name": "a2c", "lr": 1e-2, "optimiser": "adam", "rollout": 10, "entropy_bonus": 0.003},
        "model": {"hidden": [16], "core": {"kind": "gru", "size": 16}},
    },
}
ALL = pytest.mark.parametrize("algo", ["a2c", "reinforce", "trpo", "ppg", "impala", "appo"])


def trained(name, env, **more):
    tree = SMALL | SETTINGS[name] | QUIET
    for section, values in more.items():
        tree[section] = {**tree.get(section, {}), **values}
    tree["algo"] = {"gamma": GAMMA} | tree["algo"]
    tree["env"] = {**tree["env"], "id": f"rookery/{env}-v0"}
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    return trainer


def value(trainer, *obs):
    s, x = trainer.learner.eager, torch.tensor(obs, dtype=torch.float32)
    with torch.no_grad():
        return (s.ac.value(x) if "ac" in trainer.learner.nets else s.value(x)).tolist()


@ALL
def test_the_value_of_a_constant_reward_is_that_reward(algo):
    assert value(trained(algo, "ProbeConstant"), [0.0]) == pytest.approx([1.0], abs=0.05)


@ALL
def test_the_value_depends_on_the_observation(algo):
    assert value(trained(algo, "ProbeObs"), [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.1)


@ALL
def test_a_reward_one_step_later_is_discounted_once(algo):
    assert value(trained(algo, "ProbeDiscount"), [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.08)


@ALL
def test_the_right_action_is_found(algo):
    assert greedy_return(trained(algo, "ProbeAction")) >= 0.95


@ALL
def test_the_right_action_depends_on_the_observation(algo):
    assert greedy_return(trained(algo, "ProbeObsAction")) >= 0.95


@ALL
def test_a_time_limit_does_not_lower_the_value(algo):
    """Endless reward 1, cut after 10 steps: V = 1 / (1 − γ) = 5; summing only to the
    limit would give 3.4 on average."""
    found = value(trained(algo, "ProbeEndless", train={"max_steps": 12_800}), *np.eye(4).tolist())
    assert found == pytest.approx([5.0] * 4, rel=0.06)


@pytest.mark.matrix
@ALL
def test_gaussian_actions_are_learnt(algo):
    assert greedy_return(trained(algo, "ProbeObsActionContinuous", train={"max_steps": 16_000})) >= 0.9


@pytest.mark.matrix
@ALL
def test_illegal_actions_are_never_taken_and_the_best_legal_one_is_found(algo):
    assert greedy_return(trained(algo, "ProbeMask")) >= 0.95


@pytest.mark.matrix
@ALL
def test_two_choices_at_once_are_both_learnt(algo):
    assert greedy_return(trained(algo, "ProbeMultiDiscrete", train={"max_steps": 10_240})) >= 0.95


@pytest.mark.matrix
@ALL
def test_nested_observations_are_seen_whole(algo):
    assert greedy_return(trained(algo, "ProbeNested", train={"max_steps": 10_240})) >= 0.9


@pytest.mark.matrix
@ALL
def test_all_parts_of_a_dict_of_actions_are_learnt(algo):
    assert greedy_return(trained(algo, "ProbeParts", train={"max_steps": 20_480})) >= 0.9


def test_reinforce_needs_no_baseline():
    assert greedy_return(trained("reinforce", "ProbeObsAction", algo={"baseline": False})) >= 0.95


def test_a_bit_is_remembered():
    assert greedy_return(trained("a2c-gru", "ProbeMemory", train={"max_steps": 6_400})) >= 0.95


@pytest.mark.matrix
def test_a_time_limit_inside_a_sequence_does_not_lower_the_value():
    trainer = trained("a2c-gru", "ProbeEndless", train={"max_steps": 16_000})
    place = torch.eye(4)[torch.arange(10) % 4].unsqueeze(1)
    state = tree_map(lambda leaf: torch.zeros(1, *leaf.shape), trainer.algo.memory())
    none = torch.zeros(10, 1, dtype=torch.bool)
    with torch.no_grad():
        values = trainer.learner.eager.ac.unroll(place, state, none, ~none)[1]
    assert values.flatten().tolist() == pytest.approx([5.0] * 10, rel=0.1)


PLAIN = {
    "gamma": 0.99,
    "entropy_bonus": 0.01,
    "normalise_advantage": False,
}  # noise of the critic is not to be scaled up
CHAIN = {
    "ppo": PLAIN | {"name": "ppo", "lr": 1e-3, "rollout": 32, "epochs": 4, "minibatches": 2},
    "a2c": PLAIN | {"name": "a2c", "lr": 3e-3, "rollout": 8, "optimiser": "adam"},
}


STEPS = {"ppo": 40_960, "a2c": 81_920}  # one update per rollout needs more of them


def arrived(algo, length, steps, curiosity):
    own = {"algo": CHAIN[algo] | {"curiosity": curiosity}, "train": {"max_steps": steps}}
    tree = (
        QUIET
        | own
        | {"env": {"id": "rookery/Chain-v0", "num": 8, "kwargs": {"length": length}}, "model": {"hidden": [32]}}
    )
    with Trainer(load_config(tree=tree)) as trainer:
        for _ in trainer:
            pass
        return greedy_return(trainer, 8)


@pytest.mark.matrix
@pytest.mark.parametrize(("algo", "kind"), [("ppo", "rnd"), ("ppo", "icm"), ("a2c", "rnd")])
def test_the_end_of_a_chain_is_found_with_curiosity(algo, kind):
    assert arrived(algo, 16, STEPS[algo], {"kind": kind, "weight": 20.0}) == 1.0


@pytest.mark.matrix
@pytest.mark.parametrize("algo", CHAIN)
def test_the_end_of_a_chain_is_not_found_without_it(algo):
    """Random actions arrive about once in 7 000 episodes: not in the 1 280 or 2 560 of these runs."""
    assert arrived(algo, 16, STEPS[algo], None) == 0.0
