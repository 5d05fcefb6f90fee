"""Noise that drifts moves with the decisions of its seat, and not while others have their turn or an env waits."""

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from rookery.acting.actor import Actor, Message
from rookery.acting.noise import OrnsteinUhlenbeck
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.envs import EnvConfig, make, make_multi
from rookery.run.collect.collector import Collector
from rookery.run.collect.rows import Rows
from rookery.run.collect.seats import Seats

ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)
SEEN = spaces.Box(-1.0, 1.0, (1,), np.float32)
HALVES = [0.5**k for k in range(1, 7)]


class Dialogue:
    """a, b, b, a, b, b … act; it never ends."""

    possible_agents = ["a", "b"]
    observation_spaces = dict.fromkeys(possible_agents, SEEN)
    action_spaces = dict.fromkeys(possible_agents, ACTION)

    def reset(self, seed=None):
        self.time = 0
        return self.look(), {}

    def step(self, actions):
        self.time += 1
        return self.look(), dict.fromkeys(actions, 0.0), {"__all__": False}, {"__all__": False}, {}

    def look(self):
        return {"b" if self.time % 3 else "a": np.zeros(1, np.float32)}


class Alone(gymnasium.Env):
    """It never ends."""

    observation_space, action_space = SEEN, ACTION

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


def drifting():
    """μ = 0 and σ = 0: an action is the noise alone, which halves with each decision."""
    actor = Actor(lambda s, obs, state, first: ({"action": torch.zeros_like(obs)}, None), rule(), None)
    actor.load(Message(0, {"noise": 0.0}))
    return actor


def rule():
    return OrnsteinUhlenbeck(spec_of(ACTION), theta=0.5)


def decisions(chunk, column):
    return chunk.rows["action"][chunk.rows["valid"][:, column], column, 0].tolist()


def test_the_noise_of_a_seat_waits_while_others_have_their_turn():
    env = make_multi(EnvConfig(api="dict"), count=1, purpose="train", streams=Streams(0), factory=Dialogue)
    actor = drifting()
    seats = Seats({"a": {"one": 1.0}, "b": {"one": 1.0}}, 1, None)
    collector = Collector(env, {"one": Rows(actor, np.random.default_rng(0), env, seats.agents("one"))}, seats=seats)
    collector.collect(5)  # a b b a b; only a's second row is not complete
    actor.rule.x[:] = 1.0
    chunk = collector.collect(10)["one"]
    assert decisions(chunk, 0) == [0.0, *HALVES[:3]]  # b a b b a b b a b b: all three are complete
    assert decisions(chunk, 1) == HALVES  # and six of b's seven


def test_the_noise_of_an_env_that_was_not_stepped_waits():
    env = make(EnvConfig(), count=2, purpose="train", streams=Streams(0), factory=Alone)
    actor = drifting()
    collector = Collector(env, actor, np.random.default_rng(0))
    collector.collect(1)
    actor.rule.x[:] = 1.0
    assert [collector.collect(1, steps=n)["main"].rows["action"][0, 0, 0] for n in (1, 2, 1)] == HALVES[:3]
    last = collector.collect(1)["main"].rows["action"][0, :, 0].tolist()
    assert last == [HALVES[3], HALVES[1]]  # column 1 was stepped once


def test_seats_that_were_not_stepped_wait_too():
    env = make_multi(EnvConfig(api="dict"), count=2, purpose="train", streams=Streams(0), factory=Dialogue)
    actor = drifting()
    seats = Seats({"a": {"one": 1.0}, "b": {"one": 1.0}}, 2, None)
    collector = Collector(env, {"one": Rows(actor, np.random.default_rng(0), env, seats.agents("one"))}, seats=seats)
    collector.collect(3)  # everybody has acted, and it is a's turn again
    actor.rule.x[:] = 1.0
    collector.collect(1, steps=1)  # only in env 0
    assert actor.rule.x[:, 0].tolist() == [0.5, 1.0, 1.0, 1.0]
