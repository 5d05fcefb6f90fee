"""Several learners: per update the same as one learner on the whole batch; what cannot be is refused."""

import os
import signal
from functools import partial

import pytest
import torch
from algos.test_updates import BOX, OBS, SMALL, TWO, replay_batch, rollout
from learning.toys import Toy, distance, toy_batch
from torch import nn

from rookery.algos.dqn import DQN, DQNConfig
from rookery.algos.ppo import PPO, PPOConfig
from rookery.algos.r2d2 import R2D2, R2D2Config
from rookery.algos.sac import SAC, SACConfig
from rookery.core.errors import ConfigError, LearnerLost
from rookery.core.rng import Streams
from rookery.learning.leader import Leader
from rookery.learning.learner import Learner
from rookery.learning.member import Recipe
from rookery.nets import ModelConfig

MEMORY = ModelConfig(hidden=(16,), core={"kind": "lstm", "size": 8})


def leader(make, learners=2, axis=0, seconds=60.0, seed=0):
    made = Leader(make(), Streams(seed), Recipe(make, learners, axis, "cpu", seconds))
    made.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in made.algo.knobs().items()})
    return made


def twin_of(it):
    """One learner with the same numbers and the same random numbers to come."""
    one = Learner(it.algo, Streams(1))
    one.restore(it.state())
    one.generator.set_state(it.generator.get_state())
    one.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in it.algo.knobs().items()})
    return one


def sequences(seed, rows=6, columns=8):
    """Windows with padding: the parts of the batch have different numbers of valid rows."""
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    length = torch.randint(3, rows + 1, (columns,), generator=g)
    length[: columns // 2] = rows
    valid = torch.arange(rows)[:, None] < length
    done = (torch.arange(rows)[:, None] == length - 1) & (torch.rand(columns, generator=g) > 0.5)
    state = {"h": r(1, columns, 8), "c": r(1, columns, 8)}
    return {
        "obs": r(rows, columns, 3), "next_obs": r(rows, columns, 3), "reward": r(rows, columns), "state": state,
        "action": torch.randint(0, 2, (rows, columns), generator=g), "first": torch.zeros(rows, columns, dtype=torch.bool),
        "terminated": done, "done": done, "valid": valid, "weight": torch.rand(columns, generator=g),
    }  # fmt: skip


def rollouts(it, seed):
    """A minibatch of PPO, whose second half has more holes than the first."""
    rows = it.prepare(rollout(seed, TWO, rows=8, columns=8))
    rows["valid"][40:50] = 0.0
    return rows


CASES = {
    "dqn": (partial(DQN, DQNConfig(), OBS, TWO, SMALL), 0, lambda it, seed: replay_batch(seed, "discrete", 32)),
    "noisy": (partial(DQN, DQNConfig(noisy=True), OBS, TWO, SMALL), 0, lambda it, seed: replay_batch(seed, "discrete", 32)),
    "ppo": (partial(PPO, PPOConfig(value_clip=0.2), OBS, TWO, SMALL), 0, rollouts),
    "sac": (partial(SAC, SACConfig(), OBS, BOX, SMALL), 0, lambda it, seed: replay_batch(seed, "box", 32)),
    "r2d2": (
        partial(R2D2, R2D2Config(burn_in=2, sequence=4, n_step=3), OBS, TWO, MEMORY),
        1,
        lambda it, seed: sequences(seed),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_update_of_two_learners_is_that_of_one_on_the_whole_batch(case):
    make, axis, batch_of = CASES[case]
    it = leader(make, axis=axis)
    try:
        for seed in range(6):
            one, batch = twin_of(it), batch_of(it, seed)
            ours, theirs = it.step(batch)[0], one.step(batch)[0]
            for name in it.optimisers:
                print(case, seed, name, distance(it.nets[name].grad, one.nets[name].grad), distance(it.nets[name].value, one.nets[name].value))
            print(max(abs(a-b) for a,b in zip(ours.numbers, theirs.numbers)))
            for k in ours.arrays: print(k, ours.arrays[k].shape, distance(ours.arrays[k], theirs.arrays[k]))
        it.check(deep=True)
    finally:
        it.close()
