"""The sum-tree: numbers worked out by hand, and sums that are exact after any history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.kernels import places, sumtree
from rookery.kernels.gather import DRAWN, FLAGS, HEAD, LANE, META, REUSE, SPENT, VALID, WIDTH

ALMOST_ONE = np.nextafter(1.0, 0.0)


def tree_of(*mass: float) -> np.ndarray:
    tree = np.concatenate([np.zeros(len(mass)), mass])
    sumtree.rebuild(tree)
    return tree


def drawn(tree: np.ndarray, uniform: Any, python: bool = False) -> tuple[list[int], list[float]]:
    u = np.array(uniform, float)
    address, mass = np.zeros(len(u), np.int64), np.zeros(len(u))
    (sumtree.draw.py_func if python else sumtree.draw)(tree, u, address, mass)
    return address.tolist(), mass.tolist()


def test_four_leaves_by_hand() -> None:
    tree = tree_of(1.0, 2.0, 3.0, 4.0)
    assert tree[1:].tolist() == [10.0, 3.0, 7.0, 1.0, 2.0, 3.0, 4.0]
    # one stratum: 0.05 · 10 = 0.5 lies in leaf 0, 1 in leaf 1, 2.99 in 1, 3 in 2, 6 in 3
    for u, leaf in ((0.05, 0), (0.1, 1), (0.299, 1), (0.3, 2), (0.599, 2), (0.6, 3), (ALMOST_ONE, 3)):
        assert drawn(tree, [u])[0] == [leaf]
    # two strata [0, 5), [5, 10): 0.5 · 5 = 2.5 and 5 + 0.1 · 5 = 5.5
    assert drawn(tree, [0.5, 0.1]) == ([1, 2], [2.0, 3.0])


def test_inserting_updating_and_removing_by_hand() -> None:
    tree, stamp, top = np.zeros(8), np.zeros(4, np.int32), np.ones(1)
    none = np.zeros(0)
    sumtree.insert(tree, stamp, top, np.array([0, 2]), none, 0.5, 0.0)
    assert tree[1:].tolist() == [2.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0]  # both at the first maximum, 1
    seen = np.array([1, 1], np.int32)
    assert sumtree.update(tree, stamp, top, np.array([2, 0]), seen, np.array([15.0, 3.0]), 0.5, 1.0) == 2
    assert tree[1:].tolist() == [6.0, 2.0, 4.0, 2.0, 0.0, 4.0, 0.0]  # √(15 + 1) and √(3 + 1)
    sumtree.insert(tree, stamp, top, np.array([1]), none, 0.5, 1.0)
    assert tree[5] == top[0] == 4.0  # a new one enters at the maximum
    sumtree.insert(tree, stamp, top, np.array([3]), np.array([24.0]), 0.5, 1.0)
    assert tree[7] == top[0] == 5.0  # √(24 + 1): a given priority raises it too
    sumtree.remove(tree, np.array([2, 0, 0]))
    assert tree[1:].tolist() == [9.0, 4.0, 5.0, 0.0, 4.0, 0.0, 5.0]
    assert top[0] == 5.0
    assert stamp.tolist() == [1, 1, 1, 1]


def test_an_update_of_a_place_that_was_filled_again_or_emptied_is_ignored() -> None:
    tree, stamp, top = np.zeros(4), np.zeros(2, np.int32), np.ones(1)
    both, none, seen = np.array([0, 1]), np.zeros(0), np.array([1, 1], np.int32)
    sumtree.insert(tree, stamp, top, both, none, 1.0, 0.0)
    sumtree.insert(tree, stamp, top, both[:1], none, 1.0, 0.0)
    sumtree.remove(tree, both[1:])
    assert sumtree.update(tree, stamp, top, both, seen, np.array([9.0, 9.0]), 1.0, 0.0) == 0
    assert tree.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert top[0] == 1.0


@pytest.mark.parametrize("python", [False, True])
def test_no_draw_at_any_edge_returns_an_empty_leaf(python: bool) -> None:
    edges = [0.0, 0.25, 0.5, 0.75, ALMOST_ONE, 1.0, 2.0]  # beyond 1 as if rounding had gone wrong
    for mass in ((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (0.1, 0, 0.2, 0), (0, 0.3, 0.3, 0), (5e-324, 0, 0, 1e300)):
        tree = tree_of(*map(float, mass))
        for u in edges:
            (leaf,), (weight,) = drawn(tree, [u], python)
            assert mass[leaf] == weight > 0


def test_the_draw_is_the_same_as_plain_python() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 64, 1024):
        tree = tree_of(*(rng.random(size) * (rng.random(size) < 0.5) + np.eye(size)[0]))
        uniform = rng.random(33)
        assert drawn(tree, uniform) == drawn(tree, uniform, python=True)


def test_every_stratum_gives_one_draw_and_frequencies_follow_the_mass() -> None:
    rng = np.random.default_rng(0)
    mass = np.array([1.0, 0.0, 2.0, 5.0, 0.5, 0.5, 3.0, 4.0])  # 16 in all
    tree, counts = tree_of(*mass), np.zeros(8)
    for _ in range(20_000):
        got = drawn(tree, rng.random(4))[0]
        counts += np.bincount(got, minlength=8)
        # strata of 4: {0, 2, 3}, {3}, {4, 5, 6}, {7}: 1 + 2 + 1 of leaf 3 | 4 of it | 0.5 + 0.5 + 3 | 4
        assert got[0] in (0, 2, 3)
        assert got[1] == 3
        assert got[2] in (4, 5, 6)
        assert got[3] == 7
    expected = 80_000 * mass / 16
    assert np.abs(counts - expected).max() < 5 * np.sqrt(80_000 / 16 * 5)


def test_a_tree_rebuilt_from_its_leaves_is_equal_to_the_bit_after_100_000_operations() -> None:
    rng = np.random.default_rng(3)
    size, n = 256, 100
    tree, stamp, top = np.zeros(2 * size), np.zeros(size, np.int32), np.ones(1)
    done = 0
    while done < 100_000:
        k = int(rng.integers(1, n))
        address, priority = rng.permutation(size)[:k], 10.0 ** rng.uniform(-12, 12, k)
        kind = rng.integers(4)
        if kind == 0:
            sumtree.insert(tree, stamp, top, address, priority[: k * int(rng.integers(2))], 0.6, 1e-6)
        elif kind == 1:
            sumtree.remove(tree, address[: k // 2])
        else:
            sumtree.update(tree, stamp, top, address, stamp[address], priority, 0.6, 1e-6)
        done += k
    other = tree.copy()
    other[:size] = 0
    sumtree.rebuild(other)
    assert tree[1] > 0
    assert other.tobytes() == tree.tobytes()
    assert top[0] >= tree[size:].max()


def test_weights_by_hand() -> None:
    """P = 1/8, 2/8, 4/8 with N = 8: (N P)^−½ = 1, 0.707, 0.5, and the largest is 1 already."""
    weight = np.zeros(3, np.float32)
    sumtree.weigh(np.array([1.0, 2.0, 4.0]), 0.5, weight)
    assert weight.tolist() == pytest.approx([1.0, 2**-0.5, 0.5], rel=1e-7)
    sumtree.weigh(np.array([10.0, 40.0, 20.0]), 1.0, weight)
    assert weight.tolist() == [1.0, 0.25, 0.5]
    sumtree.weigh(np.array([10.0, 40.0, 20.0]), 0.0, weight)
    assert weight.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("numbers", "which"),
    [([0, 1], -1), ([1, -1e-9], 1), ([np.nan, -1], 0), ([0, 0, np.inf], 2), ([1e39], 0), ([3.4e38], -1), ([], -1)],
)
def test_bad_priorities_are_found(numbers: list[float], which: int) -> None:
    assert sumtree.bad(np.array(numbers, float)) == which


def test_extent_counts_only_places_with_mass() -> None:
    assert sumtree.extent(np.array([0.0, 3.0, 0.5, 0.0, 1.0])) == (3, 0.5, 3.0)


def ring(slots: int, columns: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    meta, lanes = np.zeros((slots, columns, META), np.int32), np.zeros((1, LANE), np.int64)
    meta[..., FLAGS] = VALID
    lanes[0, WIDTH], lanes[0, HEAD] = columns, head
    return meta, lanes


def test_the_newest_rows_are_listed_over_the_seam_with_their_holes_and_the_head() -> None:
    meta, lanes = ring(5, 2, head=1)  # the last two rows lie in slots 4 and 0
    meta[4, 1, FLAGS] = 0
    steps, gone = np.zeros(4, np.int64), np.zeros(6, np.int64)
    n, m = places.newest(lanes[0], meta, 2, steps, gone)
    assert steps[:n].tolist() == [8, 0, 1]  # slot · 2 + column
    assert gone[:m].tolist() == [9, 2, 3]


def test_draws_beyond_max_reuse_are_dropped_and_used_up_rows_are_told() -> None:
    meta, lanes = ring(4, 1, head=0)
    meta[2, 0, REUSE] = 1
    index, mass, spent = np.array([3, 2, 2, 1, 1, 1]), np.array([9.0, 3, 2, 1, 1, 1]), np.zeros(6, np.int64)
    filled, used_up = places.take(index, mass, 1, lanes, meta, 2, spent)  # the first draw is of an earlier call
    assert filled == 4
    assert index[:4].tolist() == [3, 2, 1, 1]
    assert mass[:4].tolist() == [9, 3, 1, 1]
    assert spent[:used_up].tolist() == [2, 1]
    assert meta[:, 0, REUSE].tolist() == [0, 2, 2, 0]
    assert (lanes[0, DRAWN], lanes[0, SPENT]) == (3, 2)
    assert places.take(index, mass, 0, lanes, meta, 0, spent) == (6, 0)  # no limit
