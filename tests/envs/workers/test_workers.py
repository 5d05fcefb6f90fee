"""Envs in worker processes: the same data as in this process, and no fault of theirs stops the run."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import EnvError
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.faults import FaultConfig
from rookery.envs.multi.one_agent import AsVector, OneAgent
from rookery.envs.workers.parent import Workers

pytestmark = pytest.mark.slow


class Walk(gymnasium.Env):
    """A dict observation with bytes; ends after 3 to 6 steps, terminated or truncated by turns."""

    observation_space = spaces.Dict(
        {"at": spaces.Box(-9, 9, (2,), np.float32), "pixels": spaces.Box(0, 255, (4, 3, 1), np.uint8)}
    )
    action_space = spaces.Discrete(3)
    speed = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_, self.t = seed, 0
        self.at = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._obs(), {}

    def _obs(self):
        return {"at": self.at.copy(), "pixels": np.full((4, 3, 1), self.t + self.seed_ % 7, np.uint8)}

    def step(self, action):
        self.t += 1
        self.at = np.clip(self.at + self.speed * self.np_random.normal(size=2) * (action - 1), -9, 9).astype(np.float32)
        over = self.t >= 3 + self.seed_ % 4
        return (
            self._obs(),
            float(action),
            over and self.seed_ % 2 == 0,
            over and self.seed_ % 2 == 1,
            {"pid": os.getpid()},
        )

    def set_speed(self, speed):
        self.speed = speed
        return os.getpid()


class Faulty(Walk):
    """Does `what` once in its life at the step `when` of env 1 (a file tells that it happened)."""

    def __init__(self, what="", when=2, index=0, mark=""):
        self.what, self.when, self.index, self.mark = what, when, index, Path(mark)

    def step(self, action):
        if self.index == 1 and self.t == self.when and (self.what.endswith("always") or not self.mark.exists()):
            self.mark.touch()
            if self.what.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what.startswith("hang"):
                time.sleep(1000)
            raise ValueError("the gripper is stuck")
        return super().step(action)


def seed_of(i, episode):
    return 1000 * i + 17 * episode + 3


class Rotten(Walk):
    """Two episodes of three hold an infinite reward at their second step."""

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, np.inf if self.t == 2 and self.seed_ % 3 else reward, *rest


def group(lo, hi, make=Walk, on_bad="raise", **kwargs):
    told = [{**kwargs, "index": i} if make is Faulty else kwargs for i in range(lo, hi)]
    return InProcess([make(**each) for each in told], seed_of, name="walk", first=lo, on_bad=on_bad)


def workers(num=5, processes=2, make=Walk, start="fork", faults=None, kind=Workers, **kwargs):
    faults = faults or FaultConfig(backoff_seconds=0.0)
    made = partial(group, make=make, **kwargs)
    return AsVector(kind(made, OneAgent(group(0, 1)), num, processes=processes, start=start, faults=faults))


def rolled(env, rows, seed=0, reset=True):
    """Everything that a run of random actions gives."""
    rng, seen = np.random.Generator(np.random.PCG64(seed)), []
    if reset:
        env.reset()
    for _ in range(rows):
        step = env.step(rng.integers(0, 3, env.num))
        seen.append(
            [
                {key: value.tolist() for key, value in step.obs.items()},
                *(getattr(step, key).tolist() for key in ("reward", "terminated", "truncated", "valid")),
                [(i, {key: value.tolist() for key, value in obs.items()}) for i, obs in step.final],
                [(e.env, e.episode, e.seed, e.length, e.total, e.terminated, e.truncated) for e in step.ended],
                list(step.cut),
            ]
        )
    return seen


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_the_data_are_those_of_one_process_however_workers_are_started(start):
    env = workers(start=start)
    try:
        assert rolled(env, 40) == rolled(group(0, 5), 40)
        pids = set(env.call("set_speed", 1.0))
        assert pids == set(env.pids)
        assert len(pids) == 2
        assert os.getpid() not in pids
    finally:
        env.close()


@pytest.mark.parametrize(("steps", "episodes"), [(3, None), (None, 1), (4, 2), (0, None), (1, 1)])
def test_limits_are_those_of_one_process(steps, episodes):
    env, alone = workers(), group(0, 5)
    env.reset(), alone.reset()
    action = np.array([0, 1, 2, 0, 1])
    try:
        for _ in range(12):
            mine, theirs = env.step(action, steps, episodes), alone.step(action, steps, episodes)
            assert mine.valid.tolist() == theirs.valid.tolist()
            assert [e.env for e in mine.ended] == [e.env for e in theirs.ended]
            assert mine.obs["at"].tolist() == theirs.obs["at"].tolist()
            assert mine.reward.tolist() == theirs.reward.tolist()
    finally:
        env.close()


@pytest.mark.parametrize(("steps", "episodes"), [(None, None), (None, 1), (4, 1), (3, None)])
def test_dropped_episodes_and_what_is_stepped_behind_them_are_those_of_one_process(steps, episodes):
    env, alone = workers(make=Rotten, on_bad="drop"), group(0, 5, make=Rotten, on_bad="drop")
    env.reset(), alone.reset()
    both, dropped = [], 0
    try:
        for _ in range(40):
            both = [each.step(np.ones(5, int), steps, episodes) for each in (env, alone)]
            for key in ("valid", "reward", "terminated", "truncated"):
                assert getattr(both[0], key).tolist() == getattr(both[1], key).tolist()
            assert both[0].cut == both[1].cut
            assert [end.env for end in both[0].ended] == [end.env for end in both[1].ended]
            dropped += len(both[0].cut)
        assert dropped > 5
    finally:
        env.close()


def test_state_moves_between_workers_and_one_process():
    a, b, c = workers(processes=2), group(0, 5), workers(processes=3)
    try:
        rolled(a, 7)
        b.restore(a.state())
        c.restore(b.state())
        assert a.exactness == b.exactness == c.exactness == "exact"
        assert rolled(a, 9, 1, reset=False) == rolled(b, 9, 1, reset=False) == rolled(c, 9, 1, reset=False)
    finally:
        a.close(), c.close()


def test_settings_are_told_again_to_a_new_worker():
    env = workers(num=4)
    try:
        env.reset()
        env.call("set_speed", 0.0)
        os.kill(env.pids[0], signal.SIGKILL)
        env.step(np.full(4, 2))
        before = env.obs["at"].copy()
        step = env.step(np.full(4, 2))
        assert (step.obs["at"][step.valid] == before[step.valid]).all()
    finally:
        env.close()


def test_a_worker_that_is_killed_is_renewed_and_its_unfinished_episodes_are_dropped():
    env, alone = workers(num=4), group(0, 4)
    try:
        rolled(env, 2), rolled(alone, 2)
        pids = env.pids
        os.kill(pids[0], signal.SIGKILL)
        step = env.step(np.ones(4, int))
        theirs = alone.step(np.ones(4, int))
        assert step.valid.tolist() == [False, False, True, True]
        assert step.cut == [0, 1]
        assert step.reward.tolist() == [0.0, 0.0, *theirs.reward[2:].tolist()]
        assert env.pids[1] == pids[1]
        assert env.pids[0] != pids[0]
        assert "SIGKILL" in env.exactness
        assert "envs 0 to 1" in env.exactness
        fresh = group(0, 2)
        fresh.begin([1, 1])
        assert step.obs["at"][:2].tolist() == fresh.obs["at"].tolist()  # the next episodes, with their own seeds
        assert rolled(env, 20, reset=False)
    finally:
        env.close()


def test_a_worker_that_hangs_is_killed_at_its_deadline(tmp_path):
    faults = FaultConfig(step_seconds=0.2, reset_seconds=1.0, backoff_seconds=0)
    env = workers(num=4, make=Faulty, what="hang", mark=tmp_path / "mark", faults=faults)
    try:
        started = time.monotonic()
        seen = rolled(env, 10)
        assert 0.2 < time.monotonic() - started < 30
        assert (
            "env 1 of worker 0 (walk), episode 0, seed 1003, step 2: step has not returned for 0.2 s" in env.exactness
        )
        assert [row[7] for row in seen].count([0, 1]) == 1
    finally:
        env.close()


def test_an_error_of_an_env_has_the_traceback_of_its_process(tmp_path):
    env = workers(num=4, make=Faulty, what="raise", mark=tmp_path / "mark")
    try:
        with pytest.raises(
            EnvError, match=r"env 1 of worker 0 \(walk\), episode 0, seed 1003, step 2: step failed"
        ) as caught:
            rolled(env, 10)
        assert "the gripper is stuck" in str(caught.value)
        assert 'raise ValueError("the gripper is stuck")' in str(caught.value)
    finally:
        env.close()


def test_a_worker_that_always_dies_is_given_up_and_the_others_go_on(tmp_path, caplog):
    faults = FaultConfig(renewals=2, backoff_seconds=0)
    env = workers(num=4, make=Faulty, what="kill always", when=1, mark=tmp_path / "mark", faults=faults)
    try:
        seen = rolled(env, 30)
        assert [row[4][:2] for row in seen[-20:]] == [[False, False]] * 20
        assert all(row[4][2:] == [True, True] for row in seen)
        assert len(env.pids) == 1
        assert caplog.text.count("given up") == 1
        env.state()
    finally:
        env.close()


def test_no_env_left_ends_the_run_with_the_cause(tmp_path):
    faults = FaultConfig(renewals=1, backoff_seconds=0)
    env = workers(num=2, processes=1, make=Faulty, what="kill always", when=1, mark=tmp_path / "mark", faults=faults)
    try:
        with pytest.raises(
            EnvError, match=r"SIGKILL \(often: out of memory\), 2 times in a row .*No env is left"
        ) as caught:
            rolled(env, 30)
        assert caught.value.exit_code == 3
    finally:
        env.close()


def test_nothing_is_left_after_closing_nor_when_the_parent_is_killed(tmp_path):
    env = workers()
    pids, before = env.pids, None
    env.reset()
    env.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        before = workers()
        before.reset()
        os.write(writer, " ".join(map(str, before.pids)).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    orphans = [int(pid) for pid in os.read(reader, 100).split()]
    os.waitpid(child, 0)
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in orphans) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(orphans) == 2
    assert not any(_alive(pid) for pid in orphans)


def _alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
