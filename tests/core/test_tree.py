"""Trees: plain nested dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.core.tree import flatten, leaves, tree_copy_into, tree_map, tree_take, unflatten, walk

TREE = {"a": 1, "b": {"c": 2, "d": {"e": 3}}}


def test_map_keeps_the_structure_and_pairs_equal_places() -> None:
    assert tree_map(lambda x: x * 10, TREE) == {"a": 10, "b": {"c": 20, "d": {"e": 30}}}
    assert tree_map(lambda x, y, z: x + y + z, TREE, TREE, TREE) == tree_map(lambda x: 3 * x, TREE)
    assert tree_map(lambda x: x + 1, 1) == 2


def test_map_pairs_by_name_and_not_by_order() -> None:
    assert tree_map(lambda x, y: x - y, {"a": 1, "b": 2}, {"b": 2, "a": 1}) == {"a": 0, "b": 0}
    with pytest.raises(KeyError):
        tree_map(lambda x, y: x, {"a": 1}, {"b": 1})


def test_leaves_come_in_the_order_of_the_keys() -> None:
    assert leaves(TREE) == [1, 2, 3]
    assert leaves(7) == [7]
    assert list(walk(TREE)) == [("a", 1), ("b/c", 2), ("b/d/e", 3)]


def test_flatten_names_leaves_by_their_path() -> None:
    assert flatten(TREE) == {"a": 1, "b/c": 2, "b/d/e": 3}
    assert flatten(7) == {"": 7}


@pytest.mark.parametrize(
    "tree",
    [
        TREE,
        7,
        {},
        {"robot/arm": 1, "robot": {"arm": 2}},  # these two would share the path "robot/arm"
        {"a~1b": 1, "a/b": 2, "a~b": 3, "~": 4, "~2": 5},
        {"": 1, "x": {"": {"": 2}}},
        {"numpy": {"act/0": {"state": {"state": 1, "inc": 2}}}},
    ],
    ids=str,
)
def test_unflatten_is_the_inverse_of_flatten(tree: Any) -> None:
    flat = flatten(tree)
    assert len(flat) == len(leaves(tree))
    assert unflatten(flat) == tree


def test_take_indexes_every_leaf_alike() -> None:
    tree = {"a": np.arange(4), "b": {"c": np.arange(8).reshape(4, 2)}}
    taken = tree_take(tree, [2, 0])
    assert taken["a"].tolist() == [2, 0]
    assert taken["b"]["c"].tolist() == [[4, 5], [0, 1]]


def test_copy_into_writes_the_named_place_of_every_leaf() -> None:
    target = {"a": np.zeros(3), "b": {"c": np.zeros((3, 2))}}
    tree_copy_into(target, 1, {"b": {"c": np.array([5.0, 6.0])}, "a": 7.0})
    assert target["a"].tolist() == [0, 7, 0]
    assert target["b"]["c"].tolist() == [[0, 0], [5, 6], [0, 0]]
    lone = np.zeros(2)
    tree_copy_into(lone, slice(None), 3.0)
    assert lone.tolist() == [3, 3]
