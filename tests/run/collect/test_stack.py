"""env.stack: the same frames are seen when acting, when learning from a replay or a rollout, and when judged."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery import Batch, Experiment, Trainer, load_config, load_policy

STACK = 3


class Counter(gymnasium.Env):
    """The observation is 100 · episode-seed-number + step; it ends after 5 steps, by time or (odd seeds) for good."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 1e6, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.base, self.time = 100 * int(self.np_random.integers(1, 1000)), 0
        return self.look(), {}

    def step(self, action):
        self.time += 1
        over = self.time == 5
        return self.look(), 1.0, over and self.base % 200 == 0, over and self.base % 200 != 0, {}

    def look(self):
        return np.array([self.base + self.time], np.float32)


class Memory(gymnasium.Env):
    """A bit is shown in the first of two steps and must be told in the second: two frames are enough."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bit, self.time = int(self.np_random.integers(2)), 0
        return np.array([2.0 * self.bit - 1], np.float32), {}

    def step(self, action):
        self.time += 1
        if self.time == 1:
            return np.zeros(1, np.float32), 0.0, False, False, {}
        return np.zeros(1, np.float32), 1.0 if action == self.bit else -1.0, True, False, {}


def tree(kind, /, **more):
    sections = {
        "dqn": {"store": {"capacity": 60, "min_fill": 20, "batch_size": 16}, "algo": {"name": "dqn"}},
        "ppo": {"algo": {"name": "ppo", "rollout": 8, "epochs": 1, "minibatches": 1}},
    }[kind]
    base = {
        "env": {"num": 2, "stack": STACK},
        "model": {"hidden": [8]},
        "train": {"max_steps": 320},
        "eval": {"every_steps": 0, "at_end": False},
        "log": {"every_steps": 80},
        "learning": {"mode": "eager"},
    }
    found = base | sections
    for name, part in more.items():
        found[name] = {**found.get(name, {}), **part}
    return found


def expected(newest: float) -> list[float]:
    """The frames that end with `newest`, by the rule: the episode's first is repeated."""
    base, time = newest // 100 * 100, newest % 100
    return [base + max(0.0, time - back) for back in (2, 1, 0)]


def watched(trainer):
    """The trainer's actor, recording what it sees."""
    seen, actor = [], trainer.pool.collectors[0].actor
    real = actor.act

    def act(obs, *args, **kwargs):
        seen.append(obs.copy())
        return real(obs, *args, **kwargs)

    actor.act = act
    return seen


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_the_actor_sees_the_last_frames_of_its_own_episode(algo):
    trainer = Trainer(load_config(tree=tree(algo)), env=Counter)
    assert trainer.algo.obs_spec.shape == (STACK, 1)
    seen = watched(trainer)
    for _ in trainer:
        pass
    rows = np.concatenate(seen)[..., 0]
    assert len(rows) >= 320
    for row in rows.tolist():
        assert row == expected(row[-1])


def test_the_replay_learns_from_the_frames_that_were_acted_on_and_stores_each_once():
    trainer = Trainer(load_config(tree=tree("dqn")), env=Counter)
    for _ in trainer:
        pass
    ring = trainer.store.state()["ring"]["fields"]["obs"]
    assert ring.shape[2:] == (1,)
    assert len(ring) == 31  # 60 steps of two envs, and the slot of the pending observation
    for _ in range(50):
        batch, _ = trainer.store.sample()
        assert batch["obs"].shape == (16, STACK, 1)
        for now, later in zip(batch["obs"][..., 0].tolist(), batch["next_obs"][..., 0].tolist()):
            assert now == expected(now[-1])  # 160 rows per env are whole episodes of 5, and so are the last 30
            assert later == expected(now[-1] + 1)


def test_a_rollout_holds_stacked_rows_and_the_true_frames_of_every_end():
    trainer = Trainer(load_config(tree=tree("ppo")), env=Counter)
    collector = trainer.pool.collectors[0]
    ends = 0
    for _ in range(6):
        chunk = collector.collect(7)["main"]
        assert chunk.rows["obs"].shape == (7, 2, STACK, 1)
        for part in (chunk.rows["obs"].reshape(-1, STACK), chunk.last_obs[..., 0], chunk.final_obs[..., 0]):
            for row in part.tolist():
                assert row == expected(row[-1])
        for (t, b), final in zip(chunk.final_at, chunk.final_obs[..., 0].tolist()):
            assert final[-1] == chunk.rows["obs"][t, b, -1, 0] + 1
            ends += 1
    assert ends == 16  # 42 rows of 2 envs, an end every 5 steps


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["dqn", "ppo"])
@pytest.mark.parametrize("normalise", [False, True])
def test_a_resumed_run_is_exact(algo, normalise):
    config = load_config(tree=tree(algo, model={"normalise_obs": normalise}))
    straight, first, second = (Trainer(config, env=Counter) for _ in range(3))
    for _ in straight:
        pass
    for progress in first:
        if progress.steps == 160:
            break
    for _ in range(3 if algo == "dqn" else 0):  # into the middle of an episode
        first.round()
    second.restore(copy.deepcopy(first.state()))
    for _ in second:
        pass
    assert second.learner.weights_sha256() == straight.learner.weights_sha256()


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_two_frames_are_memory_enough_and_one_is_not(algo, tmp_path):
    more = {
        "dqn": {"algo": {"lr": 5e-3, "target_every": 10, "epsilon": 0.5}, "train": {"max_steps": 1000}},
        "ppo": {"algo": {"lr": 1e-2, "rollout": 16, "epochs": 4}, "env": {"num": 8}, "train": {"max_steps": 5120}},
    }[algo]
    store = {"store": {"capacity": 1000, "min_fill": 64, "batch_size": 64}} if algo == "dqn" else {}
    found = {}
    for stack in (1, 2):
        parts = {**more, **store, "env": {**more.get("env", {}), "stack": stack}, "model": {"hidden": [16]}}
        config = load_config(tree=tree(algo, **parts, eval={"at_end": True, "episodes": 40, "num": 4}))
        result = Experiment(config, env=Memory, out=tmp_path / str(stack)).train()
        found[stack] = result.evaluation.mean
    assert found[2] == 1.0
    assert found[1] < 0.7
    policy = load_policy(tmp_path / "2", "last", env=Memory)
    for bit in (0, 1):
        told = np.array([[2.0 * bit - 1]], np.float32)
        policy(Batch(obs=told, first=[True]))
        assert policy(Batch(obs=0 * told, first=[False])).action[0] == bit
        policy.reset()
        policy(Batch(obs=told))
        assert policy(Batch(obs=0 * told)).action[0] == bit
