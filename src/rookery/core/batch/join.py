"""Making trees of what people write, and joining trees whose keys differ: the constructor, `stack` and `cat` of Batch.

A tree here is a plain nested dict.
None and {} mean "nothing there": wherever another tree has data, they are filled with zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.core.batch.leaf import array_of, below, joined, scalar, shape_of, zero_of
from rookery.core.batch.node import Node
from rookery.core.tree import Tree


def tree_of(value: Any) -> Tree:
    """Dicts, named tuples and batches become dicts,
    lists arrays (of dicts: one dict of arrays), numbers numpy scalars.
    """
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        holds_dicts = value.dtype == object and value.ndim > 0 and any(_is_mapping(item) for item in value.flat)
        return _from_list(value.tolist()) if holds_dicts else value
    if isinstance(value, Node):
        return {key: tree_of(part) for key, part in value._data.items()}
    if isinstance(value, Mapping):
        return {as_key(key): tree_of(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return tree_of(value._asdict())
    return _from_list(value) if isinstance(value, list | tuple) else scalar(value)


def stack_trees(trees: Iterable[Any], axis: int = 0) -> dict[str, Any]:
    """Join along a new axis."""
    return _join([_mapping(tree) for tree in trees], axis, None, "")


def cat_trees(trees: Iterable[Any], lengths: list[int]) -> dict[str, Any]:
    """Join along the first axis; `lengths` says how many rows each tree has."""
    return _join([_mapping(tree) for tree in trees], None, lengths, "")


def as_key(key: Any) -> str:
    """The key, if it is one that a batch can have."""
    if not isinstance(key, str):
        raise TypeError(f"the keys of a Batch are strings, got {key!r} ({type(key).__name__})")
    return key


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping | Node) or (isinstance(value, tuple) and hasattr(value, "_asdict"))


def _mapping(value: Any) -> dict[str, Any]:
    tree = {} if value is None else tree_of(value)
    if not isinstance(tree, dict):
        raise TypeError(f"expected a batch, a dict or None to join, got a {type(value).__name__} ({value!r:.60})")
    return tree


def _from_list(values: Sequence[Any]) -> Any:
    if not values or isinstance(values[0], int | float):
        return array_of(values)
    if isinstance(values[0], list | tuple):
        values = [tree_of(value) for value in values]
    if any(_is_mapping(value) for value in values):
        return stack_trees(values)
    if all(isinstance(value, Tensor) and value.shape == values[0].shape for value in values):
        return torch.stack(list(values))
    return array_of(values)


def _is_void(tree: Tree) -> bool:
    """A dict without any leaf but other such dicts."""
    return isinstance(tree, dict) and all(_is_void(part) for part in tree.values())


def _join(trees: list[dict[str, Any]], axis: int | None, lengths: list[int] | None, path: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key in dict.fromkeys(key for tree in trees for key in tree):
        values, at = [tree.get(key) for tree in trees], below(path, key)
        present = [value for value in values if value is not None and not _is_void(value)]
        nested = [isinstance(value, dict) for value in present]
        if not present:
            result[key] = {} if any(isinstance(value, dict) for value in values) else None
        elif all(nested):
            result[key] = _join([{} if value is None else value for value in values], axis, lengths, at)
        elif any(nested):
            raise TypeError(f"key {at!r} is a nested batch in some of the batches to join and an array in others")
        else:
            result[key] = joined(_padded(values, present, lengths), axis, at)
    return result


def _padded(values: list[Any], present: list[Any], lengths: list[int] | None) -> list[Any]:
    model = next((value for value in present if isinstance(value, Tensor)), present[0])
    shape = shape_of(model)

    def zeros(i: int) -> Any:
        return zero_of(model, shape if lengths is None else (lengths[i], *shape[1:]))

    return [zeros(i) if value is None or isinstance(value, dict) else value for i, value in enumerate(values)]
