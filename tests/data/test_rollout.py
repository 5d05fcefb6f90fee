"""RolloutStore: each row once, in one batch of all collectors, however the chunks are cut."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.replay_reference import Envs, simple_chunk
from rookery.core.chunk import Chunk
from rookery.core.errors import BatchError, ConfigError, UsageError
from rookery.core.tree import flatten
from rookery.data import RolloutStore
from rookery.data.pieces import piece


def whole(seed: int, rows: int, width: int, collectors: int) -> list[Chunk]:
    """One long chunk per collector, with an extra of the policy."""
    chunks = [
        Envs(np.random.default_rng(seed + c), width, c, ends=0.3).chunk(rows, version=3) for c in range(collectors)
    ]
    for chunk in chunks:
        chunk.rows["logp"] = -chunk.rows["reward"]
    return chunks


def copied(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in flatten(batch).items()}


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return set(one) == set(two) and all(torch.equal(one[name], two[name]) for name in one)


def expected(chunks: list[Chunk], start: int, stop: int) -> dict[str, torch.Tensor]:
    """The batch of rows start … stop − 1, by concatenation."""
    parts = [piece(chunk, start, stop) for chunk in chunks]
    width = parts[0].last_obs.shape[0]
    out = {name: np.concatenate([part.rows[name] for part in parts], 1) for name in parts[0].rows}
    finals = [
        ((t, b + c * width), part.final_obs[k])
        for c, part in enumerate(parts)
        for k, (t, b) in enumerate(part.final_at.tolist())
    ]
    finals.sort(key=lambda item: item[0])
    out["last_obs"] = np.concatenate([part.last_obs for part in parts])
    out["final_at"] = np.array([at for at, _ in finals], np.int64).reshape(-1, 2)
    out["final_obs"] = np.array([obs for _, obs in finals], np.float32).reshape(-1, 2)
    return {name: torch.from_numpy(value) for name, value in out.items()}


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.data())
def test_any_cutting_and_order_of_chunks_gives_the_same_batches(
    seed: int, rows: int, collectors: int, data: st.DataObject
) -> None:
    batches = 3
    chunks = whole(seed, rows * batches, 2, collectors)
    store = RolloutStore(rows, 2 * collectors, collectors)
    at, got = [0] * collectors, 0
    while got < batches:
        behind = [c for c in range(collectors) if at[c] < rows * batches]
        c = data.draw(st.sampled_from(behind))
        length = data.draw(st.integers(1, rows * batches - at[c]))
        part = copy.deepcopy(piece(chunks[c], at[c], at[c] + length))
        store.add(part)
        for leaf in flatten(part.rows).values():
            leaf[...] = 0  # a collector may reuse its arrays
        at[c] += length
        while store.ready():
            assert equal(copied(store.sample()[0]), expected(chunks, got * rows, (got + 1) * rows))
            got += 1
        assert got == min(at) // rows
    assert store.size == 0


def test_finals_are_rebased_to_the_columns_and_rows_of_the_batch() -> None:
    store = RolloutStore(rows=2, columns=2, collectors=2)
    store.add(simple_chunk([10], [1], 20, collector=1, ends={0: (True, 11)}))
    store.add(simple_chunk([1, 2], [3, 4], 3, collector=0))
    assert not store.ready()
    store.add(simple_chunk([20], [2], 30, collector=1, first=[0], ends={0: (False, 21)}))
    batch, keys = store.sample()
    assert keys is None
    assert batch["obs"].squeeze(-1).tolist() == [[1, 10], [2, 20]]
    assert batch["reward"].tolist() == [[3, 1], [4, 2]]
    assert batch["final_at"].tolist() == [[0, 1], [1, 1]]
    assert batch["final_obs"].tolist() == [[11], [21]]
    assert batch["last_obs"].tolist() == [[3], [30]]
    assert batch["terminated"].tolist() == [[False, True], [False, False]]


def test_rows_are_handed_out_once_and_tensors_are_made_once() -> None:
    store = RolloutStore(rows=2, columns=1)
    store.add(simple_chunk([1, 2], [0, 0], 3))
    first, _ = store.sample()
    assert not store.ready()
    assert store.size == 0
    with pytest.raises(UsageError, match="is not complete"):
        store.sample()
    store.add(simple_chunk([3, 4], [0, 0], 5))
    second, _ = store.sample()
    assert second["obs"].data_ptr() == first["obs"].data_ptr()
    assert second["obs"].flatten().tolist() == [3, 4]


def test_a_batch_without_ends_has_empty_finals_of_the_right_type() -> None:
    store = RolloutStore(rows=1, columns=1)
    store.add(simple_chunk([1], [0], 2))
    batch, _ = store.sample()
    assert batch["final_at"].shape == (0, 2)
    assert batch["final_at"].dtype == torch.int64
    assert batch["final_obs"].shape == (0, 1)
    assert batch["final_obs"].dtype == torch.float32


def test_nested_observations_keep_their_tree() -> None:
    chunk = simple_chunk([1, 2], [0, 0], 3, ends={1: (True, 9)})
    nest = lambda x: {"a/a": {"b": x}, "c": x + 100}  # noqa: E731
    chunk.rows["obs"], chunk.last_obs, chunk.final_obs = (
        nest(chunk.rows["obs"]),
        nest(chunk.last_obs),
        nest(chunk.final_obs),
    )
    store = RolloutStore(rows=2, columns=1)
    store.add(chunk)
    batch, _ = store.sample()
    assert batch["obs"]["a/a"]["b"].flatten().tolist() == [1, 2]
    assert batch["last_obs"]["c"].flatten().tolist() == [103]
    assert batch["final_obs"]["a/a"]["b"].flatten().tolist() == [9]


@pytest.mark.parametrize("delivered", [(0, 0), (3, 0), (5, 2), (9, 4), (4, 4)])
def test_partial_content_survives_a_restore(delivered: tuple[int, int]) -> None:
    chunks = whole(5, 12, 2, 2)
    one, two = RolloutStore(4, 4, 2), RolloutStore(4, 4, 2)
    for c, rows in enumerate(delivered):
        if rows:
            one.add(piece(chunks[c], 0, rows))
    if one.ready():
        one.sample()
    two.restore(copy.deepcopy(one.state()))
    assert one.metrics() == two.metrics()
    for c, rows in enumerate(delivered):
        for store in (one, two):
            store.add(piece(chunks[c], rows, 12))
    while one.ready():
        assert two.ready()
        assert equal(copied(one.sample()[0]), copied(two.sample()[0]))
    assert not two.ready()


def test_metrics_say_what_waits() -> None:
    store = RolloutStore(rows=4, columns=2, collectors=2)
    assert store.metrics() == {"size": 0, "fill": 0, "staleness": 0}
    store.add(simple_chunk([1, 1, 2], [0] * 3, 3, collector=0, holes=[0], version=6))
    store.add(simple_chunk([1], [0], 3, collector=1, version=4))
    assert store.metrics() == {"size": 3, "fill": 0.5, "staleness": 1.0}  # 4 of 8 rows; versions 6 and 4, newest 6


def edit(**rows: Any) -> Chunk:
    chunk = simple_chunk([1, 2], [0, 0], 3)
    chunk.rows.update(rows)
    chunk.rows = {name: value for name, value in chunk.rows.items() if value is not None}
    return chunk


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (edit(reward=None), "has no rows.reward"),
        (edit(logp=np.zeros((2, 1), np.float32)), "has the fields .*'logp'.* earlier chunks had"),
        (
            edit(obs=np.zeros((2, 1, 3), np.float32)),
            r"obs of rows is float32 \(2, 1, 3\), it must be float32 \(2, 1, 1\)",
        ),
        (edit(reward=np.zeros((2, 1))), "reward of rows is float64"),
        (edit(terminated=np.ones((2, 1), bool)), "list every ended row"),
        (simple_chunk([1], [0], 2, collector=1), "collectors 0 to 0"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused_with_a_sentence(chunk: Chunk, said: str) -> None:
    store = RolloutStore(rows=4, columns=1)
    store.add(simple_chunk([0], [0], 1))
    with pytest.raises(BatchError, match=said):
        store.add(chunk)
    assert store.size == 1


def test_collectors_must_share_the_columns_equally() -> None:
    with pytest.raises(ConfigError, match="3 columns cannot be shared by 2 collectors"):
        RolloutStore(rows=1, columns=3, collectors=2)


def test_a_column_that_starts_another_episode_though_its_last_one_did_not_end_is_cut_there() -> None:
    store, zero = RolloutStore(4, 2, 2), [0.0, 0.0]
    store.add(simple_chunk([1.0, 2.0], zero, 5.0, first=[0]))
    store.add(simple_chunk([1.0, 6.0], zero, 6.0, holes=[1], collector=1))  # nothing was decided in its last row
    for c in (0, 1):  # of workers that took the place of lost ones
        store.add(simple_chunk([8.0, 9.0], zero, 10.0, first=[0], collector=c))
    batch, _ = store.sample()
    assert batch["truncated"].tolist() == [[False, True], [True, False], [False, False], [False, False]]
    assert batch["final_at"].tolist() == [[0, 1], [1, 0]]
    assert batch["final_obs"].tolist() == [[6.0], [5.0]]


def test_an_episode_that_goes_on_or_ended_is_not_cut_where_chunks_meet() -> None:
    store, zero = RolloutStore(4, 2, 2), [0.0, 0.0]
    store.add(simple_chunk([1.0, 2.0], zero, 3.0))
    store.add(simple_chunk([1.0, 2.0], zero, 8.0, ends={1: (True, 3.0)}, collector=1))
    store.add(simple_chunk([3.0, 4.0], zero, 5.0))
    store.add(simple_chunk([8.0, 9.0], zero, 10.0, first=[0], collector=1))
    batch, _ = store.sample()
    assert not batch["truncated"].any()
    assert batch["final_at"].tolist() == [[1, 1]]
