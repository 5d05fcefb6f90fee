"""The machine while a run uses it: threads and floating-point mode, put back afterwards."""

from __future__ import annotations

import gc
import hashlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium
import numpy as np
import torch

from rookery.learning.compiled.key import cpu_flags


def fingerprint() -> dict[str, str]:
    """What bits depend on besides config and seed: libraries, CPU, threads."""
    flags = hashlib.sha256(cpu_flags().encode()).hexdigest()[:12]
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    return versions | {"gymnasium": gymnasium.__version__, "cpu": flags, "threads": str(torch.get_num_threads())}


def difference(saved: dict[str, str], now: dict[str, str]) -> str:
    """What differs, in words; empty if nothing does."""
    return ", ".join(f"{key} {saved.get(key)} (now {now[key]})" for key in now if saved.get(key) != now[key])


@contextmanager
def settings(threads: int) -> Iterator[None]:
    """`threads` for torch; denormal numbers flushed to zero: moments of dead units would slow small updates by half;
    and what exists now is left out of garbage collection, which would visit a million objects of torch again and
    again.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch uses one thread: so act collectors and evaluations, whatever the learner has."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
