"""F6 (message), F9, F10, F11, F12: what a broken env gives is caught where it leaves the env, and named."""

from __future__ import annotations

import logging

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.sample_envs import Faulty, Scripted
from rookery.core.errors import ConfigError, Diverged, EnvError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, InProcess, make

FLOATS = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 2, 1), np.uint8)
NESTED = spaces.Dict(
    {"a": FLOATS, "b": spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)))}
)


def seed_of(i, episode):
    return 100 * i + episode


def build(fault, after=3, space=None, num=2, **options):
    """Env 1 of two goes wrong after 3 good steps of each episode."""
    envs = [Faulty(space=space), *(Faulty(fault, after, space=space) for _ in range(num - 1))]
    env = InProcess(envs, seed_of, name="faulty", **options)
    env.reset()
    return env


def run_until_error(env, steps=30):
    for _ in range(steps):
        env.step(np.ones(env.num, np.int64))


def put(obs, index, value):
    obs[index] = value
    return obs


OBSERVATIONS = {
    "nan": (FLOATS, lambda o: put(o, 1, np.nan), r"the observation\[1\] is nan"),
    "inf": (FLOATS, lambda o: put(o, 2, -np.inf), r"the observation\[2\] is -inf"),
    "both infinities": (FLOATS, lambda o: np.array([0, np.inf, -np.inf], np.float32), r"the observation\[1\] is inf"),
    "half": (spaces.Box(-1, 1, (3,), np.float16), lambda o: put(o, 1, np.nan), r"the observation\[1\] is nan"),
    "scalar": (spaces.Box(-1, 1, (), np.float32), lambda o: np.float32(np.nan), "the observation is nan"),
    "shape": (FLOATS, lambda o: o[:2], r"has shape \(2,\), expected \(3,\)"),
    "extra axis": (FLOATS, lambda o: o[None], r"has shape \(1, 3\), expected \(3,\)"),
    "int for float": (FLOATS, lambda o: o.astype(np.int64), r"is int64 .*expected float32.*dtype=np\.float32"),
    "bool for float": (FLOATS, lambda o: o > 0, r"is bool .*expected float32"),
    "float for uint8": (IMAGE, lambda o: o / np.float32(255), r"is float32 .*expected uint8.*dtype=np\.uint8"),
    "int for uint8": (IMAGE, lambda o: o.astype(np.int64), r"is int64 .*expected uint8"),
    "none": (FLOATS, lambda o: None, r"has shape \(\)"),
    "text": (FLOATS, lambda o: ["a", "b", "c"], r"expected float32"),
    "ragged": (FLOATS, lambda o: [[1.0], [1.0, 2.0], 3.0], "not an array"),
    "out of range": (spaces.Discrete(4), lambda o: 4, r"is 4, outside its space 0 … 3"),
    "below start": (spaces.Discrete(4, start=2), lambda o: 1, r"is 1, outside its space 2 … 5"),
    "float for discrete": (spaces.Discrete(4), lambda o: 1.0, "expected an integer"),
    "multi-discrete": (spaces.MultiDiscrete([2, 3]), lambda o: np.array([1, 3]), r"is \[1, 3\], outside"),
    "negative": (spaces.MultiDiscrete([2, 3]), lambda o: np.array([-1, 0]), r"is \[-1, 0\], outside"),
    "multi-binary": (spaces.MultiBinary(3), lambda o: np.array([0, 2, 1], np.int8), r"is \[0, 2, 1\], outside"),
    "missing key": (NESTED, lambda o: {"a": o["a"]}, r"lacks the keys \['b'\]"),
    "extra key": (NESTED, lambda o: {**o, "c": 1}, r"has the extra keys \['c'\]"),
    "no dict": (NESTED, lambda o: o["a"], r"is a ndarray, expected a dict"),
    "short tuple": (NESTED, lambda o: {**o, "b": o["b"][:2]}, r"\['b'\] is a tuple of 2, expected a tuple of 3"),
    "nested nan": (NESTED, lambda o: {**o, "a": put(o["a"], 0, np.nan)}, r"\['a'\]\[0\] is nan"),
    "nested range": (NESTED, lambda o: {**o, "b": (3, *o["b"][1:])}, r"\['b'\]\[0\] is 3, outside"),
    "nested shape": (
        NESTED,
        lambda o: {**o, "b": (o["b"][0], np.zeros(3, np.int64), o["b"][2])},
        r"\['b'\]\[1\] has shape",
    ),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
@pytest.mark.parametrize("after", [0, 40])
def test_a_wrong_observation_is_named_with_its_env_episode_step_and_seed_also_from_step_k_on(name, after):
    space, fault, told = OBSERVATIONS[name]
    env = build(lambda obs, reward: (fault(obs), reward), after, space)
    for one in env.envs:
        one.length = 60
    with pytest.raises(EnvError, match=told) as caught:
        run_until_error(env, 60)
    message = str(caught.value)
    assert "env 1 of worker 0 (faulty), episode 0, seed 100" in message
    assert f"step {after}" in message or f"step {after + 1}" in message  # before or after it was counted
    assert "check-env faulty" in message


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (np.nan, "the reward is nan"),
        (np.inf, "the reward is inf"),
        (np.float32(np.nan), "the reward is nan"),
        (1e300, r"the reward is 1e\+300"),  # infinite as float32
        (None, "the reward is a NoneType"),
        ("1", "the reward is a str"),
        (np.zeros(2), r"the reward is a ndarray of shape \(2,\), expected one number"),
        ([1.0], "the reward is a list"),
    ],
)
def test_a_wrong_reward_is_named(reward, told):
    env = build(lambda obs, _: (obs, reward))
    with pytest.raises(EnvError, match=told):
        run_until_error(env)


@pytest.mark.parametrize(
    "reward", [2, np.int32(2), np.float64(2), np.array(2.0), np.array([2]), np.array([[2.0]]), True]
)
def test_numbers_and_arrays_with_one_element_are_rewards(reward):
    env = InProcess([Scripted([[(reward, True, False)]])], seed_of)
    env.reset()
    out = env.step(np.array([0]))
    assert out.reward.tolist() == [float(np.ravel(reward)[0])]
    assert out.ended[0].total == float(np.ravel(reward)[0])


def test_nan_in_the_final_observation_is_noticed_though_the_reset_observation_replaces_it():
    env = build(lambda obs, reward: (obs * np.nan, reward), after=9)
    with pytest.raises(EnvError, match=r"the observation\[0\] is nan"):
        run_until_error(env)


def test_nan_in_a_reset_observation_is_noticed():
    class Bad(Faulty):
        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return obs * np.nan, info

    with pytest.raises(EnvError, match=r"reset failed: the observation\[0\] is nan"):
        InProcess([Bad()], seed_of).reset()


def test_huge_but_finite_numbers_are_allowed():
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    env = build(lambda obs, reward: (np.full(3, 3e38, np.float32), 3e38), space=space)
    for _ in range(8):
        env.step(np.ones(2, np.int64))
    assert env.obs[1].tolist() == [float(np.float32(3e38))] * 3


def test_drop_makes_a_cut_hole_starts_the_next_episode_and_says_that_the_run_is_not_exact():
    nan = lambda obs, reward: (put(obs, 0, np.nan), reward)  # noqa: E731
    envs = [Faulty(length=6), Faulty(nan, after=2, length=6, bad_seeds={100, 102})]
    env = InProcess(envs, seed_of, name="faulty", on_bad="drop")
    env.reset()
    rows = []
    for _ in range(20):
        out = env.step(np.zeros(2, np.int64))
        rows.append((bool(out.valid[1]), list(out.cut), [(e.episode, e.length) for e in out.ended if e.env == 1]))
        assert np.isfinite(out.obs).all()
        assert out.valid[0]
    hole, good = (False, [1], []), (True, [], [])
    # episode 0 (seed 100): 2 good steps and a dropped one; episode 1: 6 steps; episode 2 (seed 102) is dropped again
    assert rows[:12] == [good, good, hole, *[good] * 5, (True, [], [(1, 6)]), good, good, hole]
    assert "is nan" in env.exactness
    assert "env 1 of worker 0 (faulty), episode 0, seed 100" in env.exactness


@pytest.mark.parametrize("where", ["reward", "last step"])
def test_drop_also_covers_rewards_and_last_steps(where):
    if where == "reward":
        fault, after = (lambda obs, reward: (obs, np.inf)), 2
    else:
        fault, after = (lambda obs, reward: (obs * np.nan, reward)), 5
    env = InProcess([Faulty(fault, after, length=6, bad_seeds={0})], seed_of, on_bad="drop")
    env.reset()
    outs = []
    for _ in range(after + 1):
        out = env.step(np.zeros(1, np.int64))
        outs.append((bool(out.valid[0]), bool(out.truncated[0]), float(out.reward[0]), len(out.final), len(out.ended)))
    assert outs[-1] == (False, False, 0.0, 0, 0)
    assert all(valid for valid, *_ in outs[:-1])
    assert env.state()["envs"]["0"]["episode"] == 1
    assert env.state()["envs"]["0"]["length"] == 0


def test_a_bad_reset_observation_is_dropped_without_taking_the_row_before_it():
    class Bad(Faulty):
        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return (obs * np.nan if seed == 1 else obs), info

    env = InProcess([Bad(length=1)], seed_of, on_bad="drop")
    env.reset()
    out = env.step(np.zeros(1, np.int64))
    assert (out.valid[0], out.truncated[0], out.cut) == (True, True, [])
    assert out.ended[0].episode == 0
    assert env.state()["envs"]["0"]["episode"] == 2
    assert np.isfinite(out.obs).all()


def test_an_env_that_is_always_bad_does_not_run_for_ever_with_nothing_learnt():
    env = build(lambda obs, reward: (obs * np.nan, reward), after=0, on_bad="drop")
    with pytest.raises(EnvError, match="100 episodes in a row had to be dropped"):
        run_until_error(env, 200)


def test_drops_with_good_episodes_between_them_are_endured():
    nan = lambda obs, reward: (obs * np.nan, reward)  # noqa: E731
    env = InProcess([Faulty(nan, length=1, bad_seeds=range(0, 1000, 2))], seed_of, on_bad="drop")
    env.reset()
    valid = [bool(env.step(np.zeros(1, np.int64)).valid[0]) for _ in range(300)]  # 150 drops, never two in a row
    assert valid == [False, True] * 150


def test_a_wrong_shape_is_never_dropped():
    env = build(lambda obs, reward: (obs[:1], reward), on_bad="drop")
    with pytest.raises(EnvError, match="has shape"):
        run_until_error(env)


def test_nan_that_the_policy_caused_is_not_blamed_on_the_env():
    class Echo(gymnasium.Env):
        observation_space = action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return action, 0.0, False, False, {}

    env = InProcess([Echo()], seed_of, on_bad="drop")
    env.reset()
    with pytest.raises(Diverged, match="the policy gave env 0 an action that is not finite"):
        env.step(np.array([[np.nan]], np.float32))


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_exception_names_env_episode_seed_and_last_action_and_keeps_its_traceback(where):
    class Breaks(Faulty):
        def reset(self, *, seed=None, options=None):
            if where == "reset" and seed == 101:
                raise ZeroDivisionError("in reset")
            return super().reset(seed=seed)

        def step(self, action):
            if where == "step" and self.given == 100 and self.time == 5:
                raise ZeroDivisionError("in step")
            return super().step(action)

    env = InProcess([Faulty(), Breaks()], seed_of, name="breaks", worker=3)
    env.reset()
    with pytest.raises(EnvError, match=f"{where} failed: ZeroDivisionError: in {where}") as caught:
        run_until_error(env)
    message = str(caught.value)
    assert "env 1 of worker 3 (breaks)" in message
    if where == "step":
        assert "episode 0, seed 100, step 5" in message
        assert "Last action: 1" in message
    else:
        assert "episode 1, seed 101" in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("method", "result", "told"),
    [
        ("reset", np.zeros(3, np.float32), r"returned a ndarray, expected \(obs, info\).*env\.api=four"),
        ("reset", (np.zeros(3, np.float32),), "returned a tuple of 1"),
        ("step", (np.zeros(3, np.float32), 0.0, False, {}), r"returned a tuple of 4, expected .*env\.api=four"),
        ("step", None, "returned a NoneType"),
    ],
)
def test_the_wrong_api_is_recognised(method, result, told):
    env = Faulty()
    setattr(env, method, lambda *args, **kwargs: result)
    vector = InProcess([env], seed_of)
    if method == "step":
        vector.reset()
    with pytest.raises(EnvError, match=told):
        vector.reset() if method == "reset" else vector.step(np.array([0]))


def test_leaving_the_bounds_of_a_box_is_a_warning_said_once(caplog):
    env = build(lambda obs, reward: (obs + 5, reward), after=1)
    with caplog.at_level(logging.WARNING):
        run_until_error(env)
    assert [record.message.count("widen the space") for record in caplog.records] == [1]
    assert "env 1" in caplog.text


def test_float64_where_float32_is_declared_is_cast():
    env = build(lambda obs, reward: (obs.astype(np.float64), reward))
    run_until_error(env)
    assert env.obs.dtype == np.float32


def test_a_space_that_is_not_supported_is_named():
    class Texts(Faulty):
        def __init__(self):
            super().__init__(space=spaces.Dict({"t": spaces.Text(5)}))

    with pytest.raises(ConfigError, match=r"\['t'\] is a Text"):
        make(EnvConfig(), count=1, purpose="train", streams=Streams(0), factory=Texts)
