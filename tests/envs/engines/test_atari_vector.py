"""ale-py's vector engine behind our semantics: worked out by hand on a scripted engine, and side by
side with the chain on a game."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from envs.rollouts import Recorder
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make
from rookery.envs.engines.atari_vector import AtariVector
from rookery.envs.engines.gym_vector import FromVector

SIGN = {"name": "reward_clip", "kwargs": {"sign": True}}


class Script:
    """An engine of one env that plays back (reward, over, lives, frames of the game) and keeps what it was told."""

    num_envs = 1
    single_observation_space = spaces.Box(0, 255, (1, 2, 2), np.uint8)
    single_action_space, action_space = spaces.Discrete(3), spaces.MultiDiscrete([3])

    def __init__(self, *moments):
        self.moments, self.time, self.told = moments, -1, []

    def _seen(self, lives, frames):
        obs = np.full((1, 1, 2, 2), self.time + 1, np.uint8)
        return obs, {"lives": np.array([lives], np.int32), "episode_frame_number": np.array([frames], np.int32)}

    def reset(self, *, seed=None, options=None):
        if options:
            self.told.append("reset")
        return self._seen(3, 0)

    def step(self, action):
        self.told.append(int(action[0]))
        self.time += 1
        reward, over, lives, frames = self.moments[self.time]
        obs, info = self._seen(lives, frames)
        return obs, np.array([reward]), np.array([over]), np.array([False]), info

    def close(self):
        pass


def played(*moments, sign=True, lives_end=True, serve=1, max_frames=1000):
    """(engine, [(reward, terminated, truncated, valid) per row]) when action 2 is always chosen."""
    engine = Script(*moments)
    env = FromVector(AtariVector(engine, max_frames, sign, lives_end, serve), lambda i, episode: 0, name="script")
    env.reset()
    rows = []
    for _ in moments:
        out = env.step(np.array([2]))
        rows.append((float(out.reward[0]), bool(out.terminated[0]), bool(out.truncated[0]), bool(out.valid[0])))
    return engine, rows


def test_a_lost_life_ends_the_episode_and_fire_is_pressed_in_a_hole():
    engine, rows = played((4, False, 3, 4), (0, False, 2, 8), (0, False, 2, 12), (7, False, 2, 16))
    assert rows == [(1, False, False, True), (0, True, False, True), (0, False, False, False), (1, False, False, True)]
    assert engine.told == [2, 2, 1, 2]  # 1 is FIRE


def test_without_an_action_to_serve_with_the_hole_does_nothing():
    engine, _ = played((0, False, 2, 4), (0, False, 2, 8), (0, False, 2, 12), serve=None)
    assert engine.told == [2, 0, 2]


def test_whole_games_do_not_end_with_a_life():
    engine, rows = played((4, False, 3, 4), (0, False, 2, 8), (0, False, 2, 12), lives_end=False, sign=False)
    assert rows == [(4, False, False, True), (0, False, False, True), (0, False, False, True)]
    assert engine.told == [2, 2, 1]  # in evaluation FIRE replaces the action after a lost life


def test_the_engine_begins_a_new_game_by_itself():
    engine, rows = played((0, True, 0, 4), (0, False, 3, 1), (0, False, 3, 5))
    assert rows == [(0, True, False, True), (0, False, False, False), (0, False, False, True)]
    assert engine.told == [2, 2, 2]


def test_our_time_limit_truncates_and_the_game_is_begun_anew():
    engine, rows = played((0, False, 3, 7), (0, False, 3, 8), (0, False, 3, 12), (0, False, 3, 4), max_frames=8)
    assert [row[1:] for row in rows] == [
        (False, False, True),
        (False, True, True),
        (False, False, False),
        (False, False, True),
    ]
    assert engine.told == [2, 2, 2, "reset", 2]


def test_a_game_that_ends_while_fire_is_pressed_is_begun_anew_in_the_same_hole():
    engine, rows = played((0, False, 2, 4), (0, True, 2, 8), (0, False, 3, 4))
    assert rows == [(0, True, False, True), (0, False, False, False), (0, False, False, True)]
    assert engine.told == [2, 1, "reset", 2]


# --- a real game ---


def engine_of(name, purpose="train", wrappers=("atari",), count=2, **config):
    config = {"train_wrappers": ("life_loss", SIGN), **config}
    given = EnvConfig(id="ALE/Breakout-v5", engine=name, wrappers=wrappers, **config)
    return make(given, count=count, purpose=purpose, streams=Streams(0))


@pytest.fixture(scope="module")
def both():
    """What the engines give for the same actions in games that begin in the same way: no
    no-ops, no FIRE but the agent's."""
    pytest.importorskip("ale_py")
    wrappers = ({"name": "atari", "kwargs": {"noops": 0, "fire": False, "max_frames": 700}},)
    found = {}
    for name in ("gymnasium", "native"):
        recorder, rng = Recorder(engine_of(name, wrappers=wrappers, count=1)), np.random.default_rng(0)
        recorder.env.reset()
        for action in rng.choice(4, 700, p=[0.1, 0.4, 0.25, 0.25]):
            while not recorder.step(np.array([action])).valid[0]:  # a hole uses up no action
                pass
        found[name] = recorder.rows[0], [(episode, *rest) for episode, _, *rest in recorder.ends[0]]
    return found


@pytest.mark.slow
def test_both_engines_play_the_same_games(both):
    exact, native = both["gymnasium"][0], both["native"][0]
    assert len(exact) == len(native) == 700
    assert [row[1:5] for row in exact] == [row[1:5] for row in native]  # action, reward, terminated, truncated
    assert any(row.reward for row in exact)
    for part in ("obs", "successor"):
        # where a game is over in the middle of a step, the engine leaves an old frame in its
        # successor, which nobody looks at
        kept = [k for k, row in enumerate(exact) if part == "obs" or not row.terminated]
        one, two = (np.array([getattr(rows[k], part) for k in kept], np.int16) for rows in (exact, native))
        assert np.abs(one - two).max() <= 1  # OpenCV rounds in floating point


def test_both_engines_count_the_same_episodes(both):
    ends = both["gymnasium"][1]
    assert ends == both["native"][1]
    assert {end[-2:] for end in ends} == {(True, False), (False, True)}, "lives were lost and the time limit was met"
    assert len(ends) > 10


def test_a_native_run_says_why_it_is_not_exact():
    pytest.importorskip("ale_py")
    env = engine_of("native")
    assert "begins new episodes" in env.exactness
    env.reset()
    assert env.obs.shape == (2, 84, 84)
    assert env.obs.dtype == np.uint8


def test_auto_stays_with_the_exact_engine():
    pytest.importorskip("ale_py")
    assert engine_of("auto", count=1).exactness == "exact"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"wrappers": ()}, "atari always"),
        ({"train_wrappers": ("previous_step",)}, "previous_step"),
        ({"train_wrappers": ("reward_clip",)}, "sign=true"),
        ({"max_episode_steps": 10}, "env.max_episode_steps"),
        ({"kwargs": {"mode": 1}}, "env.kwargs.mode"),
        ({"on_bad": "drop"}, "env.on_bad=drop"),
        ({"wrappers": ({"name": "atari", "kwargs": {"skipp": 4}},)}, "skipp"),
    ],
)
def test_what_the_native_engine_cannot_do_is_refused(config, told):
    pytest.importorskip("ale_py")
    with pytest.raises(ConfigError, match=told):
        engine_of("native", **config)
