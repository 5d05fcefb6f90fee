"""What Windows and macOS do not have, or have otherwise, in one place: locks, fsync of folders, flags, signals, users.

Nothing else names fcntl, prctl, resource, getuid or SIGKILL, or opens /proc by itself (`tests/test_tree.py`).
Each function says what is done where the system has no such thing; a run then is slower to notice a crash, never wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NOFOLLOW, NONBLOCK, CLOEXEC, _DIRECTORY, _BINARY = (
    getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "DIRECTORY", "BINARY")
)
READ = os.O_RDONLY | CLOEXEC | _BINARY
CREATE = os.O_RDWR | os.O_CREAT | CLOEXEC | _BINARY
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows ends a process by either
PREEMPT = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1") if hasattr(signal, name))
CAN_ALARM = hasattr(signal, "SIGALRM") and hasattr(signal, "setitimer")
_BYTE = 1 << 30  # which byte of a file Windows locks: behind all that is written


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt, _resource = _module("fcntl"), _module("msvcrt"), _module("resource")


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock a file until its descriptor is closed, or the process ends, however it does.

    BlockingIOError: another process has it. OSError: there are no locks here (some network file systems).
    """
    if _fcntl is not None:
        _fcntl.flock(descriptor, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
    elif _msvcrt is not None:
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, _BYTE, os.SEEK_SET)
            _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)  # it knows no shared locks
        except OSError as error:
            raise BlockingIOError(error.errno, "another process has it") from error
        finally:
            os.lseek(descriptor, at, os.SEEK_SET)
    else:
        raise OSError(None, "this system has no file locks")


def open_folder(folder: Path) -> int | None:
    """A descriptor to lock a folder or make its names durable; None where folders cannot be opened (Windows)."""
    return os.open(folder, os.O_RDONLY | _DIRECTORY) if _DIRECTORY else None


def fsync_folder(folder: Path) -> None:
    """Make the names in this folder durable, where the system can."""
    if (descriptor := open_folder(folder)) is not None:
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Bytes written at this place of a file that one thread writes."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def reserve(descriptor: int, size: int) -> None:
    """Make a file so large; where the system can, so that writing into it never finds the disk full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def owner_problem(owner: int) -> str | None:
    """Why a file of this owner (`st_uid`) is not to be trusted; Windows has no such numbers, and nothing is said."""
    if not hasattr(os, "getuid") or owner in (0, os.getuid()):
        return None
    return f"belongs to another user ({owner})"


def is_own(owner: int) -> bool:
    """Whether this user owns it."""
    return not hasattr(os, "getuid") or owner == os.getuid()


def kernel_text(file: Path | str) -> str:
    """A file that the kernel writes (/proc, /sys), or nothing: not Linux, or hidden from this process."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def end_with_parent() -> bool:
    """Ask the kernel to kill this process when the thread that made it ends; False where it cannot (not Linux)."""
    try:
        return bool(ctypes.CDLL(None).prctl(1, KILL) == 0)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError, TypeError):
        return False


def kill(pid: int) -> None:
    """End a process at once; one that is gone already is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, KILL)


def is_alive(pid: int) -> bool:
    """Whether there is such a process; where asking would end it (Windows), it is believed."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def stack_limit() -> int:
    """Bytes of stack that a new thread gets unless somebody says otherwise."""
    if _resource is None:
        return 1 << 20  # the default of Windows
    soft, _ = _resource.getrlimit(_resource.RLIMIT_STACK)
    return sys.maxsize if soft == _resource.RLIM_INFINITY else int(soft)


def after_fork(function: Callable[[], None]) -> None:
    """Call it in every process that is forked from this one, if processes can be forked."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def start_method(word: str) -> str:
    """How a child process is started: `auto` is forkserver where processes can safely be forked, else spawn."""
    if word != "auto":
        return word
    can_fork = "forkserver" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    return "forkserver" if can_fork else "spawn"


@contextlib.contextmanager
def alarm(seconds: float, error: type[BaseException]) -> Iterator[None]:
    """Raise `error` in the body after so many seconds; whoever used the timer before gets it back.

    In the main thread, where `CAN_ALARM`.
    """

    def ring(*_: Any) -> None:
        raise error

    handler, start = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, should somebody swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 0.001), interval)
