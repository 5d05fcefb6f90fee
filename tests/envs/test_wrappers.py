"""Wrappers by name: what comes out, what the spaces say, what is refused, and that resuming stays exact."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.sample_envs import Scripted
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, check_env, make
from rookery.envs.tasks.goals import BitFlip


class Echo(gymnasium.Env):
    """Any spaces; the observation is sampled, the last action is kept, the reward counts the steps."""

    metadata = {"render_modes": []}

    def __init__(self, observation: spaces.Space, action: spaces.Space):
        self.observation_space, self.action_space = observation, action
        self.got = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.got, self.time = action, self.time + 1
        return self.observation_space.sample(), float(self.time), False, self.time >= 4, {}


BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


def built(factory, *wrappers, **config):
    env = make(EnvConfig(wrappers=wrappers, **config), count=1, purpose="train", streams=Streams(0), factory=factory)
    env.reset()
    return env


def called(name, **kwargs):
    return {"name": name, "kwargs": kwargs}


@pytest.mark.parametrize(("reward", "sign"), [(7.5, 1.0), (-0.25, -1.0), (0.0, 0.0)])
def test_rewards_are_clipped_to_their_sign(reward, sign):
    env = built(lambda: Scripted([[(reward, False, True)]]), called("reward_clip", sign=True))
    assert env.step(np.array([0])).reward[0] == sign


def test_rewards_in_hindsight_go_through_the_reward_wrappers():
    env = built(BitFlip, called("reward_scale", factor=3.0), called("reward_clip", low=-2.0, high=0.5))
    ones = np.ones((1, 8), np.float32)
    reward = env.method("compute_reward")
    assert reward(ones, 0 * ones, [{}]).tolist() == [-2.0]  # −1 · 3, clipped
    assert reward(ones, ones, [{}]).tolist() == [0.0]
    assert built(lambda: Echo(BOX, BOX), "reward_clip").method("compute_reward") is None


def test_actions_of_minus_one_to_one_reach_the_bounds_of_the_env():
    env = built(lambda: Echo(BOX, spaces.Box(np.float32([0, -4]), np.float32([10, 4]))), "action_rescale")
    assert (env.action_spec.low.tolist(), env.action_spec.high.tolist()) == ([-1, -1], [1, 1])
    env.step(np.array([[1.0, -1.0]], np.float32))
    assert env.call("got")[0].tolist() == [10.0, -4.0]
    env.step(np.array([[0.0, 0.5]], np.float32))
    assert env.call("got")[0].tolist() == [5.0, 2.0]


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (1,))])
def test_actions_without_bounds_cannot_be_rescaled(space):
    with pytest.raises(ConfigError, match="action_rescale maps"):
        built(lambda: Echo(BOX, space), "action_rescale")


def test_the_time_left_is_appended_to_a_vector_and_starts_again_after_a_reset():
    env = built(lambda: Echo(BOX, BOX), "time_awareness", max_episode_steps=4)
    assert env.obs_spec.shape == (3,)
    act, seen = np.zeros((1, 2), np.float32), [float(env.obs[0, 2])]
    for _ in range(3):
        seen.append(float(env.step(act).obs[0, 2]))
    last = env.step(act)
    assert seen == [1.0, 0.75, 0.5, 0.25]
    assert last.final[0][1][2] == 0.0
    assert last.obs[0, 2] == 1.0


def test_the_time_left_is_an_entry_of_a_dict():
    env = built(BitFlip, called("time_awareness", limit=8))
    assert set(env.obs_spec) == {"observation", "achieved_goal", "desired_goal", "time_left"}
    assert env.step(np.array([0])).obs["time_left"].tolist() == [[0.875]]


@pytest.mark.parametrize(
    ("factory", "config", "told"),
    [
        (lambda: Echo(BOX, BOX), {}, r"no time limit\. Set env\.max_episode_steps"),
        (lambda: Echo(spaces.Discrete(3), BOX), {"max_episode_steps": 3}, "a vector of floats or a Dict"),
        (
            lambda: Echo(spaces.Dict({"time_left": BOX}), BOX),
            {"max_episode_steps": 3},
            "already has an entry 'time_left'",
        ),
    ],
)
def test_time_awareness_says_what_it_lacks(factory, config, told):
    with pytest.raises(ConfigError, match=told):
        built(factory, "time_awareness", **config)


ACTIONS = {  # space → (an action as the algorithm gives it, what the observation tells of it)
    "discrete": (spaces.Discrete(3, start=5), np.array([1]), [0, 1, 0]),
    "multi_discrete": (spaces.MultiDiscrete([2, 3]), np.array([[1, 0]]), [0, 1, 1, 0, 0]),
    "multi_binary": (spaces.MultiBinary(3), np.array([[1, 0, 1]]), [1, 0, 1]),
    "box": (spaces.Box(-2.0, 2.0, (2,), np.float32), np.array([[0.5, -2.0]], np.float32), [0.5, -2.0]),
}


@pytest.mark.parametrize("kind", ACTIONS)
def test_the_previous_action_and_reward_are_seen_and_are_zero_after_a_reset(kind):
    space, action, told = ACTIONS[kind]
    env = built(lambda: Echo(BOX, space), "previous_step")
    assert set(env.obs_spec) == {"obs", "previous_action", "previous_reward"}
    assert not env.obs["previous_action"].any()
    assert not env.obs["previous_reward"].any()
    out = env.step(action)
    assert (out.obs["previous_action"][0].tolist(), out.obs["previous_reward"].tolist()) == (told, [[1.0]])
    env.step(action)
    env.step(action)
    out = env.step(action)  # the fourth step ends the episode
    final = out.final[0][1]
    assert (final["previous_action"].tolist(), final["previous_reward"].tolist()) == (told, [4.0])
    assert not out.obs["previous_action"].any()


@pytest.mark.parametrize(
    ("space", "keys"),
    [
        (BOX, {"obs"}),
        (spaces.Discrete(3), {"obs"}),
        (spaces.Tuple((BOX, spaces.Discrete(2))), {"obs"}),
        (spaces.Dict({"a": BOX, "action_mask": spaces.MultiBinary(2)}), {"a", "action_mask"}),
    ],
)
def test_every_kind_of_observation_can_carry_the_previous_step(space, keys):
    env = built(lambda: Echo(space, spaces.Discrete(2)), "previous_step")
    assert set(env.obs_spec) == keys | {"previous_action", "previous_reward"}
    env.step(np.array([1]))


def test_an_entry_of_that_name_is_not_overwritten():
    with pytest.raises(ConfigError, match="already has an entry 'previous_reward'"):
        built(lambda: Echo(spaces.Dict({"previous_reward": BOX}), BOX), "previous_step")


class Walker(gymnasium.Env):
    """A random walk that hands out its state."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space = spaces.Box(-99.0, 99.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = float(self.np_random.normal())
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x += float(self.np_random.normal()) + action
        return np.array([self.x], np.float32), self.x, False, False, {}


class Snapshot(Walker):
    def snapshot(self):
        return {"x": self.x, "rng": self.np_random.bit_generator.state}

    def restore_snapshot(self, state):
        self.x, self.np_random.bit_generator.state = state["x"], state["rng"]


@pytest.mark.parametrize("cls", [Walker, Snapshot])
def test_a_wrapped_env_is_resumed_exactly_by_replay_and_by_snapshot(cls):
    wrappers = ("reward_clip", "time_awareness", "previous_step")
    env, again = (built(cls, *wrappers, max_episode_steps=9) for _ in range(2))
    assert (env._layers is not None) == (cls is Snapshot)
    for t in range(5):
        env.step(np.array([t % 2]))
    again.restore(env.state())
    assert again.exactness == "exact"
    for t in range(12):
        a, b = env.step(np.array([t % 2])), again.step(np.array([t % 2]))
        assert all(np.array_equal(a.obs[key], b.obs[key]) for key in a.obs)
        assert a.reward[0] == b.reward[0]
        assert a.truncated[0] == b.truncated[0]


def test_the_checker_has_nothing_against_the_goal_envs():
    for env_id in ("rookery/BitFlip-v0", "rookery/Reach-v0"):
        report = check_env(env_id)
        assert report.ok, report.problems
        assert report.facts["resume"] == "exact"
