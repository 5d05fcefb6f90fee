"""Agents that end and come back in the same episode, as workers below a boss do: each stint is an episode."""

import numpy as np
import pytest
from gymnasium import spaces

from rookery import Trainer, load_config
from rookery.envs.multi.engine import DictAgents


class Office:
    """The boss acts at 0, 3 and 6; after each time the worker acts twice and its stint ends: terminated, then cut off.

    Observations are the time; the worker earns the time at which it is paid, the boss what its worker earned.
    """

    possible_agents = ("boss", "worker")
    observation_spaces = dict.fromkeys(possible_agents, spaces.Box(0, 99, (1,), np.float32))
    action_spaces = dict.fromkeys(possible_agents, spaces.Discrete(2))

    def reset(self, *, seed=None):
        self.time = 0
        return {"boss": self.seen()}, {}

    def seen(self):
        return np.array([self.time], np.float32)

    def step(self, actions):
        assert set(actions) == {"worker" if self.time % 3 else "boss"}
        self.time += 1
        stint, ends, over = self.time // 3, self.time % 3 == 0, self.time == 9
        obs = {"worker": self.seen()} if self.time % 3 else {"worker": self.seen(), "boss": self.seen()}
        reward = {"worker": float(self.time)} if self.time % 3 != 1 else {}
        reward |= {"boss": float(2 * self.time - 1)} if ends else {}
        flags = [{"worker": ends and (stint % 2 == 1) == first, "__all__": over and first} for first in (True, False)]
        if over:
            flags[1]["worker"] = False
        return obs, reward, *flags, {}


def test_every_stint_is_a_row_of_starts_and_ends_by_hand():
    env = DictAgents([Office()], lambda i, e: e)
    env.reset()
    rows = []
    for _ in range(9):
        acting = [agent for agent in env.agents if env.acting[agent][0]]
        assert len(acting) == 1
        out = env.step({acting[0]: np.zeros(1, np.int64)})
        for agent, step in out.agents.items():
            if step.valid[0]:
                final = [float(obs[0]) for _, obs in step.final]
                ends = bool(step.terminated[0]), bool(step.truncated[0])
                rows.append((agent, float(step.reward[0]), *ends, final or [float(step.obs[0, 0])]))
    assert rows == [
        ("worker", 2.0, False, False, [2.0]),
        ("boss", 5.0, False, False, [3.0]),
        ("worker", 3.0, True, False, [3.0]),
        ("worker", 5.0, False, False, [5.0]),
        ("boss", 11.0, False, False, [6.0]),
        ("worker", 6.0, False, True, [6.0]),
        ("worker", 8.0, False, False, [8.0]),
        ("boss", 17.0, True, False, [9.0]),
        ("worker", 9.0, True, False, [9.0]),
    ]
    assert out.ended[0].info["returns"] == {"boss": 33.0, "worker": 33.0}
    assert out.ended[0].info["lengths"] == {"boss": 3, "worker": 6}


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_a_stint_begins_with_a_start_and_is_restored_in_the_middle(algo, tmp_path):
    tree = {
        "env": {"id": "envs.multi.test_coming_back:Office", "api": "dict", "num": 2},
        "algo": {"name": algo},
        "players": {"boss": {}, "worker": {}},
        "seats": {"boss": "boss", "worker": "worker"},
        "model": {"hidden": [4]},
        "train": {"max_steps": 600},
        "learning": {"mode": "eager"},
        "log": {"sinks": []},
    }
    with Trainer(load_config(tree=tree)) as trainer:
        collector = trainer.pool.collectors[0]
        collector.load({name: player.message(0) for name, player in trainer.players.items()})
        chunk = collector.collect(10)["worker"]
        rows = chunk.rows
        valid = rows["valid"][:, 0]
        firsts = rows["first"][valid, 0].tolist()
        assert rows["obs"][valid, 0, 0].tolist() == [1, 2, 4, 5, 7, 8]
        assert firsts == [True, False, True, False, True, False]
        state = collector.env.state()
        with Trainer(load_config(tree=tree)) as other:
            again = other.pool.collectors[0].env
            again.restore(state)
            assert again.exactness == "exact"
            assert {a: x.tolist() for a, x in again.acting.items()} == {
                a: x.tolist() for a, x in collector.env.acting.items()
            }
