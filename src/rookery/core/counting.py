"""Counting: what a mean over valid rows is divided by. Of several learners none sees all rows that its mean is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Count = Callable[[Any], Any]  # mask → number of rows
_count: ContextVar[Count | None] = ContextVar("count", default=None)


def rows_of(valid: Any, mask: Any) -> Any:
    """Rows of `mask`, which is `valid` as booleans; at least 1."""
    count = _count.get()
    return mask.sum().clamp(min=1) if count is None else count(valid)


@contextmanager
def counting(count: Count) -> Iterator[None]:
    """Inside, means over valid rows are divided by count(valid)."""
    token = _count.set(count)
    try:
        yield
    finally:
        _count.reset(token)
