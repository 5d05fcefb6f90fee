"""Prioritised replay against a slow reference, and against numbers worked out by hand."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from data.priority_reference import EPSILON, SlowPriorities
from data.replay_reference import Envs, simple_chunk
from rookery.core.config.fields import comments_of
from rookery.core.errors import BatchError, CheckpointError, ConfigError, UsageError
from rookery.core.spec import Leaf
from rookery.data import AlarmConfig, Keys, Priorities, PriorityConfig, ReplayConfig, ReplayStore

PAIR = Leaf("box", (2,), np.dtype(np.float32))
ONE = Leaf("box", (1,), np.dtype(np.float32))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))
LINEAR = {"kind": "linear", "start": 0.4, "end": 1.0, "steps": 100}


def store(columns: int = 1, collectors: int = 1, spec: Any = ONE, seed: int = 0, **more: Any) -> ReplayStore:
    total, priority = more.pop("total_steps", None), {"beta": 0.5} | more.pop("priority", {})
    fields = {"capacity": 40, "batch_size": 8, "min_fill": 8, "max_memory": None, "priority": priority, **more}
    rng = np.random.default_rng(seed)
    return ReplayStore(
        ReplayConfig(**fields), spec, CHOICE, columns, 0.5, 1, rng, collectors=collectors, total_steps=total
    )


def simple(*obs: float, priority: list[float] | None = None, **more: Any) -> Any:
    chunk = simple_chunk(list(obs), [0] * len(obs), obs[-1] + 1, **more)
    if priority is not None:
        chunk.rows["priority"] = np.array(priority, np.float32).reshape(-1, 1)
    return chunk


def leaves(replay: ReplayStore) -> np.ndarray:
    assert replay._prioritised is not None
    return replay._prioritised.priorities.leaves


@pytest.mark.parametrize("operations", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_store_agrees_with_a_slow_reference_over_any_mix_of_operations(operations: int) -> None:
    rng = np.random.default_rng(11)
    columns, collectors, keep = 4, 2, 13
    limits = {"max_reuse": 9, "max_staleness": 30}
    make = lambda: store(  # noqa: E731
        columns, collectors, PAIR, capacity=keep * columns, updates_per_step=1000.0, **limits,
        priority={"alpha": 1.0, "epsilon": EPSILON, "beta": {**LINEAR, "steps": 5000}},
    )  # fmt: skip
    fast, slow, twin = make(), SlowPriorities(columns, collectors, keep, *limits.values()), np.random.default_rng(0)
    envs = [Envs(rng, 2, c) for c in range(collectors)]
    waiting: list[tuple[Keys, list[tuple[int, int]]]] = []  # drawn, not answered yet
    done = version = restored = 0
    while done < operations:
        kind = rng.choice(["add", "draw", "answer", "restore"], p=[0.35, 0.4, 0.24, 0.01])
        if kind == "add":
            version += int(rng.integers(3))
            rows = int(rng.integers(1, 8)) if rng.random() < 0.95 else 30  # sometimes longer than the ring
            chunk = envs[int(rng.integers(collectors))].chunk(rows, version)
            if rng.random() < 0.3:
                chunk.rows["priority"] = np.float32(rng.integers(0, 1 << 14, (rows, 2)) / 1024)
                chunk.rows["priority"][~chunk.rows["valid"]] = np.nan  # nobody looks at holes
            fast.add(chunk)
            slow.add(chunk)
            done += rows * 2
        elif kind == "draw" and fast.ready():
            batch, keys = fast.sample(copy=True)
            address, rows, p = slow.draw(twin, 8)
            assert keys.address.tolist() == address
            eligible = sum(m > 0 for m in slow.masses())
            weight = (eligible * np.array(p)) ** -min(1.0, 0.4 + 0.6 * slow.inserted / 5000)
            assert batch["weight"].tolist() == pytest.approx((weight / weight.max()).tolist(), rel=1e-5)
            waiting = [*waiting[-3:], (keys, rows)]
            done += 8
        elif kind == "answer" and waiting:
            keys, rows = waiting[int(rng.integers(len(waiting)))]
            found = np.float32(rng.integers(0, 1 << 14, 8) / 1024)
            fast.feedback(keys, {"priority": torch.from_numpy(found)})
            slow.feedback(rows, found)
            done += 8
        elif kind == "restore":
            state, generator = copy.deepcopy(fast.state()), fast._rng.bit_generator.state
            fast = make()
            fast.add(Envs(np.random.default_rng(1), 2).chunk(40))  # whatever was there before is forgotten
            fast.restore(state)
            fast._rng.bit_generator.state = generator
            restored += 1
        assert leaves(fast).tolist() == slow.masses()
    assert restored > operations // 1000


def test_new_steps_enter_at_the_running_maximum_or_at_their_given_priority() -> None:
    replay = store(priority={"alpha": 0.5, "epsilon": 1e-12})
    replay.add(simple(1, 2, 3, holes=[1]))
    assert leaves(replay)[:4].tolist() == [1, 0, 1, 0]
    replay.feedback(Keys(np.array([2]), np.array([1], np.int32)), {"priority": torch.tensor([16.0])})
    assert leaves(replay)[:4].tolist() == pytest.approx([1, 0, 4, 0])
    replay.add(simple(4))
    replay.add(simple(5, 6, priority=[0.25, 100.0]))
    replay.add(simple(7))
    assert leaves(replay)[3:7].tolist() == pytest.approx([4, 0.5, 10, 10])


def test_weights_follow_beta_over_the_inserted_steps_and_beta_ends_at_one() -> None:
    replay = store(priority={"alpha": 1.0, "beta": {**LINEAR, "start": 0.0, "end": 2.0}}, capacity=400)
    replay.add(simple(*range(25), priority=[1] * 24 + [100]))  # no batch can miss the last
    tensors = []
    for beta in (0.5, 1.0, 1.0):  # 25, 50 and 75 of 100 steps: 0.5, 1.0, 1.5
        batch, _ = replay.sample()
        expected = [1.0 if obs < 24 else 100.0**-beta for obs in batch["obs"].flatten().tolist()]
        assert batch["weight"].tolist() == pytest.approx(expected, rel=1e-5)
        assert min(expected) < 1
        assert replay.metrics()["beta"] == pytest.approx(beta)
        tensors.append(batch["weight"])
        replay.add(simple(*range(25), holes=range(25)))  # holes are no steps
        replay.add(simple(*range(25), priority=[1] * 25))
    assert tensors[0] is tensors[1] is tensors[2]  # filled in place: a compiled update knows it by identity


def test_beta_is_annealed_over_the_whole_run_by_default() -> None:
    config = PriorityConfig()
    replay = ReplayStore(
        ReplayConfig(priority=config, max_memory=None), ONE, CHOICE, 1, 0.9, 1, np.random.default_rng(0), total_steps=10
    )
    assert replay.metrics()["beta"] == 0.4
    replay.add(simple(*range(5)))
    assert replay.metrics()["beta"] == pytest.approx(0.7)
    with pytest.raises(ConfigError, match=r"train\.max_steps"):
        store(priority={"beta": config.beta})


def test_answers_about_overwritten_steps_are_ignored() -> None:
    replay = store(capacity=8, priority={"alpha": 1.0, "epsilon": 1e-12})
    replay.add(simple(*range(8)))
    _, keys = replay.sample(copy=True)
    replay.add(simple(*range(8, 13)))  # into slots 8, 0, 1, 2, 3; slot 4 is the head now
    before = leaves(replay).copy()
    assert before.tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]
    replay.feedback(keys, {"priority": torch.full((8,), 7.0)})
    drawn = set(keys.address.tolist())
    assert leaves(replay).tolist() == pytest.approx([7 if a in drawn & {5, 6, 7} else before[a] for a in range(9)])
    assert drawn == set(range(8))  # eight strata, eight equal steps
    assert leaves(replay)[5] == pytest.approx(7)


@pytest.mark.parametrize("number", [-1e-6, float("nan"), float("inf"), -float("inf")])
def test_bad_priorities_are_refused_and_change_nothing(number: float) -> None:
    replay = store()
    replay.add(simple(*range(10)))
    _, keys = replay.sample()
    before = copy.deepcopy(replay.state())
    priority = torch.ones(8)
    priority[5] = number
    with pytest.raises(BatchError, match=r"feedback: priority 5 of 8 is .*expected finite numbers ≥ 0"):
        replay.feedback(keys, {"priority": priority})
    with pytest.raises(BatchError, match=r"collector 0: rows.priority: priority 1 of 2 is .*expected finite numbers"):
        replay.add(simple(1, 2, priority=[1, number]))
    np.testing.assert_equal(replay.state(), before)


def test_priorities_of_another_shape_or_type_are_refused() -> None:
    replay = store()
    replay.add(simple(*range(10)))
    _, keys = replay.sample()
    with pytest.raises(BatchError, match=r"8 drawn steps .* shape \(7,\)"):
        replay.feedback(keys, {"priority": torch.ones(7)})
    with pytest.raises(
        ConfigError, match=r"store.priority is set, but the update gives no `priority` \(it gives: td\)"
    ):
        replay.feedback(keys, {"td": torch.ones(8)})
    chunk = simple(1, 2)
    chunk.rows["priority"] = np.ones((2, 1))
    with pytest.raises(BatchError, match=r"rows.priority must be float32 \(2, 1\).* but it is float64"):
        replay.add(chunk)
    assert replay.size == 10


def test_uniform_sampling_takes_no_notice_of_priorities() -> None:
    replay = ReplayStore(
        ReplayConfig(capacity=40, batch_size=8, min_fill=8, max_memory=None), ONE, CHOICE, 1, 0.5, 1,
        np.random.default_rng(0),
    )  # fmt: skip
    replay.add(simple(*range(10), priority=[-1] * 10))
    batch, keys = replay.sample()
    replay.feedback(keys, {"priority": torch.tensor([float("nan")])})
    assert batch["weight"].tolist() == [1] * 8
    assert "beta" not in replay.metrics()


def test_draws_follow_the_priorities_and_nothing_starves() -> None:
    replay = store(priority={"alpha": 0.5, "epsilon": 0.01}, capacity=400)
    replay.add(simple(*range(4), priority=[0.0, 0.15, 0.99, 3.99]))  # √: 0.1, 0.4, 1, 2
    counts = np.zeros(4)
    for _ in range(4000):
        counts += np.bincount(replay.sample()[0]["obs"].flatten().int().numpy(), minlength=4)
    expected = 32_000 * np.array([0.1, 0.4, 1, 2]) / 3.5
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_max_reuse_holds_within_one_batch_too() -> None:
    replay = store(max_reuse=3, updates_per_step=100.0)
    replay.add(simple(*range(12), priority=[1000] + [1] * 11))
    counts = np.zeros(12)
    batches = 0
    while replay.ready():
        counts += np.bincount(replay.sample()[0]["obs"].flatten().int().numpy(), minlength=12)
        batches += 1
        assert (leaves(replay)[:12] > 0).tolist() == (counts < 3).tolist()
    assert counts[0] == 3
    assert counts.max() == 3
    assert counts.sum() == batches * 8
    for _ in range(int(36 - counts.sum()) // 8):  # not ready, but the last rows have draws left
        replay.sample()
    with pytest.raises(UsageError, match="max_reuse=3"):
        replay.sample()


def test_an_empty_store_says_so() -> None:
    with pytest.raises(UsageError, match="of 0 stored steps 0 may be drawn"):
        store().sample()


def test_a_million_steps_fit_into_a_tree_of_a_million_leaves() -> None:
    priorities = Priorities(1_000_001, 0.6, 1e-6)
    everything = np.arange(1_000_001)
    priorities.insert(everything)
    assert len(priorities.tree) == 2 * 2**20
    assert priorities.total == 1_000_001
    address, mass = np.zeros(64, np.int64), np.zeros(64)
    priorities.draw(np.full(64, 0.5), address, mass)
    assert address.tolist() == [int((i + 0.5) / 64 * 1_000_001) for i in range(64)]


def test_priorities_know_nothing_of_a_ring() -> None:
    """As a store of sequences uses them: places are starts of sequences, one every four steps."""
    starts = Priorities(5, alpha=1.0, epsilon=0.5)
    starts.insert(np.array([0, 2, 4]))
    keys = Keys(np.array([2, 4]), np.zeros(2, np.int32))
    starts.stamps(keys.address, keys.stamp)
    starts.remove(np.array([4]))
    assert starts.update(keys, np.array([2.5, 9.0], np.float32)) == 1
    assert starts.leaves.tolist() == [1, 0, 3, 0, 0]
    address, mass, weight = np.zeros(4, np.int64), np.zeros(4), np.zeros(4, np.float32)
    starts.draw(np.array([0.5] * 4), address, mass)
    assert address.tolist() == [0, 2, 2, 2]
    starts.weigh(mass, 7.0, weight)
    assert weight.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])  # β = 1


def test_priorities_of_more_places_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"of 6 places .* this store has 5 places"):
        Priorities(5, 1.0, 0.5).restore(Priorities(6, 1.0, 0.5).state())


def test_a_uniform_state_does_not_restore_a_prioritised_store() -> None:
    with pytest.raises(CheckpointError, match=r"no priorities.*store\.priority=null"):
        store().restore({"ring": {}, "limiter": {}})


def test_state_holds_only_the_filled_region() -> None:
    replay = store(capacity=1000)
    replay.add(simple(1, 2, 3))
    assert replay.state()["priority"]["mass"].tolist() == [1, 1, 1, 0]  # three steps and the head
    assert replay.state()["priority"]["stamp"].tolist() == [1, 1, 1, 0]


def test_metrics_say_the_priorities() -> None:
    replay = store(priority={"alpha": 1.0, "epsilon": 1e-12})
    assert "priority_mean" not in replay.metrics()
    replay.add(simple(1, 2, 3, 4, priority=[1, 2, 6, 9], holes=[3]))
    found = replay.metrics()
    assert {name: found[name] for name in ("priority_mean", "priority_max", "priority_min")} == pytest.approx(
        {"priority_mean": 3, "priority_max": 6, "priority_min": 1}
    )
    assert replay.counts() == {"inserts": 3, "samples": 0}
    replay.sample()
    assert replay.counts() == {"inserts": 3, "samples": 8}


def test_an_alarm_is_told_once_per_spell(caplog: pytest.LogCaptureFixture) -> None:
    replay = store(alarm={"max_reuse": 1.0, "max_staleness": 2.0}, capacity=8, updates_per_step=100.0)
    with caplog.at_level(logging.WARNING, "rookery.data"):
        replay.add(simple(*range(8), version=0))
        replay.sample()
        assert replay.metrics()["reuse"] == 1.0
        assert caplog.messages == []  # the limit itself is allowed
        replay.sample()
        replay.metrics()
        replay.metrics()
        assert len(caplog.messages) == 1
        assert "store/reuse is 2, above store.alarm.max_reuse=1" in caplog.messages[0]
        again = store(alarm={"max_reuse": 1.0, "max_staleness": 2.0}, capacity=8)
        again.restore(copy.deepcopy(replay.state()))
        again.metrics()
        assert len(caplog.messages) == 1  # told before the checkpoint
        replay.add(simple(*range(4), version=6))  # ages 6 6 6 6 0 0 0 0; the others have 2 draws each: reuse 1
        replay.metrics()
        assert len(caplog.messages) == 2
        assert "store/staleness is 3, above store.alarm.max_staleness=2" in caplog.messages[1]
        replay.sample()
        replay.metrics()
        assert len(caplog.messages) == 3
        assert "store/reuse is" in caplog.messages[2]  # it had been back


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": -0.1}, "alpha"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"beta": -0.4}, r"store.priority.beta: expected values that are not negative, got \[-0.4\]"),
        ({"beta": {"kind": "piecewise", "points": [[0, 0.4], [9, -1.0]]}}, "not negative"),
        ({"gamma": 1}, "gamma"),
    ],
)
def test_the_config_refuses_what_makes_no_sense(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ReplayConfig(priority=fields)


def test_every_field_of_the_sections_is_documented_and_survives_a_dump() -> None:
    for model in (PriorityConfig, AlarmConfig):
        assert set(comments_of(model)) == set(model.model_fields)
    config = ReplayConfig(priority={}, alarm={"max_reuse": 8})
    assert config.priority == PriorityConfig()
    assert ReplayConfig(**config.model_dump()) == config
