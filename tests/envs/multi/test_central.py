"""What agents are told besides their own: who they are, and the world, for critics that see everything."""

import numpy as np
import pytest
from gymnasium import spaces

from envs.crowd import AGENTS, WIDTH, DictCrowd, ParallelCrowd
from rookery import Trainer, load_config
from rookery.core.errors import ConfigError
from rookery.envs.multi.engine import DictAgents, ParallelAgents, TurnAgents


def seed_of(i, episode):
    return 50 + episode


def joined(story, t):
    """Who is there, and what everybody saw last, by hand; who terminated is gone without a trace."""
    there, parts = [], []
    for agent in AGENTS:
        shown = [s for s in range(t + 1) if agent in story.acting[s] or agent in story.ends[s]]
        over = any(story.ends[s].get(agent) == "terminated" for s in range(t + 1))
        known = bool(shown) and not over
        seen = story.obs(agent, shown[-1]) if known else None
        seen = seen["observation"] if agent == "b" and known else seen
        there.append(float(known))
        parts += (seen if known else np.zeros(WIDTH[agent])).tolist()
    return np.float32([*there, *parts]).tolist()


@pytest.mark.parametrize(("engine", "crowd"), [(ParallelAgents, ParallelCrowd), (DictAgents, DictCrowd)])
@pytest.mark.parametrize("world", ["state", "joined"])
def test_the_world_and_who_one_is_by_hand(engine, crowd, world):
    env = engine([crowd()], seed_of, central=("a", "b"), world=world, ids=True)
    env.reset()
    assert set(env.obs_spec["a"]) == {"own", "who", "world"}
    assert set(env.obs_spec["b"]) == {"observation", "action_mask", "who", "world"}
    assert set(env.obs_spec["d"]) == {"own", "who"}
    rng, looked = np.random.default_rng(0), 0
    for _ in range(400):
        raw = env.envs[0]
        for k, agent in enumerate(AGENTS):
            if not env.acting[agent][0]:
                continue
            assert env.obs[agent]["who"][0].tolist() == np.eye(4)[k].tolist()
            if agent in ("a", "b"):
                wanted = raw.state().tolist() if world == "state" else joined(raw.story, raw.time)
                assert env.obs[agent]["world"][0].tolist() == wanted
                looked += 1
        legal = {a: np.array([0]) for a in env.agents if env.acting[a][0]}
        if "b" in legal:
            mask = env.obs["b"]["action_mask"][0]
            legal["b"] = np.array([int(rng.choice(np.flatnonzero(mask) if mask.any() else 2))])
        env.step(legal)
    assert looked > 150


class Clock:
    """AEC: a, b and c act in turn; each sees ten times its number and the time."""

    possible_agents = ["a", "b", "c"]
    metadata = {"name": "clock"}

    def observation_space(self, agent):
        return spaces.Box(0, 99, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.time, self.agent_selection = list(self.possible_agents), 0, "a"
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent):
        return np.float32([10 * (1 + self.agents.index(agent)) + self.time])

    def last(self):
        return self.observe(self.agent_selection), 0.0, False, False, {}

    def step(self, action):
        self.time += 1
        self.agent_selection = self.agents[self.time % 3]

    def close(self):
        pass


def test_who_waits_when_an_episode_is_cut_sees_the_world_of_that_moment():
    # cut after 5 steps: c acts next and sees 35; a and b wait, and see 15 and 25, in a world of these three
    env = TurnAgents([Clock()], seed_of, central=("a", "b", "c"), world="joined", max_episode_steps=5)
    env.reset()
    for _ in range(5):
        out = env.step({a: np.array([0]) for a in env.agents if env.acting[a][0]})
    finals = {agent: [obs for _, obs in step.final] for agent, step in out.agents.items()}
    for agent, own in (("a", 15.0), ("b", 25.0), ("c", 35.0)):
        (seen,) = finals[agent]
        assert seen["own"].tolist() == [own]
        assert seen["world"].tolist() == [1.0, 1.0, 1.0, 15.0, 25.0, 35.0]


def test_a_part_of_that_name_is_not_hidden():
    class Taken(ParallelCrowd):
        def __init__(self):
            super().__init__()
            self.observation_spaces["b"] = spaces.Dict({"world": spaces.Box(0, 1, (1,))})

    with pytest.raises(ConfigError, match="has an entry 'world' of its own"):
        ParallelAgents([Taken()], seed_of, central=("b",), world="state")


def test_only_agents_whose_critic_asks_are_shown_the_world():
    tree = {
        "env": {"id": "rookery/Verdicts-v0", "api": "turns", "num": 2},
        "players": {"central": {"algo": {"name": "ppo", "critic": "world"}}, "plain": {"algo": {"name": "dqn"}}},
        "seats": {"first": "central", "second": "plain"},
        "learning": {"mode": "eager"},
        "train": {"max_steps": 1000},
        "log": {"sinks": []},
    }
    with Trainer(load_config(tree=tree)) as trainer:
        assert set(trainer.parts.spaces.obs_spec["first"]) == {"own", "world"}
        assert not isinstance(trainer.parts.spaces.obs_spec["second"], dict)
        policy = trainer.policy("central")
        assert policy({"own": np.zeros(2, np.float32)}).action in (0, 1)  # it acts without the world


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["env.id=CartPole-v1"], r"algo\.critic=world needs an env with several agents"),
        (["env.id=rookery/Verdicts-v0", "env.api=turns", "env.world=none"], r"algo\.critic=world, but env\.world=none"),
        (["env.id=rookery/Verdicts-v0", "env.api=turns", "algo.shared=true"], r"so algo\.shared=true cannot be"),
    ],
)
def test_central_critics_that_cannot_be_are_refused(words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_config(algo="ppo", overrides=["algo.critic=world", *words])
