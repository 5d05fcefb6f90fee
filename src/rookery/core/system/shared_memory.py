"""Arrays that several processes see.

Their memory has no name anywhere, so nothing is left behind however the processes end.

A `Shared` travels to a child as an argument of its process (fork, spawn and forkserver alike),
which maps the same memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from multiprocessing import reduction
from typing import Any

import numpy as np

from rookery.core.errors import UsageError

Layout = dict[str, tuple[tuple[int, ...], str]]  # key → (shape, dtype)
ALIGNMENT = 64  # bytes: a cache line, and what torch gives its own tensors


class Shared:
    """`arrays` by key, zero to begin with."""

    def __init__(self, layout: Mapping[str, tuple[tuple[int, ...], Any]], descriptor: int | None = None):
        self.layout = plain(layout)
        places, self.bytes = _places(self.layout)
        self._descriptor = _nameless(self.bytes) if descriptor is None else descriptor
        self._memory = mmap.mmap(self._descriptor, self.bytes)
        self.arrays = {
            key: np.ndarray(shape, dtype, self._memory, places[key]) for key, (shape, dtype) in self.layout.items()
        }

    def __reduce__(self) -> Any:
        return _attached, (self.layout, _travelling(self._descriptor))

    def close(self) -> None:
        """Give the descriptor back; the memory itself goes with the last array that uses it, in any process."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SharedArena:
    """Shared memory whose layout is decided later, by whoever writes it; who reads it must be told the layout."""

    def __init__(self, descriptor: int | None = None):
        self._descriptor = _nameless(ALIGNMENT) if descriptor is None else descriptor
        self._shared: Shared | None = None

    def arrays(self, layout: Mapping[str, tuple[tuple[int, ...], Any]]) -> dict[str, np.ndarray]:
        """The arrays of this layout. What they hold is lost when the layout changes."""
        wanted = plain(layout)
        if self._shared is None or self._shared.layout != wanted:
            size = _places(wanted)[1]
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            if self._shared is not None:
                self._shared.close()
            self._shared = Shared(wanted, os.dup(self._descriptor))
        return self._shared.arrays

    def __reduce__(self) -> Any:
        return _ground, (_travelling(self._descriptor),)

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def plain(layout: Mapping[str, tuple[tuple[int, ...], Any]]) -> Layout:
    """The layout in one spelling, so that two of them can be compared."""
    return {key: (tuple(shape), np.dtype(dtype).str) for key, (shape, dtype) in layout.items()}


def layout_of(arrays: Mapping[str, np.ndarray]) -> Layout:
    return {key: (array.shape, array.dtype.str) for key, array in arrays.items()}


def _places(layout: Layout) -> tuple[dict[str, int], int]:
    """(offset of each array, bytes in all)."""
    places, size = {}, 0
    for key, (shape, dtype) in layout.items():
        places[key] = size
        size += -(-max(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize, 1) // ALIGNMENT) * ALIGNMENT
    return places, max(size, ALIGNMENT)


def _ground(descriptor: Any) -> SharedArena:
    return SharedArena(descriptor.detach())


def _attached(layout: Layout, descriptor: Any) -> Shared:
    return Shared(layout, descriptor.detach())


def _travelling(descriptor: int) -> Any:
    if not hasattr(reduction, "DupFd"):
        raise UsageError(
            "processes share their arrays through memory without a name, which this system (Windows) cannot hand on. "
            "Set pool=local, env.workers=inline and learning.learners=1, or use WSL"
        )
    return reduction.DupFd(descriptor)


def _nameless(size: int) -> int:
    """A descriptor of memory without a name; where the system has no such thing, of a file that is already deleted."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rookery")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
