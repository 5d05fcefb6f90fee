"""Shared arrays: one memory in several processes, and nothing left of it."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rookery.core.system.shared_memory import Shared

LAYOUT = {"a": ((3, 2), np.float32), "b": ((5,), bool), "none": ((0, 4), np.int64), "one": ((), np.uint8)}


def change(shared, ready):
    shared.arrays["a"][1] = 7.0
    shared.arrays["b"][-1] = True
    ready.set()
    if not shared.arrays["one"]:
        signal.pause()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_writes_into_the_same_memory(method):
    context = multiprocessing.get_context(method)
    shared, ready = Shared(LAYOUT), context.Event()
    shared.arrays["one"][...] = 1
    child = context.Process(target=change, args=(shared, ready))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert shared.arrays["a"].tolist() == [[0, 0], [7, 7], [0, 0]]
    assert shared.arrays["b"].tolist() == [False] * 4 + [True]


def test_arrays_are_aligned_and_apart():
    arrays = Shared(LAYOUT).arrays
    assert {key: (a.shape, a.dtype) for key, a in arrays.items()} == {
        k: (s, np.dtype(d)) for k, (s, d) in LAYOUT.items()
    }
    assert all(a.ctypes.data % 64 == 0 for a in arrays.values())
    arrays["a"][:], arrays["b"][:] = -1, True
    assert arrays["one"] == 0


def test_nothing_is_left_when_a_child_is_killed():
    before, named = len(os.listdir("/proc/self/fd")), set(Path("/dev/shm").iterdir())
    context = multiprocessing.get_context("fork")
    shared, ready = Shared(LAYOUT), context.Event()
    child = context.Process(target=change, args=(shared, ready))
    child.start()
    assert ready.wait(60)
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    child.close()
    shared.close()
    assert shared.arrays["a"][1, 0] == 7.0  # whoever still has the arrays may use them
    del shared, ready
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not [p for p in set(Path("/dev/shm").iterdir()) - named if "rookery" in p.name]
