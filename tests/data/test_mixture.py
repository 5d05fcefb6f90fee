"""Batches of fixed shares from several stores, and demonstrations from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from data.replay_reference import simple_chunk
from rookery.acting.rules import SquashedGaussian
from rookery.core.errors import CheckpointError, ConfigError, UsageError
from rookery.core.spec import Leaf
from rookery.data import Demonstrations, Mixture, Replay, ReplayConfig, ReplayStore
from rookery.data.replay.leaf import stored_spec
from rookery.data.shares import rows_of

ONE = Leaf("box", (1,), np.dtype(np.float32))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))
FIELDS = stored_spec(ONE, CHOICE)


def recorded(path: Path, steps: int = 4, action: Any = 1, **spaces: Any) -> Path:
    """Episodes of two steps with observations 100, 101 | 102 (final), 200, 201 | 202 …, rewards 1 and 2;
    the second step terminates."""
    replay = Replay(max(steps, 1), **spaces)
    for i in range(steps):
        base = np.float32(100 * (1 + i // 2) + i % 2)
        obs, after = np.array([base], np.float32), np.array([base + 1], np.float32)
        replay.add(obs=obs, action=action, reward=1.0 + i % 2, terminated=i % 2 == 1, truncated=False, next_obs=after)
    replay.save(path)
    return path


def living(rows: int = 6, **more: Any) -> ReplayStore:
    config = ReplayConfig(capacity=40, batch_size=rows, min_fill=rows, max_memory=None, **more)
    store = ReplayStore(config, ONE, CHOICE, 1, 0.5, 1, np.random.default_rng(0))
    store.add(simple_chunk(list(range(10)), [0.0] * 10, 10))
    return store


def mixed(path: Path, rows: int = 2, of: int = 8, n_step: int = 1) -> Mixture:
    file = path if path.exists() else recorded(path)
    demonstrations = Demonstrations(file, FIELDS, rows, np.random.default_rng(1), n_step=n_step, gamma=0.5)
    share = rows / of
    return Mixture(
        {"replay": living(of - rows), "demonstrations": demonstrations},
        {"replay": 1 - share, "demonstrations": share},
    )


@pytest.mark.parametrize(("rows", "of"), [(2, 8), (1, 10), (3, 7), (9, 10)])
def test_every_batch_has_exactly_its_share_of_each_store(tmp_path: Path, rows: int, of: int) -> None:
    mixture = mixed(tmp_path / "file", rows, of)
    for _ in range(50):
        batch, _ = mixture.sample()
        assert (batch["obs"].reshape(-1) >= 100).tolist() == [False] * (of - rows) + [True] * rows


def test_demonstrations_are_drawn_with_their_own_returns_and_successors(tmp_path: Path) -> None:
    mixture, seen = mixed(tmp_path / "file", n_step=2), {}
    for _ in range(60):
        batch, _ = mixture.sample()
        assert batch["weight"].tolist() == [1.0] * 8
        names = ("obs", "action", "reward", "discount", "next_obs")
        for row in zip(*(batch[name].reshape(8)[6:].tolist() for name in names)):
            seen[row[0]] = row[1:]
    assert seen == {
        100: (1, 1 + 2 / 2, 0.0, 102),  # two steps to the end: 1 + γ 2, terminated
        101: (1, 2.0, 0.0, 102),
        200: (1, 2.0, 0.0, 202),
        201: (1, 2.0, 0.0, 202),
    }


def test_the_tensors_are_the_same_objects_every_time_on_aligned_memory_of_fixed_size(tmp_path: Path) -> None:
    mixture = mixed(tmp_path / "file", 3, 7)
    first, second = mixture.sample()[0], mixture.sample()[0]
    assert list(first) == list(second)
    assert {"obs", "action", "reward", "discount", "next_obs", "weight"} == set(first)
    for name in first:
        assert first[name] is second[name]
        assert first[name].data_ptr() % 64 == 0
        assert first[name].is_contiguous()
        assert not first[name].untyped_storage().resizable()


def test_feedback_goes_back_to_the_store_that_drew_the_row(tmp_path: Path) -> None:
    mixture, told = mixed(tmp_path / "file"), {}
    for name, store in mixture._stores.items():
        store.feedback = lambda keys, outputs, name=name: told.__setitem__(name, (keys, outputs))
    _, keys = mixture.sample()
    own = [np.array(part) for part in keys]
    mixture.feedback(keys, {"priority": torch.arange(8.0), "scale": 3, "pair": torch.zeros(2)})
    assert told["replay"][0].tolist() == own[0].tolist()
    assert told["demonstrations"][0].tolist() == own[1].tolist()
    assert told["replay"][1]["priority"].tolist() == [0, 1, 2, 3, 4, 5]
    assert told["demonstrations"][1]["priority"].tolist() == [6, 7]
    assert told["demonstrations"][1]["scale"] == 3
    assert told["demonstrations"][1]["pair"].shape == (2,)  # not one per row


def test_the_first_store_takes_the_chunks_and_decides_when(tmp_path: Path) -> None:
    mixture = mixed(tmp_path / "file")
    assert mixture.size == 10 + 4
    for _ in range(4):  # ten steps, of which the first six only fill
        assert mixture.ready()
        mixture.sample()
    assert not mixture.ready()
    for start in range(100):  # 300 steps through a ring of 40
        mixture.add(simple_chunk([start, start + 1, start + 2], [0.0] * 3, start + 3))
    assert mixture.ready()
    assert mixture.size == 40 + 4
    assert mixture._stores["demonstrations"].size == 4  # never overwritten
    metrics = mixture.metrics()
    assert metrics["size"] == 40
    assert metrics["demonstrations_size"] == 4
    assert metrics["demonstrations_reuse"] == 4 * 2 / 4
    with pytest.raises(UsageError, match="only read"):
        mixture._stores["demonstrations"].add(simple_chunk([1.0], [0.0], 2))


def test_a_restored_mixture_goes_on_bit_for_bit(tmp_path: Path) -> None:
    one, two = mixed(tmp_path / "file"), mixed(tmp_path / "file")
    for _ in range(3):
        one.sample()
    two.restore(one.state())
    for name in ("replay", "demonstrations"):
        two._stores[name]._rng.bit_generator.state = one._stores[name]._rng.bit_generator.state
    assert one.metrics() == two.metrics()
    for _ in range(20):
        (a, keys_a), (b, keys_b) = one.sample(), two.sample()
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert all((x == y).all() for x, y in zip(keys_a, keys_b))


def test_another_file_than_the_run_began_with_is_refused(tmp_path: Path) -> None:
    state = mixed(tmp_path / "file").state()
    recorded(tmp_path / "other", steps=6)
    with pytest.raises(CheckpointError, match=r"other is not the file that the run began with"):
        mixed(tmp_path / "other").restore(state)


def test_shares_must_be_whole_rows_and_the_error_offers_the_nearest() -> None:
    keys = ("store.batch_size", "store.demonstration_share")
    assert rows_of(64, 0.25, keys) == 16
    assert rows_of(10, 0.1, keys) == 1
    assert rows_of(7, 3 / 7, keys) == 3
    with pytest.raises(
        ConfigError, match=r"0\.1 of store\.batch_size=64 is 6\.4 rows.*0\.09375 \(6 rows\) or 0\.109375 \(7"
    ):
        rows_of(64, 0.1, keys)
    with pytest.raises(ConfigError, match=r"0\.25 \(1 rows\)"):
        rows_of(4, 0.01, keys)
    with pytest.raises(ConfigError, match=r"Raise store\.batch_size"):
        rows_of(1, 0.5, keys)
    with pytest.raises(ValidationError, match=r"store\.demonstration_share=0\.1"):
        ReplayConfig(demonstrations="file", demonstration_share=0.1)
    assert ReplayConfig(demonstration_share=0.1).demonstrations is None  # no file, no rule


def test_stores_that_do_not_keep_their_share_or_have_other_fields_are_refused(tmp_path: Path) -> None:
    replay, file = living(6), recorded(tmp_path / "file")
    two = Demonstrations(file, FIELDS, 2, np.random.default_rng(1))
    with pytest.raises(UsageError, match=r"6 of 8 rows, which is not its share of 0\.5"):
        Mixture({"a": replay, "b": two}, {"a": 0.5, "b": 0.5}).sample()
    with pytest.raises(UsageError, match="add up to 1"):
        Mixture({"a": replay, "b": two}, {"a": 0.5, "b": 0.25})
    two._batch.pop("weight")
    with pytest.raises(UsageError, match="store 'b' hands out"):
        Mixture({"a": replay, "b": two}, {"a": 0.75, "b": 0.25}).sample()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            (Leaf("box", (2,), np.dtype(np.float32)), CHOICE),
            r"'obs' is float32 \(1,\), but the env's is box float32 \(2,\)",
        ),
        ((Leaf("box", (1,), np.dtype(np.uint8)), CHOICE), "'obs' is float32"),
        (({"a": ONE}, CHOICE), "has no 'obs/a'"),
        ((ONE, Leaf("box", (1,), np.dtype(np.float32))), r"'action' is int64 \(\), but the env's is box"),
        ((ONE, Leaf("discrete", (), np.dtype(np.int64), (1,))), "'action' has choices that the env's discrete of 1"),
        ((ONE, Leaf("discrete", (), np.dtype(np.int64), (3,), 2)), "'action' has choices that"),
    ],
)
def test_a_file_of_another_env_is_refused_by_name(tmp_path: Path, fields: Any, said: str) -> None:
    file = recorded(tmp_path / "file")
    with pytest.raises(ConfigError, match=said):
        Demonstrations(file, stored_spec(*fields), 2, np.random.default_rng(0))


def test_a_missing_a_foreign_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    recorded(tmp_path / "empty", steps=0)
    for name, said in (
        ("nothing", "No such file"),
        ("text", "Was it written by Replay.save"),
        ("empty", "holds no step"),
    ):
        with pytest.raises(ConfigError, match=rf"store\.demonstrations=.*{name}.*{said}"):
            Demonstrations(tmp_path / name, FIELDS, 2, np.random.default_rng(0))


def test_actions_are_recorded_as_the_env_takes_them(tmp_path: Path) -> None:
    file = recorded(tmp_path / "choice", action=np.int8(3), action_space=gym.spaces.Discrete(2, start=2))
    shifted = Demonstrations(
        file, stored_spec(ONE, Leaf("discrete", (), np.dtype(np.int64), (2,), 2)), 2, np.random.default_rng(0)
    )
    assert shifted.sample()[0]["action"].tolist() == [1, 1]  # the run counts choices from 0
    low, high = np.array([0.0], np.float32), np.array([4.0], np.float32)
    box = Leaf("box", (1,), np.dtype(np.float32), low=low, high=high)
    file = recorded(tmp_path / "box", action=np.array([3.0], np.float32))
    squashed = Demonstrations(
        file, stored_spec(ONE, box), 2, np.random.default_rng(0), from_env=SquashedGaussian(box).from_env
    )
    assert squashed.sample()[0]["action"].tolist() == [[0.5], [0.5]]  # 3 lies half-way between the middle and the bound


def test_actions_of_a_box_are_kept_as_fractions_whatever_numbers_the_env_takes():
    whole = Leaf("box", (2,), np.dtype(np.int32), low=np.zeros(2, np.int32), high=np.full(2, 9, np.int32))
    assert stored_spec(ONE, whole)["action"].dtype == np.float32  # rules give them between −1 and 1
    assert stored_spec(ONE, CHOICE)["action"].dtype == np.int64
