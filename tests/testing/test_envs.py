"""Every engine keeps the contract of engines."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rookery.core.rng import Streams
from rookery.envs import DictAgents, EnvConfig, FromVector, InProcess, ParallelAgents, TurnAgents, make
from rookery.envs.engines.native import Native
from rookery.envs.tasks.games import Pairing, Shifts, Verdicts, Visitors
from rookery.envs.workers.asynchronous import AsyncWorkers
from rookery.envs.workers.parent import Workers
from rookery.testing.env import EnvContract
from rookery.testing.multi_env import MultiEnvContract


class Walk(gymnasium.Env):
    """Nested observations, choices from 2 on; ends after 3 to 6 steps, terminated or truncated by turns."""

    observation_space = spaces.Dict(
        {
            "at": spaces.Box(-9, 9, (2,), np.float64),
            "turn": spaces.Discrete(7, start=1),
            "bytes": spaces.Box(0, 255, (2, 2), np.uint8),
        }
    )
    action_space = spaces.Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.given, self.time, self.at = seed, 0, self.np_random.uniform(-1, 1, 2)
        return self.look(), {}

    def look(self):
        return {"at": self.at.copy(), "turn": 1 + self.time, "bytes": np.full((2, 2), self.time, np.uint8)}

    def step(self, action):
        assert action in (2, 3, 4)
        self.time += 1
        self.at = np.clip(self.at + self.np_random.normal(size=2) * (action - 3), -9, 9)
        over = self.time >= 3 + self.given % 4
        return (
            self.look(),
            0.1 * action,
            over and self.given % 2 == 0,
            over and self.given % 2 == 1,
            {"time": self.time},
        )


def seed_of(i, episode):
    return Streams(3).seed_of("train", 0, i, episode)


def built(**words):
    return make(EnvConfig(**words), count=3, purpose="train", streams=Streams(3))


class TestInProcess(EnvContract):
    steps = 60

    def make(self):
        return InProcess([Walk() for _ in range(3)], seed_of)

    def one(self, index):
        return Walk()


class TestInProcessWithSnapshots(EnvContract):
    steps = 120

    def make(self):
        env = built(id="rookery/BitFlip-v0", engine="gymnasium")
        assert isinstance(env, InProcess)
        return env


class TestCartPole(EnvContract):
    steps = 100

    def make(self):
        env = built(id="CartPole-v1", engine="native")
        assert isinstance(env, Native)
        return env

    def one(self, index):
        return gymnasium.make("CartPole-v1")


class TestPendulum(EnvContract):
    steps = 205  # episodes have 200

    def make(self):
        env = built(id="Pendulum-v1", engine="native")
        assert isinstance(env, Native)
        return env

    def one(self, index):
        return gymnasium.make("Pendulum-v1")


def of_gymnasium(mode):
    class Suite(EnvContract):
        steps = 60

        def make(self):
            # one seed per column only: its own engine does not reset with ours
            return FromVector(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=mode), seed_of)

    return Suite


class TestGymnasiumNextStep(of_gymnasium(AutoresetMode.NEXT_STEP)): ...


class TestGymnasiumSameStep(of_gymnasium(AutoresetMode.SAME_STEP)): ...


class TestGymnasiumDisabled(of_gymnasium(AutoresetMode.DISABLED)): ...


@pytest.mark.slow
class TestWorkers(EnvContract):
    steps = 120

    def make(self):
        env = built(id="CartPole-v1", engine="gymnasium", workers={"mode": "subprocess", "processes": 2})
        assert type(env.table) is Workers
        return env

    def one(self, index):
        return gymnasium.make("CartPole-v1")


@pytest.mark.slow
class TestAsyncWorkers(EnvContract):
    steps = 120
    repeats = False

    def make(self):
        env = built(id="CartPole-v1", engine="gymnasium", workers={"mode": "async", "processes": 2})
        assert isinstance(env.table, AsyncWorkers)
        return env

    def one(self, index):
        return gymnasium.make("CartPole-v1")


SHORT_GAMES = ({"name": "atari", "kwargs": {"max_frames": 100, "noops": 3}},)  # 25 steps


@pytest.mark.slow
class TestAtariFrames(EnvContract):
    steps = 60

    def make(self):
        pytest.importorskip("ale_py", reason="the Atari engine is an extra")
        return built(id="ALE/Pong-v5", wrappers=SHORT_GAMES, engine="gymnasium")


@pytest.mark.slow
class TestAtariVector(EnvContract):
    steps = 60

    def make(self):
        pytest.importorskip("ale_py", reason="the Atari engine is an extra")
        return built(id="ALE/Pong-v5", wrappers=SHORT_GAMES, engine="native")


class TestParallelAgents(MultiEnvContract):
    steps = 80

    def make(self):
        return ParallelAgents([Pairing() for _ in range(3)], seed_of)


class TestAgentsThatComeAndGo(MultiEnvContract):
    steps = 80

    def make(self):
        return ParallelAgents([Visitors() for _ in range(3)], seed_of)


class TestTurnAgents(MultiEnvContract):
    steps = 80

    def make(self):
        return TurnAgents([Verdicts(moves=5) for _ in range(3)], seed_of)


class TestDictAgents(MultiEnvContract):
    steps = 80

    def make(self):
        return DictAgents([Shifts() for _ in range(3)], seed_of)
