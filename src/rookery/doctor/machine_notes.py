"""Remarks on the machine and its settings that cost speed, whatever the config; each is a sentence with what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from rookery.core.system.portable import kernel_text
from rookery.learning.compiled.artefact import unavailable
from rookery.run.config.config import Config

SLOW_DISK = 20e6  # bytes per second of a checkpoint
SLOW_SAVE = 0.2  # seconds from which its speed says something of the disk
_DEBUG = {"NUMBA_DISABLE_JIT": "kernels are interpreted", "CUDA_LAUNCH_BLOCKING": "every kernel is waited for"}


def remarks(config: Config, quota: int, saved: tuple[int, float] | None, root: Path = Path("/")) -> list[str]:
    """`saved`: (bytes, seconds) of a checkpoint; `root` is for tests: where proc is."""
    return [*_load(quota, root), *_memory(root), *_cpus(quota), *_debug(config), *_compiler(config), *_disk(saved)]


def idle_seconds(root: Path = Path("/")) -> float | None:
    """Seconds that CPUs of this machine had nothing to do since it was started,
    all of them together; None where nobody says.
    """
    try:
        fields = kernel_text(root / "proc/stat").splitlines()[0].split()
        return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")  # idle, and waiting for a disk
    except (OSError, AttributeError, ValueError, IndexError):  # sysconf, where there is none
        return None


def _load(quota: int, root: Path) -> Iterator[str]:
    load = _first_number(root / "proc/loadavg")
    if load is not None and load > quota + 0.5:
        yield (
            f"other work is running: load {load:.1f} on {quota} CPU{'s' * (quota != 1)}. What was "
            "measured is uncertain, and more than one thread would wait for CPUs that are taken: try "
            "again when the machine is quiet"
        )


def _memory(root: Path) -> Iterator[str]:
    swapped = _field(root / "proc/self/status", "VmSwap")
    if swapped and swapped > 1024:
        yield f"{swapped // 1024} MB of this process were swapped out: lower store.capacity, or see store.mmap"


def _cpus(quota: int) -> Iterator[str]:
    present = os.cpu_count() or 1
    if quota < present:
        yield f"this process may use {quota} of the machine's {present} CPUs (affinity or container quota)"


def _debug(config: Config) -> Iterator[str]:
    for name, consequence in _DEBUG.items():
        if os.environ.get(name, "0") not in ("", "0"):
            yield f"{name}={os.environ[name]} is set: {consequence}. Unset it"
    if torch.is_anomaly_enabled():
        yield "torch's anomaly detection is on, which makes every update several times slower. Turn it off"
    if sys.flags.dev_mode or sys.gettrace() is not None:
        yield "Python runs in development mode or under a debugger or coverage tool, which slows every line"
    if config.log.level == "DEBUG":
        yield "log.level=DEBUG writes much text. Set log.level=INFO"


def _compiler(config: Config) -> Iterator[str]:
    problem = unavailable()
    if problem is not None and config.learning.mode == "auto" and config.algorithm.not_compiled(config) is None:
        yield f"updates cannot be compiled: {problem}"


def _disk(saved: tuple[int, float] | None) -> Iterator[str]:
    if saved is not None and saved[1] > SLOW_SAVE and saved[0] / saved[1] < SLOW_DISK:
        yield (
            f"the disk of run.out is slow: a checkpoint of {saved[0] / 1e6:.1f} MB took {saved[1]:.1f} s. "
            "Choose another folder with run.out, or save less often"
        )


def _first_number(file: Path) -> float | None:
    try:
        return float(kernel_text(file).split()[0])
    except (ValueError, IndexError):
        return None


def _field(file: Path, name: str) -> int | None:
    """A number of /proc/self/status, in kB."""
    lines = kernel_text(file).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
