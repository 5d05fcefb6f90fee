"""One array of the ring per leaf of a step, and the sentences for chunks that do not fit it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.spec import Leaf
from rookery.core.tree import Tree, walk
from rookery.data.replay.scratch import Zeros
from rookery.kernels import gather

FLAGS = ("terminated", "truncated", "first", "valid")  # bool [T, B] of every chunk
FAULTS = {
    gather.BAD_SHAPE: "reward, terminated, truncated, first and valid must all be [T, B], and final_at [K, 2]",
    gather.MISSING_FINAL: "a row ended but final_at does not list it: "
    "without its final observation the successor is unknown",
    gather.STRAY_FINAL: "final_at lists a row that did not end, or is not in (t, b) order",
    gather.NOT_ENDED: "a row starts an episode (first) although the row before it did not end "
    "(terminated or truncated)",
}


def words(array: np.ndarray, lead: int) -> np.ndarray:
    """The array as [rows, words] of the widest integer that divides a row:
    copying needs no other meaning, and few compiled kernels.
    """
    rows, width = math.prod(array.shape[:lead]), math.prod(array.shape[lead:])
    size = width * array.dtype.itemsize
    word = np.int64 if size % 8 == 0 else np.int32 if size % 4 == 0 else np.uint8
    if size == 0 or rows == 0:
        return np.zeros((rows, size // np.dtype(word).itemsize), word)
    return array.reshape(rows, width).view(word)


class Stored:
    """The ring's array [slots, columns, …] of one leaf;
    leaves of the observation also have the side table of final observations.
    """

    __slots__ = (
        "data",
        "dtype",
        "expected",
        "expected_last",
        "final_words",
        "finals",
        "key",
        "lanes",
        "name",
        "path",
        "rest",
        "shape",
        "words",
    )

    def __init__(
        self, path: tuple[str, ...], key: str, leaf: Leaf, shape: tuple[int, int, int], zeros: Zeros = np.zeros
    ):
        slots, columns, lanes = shape
        self.path, self.name, self.rest = path, path[0], path[1:]  # where the leaf is in chunk.rows
        self.key = key  # the same as one string, see `flatten`
        self.shape, self.dtype = leaf.shape, leaf.dtype
        self.data = zeros((slots, columns, *leaf.shape), leaf.dtype)
        self.words = words(self.data, 2)
        width = columns // lanes
        self.lanes = [self.data[:, lane * width : (lane + 1) * width] for lane in range(lanes)]
        self.expected: tuple[int, ...] = ()  # shape of this leaf in the rows of a chunk as long as the last one
        self.expected_last: tuple[int, ...] = ()  # and in its last_obs
        self.finals = np.zeros((0, *leaf.shape), leaf.dtype)
        self.final_words = words(self.finals, 1)

    def grow_finals(self, entries: int) -> None:
        old = self.finals
        self.new_finals(entries)
        self.finals[: len(old)] = old

    def new_finals(self, entries: int) -> None:
        """An empty side table."""
        self.finals = np.zeros((entries, *self.shape), self.dtype)
        self.final_words = words(self.finals, 1)


def stored_spec(obs_spec: Tree, action_spec: Tree, extras: dict[str, Tree] | None = None) -> dict[str, Tree]:
    """The fields of a ring; actions are kept as float32 (of a box, whatever the env's dtype) or int64,
    which rules and losses know.
    """

    def action_leaf(leaf: Leaf) -> Leaf:
        dtype = np.dtype(np.float32 if leaf.kind == "box" else np.int64)
        return Leaf(leaf.kind, leaf.shape, dtype, leaf.sizes, leaf.start)

    action = _map(action_leaf, action_spec)
    return {"obs": obs_spec, "action": action} | (extras or {})


def _map(fn: Any, tree: Tree) -> Tree:
    return {key: _map(fn, value) for key, value in tree.items()} if isinstance(tree, dict) else fn(tree)


def paths(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys that lead to each leaf, in the order of `walk`."""
    if not isinstance(tree, dict):
        yield above
        return
    for key, value in tree.items():
        yield from paths(value, (*above, key))


def find(tree: Tree, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def mismatch(chunk: Chunk, leaves: list[Stored], width: int, lanes: int) -> str | None:
    """Why the chunk does not fit leaves of this shape, with its collector, or None."""
    if not 0 <= chunk.collector < lanes:
        return f"chunk of collector {chunk.collector}: this store was made for collectors 0 to {lanes - 1}."
    rows = np.shape(chunk.rows["valid"]) if "valid" in chunk.rows else ()
    length = rows[0] if rows else 0
    ended = np.shape(chunk.final_at)[0] if np.ndim(chunk.final_at) else 0
    problems = [_problem(f"rows.{name}", chunk.rows, (name,), (length, width), np.dtype(bool)) for name in FLAGS]
    problems.append(_problem("rows.reward", chunk.rows, ("reward",), (length, width), np.dtype(np.float32)))
    problems.append(_problem("final_at", chunk.final_at, (), (ended, 2), np.dtype(np.int64)))
    for leaf in leaves:
        problems.append(
            _problem(f"rows.{'.'.join(leaf.path)}", chunk.rows, leaf.path, (length, width, *leaf.shape), leaf.dtype)
        )
        if leaf.name == "obs":
            name = ".".join(("", *leaf.rest))
            problems.append(_problem("last_obs" + name, chunk.last_obs, leaf.rest, (width, *leaf.shape), leaf.dtype))
            if ended:
                problems.append(
                    _problem("final_obs" + name, chunk.final_obs, leaf.rest, (ended, *leaf.shape), leaf.dtype)
                )
    broken = [problem for problem in problems if problem]
    if not broken:
        return None
    shape = f"[T, B] has T={length} rows here, B={width} columns."
    return f"chunk of collector {chunk.collector}: {'; '.join(broken)}. {shape}"


def _problem(name: str, tree: Tree, path: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype) -> str | None:
    wanted = f"{name} must be {dtype} {shape}"
    try:
        value = find(tree, path)
    except (KeyError, TypeError, IndexError):
        known = ", ".join(where for where, _ in walk(tree)) if isinstance(tree, dict) else type(tree).__name__
        return f"{wanted}, but it is missing (there is: {known})"
    if not isinstance(value, np.ndarray):
        return f"{wanted}, but it is a {type(value).__name__}"
    if value.shape != shape or not same_kind(value.dtype, dtype):
        return f"{wanted}, but it is {value.dtype} {value.shape}"
    return None


def same_kind(dtype: np.dtype, kept: np.dtype) -> bool:
    """Equal types; int64 also takes smaller integers, as multi-binary actions may be int8."""
    return dtype == kept or (kept == np.int64 and np.can_cast(dtype, kept, "safe"))
