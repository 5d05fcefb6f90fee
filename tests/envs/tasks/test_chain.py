"""Chain: only the one long sequence of right actions is rewarded."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rookery.core.errors import ConfigError
from rookery.envs.tasks import chain
from rookery.envs.tasks.chain import Chain

chain.register()


def test_the_right_actions_lead_to_the_end_and_nothing_before_it_is_rewarded():
    env = gymnasium.make("rookery/Chain-v0", disable_env_checker=True)
    obs, _ = env.reset(seed=0)
    assert obs.argmax() == 0
    steps = [env.step(int(action)) for action in env.unwrapped.right]
    assert [step[0].argmax() for step in steps] == list(range(1, 21))
    assert [step[1] for step in steps] == [0.0] * 19 + [1.0]
    assert [step[2] for step in steps] == [False] * 19 + [True]
    assert [step[4]["is_success"] for step in steps] == [False] * 19 + [True]


def test_a_wrong_action_leads_back_to_the_start():
    env = Chain(5)
    env.reset(seed=0)
    for place in range(3):
        env.step(env.right[place])
    obs, reward, terminated, truncated, _ = env.step(1 - env.right[3])
    assert obs.tolist() == [1.0, 0, 0, 0, 0, 0]
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_twice_its_length_truncates_but_an_arrival_in_the_last_step_counts():
    env = Chain(2)
    env.reset()
    wrong = 1 - env.right[0]
    assert [env.step(wrong)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
    env.reset()
    for action in (wrong, wrong, env.right[0]):
        env.step(action)
    assert env.step(env.right[1])[1:4] == (1.0, True, False)


def test_neither_action_is_always_right_and_all_envs_agree():
    assert set(Chain().right.tolist()) == {0, 1}
    assert np.array_equal(Chain().right, Chain().right)
    assert not np.array_equal(Chain().right, Chain(pattern=1).right)


def test_a_chain_without_places_is_refused():
    with pytest.raises(ConfigError, match="expected at least 1"):
        Chain(0)
