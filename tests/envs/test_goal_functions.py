"""compute_reward and compute_terminated for many goals, whatever the env can do."""

from __future__ import annotations

import numpy as np
import pytest

from envs.robot_goals import Fetch, Maze, MixesRows, NeedsInfo, OneByOne
from rookery.core.errors import EnvError
from rookery.envs import check_env
from rookery.envs.goal_functions import ByRow, for_rows
from rookery.envs.tasks.goals import BitFlip

HERE, THERE = np.array([0.1, 0.2], np.float32), np.array([0.9, 0.2], np.float32)
ACHIEVED = np.array([[0, 0], [1, 1], [0, 0.3], [0, 9]], np.float32)
DESIRED = np.array([[0, 0], [0, 0], [0, 0], [0, 9.4]], np.float32)
INFOS = [{}] * 4


def asked(env, name, here=HERE, there=THERE):
    return for_rows(name, getattr(env, name), here, there)


def test_a_function_of_arrays_is_taken_as_it_is():
    env = BitFlip(2)
    assert asked(env, "compute_reward") == env.compute_reward
    assert asked(env, "compute_terminated") == env.compute_terminated


def test_a_constant_holds_for_every_row():
    ended = asked(Fetch(), "compute_terminated")(ACHIEVED, DESIRED, INFOS)
    assert ended.tolist() == [0, 0, 0, 0]


def test_a_function_of_one_pair_is_called_row_by_row():
    """The distances are 0, √2, 0.3 and 0.4: within 0.5 is the end."""
    ended = asked(Maze(), "compute_terminated")(ACHIEVED, DESIRED, INFOS)
    assert ended.tolist() == [1, 0, 1, 1]
    reward = asked(OneByOne(), "compute_reward")(ACHIEVED, DESIRED, INFOS)
    assert reward.tolist() == [0, -1, 0, 0]
    assert reward.dtype == np.float32


def test_rows_that_are_mixed_up_are_noticed():
    reward = asked(MixesRows(), "compute_reward")
    assert isinstance(reward, ByRow)
    assert reward(ACHIEVED, DESIRED, INFOS).tolist() == pytest.approx([0, -(2**0.5), -0.3, -0.4])


def test_a_function_of_arrays_alone_is_taken_too():
    class Columns(Fetch):
        def compute_reward(self, achieved, desired, info):
            return -np.linalg.norm(achieved - desired, axis=1)

    env = Columns()
    assert asked(env, "compute_reward") == env.compute_reward


@pytest.mark.parametrize("value", [np.nan, None, "far", np.zeros(2)])
def test_one_that_cannot_judge_is_refused_with_both_answers(value):
    class Wrong(Fetch):
        def compute_reward(self, achieved, desired, info):
            return value

    with pytest.raises(
        EnvError, match=r"compute_reward of the env must judge goals of shape \(2,\).*At once: .*; one: "
    ):
        asked(Wrong(), "compute_reward")


def test_one_that_needs_infos_is_told_that_there_are_none_and_where_it_asked_for_them():
    with pytest.raises(
        EnvError, match=r"without infos.*KeyError: 'touched' \(.*robot_goals.py:\d+ in compute_reward\)"
    ):
        asked(NeedsInfo(), "compute_reward")


def test_check_env_looks_at_them():
    report = check_env(BitFlip)
    assert (report.ok, report.warnings) == (True, [])
    assert report.facts["compute_reward"] == report.facts["compute_terminated"] == "many goals at once"
    report = check_env(OneByOne)
    assert report.ok
    assert report.facts["compute_reward"] == report.facts["compute_terminated"] == "one pair of goals at a time"
    report = check_env(NeedsInfo)
    assert report.ok  # without hindsight it can be learnt from
    assert any("hindsight cannot be used" in text and "KeyError: 'touched'" in text for text in report.warnings)


def test_check_env_tells_of_a_reward_that_is_not_the_one_of_the_step():
    class Other(Fetch):
        def compute_reward(self, achieved, desired, info):
            return super().compute_reward(achieved, desired, info) + 5.0

        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, -1.0, *rest

    assert any("compute_reward gave" in text and "step itself gave -1.0" in text for text in check_env(Other).warnings)

    class Without(Fetch):
        @property
        def compute_reward(self):
            raise AttributeError("compute_reward")

        def step(self, action):
            return self.look(), -1.0, False, True, {}

    assert any("has no compute_reward" in text for text in check_env(Without).warnings)
