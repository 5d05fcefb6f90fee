"""The same seeded actions give the same valid transitions in process and in all three autoreset modes of gymnasium."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.rollouts import Recorder
from envs.sample_envs import Faulty, Scripted
from rookery.core.errors import Diverged, EnvError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, FromVector, InProcess, make

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
STEPS = 60


class SeedOnce(gymnasium.Wrapper):
    """Takes only the first seed: autoreset engines cannot be given one per episode."""

    def __init__(self, env):
        super().__init__(env)
        self.seeded = False

    def reset(self, *, seed=None, options=None):
        result = self.env.reset(seed=None if self.seeded else seed, options=options)
        self.seeded = True
        return result


def seed_of(i, episode):
    return 11 + i


def task(name):
    return lambda: SeedOnce(gymnasium.make(name, max_episode_steps=15))


def vector(name, mode):
    if mode is None:
        return InProcess([task(name)() for _ in range(3)], seed_of)
    return FromVector(SyncVectorEnv([task(name)] * 3, autoreset_mode=mode), seed_of)


def play(env, table):
    """Every env gets its own n-th action in its own n-th valid step."""
    recorder, counts = Recorder(env), np.zeros(env.num, int)
    env.reset()
    while min(counts) < STEPS:
        actions = np.stack([table[i][counts[i] % len(table[i])] for i in range(env.num)])
        counts += recorder.step(actions).valid
    return recorder


def actions_for(name):
    rng = np.random.default_rng(5)
    if name == "CartPole-v1":
        return rng.integers(0, 2, (3, 200))
    return rng.normal(0, 2, (3, 200, 1)).astype(np.float32)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("mode", MODES)
def test_valid_transitions_and_episode_ends_equal_those_of_in_process_stepping(name, mode):
    table = actions_for(name)
    expected, found = play(vector(name, None), table), play(vector(name, mode), table)
    for i in range(3):
        assert found.rows[i][:STEPS] == expected.rows[i][:STEPS]
        ends = min(len(found.ends[i]), len(expected.ends[i]))
        assert ends >= 3  # 60 steps with a limit of 15
        numbers = [[(e[0], *e[2:]) for e in recorder.ends[i][:ends]] for recorder in (found, expected)]  # seeds differ
        assert numbers[0] == numbers[1]


def test_next_step_mode_has_one_hole_after_every_end_and_the_others_have_none():
    for mode, holes in zip(MODES, (1, 0, 0)):
        env = FromVector(SyncVectorEnv([lambda: Scripted([[(1.0, True, False)]])], autoreset_mode=mode), seed_of)
        env.reset()
        first = env.step(np.array([3]))
        assert (first.valid[0], first.terminated[0], first.final[0][1].tolist()) == (True, True, [0, 1, 3])
        second = env.step(np.array([4]))
        assert int((~second.valid).sum()) == holes
        if holes:
            assert (second.reward[0], second.ended, second.obs.tolist()) == (0.0, [], [[0, 0, 0]])


@pytest.mark.parametrize("mode", MODES)
def test_rows_beyond_a_limit_are_cut_holes_and_their_ends_are_not_reported(mode):
    script = [[(1.0, True, False)]]
    env = FromVector(SyncVectorEnv([lambda: Scripted(script)] * 3, autoreset_mode=mode), seed_of)
    env.reset()
    out = env.step(np.zeros(3, np.int64), steps=2)
    assert out.valid.tolist() == [True, True, False]
    assert [end.env for end in out.ended] == [0, 1]
    assert (out.cut, out.terminated.tolist(), out.reward.tolist()) == ([2], [True, True, False], [1, 1, 0])
    env.reset()
    assert [end.env for end in env.step(np.zeros(3, np.int64), episodes=1).ended] == [0]


def test_a_vector_env_of_the_users_own_says_why_it_is_not_exact():
    config = EnvConfig(engine="native")
    env = make(
        config, count=4, purpose="train", streams=Streams(0), factory=lambda num_envs: CartPoleVectorEnv(num_envs)
    )
    first = env.reset().copy()
    assert np.array_equal(first, env.reset())
    ends = [end for _ in range(100) for end in env.step(np.zeros(4, np.int64)).ended]
    assert ends
    assert all(
        8 <= end.length <= 11 and end.total == end.length and end.terminated for end in ends
    )  # always pushing left
    assert "begins new episodes" in env.exactness


def test_a_restored_engine_begins_episodes_that_were_not_played_before():
    def build():
        return FromVector(SyncVectorEnv([task("CartPole-v1")] * 2), lambda i, e: sum(map(ord, f"{i} {e}")))

    env = build()
    first = env.reset().copy()
    saved = env.state()
    again, twin = build(), build()
    again.restore(saved)
    twin.restore(saved)
    assert not np.array_equal(again.obs, first)
    assert np.array_equal(again.obs, twin.obs)
    assert again.state()["episode"].tolist() == [1, 1]


def test_the_reward_of_a_dead_step_counts_nowhere():
    class Generous(SyncVectorEnv):
        def step(self, actions):
            dead = self._autoreset_envs.copy()
            obs, reward, *rest = super().step(actions)
            return obs, np.where(dead, 9.0, reward), *rest

    env = FromVector(Generous([lambda: Scripted([[(1.0, False, False), (1.0, True, False)]])]), seed_of)
    env.reset()
    outs = [(env.step(np.array([0])).reward[0], [end.total for end in env._out.ended]) for _ in range(6)]
    assert outs == [(1.0, []), (1.0, [2.0]), (0.0, []), (1.0, []), (1.0, [2.0]), (0.0, [])]


def test_nan_that_the_policy_caused_is_not_blamed_on_the_engine():
    env = FromVector(SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", disable_env_checker=True)] * 2), seed_of)
    env.reset()
    with pytest.raises(Diverged, match="the policy gave env 1"):
        env.step(np.array([[0.0], [np.nan]], np.float32))


def test_a_missing_final_observation_and_nan_are_env_errors():
    class Forgetful(SyncVectorEnv):
        def step(self, actions):
            *result, infos = super().step(actions)
            return *result, {k: v for k, v in infos.items() if "final" not in k}

    env = FromVector(
        Forgetful([lambda: Scripted([[(1.0, True, False)]])], autoreset_mode=AutoresetMode.SAME_STEP), seed_of
    )
    env.reset()
    with pytest.raises(EnvError, match="final_obs"):
        env.step(np.array([0]))
    nan = lambda obs, reward: (obs * np.nan, reward)  # noqa: E731
    env = FromVector(SyncVectorEnv([lambda: Faulty(), lambda: Faulty(nan, after=1)]), seed_of)
    env.reset()
    env.step(np.zeros(2, np.int64))
    with pytest.raises(EnvError, match=r"env 1 .*the observation\[0\] is nan"):
        env.step(np.zeros(2, np.int64))
