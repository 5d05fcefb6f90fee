"""check_env finds what is wrong and says what to change."""

from __future__ import annotations

import json
import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.sample_envs import CountingEnv, Faulty, OldStyle, Scripted, WithSnapshot
from rookery.envs import check_env


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "rookery/ProbeNested-v0", "rookery/ProbeMask-v0"])
def test_good_envs_are_ok_without_warnings_and_resume_exactly(env_id):
    report = check_env(env_id)
    assert (report.ok, report.problems, report.warnings) == (True, [], [])
    assert report.facts["resume"] == "exact"
    assert report.facts["steps_per_second"] > 0
    assert report.facts["api"] == "gymnasium"
    json.dumps(report.to_dict())


def test_facts_say_the_time_limit_and_the_episode_lengths():
    report = check_env("Pendulum-v1", episodes=2)
    assert report.facts["time_limit"] == 200
    assert report.facts["episode_lengths"] == [200, 200]


def broken(fault):
    return lambda: Faulty(fault, after=2)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("CartPol-v1", "Did you mean 'CartPole-v1'"),
        (broken(lambda o, r: (o * np.nan, r)), r"in step, the observation\[0\] is nan"),
        (broken(lambda o, r: (o[:1], r)), r"has shape \(1,\), expected \(3,\)"),
        (broken(lambda o, r: (o.astype(int), r)), "is int64"),
        (broken(lambda o, r: (o, np.nan)), "the reward is nan"),
        (broken(lambda o, r: (o, "x")), "the reward is a str"),
        (broken(lambda o, r: 1 / 0), r"step\(.*\) raised ZeroDivisionError"),
        (lambda: Faulty(space=spaces.Text(3)), "is a Text, which is not supported"),
        (lambda: object(), "is not an env"),
    ],
)
def test_problems_are_told(target, told):
    report = check_env(target)
    assert not report.ok
    assert any(gymnasium_match(told, text) for text in report.problems), report.problems


def gymnasium_match(pattern, text):
    import re

    return re.search(pattern, text) is not None


def test_wrong_flags_and_info_are_problems():
    class Loose(Faulty):
        def step(self, action):
            obs, reward, *_ = super().step(action)
            return obs, reward, 0, None, None

    text = " ".join(check_env(Loose, max_steps=5).problems)
    assert "terminated is a int: return bool(terminated)" in text
    assert "truncated is a NoneType" in text
    assert "info is a NoneType: return a dict" in text


def test_four_values_without_the_adapter_are_a_problem_and_old_envs_are_adapted():
    class Half(Faulty):
        def step(self, action):
            obs, reward, _, truncated, info = super().step(action)
            return obs, reward, truncated, info

    assert "env.api=four" in check_env(Half).problems[0]
    report = check_env(OldStyle)
    assert report.ok
    assert report.facts["api"] == "four values (adapted)"


def test_no_end_and_no_time_limit_is_a_warning():
    report = check_env(lambda: Scripted([[(0.0, False, False)] * 500]), episodes=2, max_steps=100)
    assert any("set env.max_episode_steps" in text for text in report.warnings)


def test_a_time_limit_reported_as_death_is_a_warning():
    report = check_env(lambda: Scripted([[(0.0, False, False)] * 29 + [(0.0, True, False)]]))
    assert any("truncated=True" in text and "exactly 30 steps" in text for text in report.warnings)


def test_an_env_that_ignores_its_seed_will_not_resume_exactly():
    class Careless(Faulty):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=None)

    report = check_env(Careless)
    assert report.facts["deterministic"] is False
    assert report.facts["resume"] == "approximate"
    assert any("super().reset(seed=seed)" in text for text in report.warnings)


def test_state_carried_from_one_instance_to_the_next_is_found():
    class Carries(Faulty):
        made = 0

        def __init__(self):
            super().__init__()
            Carries.made += 1
            self.number = Carries.made

        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, float(self.number), *rest

    assert any("newly made env" in text for text in check_env(Carries).warnings)


def test_a_snapshot_makes_resume_exact(tmp_path):
    report = check_env(lambda: WithSnapshot(str(tmp_path / "log")))
    assert report.facts["resume"] == "exact"


def test_global_generators_are_a_problem_and_are_not_changed_by_us():
    class Global(Faulty):
        def step(self, action):
            random.random()
            return super().step(action)

    assert any("global random generator" in text for text in check_env(Global).problems)
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert check_env("CartPole-v1").ok
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_a_reused_array_is_pointed_out():
    report = check_env(lambda: Scripted([[(0.0, False, False)] * 3 + [(0.0, True, False)]], reuse=True))
    assert any("same observation array" in text for text in report.warnings)
    fresh = check_env(lambda: Scripted([[(0.0, False, False)] * 3 + [(0.0, True, False)]]))
    assert not any("same observation array" in text for text in fresh.warnings)


def test_bounds_dtype_reward_type_and_render_metadata_are_warnings():
    class Odd(Faulty):
        metadata = {}

        def __init__(self):
            super().__init__(
                lambda obs, reward: (obs + 9.0, np.array([reward])), space=spaces.Box(-1, 1, (2,), np.float64)
            )
            self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    text = " ".join(check_env(Odd).warnings)
    for part in ("leaves the bounds", "float64", "return float(reward)", "render_modes", "infinite bounds"):
        assert part in text


def test_an_env_object_can_be_checked(tmp_path):
    report = check_env(CountingEnv(str(tmp_path / "log")))
    assert report.ok
    assert str(report).startswith("<CountingEnv")
    assert check_env(gymnasium.make("CartPole-v1")).ok
