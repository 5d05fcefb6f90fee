"""F12: any script of episodes, limits and reward types, through InProcess and through the slow
reference, gives the same steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.rollouts import Recorder, reference
from envs.sample_envs import Scripted
from rookery.envs import InProcess

REWARDS = st.sampled_from(
    [0.25, -3.0, 2, True, np.float32(1.5), np.int64(-4), np.array(0.5), np.array([2.5]), np.array([[7]])]
)
ENDS = st.sampled_from([(True, False), (False, True), (True, True)])


@st.composite
def episodes(draw):
    """1 to 5 steps, of which the last ends by death, by time or by both."""
    rewards = draw(st.lists(REWARDS, min_size=1, max_size=5))
    return [(reward, False, False) for reward in rewards[:-1]] + [(rewards[-1], *draw(ENDS))]


SCRIPTS = st.lists(episodes(), min_size=1, max_size=4)
LIMIT = st.one_of(st.none(), st.integers(0, 4))
CALLS = st.lists(st.tuples(st.lists(st.integers(0, 6), min_size=3, max_size=3), LIMIT, LIMIT), min_size=1, max_size=25)


def seed_of(i, episode):
    return 1000 * i + 7 * episode + 3


def build(scripts, reuse):
    return InProcess([Scripted(script, reuse) for script in scripts], seed_of)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(SCRIPTS, min_size=1, max_size=3), CALLS, st.booleans(), st.integers(0, 25))
def test_vector_steps_equal_the_slow_reference_with_limits_and_a_restore_in_the_middle(
    scripts, calls, reuse, restore_at
):
    recorder = Recorder(build(scripts, reuse))
    env, num = recorder.env, len(scripts)
    env.reset()
    taken = [[] for _ in range(num)]
    for k, (actions, steps, limit) in enumerate(calls):
        if k == restore_at:
            recorder.env = build(scripts, reuse)
            recorder.env.restore(env.state())
            env = recorder.env
        before = [np.array(env.obs[i]) for i in range(num)]
        out = recorder.step(np.array(actions[:num]), steps=steps, episodes=limit)
        stepped = int(out.valid.sum())
        assert out.valid.tolist() == [True] * stepped + [False] * (num - stepped)
        assert stepped <= (num if steps is None else steps)
        if limit is not None and stepped < min(num, num if steps is None else steps):
            assert len(out.ended) == limit
        for i in range(num):
            if out.valid[i]:
                taken[i].append(actions[i])
            else:
                assert np.array_equal(env.obs[i], before[i])
                assert out.reward[i] == 0
                assert (out.terminated[i], out.truncated[i]) == (False, False)
    assert env.exactness == "exact"
    for i, script in enumerate(scripts):
        rows, ends = reference(Scripted(script), lambda e, i=i: seed_of(i, e), taken[i])
        assert recorder.rows[i] == rows
        assert recorder.ends[i] == ends


def test_terminated_and_truncated_together_are_both_reported():
    env = InProcess([Scripted([[(1.0, True, True)]])], seed_of)
    env.reset()
    out = env.step(np.array([2]))
    assert (out.terminated[0], out.truncated[0], out.valid[0]) == (True, True, True)
    assert out.final[0][1].tolist() == [0, 1, 2]  # episode 0, step 1, action 2
    assert out.obs.tolist() == [[0, 0, 0]]  # the next reset


def test_an_array_that_the_env_reuses_changes_neither_final_nor_earlier_observations():
    env = InProcess([Scripted([[(1.0, False, False), (1.0, True, False)]], reuse=True)], seed_of)
    env.reset()
    env.step(np.array([5]))
    out = env.step(np.array([6]))
    assert out.final[0][1].tolist() == [0, 2, 6]
    assert out.obs.tolist() == [[0, 0, 0]]
