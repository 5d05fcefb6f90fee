"""Batch: a nested dict of arrays that behaves like a dict and like an array, the comfortable public edge of Rookery.

What goes in: dicts and named tuples become nested batches, lists become arrays (a list of dicts becomes one batch of
stacked leaves), numbers become numpy scalars, torch tensors stay tensors, arrays are kept without a copy, None stays
None ("reserved, no data yet"). Indices and arithmetic reach every leaf. Names of methods are read as items:
`b["shape"]`. Hot paths use plain dicts (`to_dict`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from operator import add, iadd, imul, isub, itruediv, mul, sub, truediv
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.core.batch.join import as_key, cat_trees, stack_trees, tree_of
from rookery.core.batch.leaf import below, plain_index, put, same, shape_of, take, to_array, to_tensor, zero_of
from rookery.core.batch.node import Node, assign, combine, is_void

_RAISE = object()  # `pop` without a default
_Op = Callable[[Any, Any], Any]


def _operator(op: _Op) -> Callable[[Batch, Any], Batch]:
    return lambda self, other: self._combine(op, other, Batch())


def _reflected(op: _Op) -> Callable[[Batch, Any], Batch]:
    return lambda self, other: self._combine(lambda leaf, operand: op(operand, leaf), other, Batch())


def _inplace(op: _Op) -> Callable[[Batch, Any], Batch]:
    return lambda self, other: self._combine(op, other, self)


class Batch(Node):
    """`Batch(obs={"x": [1, 2]}, reward=[0.5, 1.0])`;
    also `Batch({"reward": …})` and `Batch([dict, dict])`, which stacks.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy_array + batch must ask the batch, not make an array of objects

    def __new__(cls, *_: Any, **__: Any) -> Batch:
        self = object.__new__(cls)
        object.__setattr__(self, "_data", {})  # here: unpickling an empty batch calls neither __init__ nor __setstate__
        return self

    def __init__(self, content: Mapping[str, Any] | Batch | Iterable[Any] | None = None, /, **entries: Any):
        if content is not None and not isinstance(content, Mapping | Batch):
            content = Batch.stack(content)
        self.update(content, **entries)

    # Like a dict

    def __getattr__(self, name: str) -> Any:
        try:
            return self._data[name]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            raise AttributeError(f"{name!r} is part of Batch itself: write batch[{name!r}] = … to use it as a key")
        self._data[name] = _entry(value)

    def __delattr__(self, name: str) -> None:
        if name not in self._data:
            raise AttributeError(self._unknown(name))
        del self._data[name]

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def keys(self) -> KeysView[str]:
        return self._data.keys()

    def values(self) -> ValuesView[Any]:
        return self._data.values()

    def items(self) -> ItemsView[str, Any]:
        return self._data.items()

    def get(self, key: str, default: Any = None) -> Any:
        return self._data.get(key, default)

    def pop(self, key: str, default: Any = _RAISE) -> Any:
        if key not in self._data and default is _RAISE:
            raise KeyError(self._unknown(key))
        return self._data.pop(key, default)

    def update(self, content: Mapping[str, Any] | Batch | None = None, /, **entries: Any) -> None:
        """Set many keys; nested batches are replaced, not merged."""
        for source in (content, entries):
            for key, value in source.items() if source is not None else ():
                self._data[as_key(key)] = _entry(value)

    def to_dict(self) -> dict[str, Any]:
        """The same leaves in plain nested dicts."""
        return {key: value.to_dict() if isinstance(value, Batch) else value for key, value in self._data.items()}

    def _unknown(self, name: object) -> str:
        near = difflib.get_close_matches(str(name), self._data, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"this batch has no key {name!r}.{hint} Keys: {', '.join(sorted(self._data)) or 'none'}"

    # Like an array

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            if index not in self._data:
                raise KeyError(self._unknown(index))
            return self._data[index]
        if not self._data:
            raise IndexError(f"an empty Batch has no rows, asked for [{index!r}]")
        index = plain_index(index)
        return self._map(lambda path, leaf: take(leaf, index, path))

    def __setitem__(self, index: Any, value: Any) -> None:
        """`b["key"] = value`, or rows of all leaves;
        keys that the other batch lacks are set to zero, unknown ones are an error.
        """
        if isinstance(index, str):
            self._data[index] = _entry(value)
        else:
            assign(self, plain_index(index), Batch(value) if isinstance(value, Mapping) else value)

    def __len__(self) -> int:
        """Rows, which all leaves must agree on; None and empty batches have no say."""
        lengths: dict[int, str] = {}
        for path, leaf in self._walk():
            if not shape_of(leaf):
                raise TypeError(f"this batch has no length: its leaf {path!r} is a scalar ({leaf!r:.60})")
            lengths.setdefault(shape_of(leaf)[0], path)
        if len(lengths) > 1:
            text = ", ".join(f"{path!r} has {length}" for length, path in lengths.items())
            raise ValueError(f"the leaves of this batch have different lengths: {text}")
        return next(iter(lengths), 0)

    def __bool__(self) -> bool:
        return bool(self._data)  # as a dict; the number of rows is len()

    def __iter__(self) -> Iterator[Batch]:
        """The rows. (`keys()` iterates over names.)"""
        return (self[i] for i in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading dimensions that all leaves share."""
        common: list[int] = []
        for sizes in zip(*(shape_of(leaf) for _, leaf in self._walk())):
            if len(set(sizes)) > 1:
                break
            common.append(sizes[0])
        return tuple(common)

    def split(self, size: int, merge_last: bool = False) -> Iterator[Batch]:
        """Consecutive parts of `size` rows; the shorter rest is the last part, or is merged into the one before it."""
        if size < 1:
            raise ValueError(f"split needs a size of at least 1, got {size}")
        rows = len(self)
        starts = list(range(0, rows, size))
        if merge_last and len(starts) > 1 and rows % size:
            del starts[-1]
        return (self[start:stop] for start, stop in zip(starts, [*starts[1:], rows]))

    @staticmethod
    def stack(batches: Iterable[Any], axis: int = 0) -> Batch:
        """Join along a new axis; a key that some batches lack, or hold as None, is zero there."""
        return _wrap(stack_trees(batches, axis))

    @staticmethod
    def cat(batches: Iterable[Any]) -> Batch:
        """Join along the first axis; a key that some batches lack, or hold as None, is zero in their rows."""
        items = [Batch() if item is None else _entry(item) for item in batches]
        return _wrap(cat_trees(items, [len(item) for item in items]))

    # Emptying, converting, comparing

    def is_empty(self, recurse: bool = False) -> bool:
        """No keys; with `recurse`, a batch that holds nothing but empty batches is empty too."""
        return is_void(self) if recurse else not self._data

    def empty_(self, index: Any = ...) -> Batch:
        """Set all rows, or those of `index`, to zero (objects to None), in place."""
        index = plain_index(index)
        for key, leaf in self._data.items():
            if isinstance(leaf, Batch):
                leaf.empty_(index)
            elif leaf is not None and not isinstance(leaf, np.ndarray | Tensor) and index is ...:
                self._data[key] = zero_of(leaf, ())
            elif leaf is not None:
                put(leaf, index, None, key)
        return self

    @staticmethod
    def empty(batch: Batch, index: Any = ...) -> Batch:
        """A copy with all rows, or those of `index`, set to zero."""
        return batch.copy().empty_(index)

    def copy(self) -> Batch:
        """With its own arrays; opaque objects are shared."""
        return self._map(
            lambda _, leaf: (
                leaf.clone() if isinstance(leaf, Tensor) else leaf.copy() if isinstance(leaf, np.ndarray) else leaf
            )
        )

    def numpy(self) -> Batch:
        """Every tensor as an array that shares its memory where possible."""
        return self._map(lambda _, leaf: to_array(leaf) if isinstance(leaf, Tensor) else leaf)

    def torch(self, dtype: torch.dtype | None = None, device: str | torch.device = "cpu") -> Batch:
        """Every array and number as a tensor that shares its memory where possible."""
        return self._map(lambda path, leaf: to_tensor(leaf, path).to(device=device, dtype=dtype))

    def equals(self, other: Any, tolerance: float = 0.0) -> bool:
        """Same keys, shapes and values (NaN equals NaN); dtypes, and tensor or array, do not matter."""
        other = Batch(other) if isinstance(other, Mapping) else other
        if not isinstance(other, Batch) or self._data.keys() != other._data.keys():
            return False
        pairs = ((leaf, other._data[key]) for key, leaf in self._data.items())
        return all(
            a.equals(b, tolerance) if isinstance(a, Batch) else not isinstance(b, Batch) and same(a, b, tolerance)
            for a, b in pairs
        )

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Batch) else NotImplemented

    def __getstate__(self) -> dict[str, Any]:
        return self._data

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "_data", dict(state))

    def __repr__(self) -> str:
        if not self._data:
            return "Batch()"
        lines = (f"{key}: {self._data[key]!r},".replace("\n", "\n    ") for key in sorted(self._data))
        return "Batch(\n" + "".join(f"    {line}\n" for line in lines) + ")"

    # Leaf by leaf

    def _map(self, fn: Callable[[str, Any], Any], path: str = "") -> Batch:
        result = Batch()
        for key, leaf in self._data.items():
            at = below(path, key)
            result._data[key] = leaf._map(fn, at) if isinstance(leaf, Batch) else None if leaf is None else fn(at, leaf)
        return result

    def _walk(self, path: str = "") -> Iterator[tuple[str, Any]]:
        for key, leaf in self._data.items():
            if isinstance(leaf, Batch):
                yield from leaf._walk(below(path, key))
            elif leaf is not None:
                yield below(path, key), leaf

    def _combine(self, op: _Op, other: Any, result: Batch) -> Batch:
        combine(op, self, Batch(other) if isinstance(other, Mapping) else other, result)
        return result

    def __neg__(self) -> Batch:
        return self._map(lambda _, leaf: -leaf)

    __add__, __radd__ = _operator(add), _reflected(add)
    __sub__, __rsub__ = _operator(sub), _reflected(sub)
    __mul__, __rmul__ = _operator(mul), _reflected(mul)
    __truediv__, __rtruediv__ = _operator(truediv), _reflected(truediv)
    __iadd__, __isub__, __imul__, __itruediv__ = (_inplace(op) for op in (iadd, isub, imul, itruediv))


def _wrap(tree: Any) -> Any:
    """A dict as a nested batch, without looking at its leaves again."""
    if not isinstance(tree, dict):
        return tree
    batch = Batch()
    batch._data.update({key: _wrap(part) for key, part in tree.items()})
    return batch


def _entry(value: Any) -> Any:
    """What a batch keeps of a value that is put into it; a batch is kept itself."""
    return value if isinstance(value, Batch) else _wrap(tree_of(value))
