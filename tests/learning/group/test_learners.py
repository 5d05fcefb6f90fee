"""Several learners: per update the same as one learner on the whole batch; what cannot be is refused."""

import os
import signal
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from algos.team_batches import CHOICES, VECTORS, replay_rows, seen_by, team_rollout, team_sequences
from algos.test_updates import BOX, OBS, SMALL, TWO, replay_batch, rollout
from learning.toys import Toy, distance, toy_batch
from rookery.algos.atoc import ATOC, ATOCConfig
from rookery.algos.collaq import CollaQ, CollaQConfig
from rookery.algos.coma import COMA, COMAConfig
from rookery.algos.dqn import DQN, DQNConfig
from rookery.algos.maddpg import MADDPG, MADDPGConfig
from rookery.algos.ppo import PPO, PPOConfig
from rookery.algos.qmix import QMIX, QMIXConfig
from rookery.algos.r2d2 import R2D2, R2D2Config
from rookery.algos.sac import SAC, SACConfig
from rookery.core.counting import counting
from rookery.core.errors import ConfigError, EnvError, LearnerLost
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.equations.value import mean_valid
from rookery.learning.group.follower import GroupSpec
from rookery.learning.group.leader import Leader
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig
from selection import matrix_but, slow_but

MEMORY = ModelConfig(hidden=(16,), core={"kind": "lstm", "size": 8})
GRU = ModelConfig(hidden=(8,), core={"kind": "gru", "size": 6})
SHOWN = spec_of(spaces.Dict({"own": spaces.Box(-1, 1, (3,), np.float32), "world": spaces.Box(-1, 1, (5,), np.float32)}))


def leader(make, learners=2, axis=0, seconds=60.0, seed=0):
    made = Leader(make(), Streams(seed), GroupSpec(make, learners, axis, "cpu", seconds))
    made.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in made.algo.knobs().items()})
    return made


def twin_of(it):
    """One learner with the same numbers and the same random numbers to come."""
    one = Learner(it.algo, Streams(1))
    one.restore(it.state())
    one.generator.set_state(it.generator.get_state())
    one.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in it.algo.knobs().items()})
    return one


def sequences(seed):
    """Windows with padding: the parts of the batch have different numbers of valid rows."""
    g, rows, columns = torch.Generator().manual_seed(seed), 6, 8
    r = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    length = torch.tensor([6, 6, 6, 5, 3, 4, 3, 3])
    valid = torch.arange(rows)[:, None] < length
    done = (torch.arange(rows)[:, None] == length - 1) & (torch.rand(columns, generator=g) > 0.5)
    state = {"h": r(1, columns, 8), "c": r(1, columns, 8)}
    return {
        "obs": r(rows, columns, 3), "next_obs": r(rows, columns, 3), "reward": r(rows, columns), "state": state,
        "action": torch.randint(0, 2, (rows, columns), generator=g),
        "first": torch.zeros(rows, columns, dtype=torch.bool),
        "terminated": done, "done": done, "valid": valid, "weight": torch.rand(columns, generator=g),
    }  # fmt: skip


def rollouts(it, seed):
    """A minibatch of PPO, whose second half has more holes than the first."""
    rows = it.prepare(rollout(seed, TWO, rows=8, columns=8))
    rows["valid"][40:50] = 0.0
    return rows


def shown_rollouts(it, seed):
    """As `rollouts`, of an agent that is shown the world."""
    g, batch = torch.Generator().manual_seed(seed + 100), rollout(seed, TWO, rows=8, columns=8)
    for name in ("obs", "last_obs", "final_obs"):
        batch[name] = {"own": batch[name], "world": torch.randn(*batch[name].shape[:-1], 5, generator=g)}
    rows = it.prepare(batch)
    rows["valid"][40:50] = 0.0
    return rows


CASES = {
    "dqn": (partial(DQN, DQNConfig(), OBS, TWO, SMALL), 0, lambda it, seed: replay_batch(seed, "discrete", 32)),
    "noisy": (partial(DQN, DQNConfig(noisy=True), OBS, TWO, SMALL), 0,
        lambda it, seed: replay_batch(seed, "discrete", 32)),
    "ppo": (partial(PPO, PPOConfig(value_clip=0.2), OBS, TWO, SMALL), 0, rollouts),
    "sac": (partial(SAC, SACConfig(), OBS, BOX, SMALL), 0, lambda it, seed: replay_batch(seed, "box", 32)),
    "r2d2": (
        partial(R2D2, R2D2Config(burn_in=2, sequence=4, n_step=3), OBS, TWO, MEMORY),
        1,
        lambda it, seed: sequences(seed),
    ),
}  # fmt: skip


MASKED, OPEN = seen_by(mask=True), seen_by()
RECALLS = {"embed": 4, "hyper": 8, "sequence": 3, "overlap": 1, "burn_in": 2}


def recalled(it, seed):
    return team_sequences(seed, MASKED, CHOICES, it.algo.memory(), columns=8)


def joint_rollouts(it, seed):
    return it.prepare(team_rollout(seed, MASKED, CHOICES, columns=8))


TEAMS = {
    "qmix": (partial(QMIX, QMIXConfig(**RECALLS, weighting="central"), MASKED, CHOICES, GRU), 1, recalled),
    "collaq": (partial(CollaQ, CollaQConfig(**RECALLS, attention=4), MASKED, CHOICES, GRU), 1, recalled),
    "coma": (partial(COMA, COMAConfig(), MASKED, CHOICES, SMALL), 0, joint_rollouts),
    "maddpg": (partial(MADDPG, MADDPGConfig(), OPEN, VECTORS, SMALL), 0,
        lambda it, seed: replay_rows(seed, OPEN, VECTORS, rows=32)),
    "maddpg-choices": (partial(MADDPG, MADDPGConfig(), MASKED, CHOICES, SMALL), 0,
        lambda it, seed: replay_rows(seed, MASKED, CHOICES, rows=32)),
    "atoc": (partial(ATOC, ATOCConfig(channel=4), OPEN, VECTORS, SMALL), 0,
        lambda it, seed: replay_rows(seed, OPEN, VECTORS, rows=32)),
    "mappo": (partial(PPO, PPOConfig(critic="world", normalise_value=True), SHOWN, TWO, SMALL), 0, shown_rollouts),
}  # fmt: skip


@pytest.fixture
def made():
    """Builds leaders and ends their groups."""
    found = []

    def build(*args, **kwargs):
        found.append(leader(*args, **kwargs))
        return found[-1]

    yield build
    for it in found:
        it.close()


@pytest.mark.parametrize("case", slow_but(CASES, "dqn"))
def test_an_update_of_two_learners_is_that_of_one_on_the_whole_batch(case, made):
    make, axis, batch_of = (CASES | TEAMS)[case]
    it = made(make, axis=axis)
    for seed in range(4):
        one, batch = twin_of(it), batch_of(it, seed)
        ours, theirs = it.step(batch)[0], one.step(batch)[0]
        for name in it.optimisers:
            assert distance(it.nets[name].grad, one.nets[name].grad) < 1e-6
            assert distance(it.nets[name].value, one.nets[name].value) < 1e-6
        assert ours.names == theirs.names
        assert ours.numbers == pytest.approx(theirs.numbers, rel=1e-5, abs=1e-6)
        assert ours.arrays.keys() == theirs.arrays.keys()
        for key, array in theirs.arrays.items():
            assert distance(ours.arrays[key], array) < 1e-6
    it.check(deep=True)  # both have the same bits


@pytest.mark.slow
@pytest.mark.parametrize("case", matrix_but(TEAMS, "maddpg-choices"))
def test_an_update_of_two_learners_of_a_team_is_that_of_one_on_the_whole_batch(case, made):
    test_an_update_of_two_learners_is_that_of_one_on_the_whole_batch(case, made)


def test_a_mean_over_valid_rows_is_over_those_of_all_learners():
    valid, x = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([6.0, float("nan"), 9.0])
    with counting(lambda mask: torch.tensor(2.0)):  # 1 valid row here and 3 elsewhere: 2 per learner
        assert mean_valid(x, valid).item() == 3.0  # and 0 elsewhere: their mean is 6 / 4
    assert mean_valid(x, valid).item() == 6.0


@pytest.mark.slow
def test_three_learners_give_the_same_bits_each_time_and_weights_that_were_set_reach_them(made):
    found = []
    for _ in range(2):
        it = made(Toy, learners=3)
        it.step(toy_batch(0, rows=33))
        fresh = Learner(Toy(), Streams(7))
        it.set_weights(fresh.weights())
        for seed in (1, 2, 3):  # the third moves the target
            it.step(toy_batch(seed, rows=33))
        it.check(deep=True)
        found.append(it.weights_sha256())
    assert found[0] == found[1]
    assert len(set(it.pids)) == 2


class Contrast(Toy):
    """Every row is compared with the mean of all: no mean over rows."""

    def update(self, s, b):
        s.minimise("q", lambda q: (q(b.x) - q(b.x).mean(0)).pow(2).mean())


class Centred(nn.Module):
    """Statistics of the batch, under a name that says nothing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if self.training:
            self.mean.copy_(x.mean(0))
        return self.layer(x)


class Statistics(Toy):
    def networks(self):
        return super().networks() | {"q": Centred()}


class Normed(Toy):
    def networks(self):
        return super().networks() | {
            "q": nn.Sequential(nn.Linear(4, 2), nn.SyncBatchNorm(2, track_running_stats=False))
        }


@pytest.mark.slow
def test_what_cannot_be_shared_is_refused_in_a_sentence(made):
    with pytest.raises(ConfigError, match=r"learning\.learners=2: 1 of network 'q' is a SyncBatchNorm"):
        made(Normed)
    it = made(Contrast)
    with pytest.raises(ConfigError, match=r"update 'update' cannot be shared .* off that of the whole batch"):
        it.step(toy_batch())
    with pytest.raises(ConfigError, match="network 'q' takes statistics of the batch"):
        made(Statistics).step(toy_batch())
    with pytest.raises(ConfigError, match=r"a batch of 33 rows cannot be shared equally by learning\.learners=2"):
        made(Toy).step(toy_batch(rows=33))
    assert it.pids == []


def during_update(it, act):
    """Calls act in the middle of the leader's next update."""
    real = it.algo.update

    def update(s, b):
        if s._shares is it.group:
            act()
        return real(s, b)

    it.algo.update = update


def test_a_learner_that_is_killed_in_the_middle_of_an_update_is_told_at_once(made):
    it = made(Toy, learners=3)
    it.step(toy_batch(rows=33))
    victim = it.pids[0]
    during_update(it, lambda: os.kill(victim, signal.SIGKILL))
    with pytest.raises(LearnerLost, match=rf"learner 1 \(pid {victim}\) was ended by SIGKILL"):
        it.step(toy_batch(rows=33))
    assert it.pids == []
    del it.algo.update
    it.step(toy_batch(rows=33))  # another group, with the leader's numbers
    it.check(deep=True)
    assert victim not in it.pids


@pytest.mark.slow
def test_a_learner_that_hangs_is_given_up_after_the_deadline(made):
    it = made(Toy, seconds=2.0)
    it.step(toy_batch())
    os.kill(it.pids[0], signal.SIGSTOP)
    with pytest.raises(LearnerLost, match=r"waited 2 s \(learning\.deadline\)"):
        it.step(toy_batch())


class Broken(Toy):
    def update(self, s, b):
        if getattr(s._shares, "rank", 0):
            raise ValueError("only here")
        return super().update(s, b)


@pytest.mark.slow
def test_an_error_of_another_learner_is_told_with_its_traceback(made):
    with pytest.raises(EnvError, match="learner 1 failed: ValueError: only here\nTraceback"):
        made(Broken).step(toy_batch())
