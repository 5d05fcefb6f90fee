"""`reward: own`: a team is told what each of its members was paid, where it is read, and who cannot learn from it."""

import numpy as np
import pytest
from gymnasium import spaces

from rookery import Trainer, load_config
from rookery.algos.coma import COMA
from rookery.algos.qmix import QMIX
from rookery.core.errors import ConfigError, EnvError
from rookery.envs.config import TeamConfig
from rookery.envs.multi.engine import DictAgents, ParallelAgents


class Wages:
    """a is paid the time, b ten times the time until it leaves after its second step; over after four."""

    possible_agents = ["a", "b"]
    metadata = {"name": "wages"}

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.time = ["a", "b"], 0
        return {agent: np.float32([0]) for agent in self.agents}, {}

    def step(self, actions):
        self.time += 1
        there = self.agents
        ends = {agent: self.time == (2 if agent == "b" else 4) for agent in there}
        self.agents = [agent for agent in there if not ends[agent]]
        reward = {agent: float(self.time * (10 if agent == "b" else 1)) for agent in there}
        obs = {agent: np.float32([self.time]) for agent in there}
        return obs, reward, ends, dict.fromkeys(there, False), {}

    def close(self):
        pass


OWN = {"both": TeamConfig(members=("a", "b"), reward="own")}


def test_what_each_member_was_paid_stands_in_the_successor_of_the_row():
    env = ParallelAgents([Wages()], lambda i, episode: episode, teams=OWN)
    env.reset()
    told, sums = [env.obs["both"]["rewards"][0].tolist()], []
    for _ in range(3):
        out = env.step({"both": np.array([[0, 0]])})
        told.append(env.obs["both"]["rewards"][0].tolist())
        sums.append(float(out.agents["both"].reward[0]))
    assert told == [[0.0, 0.0], [1.0, 10.0], [2.0, 20.0], [3.0, 0.0]]
    assert sums == [11.0, 22.0, 3.0]
    out = env.step({"both": np.array([[0, 0]])})
    ((_, final),) = out.agents["both"].final
    assert final["rewards"].tolist() == [4.0, 0.0]
    assert env.obs["both"]["rewards"][0].tolist() == [0.0, 0.0]  # of the next episode
    assert out.ended[0].info["members"] == {"a": 10.0, "b": 30.0}


class Shift(Wages):
    """Dict API: both see the start, then b waits."""

    def __init__(self):
        self.observation_spaces = {agent: self.observation_space(agent) for agent in "ab"}
        self.action_spaces = {agent: self.action_space(agent) for agent in "ab"}

    def step(self, actions):
        return {"a": np.float32([1])}, dict.fromkeys(actions, 1.0), {"__all__": False}, {"__all__": False}, {}


def test_members_that_wait_for_their_turn_cannot_be_paid_by_themselves():
    env = DictAgents([Shift()], lambda i, episode: episode, teams=OWN)
    env.reset()
    with pytest.raises(EnvError, match=r"member 'b' of 'both' waits while others act, .*reward=own.* Set reward=sum"):
        env.step({"both": np.array([[0, 0]])})


WORDS = ["env.api=parallel", "env.num=2", "env.teams={all: {members: '*', reward: own}}", "model.hidden=[8]"]
WORDS += ["store={min_fill: 40, batch_size: 16, capacity: 400}", "log.sinks=[]", "learning.mode=eager"]


@pytest.mark.parametrize(
    "words",
    [["algo.name=vdn"], ["algo.name=qmix"], ["algo.name=collaq"], ["algo.name=atoc"]]
    + [["algo.name=dqn", "env.teams={all: {members: '*', reward: own, body: one}}"]],
)
def test_who_learns_one_reward_of_the_team_refuses_own_ones(words):
    last = {word.partition("=")[0]: word for word in (*WORDS, *words)}
    with pytest.raises(ConfigError, match=r"reward=own, but algo\.name=\w+ learns from one reward of the whole team"):
        Trainer(load_config(env="rookery/Visitors-v0", overrides=list(last.values())))


@pytest.mark.parametrize(
    ("algo", "words", "told"),
    [
        (COMA, ["algo.rollout=8"], "algo.name=coma learns from rollouts, which hold one per step"),
        (QMIX, ["model.core={kind: gru, size: 8}"], "algo.name=qmix learns from sequences, which hold one per step"),
    ],
)
def test_rollouts_and_sequences_hold_one_reward_of_the_team(algo, words, told, monkeypatch):
    """An algorithm of one's own that says it can learn own rewards would otherwise get the team's without a word."""
    monkeypatch.setattr(algo, "own_rewards", True)
    kept = [word for word in WORDS if algo is QMIX or not word.startswith("store")]
    with pytest.raises(ConfigError, match=told):
        Trainer(load_config(env="rookery/Visitors-v0", overrides=[*kept, f"algo.name={algo.name}", *words]))


def test_a_batch_has_the_rewards_of_each_member():
    words = [*WORDS, "algo.name=maddpg", "train.max_steps=200", "eval.at_end=false", "eval.every_steps=0"]
    with Trainer(load_config(env="rookery/Visitors-v0", overrides=words)) as trainer:
        *_, _ = trainer
        batch, _ = trainer.players.main.store.sample()
    reward, present = batch["reward"].numpy(), batch["obs"]["present"].numpy()
    assert reward.shape == (16, 3)
    assert set(np.unique(reward)) == {0.0, 1.0}
    assert (reward[present == 0] == 0).all()  # nobody is paid who did not act
