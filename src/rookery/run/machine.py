"""The machine while a run uses it: threads and floating-point mode, put back afterwards."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import numpy as np
import torch

from rookery.learning.key import cpu_flags
from rookery.run.resolve import Config


def cpu_quota() -> int:
    """CPUs this process may really use: affinity and the container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.exists():
        limit, _, period = quota.read_text().partition(" ")
        if limit.strip().isdigit() and period.strip().isdigit():
            count = min(count, max(1, math.ceil(int(limit) / int(period))))
    return max(1, count)


def threads_for(config: Config) -> int:
    """`auto`: one for small networks, where more only get in each other's way; the quota for large ones."""
    if config.run.threads != "auto":
        return int(config.run.threads)
    widest = max((*config.model.widths, 1))
    return cpu_quota() if widest >= 256 else 1


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
    """`threads` for torch; denormal numbers flushed to zero: moments of dead units would slow small updates by half; and what
    exists now is left out of garbage collection, which would visit a million objects of torch again and again.
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
