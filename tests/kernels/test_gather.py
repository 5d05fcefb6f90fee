"""Kernels of the replay ring: numbers worked out by hand, and agreement with the same code run as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.data.replay.leaf import words
from rookery.kernels import gather
from rookery.kernels.gather import (
    COUNT,
    CUT,
    FINAL,
    FIRST,
    FLAGS,
    HEAD,
    INSERTED,
    META,
    REUSE,
    STALE,
    STEPS,
    TERMINATED,
    TRUNCATED,
    VALID,
    WIDTH,
)


class Table:
    """An empty ring of one lane, as the kernels see it."""

    def __init__(self, slots: int, columns: int, entries: int = 16):
        self.meta = np.zeros((slots, columns, META), np.int32)
        self.meta[..., FINAL] = -1
        self.lanes = np.zeros((1, gather.LANE), np.int64)
        self.lanes[0, WIDTH] = columns
        self.version_of = np.zeros((1, slots), np.int64)
        self.free = np.concatenate([[entries], np.arange(entries - 1, -1, -1)])  # the top of the stack is entry 0
        self.taken = np.full(entries + 2 * columns, -7)

    def insert(
        self,
        columns: list[str],
        version: int = 0,
        max_reuse: int = 0,
        allow_cut: bool = False,
        final_at: Any = None,
        python: bool = False,
    ) -> int:
        """Each column is a text: "." a step, "_" a hole, "T" terminated, "t" truncated, "f" a first step, "|" cut after
        this step. Rewards 1, 2, 4, …"""
        text = np.array([list(column) for column in columns]).T
        terminated, truncated, first, valid = text == "T", text == "t", text == "f", text != "_"
        reward = np.repeat(2.0 ** np.arange(len(text))[:, None], len(columns), 1).astype(np.float32)
        at = (
            np.argwhere((text == "T") | (text == "t") | (text == "|"))
            if final_at is None
            else np.array(final_at, np.int64).reshape(-1, 2)
        )
        run = gather.insert.py_func if python else gather.insert
        lane = self.lanes[0]
        return run(
            lane,
            self.meta,
            self.version_of[0],
            self.free,
            self.taken,
            reward,
            terminated,
            truncated,
            first,
            valid,
            at,
            version,
            max_reuse,
            allow_cut,
        )

    def follow(self, index: list[int], n: int, stack: int = 1, python: bool = False) -> tuple[list[Any], ...]:
        obs_at, next_at = np.zeros((len(index), stack), np.int64), np.zeros((len(index), stack), np.int64)
        reward, discount = np.zeros(len(index), np.float32), np.zeros(len(index), np.float32)
        run = gather.follow.py_func if python else gather.follow
        run(
            np.array(index),
            n,
            0.5,
            self.lanes,
            self.meta,
            self.meta.view(np.float32),
            obs_at,
            next_at,
            reward,
            discount,
        )
        return obs_at.tolist(), next_at.tolist(), reward.tolist(), discount.tolist()


def test_insert_writes_flags_finals_and_counters() -> None:
    ring = Table(slots=6, columns=2)
    assert ring.insert(["f.T", "f_t"], version=7) == 0
    assert ring.meta[:3, 0, FLAGS].tolist() == [VALID | FIRST, VALID, VALID | TERMINATED]
    assert ring.meta[:3, 1, FLAGS].tolist() == [VALID | FIRST, 0, VALID | TRUNCATED]
    assert ring.meta[2, :, FINAL].tolist() == ring.taken[:2].tolist() == [0, 1]
    assert ring.meta[:3].view(np.float32)[:, 0, 0].tolist() == [1, 2, 4]
    assert (ring.lanes[0, HEAD], ring.lanes[0, COUNT], ring.lanes[0, STEPS], ring.lanes[0, INSERTED]) == (3, 3, 5, 5)
    assert ring.version_of[0].tolist() == [7, 7, 7, 0, 0, 0]
    assert ring.free[0] == 14


def test_overwritten_rows_give_their_final_observations_back() -> None:
    ring = Table(slots=4, columns=1, entries=4)
    ring.insert(["T"])
    ring.insert(["f.."])  # 4 rows in a ring of 3: the first one is gone
    assert ring.free[0] == 4
    assert (ring.lanes[0, HEAD], ring.lanes[0, COUNT], ring.lanes[0, STEPS], ring.lanes[0, INSERTED]) == (0, 3, 3, 4)


def test_a_start_without_an_end_before_it_cuts_the_newest_row() -> None:
    ring = Table(slots=6, columns=3)
    ring.insert(["..", ".t", "._"])
    assert ring.insert(["f", "f", "f"]) == 1  # column 0 only: 1 ended, 2 has a hole that still holds the successor
    assert ring.meta[1, 0, FLAGS] == VALID | CUT
    assert ring.taken[:2].tolist() == [0, ring.meta[1, 0, FINAL]]


@pytest.mark.parametrize(
    ("columns", "final_at", "fault"),
    [
        (["..T"], [], gather.MISSING_FINAL),
        (["..T"], [[1, 0]], gather.STRAY_FINAL),
        (["..T"], [[2, 0], [9, 0]], gather.STRAY_FINAL),
        (["_.T"], [[0, 0], [2, 0]], gather.STRAY_FINAL),
        (["T.", ".T"], [[1, 1], [0, 0]], gather.MISSING_FINAL),
        ([".f."], [], gather.NOT_ENDED),
        (["..|"], [[2, 0]], gather.STRAY_FINAL),
    ],
)
def test_rows_that_break_the_contract_are_refused_and_change_nothing(
    columns: list[str], final_at: list[list[int]], fault: int
) -> None:
    ring = Table(slots=8, columns=len(columns))
    before = ring.meta.copy(), ring.lanes.copy(), ring.free.copy()
    assert ring.insert(columns, final_at=final_at) == fault
    assert all((a == b).all() for a, b in zip(before, (ring.meta, ring.lanes, ring.free)))


def test_a_start_after_a_hole_or_an_end_or_an_allowed_cut_is_fine() -> None:
    assert Table(slots=8, columns=1).insert(["._fTf|f"], allow_cut=True) == 0


def test_three_steps_are_followed_to_the_end_to_the_head_and_over_holes() -> None:
    ring = Table(slots=8, columns=1)
    ring.insert(["f._.T.."])  # rewards 1 2 4 8 16 32 64, head at slot 7
    _, next_at, reward, discount = ring.follow([0, 1, 3, 4, 5, 6], n=3)
    assert reward == [1 + 2 / 2 + 8 / 4, 2 + 8 / 2 + 16 / 4, 8 + 16 / 2, 16, 32 + 64 / 2, 64]
    assert discount == [0.125, 0, 0, 0, 0.25, 0.5]
    assert next_at == [[4], [-1], [-1], [-1], [7], [7]]


def test_the_ring_is_followed_across_its_last_slot_but_not_across_the_head() -> None:
    ring = Table(slots=5, columns=1)
    ring.insert(["f..."])
    ring.insert([".."])  # rows in slots 2 3 4 0, the head at 1
    _, next_at, reward, discount = ring.follow([3, 4, 0], n=3)
    assert reward == [8 + 1 / 2 + 2 / 4, 1 + 2 / 2, 2]
    assert next_at == [[1], [1], [1]]
    assert discount == [0.125, 0.25, 0.5]


def test_frames_are_stacked_back_to_the_start_and_to_the_oldest_row() -> None:
    ring = Table(slots=6, columns=1)
    ring.insert([".._.t"])
    ring.insert(["f"])  # slot 0 is free again (the head); oldest row in slot 1
    obs_at, next_at, _, _ = ring.follow([1, 3, 4, 5], n=1, stack=3)
    assert obs_at == [[1, 1, 1], [1, 1, 3], [1, 3, 4], [5, 5, 5]]
    assert next_at == [[1, 1, 3], [1, 3, 4], [3, 4, -1], [5, 5, 0]]


def test_frames_never_come_from_before_an_end_even_if_the_next_row_is_not_marked_first() -> None:
    ring = Table(slots=6, columns=1)
    ring.insert([".t_."])
    assert ring.follow([3], n=1, stack=2)[0] == [[3, 3]]


def test_stale_rows_are_not_drawn_and_spent_rows_neither() -> None:
    ring = Table(slots=8, columns=1)
    for version in range(4):
        ring.insert([".."[: 1 + version % 2]], version)  # rows per version: 1 2 1 2
    gather.expire(ring.lanes, ring.meta, ring.version_of, 1, 1)
    assert ring.lanes[0, STALE] == 1
    index = np.zeros(3, np.int64)
    # five fresh rows in slots 1 … 5: 0.0 → 1, again 0.0 is spent, 0.99 → 5, 0.5 → 3
    assert gather.draw(np.array([0.0, 0.0, 0.99, 0.5, 0.7]), 0, index, ring.lanes, ring.meta, 1) == 3
    assert index.tolist() == [1, 5, 3]
    out = np.zeros(2, np.int64)
    assert gather.eligible(ring.lanes, ring.meta, 1, out) == 2
    assert out.tolist() == [2, 4]
    index = np.zeros(2, np.int64)
    assert gather.draw_listed(np.array([0.0, 0.0]), 0, index, out, ring.lanes, ring.meta, 1) == 2
    assert index.tolist() == [2, 4]
    assert ring.meta[:6, 0, REUSE].tolist() == [0, 1, 1, 1, 1, 1]


def test_a_uniform_number_just_below_one_stays_inside() -> None:
    ring = Table(slots=8, columns=1)
    ring.insert(["......."])
    index = np.zeros(1, np.int64)
    assert gather.draw(np.array([np.nextafter(1.0, 0.0)]), 0, index, ring.lanes, ring.meta, 0) == 1
    assert index[0] == 6


@pytest.mark.parametrize("seed", range(20))
def test_compiled_kernels_agree_with_plain_python(seed: int) -> None:
    rng = np.random.default_rng(seed)
    compiled, plain = Table(slots=7, columns=2), Table(slots=7, columns=2)
    ended = [True, True]
    for _ in range(30):
        columns = []
        for b in range(2):
            text = ""
            for _ in range(3):
                text += "_" if rng.random() < 0.2 else "f" if ended[b] else str(rng.choice([".", ".", "T", "t"]))
                ended[b] = text[-1] in "Tt" or (ended[b] and text[-1] == "_")
            columns.append(text)
        assert compiled.insert(columns) == plain.insert(columns, python=True) >= 0
        for a, b in (
            (compiled.meta, plain.meta),
            (compiled.lanes, plain.lanes),
            (compiled.free, plain.free),
            (compiled.taken, plain.taken),
        ):
            assert (a == b).all()
        drawn = [
            slot * 2 + c
            for c in range(2)
            for slot in range(7)
            if slot != compiled.lanes[0, HEAD] and compiled.meta[slot, c, FLAGS] & VALID
        ]
        assert compiled.follow(drawn, n=3, stack=2) == plain.follow(drawn, n=3, stack=2, python=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64, np.bool_, np.int16])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 4), (0,)])
def test_rows_of_any_type_are_copied_from_the_ring_and_the_side_table(dtype: type, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    ring, finals = rng.integers(0, 100, (5, 2, *shape)).astype(dtype), rng.integers(0, 100, (3, *shape)).astype(dtype)
    out = np.zeros((4, *shape), dtype)
    gather.copy_rows(words(ring, 2), words(finals, 1), np.array([0, 9, -1, -3]), words(out, 1))
    np.testing.assert_array_equal(out, np.stack([ring[0, 0], ring[4, 1], finals[0], finals[2]]))
