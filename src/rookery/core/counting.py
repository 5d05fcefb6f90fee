"""Counting: what a mean over valid rows is divided by, and the largest number of all rows. Of several learners none
sees all rows that these are over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Count = Callable[[Any], Any]  # mask → number of rows
Largest = Callable[[Any], Any]  # largest number of the rows here → of all rows
_count: ContextVar[Count | None] = ContextVar("count", default=None)
_largest: ContextVar[Largest | None] = ContextVar("largest", default=None)


def rows_of(valid: Any, mask: Any) -> Any:
    """Rows of `mask`, which is `valid` as booleans; at least 1."""
    count = _count.get()
    return mask.sum().clamp(min=1) if count is None else count(valid)


def largest_of(x: Any) -> Any:
    """The largest number of an array with all rows of the batch; without a gradient, if several learners share it."""
    largest = _largest.get()
    return x.amax() if largest is None else largest(x.amax())


@contextmanager
def counting(count: Count, largest: Largest | None = None) -> Iterator[None]:
    """Inside, means over valid rows are divided by count(valid), and the largest number of all is largest(of these)."""
    tokens = _count.set(count), _largest.set(largest)
    try:
        yield
    finally:
        _count.reset(tokens[0])
        _largest.reset(tokens[1])
