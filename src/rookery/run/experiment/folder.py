"""RunFolder: the one folder of a run, locked by the process that writes it.

    config.yaml  spaces.json  state.json  metrics.jsonl  summary.json  log.txt  tensorboard/  checkpoints/  offending/

The lock is an flock on `.lock`: the kernel releases it with the process, however that ends, so there is no stale lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import socket
import stat
import time
import weakref
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rookery.core.errors import CheckpointError, UsageError
from rookery.core.system import portable
from rookery.core.system.command import absolute
from rookery.core.system.files import in_place_of, open_regular, read_regular
from rookery.run.checkpoints.durable import replace_file

OnExists = Literal["fail", "resume", "new"]

LOCK_SECONDS = 0.5  # before a folder counts as in use

_LOCK = ".lock"
_OF_SINKS = ("metrics.jsonl", "metrics.csv")
_FILES = (_LOCK, "config.yaml", "spaces.json", "state.json", "state.tmp", "summary.json", "log.txt", *_OF_SINKS)
_FOLDERS = ("tensorboard", "checkpoints", "offending")
_RUN_FILES = ("config.yaml", "metrics.jsonl", "summary.json", "checkpoints")  # any of these: a run was here
_log = logging.getLogger(__name__)


class RunFolder:
    """Paths of a run. Made by `create` (a new run, or an old one to go on with), `resume` or `read` (no lock)."""

    def __init__(self, path: Path, lock: int | None = None):
        self.path = path
        self.resuming = lock is not None and _holds_run(path)  # there was a run in it when it was opened
        self._lock = lock
        if lock is not None:
            _locked.add(self)

    @classmethod
    def create(cls, root: Path, name: str, on_exists: OnExists = "fail", explicit: Path | None = None) -> RunFolder:
        """A locked folder: `explicit`, else a new one `root/name-time-random`.

        If `explicit` holds a run already, on_exists decides: fail, go on with it (see `resuming`), or take a new
        sibling.
        """
        if explicit is None:
            return cls._unique(Path(root), name)
        path = absolute(Path(explicit))
        _make(path)
        check_contents(path)
        lock = _acquire(path)
        if lock is not None and (on_exists == "resume" or not _holds_run(path)):
            return cls(path, lock)
        if lock is not None:
            os.close(lock)
        if on_exists == "new":
            return cls._unique(path.parent, path.name)
        if lock is None:
            raise UsageError(_in_use(path))
        raise UsageError(
            f"{path} already holds a run. Go on with it: --resume {path} (or --on-exists resume); start "
            f"a new run in a folder "
            "beside it: --on-exists new; or choose another --out."
        )

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """The locked folder of an existing run."""
        run = cls.read(path)
        lock = _acquire(run.path)
        if lock is None:
            raise UsageError(_in_use(run.path))
        return cls(run.path, lock)

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """The folder of an existing run, perhaps one that is still written to, for reading only."""
        path = absolute(Path(path))
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder; expected the folder of a run.")
        check_contents(path)
        if not _holds_run(path):
            raise UsageError(f"{path} holds no run: none of {', '.join(_RUN_FILES)} is in it.")
        return cls(path)

    @classmethod
    def _unique(cls, root: Path, name: str) -> RunFolder:
        root = absolute(root)
        _make(root)
        while True:
            path = root / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(f"the folder {path} cannot be made: {error.strerror}.") from error
            if (lock := _acquire(path)) is not None:
                return cls(path, lock)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def spaces(self) -> Path:
        return self.path / "spaces.json"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def offending(self) -> Path:
        """Batches with which learning broke (sentinel)."""
        return self.path / "offending"

    def write_summary(self, summary: dict[str, Any]) -> None:
        """A disk that refuses it is a CheckpointError: how the run ended is part of what it leaves."""
        try:
            write_json_atomic(self.summary, summary)
        except OSError as error:
            raise CheckpointError(f"{self.summary} could not be written: {error.strerror or error}.") from error

    def discard(self) -> None:
        """Remove the folder again if no run has begun in it."""
        if not _holds_run(self.path):
            for name in (_LOCK, self.log.name):
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody else's files are in it: they stay
                self.path.rmdir()

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_locked: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _forget_locks() -> None:
    for folder in list(_locked):
        folder.close()


# A forked worker shares the open lock and, outliving a killed trainer, would keep it: it closes its copy at birth.
portable.after_fork(_forget_locks)


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"the folder {path} cannot be made: a file is in its way.") from error
    except OSError as error:
        raise UsageError(f"the folder {path} cannot be made: {error.strerror}.") from error


def check_contents(path: Path) -> None:
    """Refuse a folder in which something else lies under a name that a run reads or writes. The folder itself may be
    reached through a link: the user has named it."""
    wanted = dict.fromkeys(_FILES, stat.S_IFREG) | dict.fromkeys(_FOLDERS, stat.S_IFDIR)
    try:
        problems = [f"{name} is {what}" for name, kind in wanted.items() if (what := in_place_of(path / name, kind))]
    except OSError as error:
        raise UsageError(f"{path} cannot be looked into: {error.strerror}.") from error
    if problems:
        raise UsageError(
            f"{path} is not used: {', '.join(problems)}, where a run has a plain file or folder of its own. Links, "
            "pipes and devices lead out of a run; remove them, or choose another folder."
        )


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in _RUN_FILES)


def _acquire(path: Path) -> int | None:
    """Descriptor of the lock, or None if another process has it."""
    try:
        descriptor = open_regular(path / _LOCK, portable.CREATE)
    except OSError as error:
        raise UsageError(f"the run folder {path} cannot be written: {error.strerror}. Choose another --out.") from error
    try:
        if not _flock(descriptor):
            os.close(descriptor)
            return None
    except OSError as error:  # some network file systems have no locks
        _log.warning("%s cannot be locked (%s): take care that no second run writes into it", path, error.strerror)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"the run folder {path} cannot be written: {error.strerror}. Choose another --out.") from error
    return descriptor


def _flock(descriptor: int) -> bool:
    """Try for a moment: a worker forked just before its trainer was killed holds the lock until it first runs."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            portable.lock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def _in_use(path: Path) -> str:
    try:
        owner = read_regular(path / _LOCK).decode(errors="replace").strip() or "another process"
    except OSError:
        owner = "another process"
    return (
        f"{path} is being written by {owner}. Wait for it to end and go on with --resume {path}, or "
        f"start a run of its own "
        "with another --out or --on-exists new."
    )


def write_json_atomic(path: Path, value: Any) -> None:
    """Replace a JSON file as a whole: a reader, or a crash, sees the old text or the new one."""
    replace_file(path, json.dumps(plain(value), indent=1, allow_nan=False).encode() + b"\n")


def plain(value: Any) -> Any:
    """Strict JSON of what reports contain: numpy numbers become Python's, NaN and infinity (no JSON has them) null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__qualname__} is not a value of a report")
