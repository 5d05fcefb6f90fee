"""What can be done to one leaf of a batch:
a numpy array, a torch tensor, a numpy scalar, a string or an opaque object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def below(path: str, key: str) -> str:
    """The path of a child, as messages write it."""
    return f"{path}/{key}" if path else key


def shape_of(leaf: Any) -> tuple[int, ...]:
    """Strings and opaque objects are scalars."""
    return tuple(leaf.shape) if isinstance(leaf, np.ndarray | Tensor) else ()


def scalar(value: Any) -> Any:
    """A Python number or string as the numpy scalar of its type; other objects as they are."""
    return np.asarray(value)[()] if isinstance(value, bool | int | float | complex | str | bytes) else value


def array_of(values: Sequence[Any]) -> np.ndarray:
    """One array of a list; if it is ragged, an array of objects."""
    try:
        return np.asarray(values)
    except ValueError:  # numpy refuses inhomogeneous shapes
        ragged = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            ragged[i] = value
        return ragged


def to_array(leaf: Tensor) -> np.ndarray:
    return leaf.detach().cpu().numpy()


def to_tensor(leaf: Any, path: str) -> Tensor:
    """Shares the array's memory unless torch cannot (read-only, backwards strides)."""
    if isinstance(leaf, Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"key {path!r} holds {array.dtype} values ({leaf!r:.60}), which torch cannot hold; pop it first"
        )
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.as_tensor(array, device="cpu")


def like(value: Any, leaf: Any) -> Any:
    """An array operand in the kind of the leaf, so that numpy and torch meet."""
    if isinstance(leaf, Tensor):
        return torch.as_tensor(value, device=leaf.device) if isinstance(value, np.ndarray | np.generic) else value
    return to_array(value) if isinstance(value, Tensor) else value


def zero_of(leaf: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of the leaf's kind and dtype; objects become None, strings empty."""
    if isinstance(leaf, Tensor):
        return leaf.new_zeros(shape)
    dtype = np.asarray(leaf).dtype if isinstance(leaf, np.ndarray | np.generic) else np.dtype(object)
    return (np.full(shape, None, object) if dtype.hasobject else np.zeros(shape, dtype))[()]


def plain_index(index: Any) -> Any:
    """Tensors in an index as arrays: numpy would take a tensor of one element for a number."""
    if isinstance(index, tuple):
        return tuple(plain_index(part) for part in index)
    return to_array(index) if isinstance(index, Tensor) else index


def _backwards(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, slice) and part.step is not None and part.step < 0 for part in parts)


def take(leaf: Any, index: Any, path: str) -> Any:
    """`leaf[index]`, with the path in the message when it fails."""
    if not _is_array(leaf) or isinstance(leaf, str | bytes):  # a numpy string would be indexed by letters
        raise IndexError(f"key {path!r} is a {type(leaf).__name__}, which has no rows: cannot take [{index!r}]")
    try:
        if isinstance(leaf, Tensor) and _backwards(index):  # torch has no negative steps
            places = np.arange(leaf.numel()).reshape(tuple(leaf.shape))[index]
            return leaf.reshape(-1)[torch.as_tensor(np.ascontiguousarray(places), device=leaf.device)]
        return leaf[index]
    except IndexError as error:
        raise IndexError(f"key {path!r} of shape {shape_of(leaf)}: cannot take [{index!r}]: {error}") from None


def put(leaf: Any, index: Any, value: Any, path: str) -> None:
    """`leaf[index] = value` in place; None means zero."""
    if not isinstance(leaf, np.ndarray | Tensor):
        raise IndexError(f"key {path!r} is a scalar ({leaf!r:.60}), which has no rows: cannot assign to [{index!r}]")
    try:
        leaf[index] = zero_of(leaf, ()) if value is None else like(value, leaf)
    except (IndexError, ValueError, RuntimeError, TypeError) as error:
        got = f"{type(value).__name__} of shape {np.shape(value)}"
        raise type(error)(
            f"key {path!r} of shape {shape_of(leaf)}: cannot assign {got} to [{index!r}]: {error}"
        ) from None


def joined(leaves: list[Any], axis: int | None, path: str) -> Any:
    """Stacked along a new axis, or concatenated along the first one if the axis is None.

    One tensor makes all tensors.
    """
    try:
        if any(isinstance(leaf, Tensor) for leaf in leaves):
            tensors = [to_tensor(leaf, path) for leaf in leaves]
            return torch.cat(tensors) if axis is None else torch.stack(tensors, axis)
        return np.concatenate(leaves) if axis is None else np.stack([_boxed(leaf) for leaf in leaves], axis)
    except (ValueError, RuntimeError) as error:
        shapes = ", ".join(map(str, sorted({shape_of(leaf) for leaf in leaves})))
        raise ValueError(f"key {path!r}: cannot join leaves of shapes {shapes}: {error}") from None


def _boxed(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf
    box = np.empty((), dtype=object)  # an opaque object may look like a sequence, but it is one thing
    box[()] = leaf
    return box


def same(a: Any, b: Any, tolerance: float) -> bool:
    """Equal shape and values; NaN equals NaN."""
    if a is None or b is None or not (_is_array(a) and _is_array(b)):
        return bool(a is b or (not _is_array(a) and not _is_array(b) and a == b))
    a, b = (to_array(leaf) if isinstance(leaf, Tensor) else np.asarray(leaf) for leaf in (a, b))
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "biufc" and b.dtype.kind in "biufc":
        return bool(np.allclose(a, b, rtol=0.0, atol=tolerance, equal_nan=True))
    return bool(np.array_equal(a, b))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic | Tensor)
