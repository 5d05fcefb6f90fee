"""ENV-5: an env says `info["abnormal"]` of a step that is not to be believed. The step is a hole, the episode is cut
before it and never counted, the next one begins, and the others go on."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from faults.commands import Cli, quick, summary
from rookery import Trainer, load_config
from rookery.core.errors import EnvError
from rookery.envs import DictAgents, FromVector, InProcess


class Doubtful(gymnasium.Env):
    """Episodes of 3 steps with the rewards 1, 2, 3; the observation is [episode, step]. The second step of the episodes
    `bad` is abnormal: its observation and its reward are nonsense."""

    observation_space, action_space = spaces.Box(-1.0, 1e6, (2,), np.float32), spaces.Discrete(2)
    time_limit = 3

    def __init__(self, bad=(), nonsense=None):
        self.bad, self.nonsense, self.episode = tuple(bad), nonsense, -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.time = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        if self.time == 2 and (self.episode in self.bad or "all" in self.bad):
            return self.nonsense, np.nan, False, False, {"abnormal": True}
        return self._seen(), float(self.time), False, self.time == 3, {"abnormal": False, "time": self.time}

    def _seen(self):
        return np.array([self.episode, self.time], np.float32)


def seed_of(i, episode):
    return 10 * i + episode


def played(env, steps):
    """Per step of env 0: (row is valid, reward, cut, episodes that ended, what is acted on next)."""
    env.reset()
    told = []
    for _ in range(steps):
        out = env.step(np.zeros(env.num, np.int64))
        assert out.valid[1:].all() or env.num == 1 or isinstance(env, FromVector)
        ended = [(end.episode, end.length, end.total) for end in out.ended if end.env == 0]
        told.append((bool(out.valid[0]), float(out.reward[0]), list(out.cut), ended, out.obs[0].tolist()))
    return told


HOLE = (False, 0.0)


def test_the_step_is_a_hole_and_the_next_episode_begins_whatever_env_on_bad_says(caplog):
    env = InProcess([Doubtful({0}), Doubtful()], seed_of, name="doubtful")
    assert played(env, 5) == [
        (True, 1.0, [], [], [0, 1]),
        (*HOLE, [0], [], [1, 0]),
        (True, 1.0, [], [], [1, 1]),
        (True, 2.0, [], [], [1, 2]),
        (True, 3.0, [], [(1, 3, 6.0)], [2, 0]),
    ]
    assert (
        "its info says that the step is abnormal (env 0 of worker 0 (doubtful), episode 0, seed 0, step 2)"
        in env.exactness
    )
    assert "the episode was dropped" in caplog.text


def test_an_env_that_is_always_abnormal_is_given_up():
    with pytest.raises(EnvError, match="abnormal; 100 episodes in a row had to be dropped"):
        played(InProcess([Doubtful(["all"])], seed_of), 300)


SECOND = [(True, 1.0, [], [], [1, 1]), (True, 2.0, [], [], [1, 2])]
VECTOR = {  # an engine goes on with the episode by itself: what is left of it is dropped, too
    AutoresetMode.NEXT_STEP: [(*HOLE, [0], [], [0, 0]), (*HOLE, [], [], [0, 0]), (*HOLE, [], [], [1, 0]), *SECOND],
    AutoresetMode.SAME_STEP: [(*HOLE, [0], [], [0, 0]), (*HOLE, [], [], [1, 0]), *SECOND],
    AutoresetMode.DISABLED: [(*HOLE, [0], [], [1, 0]), *SECOND],
}


@pytest.mark.parametrize("mode", VECTOR)
def test_vector_engines_drop_what_is_left_of_the_episode(mode):
    nonsense = np.full(2, np.nan, np.float32)
    envs = SyncVectorEnv([lambda: Doubtful({0}, nonsense), Doubtful], autoreset_mode=mode)
    told = played(FromVector(envs, seed_of, name="doubtful"), 1 + len(VECTOR[mode]) + 1)
    assert told[:-1] == [(True, 1.0, [], [], [0, 1]), *VECTOR[mode]]
    last = [(1, 3, 6.0)]
    assert told[-1][:4] == (True, 3.0, [], last)


class Two:
    """The same for two agents; one of them says it."""

    possible_agents = ("a", "b")
    observation_spaces = dict.fromkeys(possible_agents, Doubtful.observation_space)
    action_spaces = dict.fromkeys(possible_agents, Doubtful.action_space)

    def __init__(self, bad):
        self.one = Doubtful(bad, np.full(2, np.nan, np.float32))

    def reset(self, *, seed=None):
        return dict.fromkeys("ab", self.one.reset()[0]), {}

    def step(self, actions):
        obs, reward, _, truncated, info = self.one.step(0)
        no = {"__all__": False}
        return dict.fromkeys("ab", obs), dict.fromkeys("ab", reward), no, {"__all__": truncated}, {"b": info}


def test_with_several_agents_the_episode_of_all_is_dropped():
    env = DictAgents([Two({0})], seed_of, name="two")
    env.reset()
    rows = []
    for _ in range(5):
        out = env.step(dict.fromkeys("ab", np.array([0])))
        flags = [(bool(step.valid[0]), list(step.cut), float(step.reward[0])) for step in out.agents.values()]
        assert flags[0] == flags[1]
        rows.append((*flags[0], [(end.episode, end.total) for end in out.ended]))
    good = [(True, [], reward, []) for reward in (1.0, 2.0)]
    assert rows == [good[0], (False, [0], 0.0, []), *good, (True, [], 3.0, [(1, 12.0)])]
    assert "abnormal" in env.exactness


MODES = {
    "inline": [],
    "subprocess": ["env.workers=subprocess", "env.workers.processes=2", "env.workers.start=fork"],
}


@pytest.mark.parametrize("mode", ["inline", pytest.param("subprocess", marks=pytest.mark.slow)])
def test_the_rows_before_are_cut_as_at_a_time_limit_and_nothing_is_linked_across_the_hole(mode):
    words = ["env.num=2", "env.per_env=[{bad: [0]}, {}]", "model.hidden=[4]", "learning.mode=eager", *MODES[mode]]
    with Trainer(load_config(algo="dqn", env="faults.test_abnormal:Doubtful", overrides=words)) as trainer:
        collector = trainer.pool.collectors[0]
        collector.load({"main": trainer.players.main.message(0)})
        chunk = collector.collect(6)["main"]
        column = {name: chunk.rows[name][:, 0].astype(int).tolist() for name in ("valid", "truncated", "first")}
        assert column == {"valid": [1, 0, 1, 1, 1, 1], "truncated": [1, 0, 0, 0, 1, 0], "first": [1, 0, 1, 0, 0, 1]}
        finals = {tuple(at): obs.tolist() for at, obs in zip(chunk.final_at.tolist(), chunk.final_obs)}
        assert finals == {(0, 0): [0, 1], (2, 1): [0, 3], (4, 0): [1, 3], (5, 1): [1, 3]}
        assert [(end.env, end.episode, end.total) for end in chunk.episodes] == [(1, 0, 6), (0, 1, 6), (1, 1, 6)]
        assert "abnormal" in trainer.exact()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["local", "process"])
def test_whole_runs_count_neither_the_step_nor_the_episode(pool, cli: Cli, tmp_path):
    changes = [f"pool.kind={pool}", "env.num=1", "env.kwargs={bad: [0, 2]}", "train.max_steps=40"]
    ended = cli("train", *quick("dqn", *changes), "--env", "faults.test_abnormal:Doubtful", "--out", "here")
    assert ended.code == 0
    told = summary(tmp_path / "here")
    # 1 step of episode 0, 3 of episode 1, 1 of episode 2, then 35 steps: 11 whole episodes and 2 steps
    assert (told["steps"], told["episodes"]) == (40, 12)
    assert "abnormal" in told["exact"]
