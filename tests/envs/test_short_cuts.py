"""What makes a step in this process cheap must change nothing: `contains`, the outermost TimeLimit, clipping."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs.sample_envs import Scripted
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, InProcess, make
from rookery.envs.actions import batched, quicken

SCRIPT = [[(1.0, False, False)] * 50]


class Snapped(Scripted):
    """Hands out its state, so that a TimeLimit around it is asked for its own."""

    def snapshot(self):
        return {"episode": self.episode, "time": self.time}

    def restore_snapshot(self, state):
        self.episode, self.time = state["episode"], state["time"]


def limited(kind=Scripted, limit=5, num=1):
    return InProcess([gymnasium.wrappers.TimeLimit(kind(SCRIPT), limit) for _ in range(num)], lambda i, e: 0)


def step(env):
    return env.step(np.zeros(env.num, np.int64))


@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Discrete(3, start=-1), spaces.Discrete(5, dtype=np.int8)])
def test_a_quick_space_contains_what_it_contained(space):
    before = copy.deepcopy(space)
    quicken(space)
    asked = [*range(-3, 7), True, 200, 2**40, 2**70, 1.0, "1", None, [1]]
    asked += [kind(1) for kind in (np.int64, np.int8, np.uint8, np.float32)] + [np.array(1), np.array([1]), np.int64(9)]
    assert [space.contains(x) for x in asked] == [before.contains(x) for x in asked]
    assert [x in space for x in asked] == [x in before for x in asked]
    assert space == before
    for twin in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert twin == space
        assert [twin.contains(x) for x in range(-3, 7)] == [before.contains(x) for x in range(-3, 7)]


def test_a_space_that_is_more_than_discrete_is_left_alone():
    class Odd(spaces.Discrete):
        def contains(self, x):
            return x % 2 == 1

    space = Odd(5)
    quicken(space)
    assert [space.contains(x) for x in range(4)] == [False, True, False, True]


def test_an_env_that_asserts_its_action_still_complains():
    env = make(
        EnvConfig(id="CartPole-v1", engine="gymnasium", faults={"renewals": 0}),
        count=1,
        purpose="train",
        streams=Streams(0),
    )
    env.reset()
    with pytest.raises(Exception, match=r"AssertionError: 2 .*invalid"):
        env.step(np.array([2]))


def test_the_outermost_time_limit_truncates_in_the_same_step_as_before():
    env = limited(limit=5, num=2)
    env.reset()
    flags = [step(env).truncated.tolist() for _ in range(11)]
    assert [t for t, flag in enumerate(flags, 1) if flag == [True, True]] == [5, 10]
    assert sum(map(any, flags)) == 2


def test_whoever_asks_the_time_limit_hears_the_steps_of_the_episode():
    env = limited(num=2)
    env.reset()
    step(env), step(env)
    assert env.call("_elapsed_steps") == [2, 2]


def test_a_limit_changed_by_a_call_holds_at_once_and_after_a_restore():
    env = limited(limit=50)
    env.reset()
    step(env)
    env.call("set_wrapper_attr", "_max_episode_steps", 4)
    again = limited(limit=50)
    again.restore(env.state())
    for one in (env, again):
        assert [bool(step(one).truncated[0]) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("kind", [Scripted, Snapped])
def test_a_restored_env_meets_its_limit_in_the_right_step(kind):
    env, again = limited(kind), limited(kind)
    env.reset()
    for _ in range(3):
        step(env)
    saved = env.state()
    assert ("snapshot" in saved["envs"]["0"]) == (kind is Snapped)
    again.restore(saved)
    assert again.exactness == "exact"
    assert again.call("_elapsed_steps") == [3]
    assert [bool(step(again).truncated[0]) for _ in range(2)] == [False, True]


def test_a_time_limit_inside_another_wrapper_counts_by_itself():
    inside = gymnasium.wrappers.TransformReward(
        gymnasium.wrappers.TimeLimit(Scripted(SCRIPT), 3), lambda reward: 2 * reward
    )
    env = InProcess([inside], lambda i, e: 0)
    env.reset()
    outs = [(float(out.reward[0]), bool(out.truncated[0])) for out in (step(env) for _ in range(3))]
    assert outs == [(2.0, False), (2.0, False), (2.0, True)]


def test_box_actions_are_clipped_to_each_bound_whatever_the_number_of_rows():
    convert = batched(spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 3.0], np.float32)))
    for rows in (1, 3, 1):
        given = np.tile(np.array([-2.0, 5.0]), (rows, 1))
        found = convert(given)
        assert found.tolist() == [[-1.0, 3.0]] * rows
        assert found.dtype == np.float32
    assert given.tolist() == [[-2.0, 5.0]]
    inside = np.zeros((2, 2), np.float32)
    assert not np.shares_memory(convert(inside), inside)
    assert np.isnan(convert(np.full((1, 2), np.nan, np.float32))).all()
