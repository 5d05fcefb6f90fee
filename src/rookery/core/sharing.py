"""Arrays that several processes see. Their memory has no name anywhere, so nothing is left behind however the processes end.

A `Shared` travels to a child as an argument of its process (fork, spawn and forkserver alike), which maps the same memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from multiprocessing import reduction
from typing import Any

import numpy as np

Layout = dict[str, tuple[tuple[int, ...], str]]  # key → (shape, dtype)
ALIGNMENT = 64  # bytes: a cache line, and what torch gives its own tensors


class Shared:
    """`arrays` by key, zero to begin with."""

    def __init__(self, layout: Mapping[str, tuple[tuple[int, ...], Any]], descriptor: int | None = None):
        self.layout: Layout = {key: (tuple(shape), np.dtype(dtype).str) for key, (shape, dtype) in layout.items()}
        places, size = {}, 0
        for key, (shape, dtype) in self.layout.items():
            places[key] = size
            size += -(-max(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize, 1) // ALIGNMENT) * ALIGNMENT
        self.bytes = max(size, ALIGNMENT)
        self._descriptor = _nameless(self.bytes) if descriptor is None else descriptor
        self._memory = mmap.mmap(self._descriptor, self.bytes)
        self.arrays = {
            key: np.ndarray(shape, dtype, self._memory, places[key]) for key, (shape, dtype) in self.layout.items()
        }

    def __reduce__(self) -> Any:
        return _attached, (self.layout, reduction.DupFd(self._descriptor))

    def close(self) -> None:
        """Give the descriptor back; the memory itself goes with the last array that uses it, in any process."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _attached(layout: Layout, descriptor: Any) -> Shared:
    return Shared(layout, descriptor.detach())


def _nameless(size: int) -> int:
    """A descriptor of memory without a name; where the system has no such thing, of a file that is already deleted."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rookery")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
