"""Probes: each isolates one faculty, takes seconds, and asserts a number worked out by hand (LEARNING.md)."""

import numpy as np
import pytest
import torch

from rookery.core.tree import tree_map
from rookery.equations.value import unscale
from rookery.run.config.resolve import load_config
from rookery.run.evaluate import evaluate
from rookery.run.trainer import Trainer
from selection import matrix_but

pytestmark = pytest.mark.slow

GAMMA = 0.8
QUIET = {
    "eval": {"every_steps": 0, "at_end": False},
    "checkpoint": {"every_steps": 0},
    "log": {"every_steps": 100_000},
    "learning": {"mode": "eager"},
}
REPLAY = {"capacity": 2_000, "min_fill": 64, "batch_size": 64}
SETTINGS = {
    "dqn": {
        "algo": {"name": "dqn", "gamma": GAMMA, "lr": 5e-3, "target_every": 10, "epsilon": 0.5},
        "model": {"hidden": [32]},
        "store": REPLAY,
        "train": {"max_steps": 600},
    },
    "ppo": {
        "algo": {
            "name": "ppo",
            "gamma": GAMMA,
            "lr": 1e-2,
            "rollout": 20,
            "epochs": 6,
            "minibatches": 2,
            "entropy_bonus": 0.003,
        },
        "model": {"hidden": [32]},
        "env": {"num": 8},
        "train": {"max_steps": 5_120},
    },
    "sac": {
        "algo": {
            "name": "sac",
            "gamma": GAMMA,
            "lr": 5e-3,
            "tau": 0.1,
            "alpha": 0.01,
            "tune_alpha": False,
            "warmup": 200,
        },
        "model": {"hidden": [32]},
        "store": REPLAY,
        "train": {"max_steps": 700},
    },
}


MEMORY = {
    "r2d2": {
        "algo": {
            "name": "r2d2",
            "gamma": GAMMA,
            "lr": 5e-3,
            "n_step": 2,
            "sequence": 4,
            "overlap": 2,
            "burn_in": 2,
            "rescale": 1e-3,
            "target_every": 20,
            "epsilon": 0.3,
            "rollout": 4,
        },
        "model": {"hidden": [16], "core": {"kind": "gru", "size": 16}},
        "store": {"capacity": 2_000, "min_fill": 64, "batch_size": 32, "updates_per_step": 0.5},
        "train": {"max_steps": 1_000},
    },
    "ppo-lstm": {
        "algo": {
            "name": "ppo",
            "gamma": GAMMA,
            "lr": 1e-2,
            "rollout": 20,
            "sequence": 10,
            "epochs": 4,
            "minibatches": 2,
            "entropy_bonus": 0.003,
        },
        "model": {"hidden": [16], "core": {"kind": "lstm", "size": 16}},
        "env": {"num": 8},
        "train": {"max_steps": 4_800},
    },
}
MEMORY["ppo-gtrxl"] = {
    **MEMORY["ppo-lstm"],
    "model": {"hidden": [16], "core": {"kind": "gtrxl", "size": 16, "heads": 2, "layers": 1, "memory": 4}},
}
SETTINGS |= MEMORY


def trained(name, probe, **more):
    tree = {**SETTINGS[name], **QUIET}
    for section, values in more.items():
        tree[section] = {**tree.get(section, {}), **values}
    tree["env"] = {**tree.get("env", {}), "id": f"rookery/Probe{probe}{'Continuous' if name == 'sac' else ''}-v0"}
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    return trainer


def value(trainer, *obs):
    """V of observations: the critic's, or that of the greedy action."""
    s, x = trainer.learner.eager, torch.tensor(obs, dtype=torch.float32)
    with torch.no_grad():
        if trainer.algo.name == "dqn":
            return s.q(x).amax(-1).tolist()
        if trainer.algo.name == "ppo":
            return s.ac.value(x).tolist()
        return s.q.least(x, s.policy(x)[0].tanh()).tolist()


def greedy_return(trainer, episodes=40):
    judge = trainer.parts.judge(4)
    try:
        return evaluate(judge, episodes).mean
    finally:
        judge.close()


ALL = pytest.mark.parametrize("algo", ["dqn", "ppo", "sac"])


@ALL
def test_the_value_of_a_constant_reward_is_that_reward(algo):
    assert value(trained(algo, "Constant"), [0.0]) == pytest.approx([1.0], abs=0.05)


@ALL
def test_the_value_depends_on_the_observation(algo):
    assert value(trained(algo, "Obs"), [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.1)


@ALL
def test_a_reward_one_step_later_is_discounted_once(algo):
    assert value(trained(algo, "Discount"), [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.08)


@ALL
def test_the_right_action_is_found(algo):
    assert greedy_return(trained(algo, "Action")) >= 0.95


@ALL
def test_the_right_action_depends_on_the_observation(algo):
    assert greedy_return(trained(algo, "ObsAction")) >= 0.95


@ALL
def test_a_time_limit_does_not_lower_the_value(algo):
    """Endless reward 1, cut after 10 steps: V = 1 / (1 − γ) = 5; summing only to the
    limit would give 3.4 on average."""
    steps = {"dqn": 1_500, "ppo": 12_800, "sac": 1_500}[algo]
    found = value(trained(algo, "Endless", train={"max_steps": steps}), *np.eye(4).tolist())
    assert found == pytest.approx([5.0] * 4, rel=0.06)


@pytest.mark.parametrize("n_step", [3])
def test_several_steps_do_not_see_beyond_a_time_limit_either(n_step):
    trainer = trained("dqn", "Endless", train={"max_steps": 1_500}, algo={"n_step": n_step})
    assert value(trainer, *np.eye(4).tolist()) == pytest.approx([5.0] * 4, rel=0.06)


PRIORITISED = {**REPLAY, "priority": {"alpha": 0.6}}


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_prioritised_replay_learns_discounted_values_and_the_right_action(algo):
    more = {"store": PRIORITISED}
    assert value(trained(algo, "Discount", **more), [0.0], [1.0]) == pytest.approx([GAMMA, 1.0], abs=0.08)
    assert greedy_return(trained(algo, "ObsAction", **more)) >= 0.95


def test_prioritised_replay_does_not_lower_the_value_of_a_time_limit():
    trainer = trained("dqn", "Endless", train={"max_steps": 1_500}, store=PRIORITISED)
    assert value(trainer, *np.eye(4).tolist()) == pytest.approx([5.0] * 4, rel=0.06)


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_illegal_actions_are_never_taken_and_the_best_legal_one_is_found(algo):
    assert greedy_return(trained(algo, "Mask", train={"max_steps": 1_500 if algo == "dqn" else 5_120})) >= 0.95


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_nested_observations_are_seen_whole(algo):
    assert greedy_return(trained(algo, "Nested", train={"max_steps": 1_500 if algo == "dqn" else 8_000})) >= 0.9


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_two_choices_at_once_are_both_learnt(algo):
    assert (
        greedy_return(trained(algo, "MultiDiscrete", train={"max_steps": 10_240 if algo == "ppo" else 1_500})) >= 0.95
    )


def test_all_parts_of_a_dict_of_actions_are_learnt():
    assert greedy_return(trained("ppo", "Parts", train={"max_steps": 15_360})) >= 0.95


@pytest.mark.parametrize("probe", ["Action", "ObsAction"])
def test_unsquashed_gaussian_actions_are_learnt(probe):
    tree = {**SETTINGS["ppo"], **QUIET, "train": {"max_steps": 16_000}}
    tree["env"] = {"num": 8, "id": f"rookery/Probe{probe}Continuous-v0"}
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    assert greedy_return(trainer) >= 0.9


@pytest.mark.parametrize("algo", matrix_but(list(MEMORY), *(algo for algo in MEMORY if algo != "ppo-gtrxl")))
def test_a_bit_is_remembered(algo):
    assert greedy_return(trained(algo, "Memory")) >= 0.95


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_without_memory_the_bit_is_a_coin(algo):
    """Right in half of the episodes: a return of 0 ± 0.16 over 40 of them."""
    assert abs(greedy_return(trained(algo, "Memory"))) <= 0.65


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "steps"), matrix_but([("r2d2", 2_400), ("ppo-lstm", 16_000)], ("r2d2", 2_400)))
def test_a_time_limit_inside_a_sequence_does_not_lower_the_value(algo, steps):
    """V = 1 / (1 − γ) = 5 at every step of an episode of ten, though sequences contain its end: 20
    rows of PPO, padding of R2D2."""
    trainer = trained(algo, "Endless", train={"max_steps": steps})
    s, rescale = trainer.learner.eager, getattr(trainer.config.algo, "rescale", None)
    place = torch.eye(4)[torch.arange(10) % 4].unsqueeze(1)
    state = tree_map(lambda leaf: torch.zeros(1, *leaf.shape), trainer.algo.memory())
    none = torch.zeros(10, 1, dtype=torch.bool)
    with torch.no_grad():
        if algo == "r2d2":
            values = unscale(s.q.unroll(place, state, none, ~none)[0].amax(-1), rescale)
        else:
            values = s.ac.unroll(place, state, none, ~none)[1]
    assert values.flatten().tolist() == pytest.approx([5.0] * 10, rel=0.1)
