"""The numba engine: gymnasium's numbers to the bit, exact snapshots, and clear words for what it lacks."""

from __future__ import annotations

import logging
import math

import gymnasium
import numpy as np
import pytest

from rookery.core.errors import CheckpointError, ConfigError, Diverged, EnvError, UsageError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, FromVector, InProcess, make
from rookery.envs.engines import cartpole, pendulum
from rookery.envs.engines.native import Native
from selection import slow_but

NAMES = ("CartPole-v1", "Pendulum-v1")


def build(name="CartPole-v1", engine="native", count=8, seed=0, **more):
    return make(EnvConfig(id=name, engine=engine, **more), count=count, purpose="train", streams=Streams(seed))


def actions(name, steps, count, seed=5):
    """Random pushes for the cart, often repeated so that episodes differ in length; torques beyond the bounds."""
    rng = np.random.default_rng(seed)
    if name.startswith("CartPole"):
        return rng.integers(0, 2, (steps, count))
    return rng.normal(0, 1.5, (steps, count, 1)).astype(np.float32)


def seen(out):
    final = [(i, obs.tobytes()) for i, obs in out.final]
    arrays = [x.tobytes() for x in (out.obs, out.reward, out.terminated, out.truncated, out.valid)]
    return arrays, final, out.ended, out.cut, out.marked


@pytest.mark.parametrize("name", slow_but(NAMES, "CartPole-v1"))
def test_a_hundred_thousand_steps_equal_gymnasiums_to_the_bit(name):
    ours, theirs = build(name), build(name, "gymnasium")
    assert isinstance(ours, Native)
    assert isinstance(theirs, InProcess)
    assert ours.reset().tobytes() == theirs.reset().tobytes()
    ends = 0
    for action in actions(name, 12_500, 8):
        found, expected = ours.step(action), theirs.step(action)
        assert seen(found) == seen(expected)
        ends += len(found.ended)
    assert ends > 400


def test_a_good_policy_meets_the_time_limit_of_both_engines_in_the_same_step():
    ours, theirs = build(count=2), build(count=2, engine="gymnasium")
    ours.reset(), theirs.reset()
    truncated = 0
    for _ in range(1200):
        angle = ours.obs[:, 2] + 0.3 * ours.obs[:, 3] + 0.03 * ours.obs[:, 0] + 0.05 * ours.obs[:, 1]
        action = (angle > 0).astype(np.int64)
        found, expected = ours.step(action), theirs.step(action)
        assert seen(found) == seen(expected)
        truncated += int(found.truncated.sum())
    assert truncated == 4  # two envs, a limit of 500


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("CartPole-v0", {}),
        ("CartPole-v1", {"kwargs": {"sutton_barto_reward": True}, "max_episode_steps": 9}),
        ("Pendulum-v1", {"kwargs": {"g": 9.81}, "max_episode_steps": 31}),
    ],
)
def test_ids_keyword_arguments_and_limits_mean_what_they_mean_in_gymnasium(name, more):
    ours, theirs = build(name, count=3, **more), build(name, "gymnasium", count=3, **more)
    ours.reset(), theirs.reset()
    for action in actions(name, 300, 3):
        assert seen(ours.step(action)) == seen(theirs.step(action))


def test_a_fall_at_the_time_limit_is_both_terminated_and_truncated():
    length = next(end.length for _ in range(20) for end in _pushed_left(build(count=1)))
    at_limit = next(end for _ in range(1) for end in _pushed_left(build(count=1, max_episode_steps=length)))
    assert (at_limit.length, at_limit.terminated, at_limit.truncated) == (length, True, True)
    early = next(end for _ in range(1) for end in _pushed_left(build(count=1, max_episode_steps=length - 1)))
    assert (early.length, early.terminated, early.truncated) == (length - 1, False, True)


def _pushed_left(env):
    env.reset()
    while True:
        if ended := env.step(np.zeros(1, np.int64)).ended:
            return ended


def test_one_step_of_the_cart_by_hand():
    """θ = ω = 0 and F = 10: p = 10/1.1, α = −p / (0.5 (4/3 − 0.1/1.1)), a = p − 0.05 α / 1.1."""
    env = build(count=1)
    env.reset()
    env._physics[:] = [0.5, -1.0, 0.0, 0.0]
    out = env.step(np.array([1]))
    push = 10 / 1.1
    turn = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    expected = [0.5 - 0.02, -1.0 + 0.02 * (push - 0.05 * turn / 1.1), 0.0, 0.02 * turn]
    np.testing.assert_allclose(env._physics[0], expected, rtol=1e-14)
    np.testing.assert_allclose(out.obs[0], expected, rtol=1e-6)
    assert out.reward.tolist() == [1.0]


def test_one_step_of_the_pendulum_by_hand():
    """θ = π/2, ω = 1, u clipped to 2: r = −(π²/4 + 0.1 + 0.004), ω' = 1 + (15 + 6) 0.05, θ' = π/2 + ω' 0.05."""
    env = build("Pendulum-v1", count=1)
    env.reset()
    env._physics[:] = [math.pi / 2 + 2 * math.pi, 1.0]  # a turn more changes nothing
    out = env.step(np.array([[5.0]], np.float32))
    assert out.reward[0] == pytest.approx(-(math.pi**2 / 4 + 0.1 + 0.004), rel=1e-6)
    omega, theta = 1 + 21 * 0.05, math.pi / 2 + (1 + 21 * 0.05) * 0.05
    np.testing.assert_allclose(out.obs[0], [math.cos(theta), math.sin(theta), omega], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limits", [{"steps": 2}, {"steps": 0}, {"steps": 9}, {"episodes": 1}, {"episodes": 0}])
def test_limits_of_a_call_leave_the_same_holes_as_in_process(name, limits):
    ours = build(name, count=3, max_episode_steps=6)
    theirs = build(name, "gymnasium", count=3, max_episode_steps=6)
    ours.reset(), theirs.reset()
    for t, action in enumerate(actions(name, 60, 3)):
        given = limits if t % 3 == 2 else {}
        assert seen(ours.step(action, **given)) == seen(theirs.step(action, **given))


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_engine_goes_on_bit_for_bit_and_state_changes_nothing(name):
    env = build(name, count=3)
    table = actions(name, 700, 3)
    env.reset()
    for action in table[:333]:
        env.step(action)
    saved = env.state()
    again = build(name, count=3)
    again.restore(saved)
    assert again.exactness == "exact"
    assert not again.renewed.any()
    assert again.obs.tobytes() == env.obs.tobytes()
    for action in table[333:]:
        assert seen(again.step(action)) == seen(env.step(action))


def test_saved_states_are_copies_of_arrays_and_json_values():
    env = build(count=2)
    assert env.state() == {"exactness": "exact", "native": {}}
    env.reset()
    saved = env.state()["native"]
    before = saved["physics"].copy()
    env.step(np.array([0, 1]))
    assert np.array_equal(saved["physics"], before)
    assert saved["episode"] == [0, 0]
    assert saved["seed"] == [Streams(0).seed_of("train", 0, i, 0) for i in range(2)]
    fresh = build(count=2)
    fresh.restore({"exactness": "exact", "native": {}})
    with pytest.raises(UsageError, match="before reset"):
        fresh.step(np.array([0, 1]))


def test_a_checkpoint_of_another_engine_or_number_of_envs_is_refused():
    envs = {name: build(engine=name, count=2) for name in ("native", "gymnasium")}
    for env in envs.values():
        env.reset()
    with pytest.raises(CheckpointError, match=r"another engine.*env\.engine"):
        envs["native"].restore(envs["gymnasium"].state())
    with pytest.raises(CheckpointError, match=r"another engine.*env\.engine"):
        envs["gymnasium"].restore(envs["native"].state())
    with pytest.raises(CheckpointError, match=r"env\.num=2"):
        build(count=3).restore(envs["native"].state())


def test_other_dtypes_and_layouts_of_actions_are_taken_and_wrong_ones_named():
    env, twin = build(count=4), build(count=4)
    env.reset(), twin.reset()
    wide = np.zeros((4, 2), np.int64)
    wide[:, 0] = [0, 1, 1, 0]
    for action in (wide[:, 0], np.array([1, 0, 1, 0], np.int32), np.array([1, 0, 1, 0], np.uint8)):
        assert seen(env.step(action)) == seen(twin.step(np.array(action, np.int64)))
    assert len(cartpole.advance.signatures) == 1  # the kernel was not compiled anew
    with pytest.raises(UsageError, match=r"shape \(3,\).*expected shape \(4,\) and int64"):
        env.step(np.zeros(3, np.int64))
    with pytest.raises(UsageError, match="float32"):
        env.step(np.zeros(4, np.float32))
    with pytest.raises(EnvError, match=r"env 2 .*seed.*action 7 is not in Discrete\(2\)"):
        env.step(np.array([0, 1, 7, 0]))
    torque = build("Pendulum-v1", count=2)
    torque.reset()
    with pytest.raises(Diverged, match="the policy gave env 1"):
        torque.step(np.array([[0.0], [np.nan]], np.float32))
    assert np.isfinite(torque.step(np.array([[np.inf], [-np.inf]], np.float32)).reward).all()  # clipped, as in process


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"wrappers": ("reward_clip",)}, r"env\.wrappers"),
        ({"train_wrappers": ("reward_clip",)}, r"env\.wrappers"),
        ({"per_env": ({}, {"sutton_barto_reward": True})}, r"env\.per_env"),
        ({"on_bad": "drop"}, r"env\.on_bad=drop"),
        ({"api": "four"}, r"env\.api=four"),
        ({"kwargs": {"render_mode": "rgb_array"}}, "render_mode"),
    ],
)
def test_what_the_engine_lacks_is_an_error_that_names_the_key_and_the_way_out(more, named):
    with pytest.raises(ConfigError, match=rf"{named}.*env\.engine=gymnasium"):
        build(**more)
    assert isinstance(build(eval_wrappers=("reward_clip",)), Native)  # not of these envs
    with pytest.raises(ConfigError, match="lenght"):
        build(kwargs={"lenght": 3})
    with pytest.raises(UsageError, match=r"set_phase.*env\.engine=gymnasium"):
        build().call("set_phase", 2)


def test_an_id_without_a_numba_engine_takes_its_vector_entry_point_and_the_log_says_which(caplog):
    gymnasium.register(
        "Vectored-v0",
        entry_point="envs.sample_envs:Scripted",
        vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
        max_episode_steps=20,
    )
    try:
        with caplog.at_level(logging.INFO):
            env = build("Vectored-v0", count=2)
            build("CartPole-v1", count=2)
        assert isinstance(env, FromVector)
        first, second = caplog.messages
        assert "FromVector; not exact: " in first
        assert "Native; a resumed run is exact" in second
        with pytest.raises(UsageError, match=r"env\.engine=gymnasium"):
            env.call("set_phase", 2)
    finally:
        gymnasium.registry.pop("Vectored-v0")
    with pytest.raises(ConfigError, match=r"Acrobot-v1 has no vectorised engine.*env\.engine=gymnasium"):
        build("Acrobot-v1")


def test_an_id_whose_entry_adds_wrappers_has_no_numba_engine():
    spec = gymnasium.make("CartPole-v1").spec
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: r).spec
    assert wrapped.additional_wrappers
    assert not spec.additional_wrappers
    gymnasium.registry["Wrapped-v0"] = wrapped
    try:
        from rookery.envs.builders.engines import own_task

        assert own_task(EnvConfig(id="Wrapped-v0")) is None
        assert own_task(EnvConfig(id="CartPole-v1"))[0] is cartpole
        assert own_task(EnvConfig(id="Pendulum-v1"))[0] is pendulum
    finally:
        gymnasium.registry.pop("Wrapped-v0")
