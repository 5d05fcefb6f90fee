"""The collector: chunks whose rows and successors equal a slow reference, exact counts."""

import itertools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.acting.actor import Actor, Message
from rookery.acting.rules import EpsilonGreedy
from rookery.core.errors import UsageError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make
from rookery.run.collect.collector import Collector


class Ramp(gymnasium.Env):
    """obs = [seed mod 100, step]; ends after 3 + seed mod 3 steps, terminated or truncated by turns."""

    observation_space = spaces.Box(-1e9, 1e9, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.id, self.t, self.length = seed % 100, 0, 3 + seed % 3
        return np.array([self.id, 0], np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t >= self.length
        return (
            np.array([self.id, self.t], np.float32),
            float(self.t),
            over and self.id % 2 == 0,
            over and self.id % 2 == 1,
            {},
        )


def collector(num=3, seed=0, factory=Ramp):
    env = make(EnvConfig(), count=num, purpose="train", streams=Streams(seed), factory=factory)
    rng = np.random.Generator(np.random.PCG64(seed))
    return Collector(env, actor(), rng)


def actor(favourite=1, epsilon=0.5):
    table = torch.zeros(2)
    table[favourite] = 1.0
    made = Actor(lambda s, obs, state, first: ({"q": table.expand(len(obs), 2)}, state), EpsilonGreedy(), None)
    made.load(Message(version=7, knobs={"epsilon": epsilon}))
    return made


def transitions(chunk):
    """column → list of (obs, action, reward, successor, terminated, truncated, first) of valid rows."""
    rows, finals = chunk.rows, {tuple(at): obs for at, obs in zip(chunk.final_at.tolist(), chunk.final_obs)}
    found = {}
    length, num = rows["reward"].shape
    for b in range(num):
        for t in range(length):
            if rows["valid"][t, b]:
                after = rows["obs"][t + 1, b] if t + 1 < length else chunk.last_obs[b]
                successor = finals.get((t, b), after)
                flags = bool(rows["terminated"][t, b]), bool(rows["truncated"][t, b]), bool(rows["first"][t, b])
                found.setdefault(b, []).append(
                    (rows["obs"][t, b].tolist(), float(rows["reward"][t, b]), successor.tolist(), *flags)
                )
    return found


def test_rows_and_successors_equal_a_slow_rollout():
    it = collector()
    chunk = it.collect(20)["main"]
    for b, rows in transitions(chunk).items():
        step = 0
        for episode in range(10):
            seed = Streams(0).seed_of("train", 0, b, episode)
            name, length = seed % 100, 3 + seed % 3
            for t in range(length):
                if step == 20:
                    break
                over = t + 1 == length
                expected = ([name, t], t + 1.0, [name, t + 1], over and name % 2 == 0, over and name % 2 == 1, t == 0)
                assert rows[step] == expected, (b, episode, t)
                step += 1
        assert step == 20
    assert chunk.version == 7
    assert next(end.length for end in chunk.episodes if end.env == 0) == 3 + Streams(0).seed_of("train", 0, 0, 0) % 3


def test_chunks_join_without_a_seam():
    whole = transitions(collector().collect(12)["main"])
    it = collector()
    parts = [transitions(it.collect(n)["main"]) for n in (5, 4, 3)]
    joined = {b: [row for part in parts for row in part[b]] for b in whole}
    assert joined == whole


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 23])
def test_steps_are_counted_exactly_even_when_the_envs_do_not_divide_them(steps):
    it = collector()
    chunk = it.collect(steps=steps)["main"]
    assert chunk.steps == steps
    again = it.collect(steps=3)["main"]
    assert again.steps == 3
    for rows in transitions(chunk).values():  # a hole was not stepped: its env goes on where it was
        assert all(b[0][1] == a[0][1] + 1 for a, b in itertools.pairwise(rows) if not b[5])


@pytest.mark.parametrize("episodes", [1, 2, 5])
def test_episodes_are_counted_exactly(episodes):
    chunk = collector(num=4, factory=lambda: Ramp()).collect(episodes=episodes)["main"]
    assert len(chunk.episodes) == episodes
    assert len(chunk.final_at) == episodes


def test_a_restored_collector_goes_on_bit_for_bit():
    a, b = collector(), collector()
    a.collect(7)
    b.restore(a.state())
    b.rows["main"].rng.bit_generator.state = a.rows["main"].rng.bit_generator.state
    assert transitions(a.collect(9)["main"]) == transitions(b.collect(9)["main"])


def test_collect_needs_to_know_how_much():
    with pytest.raises(UsageError, match="rows=, steps= or episodes="):
        collector().collect()


class Spoilt(Ramp):
    """The second episode of env 0 has a NaN at its second step."""

    def step(self, action):
        obs, *rest = super().step(action)
        if self.t == 2 and self.id == Streams(0).seed_of("train", 0, 0, 1) % 100:
            obs[0] = np.nan
        return obs, *rest


def test_a_dropped_episode_is_cut_where_it_was_still_good():
    env = make(EnvConfig(on_bad="drop"), count=1, purpose="train", streams=Streams(0), factory=Spoilt)
    it = Collector(env, actor(), np.random.Generator(np.random.PCG64(0)))
    chunk = it.collect(12)["main"]
    rows = transitions(chunk)[0]
    first, second = (Streams(0).seed_of("train", 0, 0, e) % 100 for e in (0, 1))
    kept = [row for row in rows if row[0][0] == second]
    assert first != second
    assert kept == [([second, 0], 1.0, [second, 1], False, True, True)]  # its one good step, cut like at a time limit
    holes = np.flatnonzero(~chunk.rows["valid"][:, 0])
    assert len(holes) == 1
    assert chunk.rows["first"][holes[0] + 1, 0]
    assert second not in [Streams(0).seed_of("train", 0, 0, end.episode) % 100 for end in chunk.episodes]
