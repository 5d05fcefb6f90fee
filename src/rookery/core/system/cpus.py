"""How many CPUs this process may really use, and keeping libraries from starting more threads than that.

    quota = min(CPUs of the affinity mask, ⌊quota / period⌋ of every control group), at least 1

The control groups are those from this process's own up to the root. On a host with 64 CPUs and a container of 2, OpenMP
and BLAS would start 64 threads that wait for one another. A fraction is rounded down: 2 threads on 1.5 CPUs are stopped
by the kernel in the middle of every period, and each waits for the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

BOUND = {
    "OMP_NUM_THREADS": "torch",
    "NUMBA_NUM_THREADS": "numba",
}  # variable → who reads it when imported; BLAS reads OMP's


def cpu_quota(root: Path = Path("/"), affinity: int | None = None) -> int:
    """`root` and `affinity` are for tests: where proc and sys are, and the CPUs of the mask."""
    if affinity is None:
        affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min([affinity, *(int(limit) for limit in _limits(root))]))


def bound_libraries(environ: MutableMapping[str, str] = os.environ, quota: int | None = None) -> None:
    """Tell libraries that are not imported yet of a quota below the CPUs they see; what the user has set stays.

    Called when `rookery` is imported. Child processes inherit it.
    """
    allowed = cpu_quota() if quota is None else quota
    if allowed >= (os.cpu_count() or 1):
        return
    for name, library in BOUND.items():
        if library not in sys.modules:  # numba refuses a number that changes after its threads have started
            environ.setdefault(name, str(allowed))


def _limits(root: Path) -> Iterator[float]:
    """CPUs allowed by each control group above this process, in both versions of control groups."""
    groups = root / "sys/fs/cgroup"
    for controllers, path in _memberships(root / "proc/self/cgroup"):
        if controllers == "":  # version 2, alone or beside version 1
            mounts, read = (groups, groups / "unified"), _version_2
        elif "cpu" in controllers.split(","):
            mounts, read = (groups / controllers, groups / "cpu"), _version_1
        else:
            continue
        for mount in mounts:
            for folder in _upwards(mount, path):
                limit = read(folder)
                if limit is not None:
                    yield limit


def _memberships(file: Path) -> list[tuple[str, str]]:
    """(controllers, path) of each line `number:controllers:path`."""
    text = _read(file)
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return [(controllers, path) for _, controllers, path in lines] or [("", "/"), ("cpu", "/")]


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it;
    inside a container the path may be the host's, then only the mount exists.
    """
    folder = mount / path.lstrip("/")
    yield folder
    while folder != mount:
        folder = folder.parent
        yield folder


def _version_2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _version_1(folder: Path) -> float | None:
    quota, period = (_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read(file: Path) -> str:
    """Empty if it cannot be read: not Linux, another version, or a closed /sys."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
