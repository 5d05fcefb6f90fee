"""Replay and Trace, as a user holds them."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import BatchError, CheckpointError, UsageError
from rookery.core.tree import flatten
from rookery.data import Replay, Trace


def step(i: float, end: str = "", **more: Any) -> dict[str, Any]:
    """Step i of a made-up env: obs i, next_obs i + 1."""
    plain = {
        "obs": np.array([i], np.float32),
        "action": int(i),
        "reward": i / 2,
        "terminated": end == "terminated",
        "truncated": end == "truncated",
    }
    return (
        plain
        | {
            "next_obs": np.array([i + 1], np.float32),
            "info": {"lives": int(i) % 3, "a/b": {"c": np.array([i, -i])}},
            "policy": {"logp": -float(i)},
        }
        | more
    )


def filled(capacity: int, steps: int, **more: Any) -> Replay:
    replay = Replay(capacity, **more)
    for i in range(steps):
        replay.add(**step(i, "terminated" if i % 4 == 3 else "truncated" if i % 7 == 5 else ""))
    return replay


def same(one: Any, two: Any) -> bool:
    a, b = flatten(one), flatten(two)
    return set(a) == set(b) and all(np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def test_everything_comes_in_time_order_and_the_oldest_is_dropped() -> None:
    replay = filled(capacity=5, steps=12)
    batch, at = replay.sample(0)
    assert len(replay) == 5
    assert at.tolist() == [0, 1, 2, 3, 4]
    assert batch["obs"].flatten().tolist() == [7, 8, 9, 10, 11]
    assert batch["next_obs"].flatten().tolist() == [8, 9, 10, 11, 12]
    assert batch["action"].tolist() == [7, 8, 9, 10, 11]
    assert batch["reward"].tolist() == [3.5, 4, 4.5, 5, 5.5]
    assert batch["terminated"].tolist() == [True, False, False, False, True]
    assert batch["truncated"].tolist() == [False] * 5
    assert batch["info"]["lives"].tolist() == [1, 2, 0, 1, 2]
    assert batch["policy"]["logp"].tolist() == [-7, -8, -9, -10, -11]
    assert set(batch) == {"obs", "action", "reward", "terminated", "truncated", "next_obs", "info", "policy"}


def test_a_sample_equals_the_replay_at_its_indices() -> None:
    replay = filled(capacity=20, steps=33, stack=3)
    batch, at = replay.sample(50)
    assert at.shape == (50,)
    assert same(batch, replay[at])
    assert len(set(at.tolist())) > 10


def test_one_step_has_no_batch_axis_and_negative_and_sliced_positions_work() -> None:
    replay = filled(capacity=5, steps=12)
    assert replay[-1]["obs"].tolist() == [11]
    assert replay[0]["action"] == 7
    assert replay[1:3]["action"].tolist() == [8, 9]
    assert replay[[4, 0]]["action"].tolist() == [11, 7]
    with pytest.raises(IndexError):
        replay[5]


def test_next_obs_is_what_was_given_even_where_the_recording_jumps() -> None:
    replay = Replay(10)
    replay.add(**step(1))
    replay.add(**step(50))  # not the successor 2, and no end was reported
    replay.add(**step(51, next_obs=np.array([99.0], np.float32), end="truncated"))
    replay.add(**step(0))
    batch, _ = replay.sample(0)
    assert batch["next_obs"].flatten().tolist() == [2, 51, 99, 1]
    assert batch["truncated"].tolist() == [False, False, True, False]  # the jump is not reported as an end


def test_stacked_reading_stops_at_ends_and_jumps() -> None:
    replay = Replay(10, stack=3)
    for i in (1, 2, 3):
        replay.add(**step(i, "truncated" if i == 3 else ""))
    replay.add(**step(50))
    replay.add(**step(70))
    batch, _ = replay.sample(0)
    assert batch["obs"].squeeze(-1).tolist() == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [50, 50, 50], [70, 70, 70]]
    assert batch["next_obs"].squeeze(-1).tolist() == [[1, 1, 2], [1, 2, 3], [2, 3, 4], [50, 50, 51], [70, 70, 71]]


def test_an_observation_with_nan_continues_its_episode() -> None:
    replay, nan = Replay(10, stack=2), np.array([np.nan], np.float32)
    replay.add(**step(1, next_obs=nan))
    replay.add(**step(2, obs=nan))
    np.testing.assert_array_equal(replay[1]["obs"].flatten(), [1, np.nan])


def test_several_columns_are_added_together_and_read_one_after_another() -> None:
    replay = Replay(6, columns=2)
    for i in range(4):
        obs = np.array([[i], [10 + i]], np.float32)
        ended = np.array([False, i == 2])
        replay.add(
            obs=obs, action=np.array([i, -i]), reward=[i, 1], terminated=ended, truncated=[False] * 2, next_obs=obs + 1
        )
    batch, _ = replay.sample(0)
    assert batch["obs"].flatten().tolist() == [1, 11, 2, 12, 3, 13]
    assert batch["action"].tolist() == [1, -1, 2, -2, 3, -3]
    assert batch["terminated"].tolist() == [False, False, False, True, False, False]


def test_update_appends_in_time_order_with_ends_jumps_and_overwriting() -> None:
    one, two = filled(capacity=8, steps=3), Replay(4, stack=1)
    for i in (40, 41, 60, 61, 62):  # the first is overwritten; a jump between 41 and 60
        two.add(**step(i, "terminated" if i == 61 else ""))
    one.update(two)
    batch, _ = one.sample(0)
    assert batch["action"].tolist() == [0, 1, 2, 41, 60, 61, 62]
    assert batch["next_obs"].flatten().tolist() == [1, 2, 3, 42, 61, 62, 63]
    assert batch["terminated"].tolist() == [False] * 5 + [True, False]
    one.update(two)  # 7 + 4 steps in a replay of 8
    assert one.sample(0)[0]["action"].tolist() == [41, 60, 61, 62, 41, 60, 61, 62]
    assert one.sample(0)[0]["next_obs"].flatten().tolist() == [42, 61, 62, 63, 42, 61, 62, 63]


def test_update_into_an_empty_replay_takes_over_the_fields() -> None:
    one, two = Replay(5), filled(capacity=9, steps=9)
    one.update(two)
    assert same(one.sample(0)[0], two[4:])
    one.update(Replay(3))
    assert len(one) == 5


def test_a_pickled_replay_goes_on_as_the_original() -> None:
    one = filled(capacity=6, steps=10, stack=2, seed=3)
    two = pickle.loads(pickle.dumps(one))
    for replay in (one, two):
        replay.add(**step(10))
    (a, at_a), (b, at_b) = one.sample(20), two.sample(20)
    assert (at_a == at_b).all()
    assert same(a, b)


def test_a_saved_replay_goes_on_as_the_original_and_its_file_has_no_pickle(tmp_path: Path) -> None:
    one = filled(capacity=6, steps=10, stack=2, seed=3)
    one.save(tmp_path / "replay.safetensors")
    two = Replay.load(tmp_path / "replay.safetensors")
    for replay in (one, two):
        replay.add(**step(10))
    (a, at_a), (b, at_b) = one.sample(20), two.sample(20)
    assert (at_a == at_b).all()
    assert same(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["replay.safetensors"]


@pytest.mark.parametrize("make", [lambda: Replay(4), lambda: filled(4, 2)], ids=["empty", "without ends"])
def test_small_replays_can_be_saved_too(make: Any, tmp_path: Path) -> None:
    make().save(tmp_path / "r")
    two = Replay.load(tmp_path / "r")
    assert len(two) == len(make())
    two.add(**step(9))


def test_a_file_that_is_no_replay_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(b"hello")
    with pytest.raises(CheckpointError, match="cannot be read as a replay"):
        Replay.load(tmp_path / "r")
    with pytest.raises(CheckpointError, match="cannot be read as a replay"):
        Replay.load(tmp_path / "missing")
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(1)}, tmp_path / "s")
    with pytest.raises(CheckpointError, match="has format None"):
        Replay.load(tmp_path / "s")


def test_spaces_may_be_given_and_then_rule_the_types() -> None:
    replay = Replay(
        4,
        obs_space=spaces.Dict(a=spaces.Box(0, 255, (2,), np.uint8), b=spaces.Discrete(3)),
        action_space=spaces.Box(-1, 1, (2,)),
    )
    obs = {"a": np.array([1, 2], np.uint8), "b": 2}
    replay.add(obs=obs, action=np.array([0.5, 1.0]), reward=1, terminated=True, truncated=False, next_obs=obs)
    one = replay[0]
    assert one["obs"]["a"].dtype == np.uint8
    assert one["action"].dtype == np.float32
    assert one["next_obs"]["b"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"obs": np.zeros(2, np.float32)}, r"obs must be float32 \(1,\)"),
        ({"action": 0.5}, "action must be int64"),
        ({"info": None}, r"this replay stores .*'info'"),
        ({"policy": {"other": 1.0}}, r"policy must have the keys \['logp'\], got \['other'\]"),
        ({"reward": [1, 2]}, "reward must be one number per column"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    replay = filled(5, 2)
    with pytest.raises(BatchError, match=said):
        replay.add(**step(2) | change)
    assert len(replay) == 2


def test_text_in_info_is_refused_at_the_first_step() -> None:
    with pytest.raises(BatchError, match="stores numbers"):
        Replay(3).add(**step(0, info={"name": "x"}))


def test_misuse_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="cannot sample 3 steps of 0"):
        Replay(3).sample(3)
    with pytest.raises(UsageError, match="replay is empty"):
        Replay(3)[0]
    with pytest.raises(UsageError, match="must be at least 1"):
        Replay(0)
    with pytest.raises(UsageError, match="cannot append 1 columns to 2"):
        Replay(3, columns=2).update(filled(3, 1))


def test_a_trace_keeps_everything_and_refuses_to_be_sampled() -> None:
    trace = Trace()
    for i in range(50):
        trace.add(**step(i))
    assert len(trace) == 50
    assert trace[-1]["action"] == 49
    with pytest.raises(UsageError, match=r"cannot be sampled. Copy it into a Replay: replay = Replay\(50\)"):
        trace.sample(3)
    replay = Replay(10)
    replay.update(trace)
    assert replay.sample(0)[0]["action"].tolist() == list(range(40, 50))
    other = Trace()
    other.update(replay)
    other.update(trace)
    assert [int(one["action"]) for one in other] == [*range(40, 50), *range(50)]


def test_a_trace_copies_what_it_is_given() -> None:
    trace, obs = Trace(), np.array([1.0], np.float32)
    trace.add(**step(1, obs=obs))
    obs[0] = 7
    assert trace[0]["obs"].tolist() == [1]
    with pytest.raises(BatchError, match=r"unknown field\(s\) \['done'\]"):
        trace.add(**step(1), done=True)


def test_several_threads_may_add_and_sample_at_once() -> None:
    replay, wrong = Replay(200), []

    def add(start: int) -> None:
        for k in range(start, start + 150):
            obs = np.full(3, k, np.float32)
            replay.add(obs=obs, action=k, reward=k, terminated=True, truncated=False, next_obs=obs + 0.5)

    def sample() -> None:
        for _ in range(60):
            if len(replay) > 50:
                batch, _ = replay.sample(32)
                reward = batch["reward"][:, None]
                if not (batch["obs"] == reward).all() or not (batch["next_obs"] == reward + 0.5).all():
                    wrong.append(batch)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        jobs = [(add, (1000 * i,)) for i in range(3)] + [(sample, ())] * 2
        with ThreadPoolExecutor(len(jobs)) as pool:
            for job in [pool.submit(work, *args) for work, args in jobs]:
                job.result()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert len(replay) == 200
    everything, _ = replay.sample(0)
    assert len(set(everything["reward"].tolist())) == 200
