"""Cache: compiled updates on disk, shared by all runs of a user; bounded, and safe when several runs use it at once.

    <key>/          an artefact: its machine code and plan.json; it appears whole, by a rename
    <key>.lock      while it is built: one run builds, the others wait, and not for ever
    building-…/     a build; what a killed one left behind is told by its lock and removed with the next build

A run that uses an artefact holds a shared lock on its plan.json; whoever removes one needs an exclusive lock. The
kernel releases locks (flock) however a process ends. What lies here is executed: the folder must belong to the
user or to root, and nobody else may write to it; if it does not, or cannot be written, a private folder takes its
place for the life of the process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rookery.core.system import portable

log = logging.getLogger("rookery.learning")
PLAN = "plan.json"
YOUNG = 60.0  # seconds in which a folder may have been made but not locked yet
POLL = 0.1  # seconds between two looks at a lock
_BUILDING, _PRIVATE = "building-", "rookery-artefacts-"
_KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Entry:
    """One artefact in the cache."""

    key: str
    what: str  # algorithm and update
    bytes: int
    used: float  # seconds since the epoch: when a run last loaded it


@dataclass(frozen=True)
class Cache:
    """A folder of artefacts and its bounds."""

    folder: Path
    most_bytes: int = 2_000_000_000  # of all artefacts together
    most_days: float = 90.0  # since an artefact was last used
    wait_seconds: float = 300.0  # for another run that builds the same artefact

    def ready(self) -> Cache:
        """This cache, its folder made if there is none;
        or, with a warning, the private one if it is not to be trusted.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            problem = distrust(self.folder)
        except OSError as error:
            problem = f"cannot be made ({error.strerror})"
        return self if problem is None else self.replaced(problem)

    def replaced(self, problem: str) -> Cache:
        """The private cache, because this one has a problem."""
        log.warning(
            "the cache of compiled updates %s %s: updates are compiled for this process alone, into a folder that is "
            "removed with it. Set learning.cache to a folder of your own to keep them.",
            self.folder,
            problem,
        )
        return private()

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[Waiting]:
        """Try to be the one that builds: `until_alone` of what is given waits for that.

        OSError: this folder cannot be written.
        """
        waiting = Waiting(self.folder / f"{key}.lock")
        try:
            yield waiting
        finally:
            waiting.close()

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for one build, beside the artefacts and locked while it lives."""
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=_BUILDING))
        descriptor = portable.open_folder(folder)
        try:
            locked(descriptor)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            close(descriptor)

    def commit(self, made: Path, key: str) -> None:
        """One rename makes it visible; a damaged one in its place goes first."""
        folder = self.folder / key
        if folder.exists() or folder.is_symlink():
            with self.scratch() as away:
                folder.rename(away / "old")
        made.rename(folder)

    def entries(self) -> list[Entry]:
        """What is there, longest unused first."""
        entries = []
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if _KEY.fullmatch(folder.name) and folder.is_dir():
                with contextlib.suppress(OSError):  # it was removed by another run meanwhile
                    size = sum(file.stat().st_size for file in folder.iterdir())
                    mark = folder / PLAN if (folder / PLAN).exists() else folder
                    entries.append(Entry(folder.name, _what(folder), size, mark.stat().st_mtime))
        return sorted(entries, key=lambda entry: (entry.used, entry.key))

    def trim(self) -> list[Entry]:
        """Remove what killed builds left, what was not used for too long,
        and the longest unused above the size; returns the artefacts.
        """
        self._remove_leftovers()
        entries, removed = self.entries(), []
        total, oldest = sum(entry.bytes for entry in entries), time.time() - 86400 * self.most_days
        for entry in entries:
            if (entry.used < oldest or total > self.most_bytes) and self.remove(entry.key):
                total -= entry.bytes
                removed.append(entry)
        if removed:
            size = sum(entry.bytes for entry in removed) / 1e6
            log.info("removed %d compiled updates (%.1f MB) that were not used for long", len(removed), size)
        return removed

    def clear(self) -> tuple[list[Entry], list[Entry]]:
        """Remove all artefacts; (those removed, those kept because a run is using them)."""
        self._remove_leftovers()
        done: tuple[list[Entry], list[Entry]] = ([], [])
        for entry in self.entries():
            done[0 if self.remove(entry.key) else 1].append(entry)
        return done

    def remove(self, key: str) -> bool:
        """Remove one artefact, unless a run is using it."""
        folder = self.folder / key
        try:
            descriptor = os.open(folder / PLAN, os.O_RDONLY)
        except FileNotFoundError:
            shutil.rmtree(folder, ignore_errors=True)  # without a plan nobody can use it
            return True
        except OSError:
            return False
        try:
            if not locked(descriptor, without=False):
                return False
            with self.scratch() as away:
                folder.rename(away / "old")  # so that nobody finds half of it
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _remove_leftovers(self) -> None:
        for folder in self.folder.glob(f"{_BUILDING}*") if self.folder.is_dir() else ():
            remove_if_left(folder)


class Waiting:
    """The lock file of one build.

    It is removed when the build is over, so whoever gets the lock looks whether it is still there.
    """

    def __init__(self, path: Path):
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.alone = self._try()

    def until_alone(self, seconds: float) -> bool:
        """Whether the lock was got within this time."""
        deadline = time.monotonic() + seconds
        while not self.alone and time.monotonic() < deadline:
            time.sleep(POLL)
            self.alone = self._try()
        return self.alone

    def _try(self) -> bool:
        if not locked(self._descriptor):
            return False
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):
                return True
        os.close(self._descriptor)  # the build we waited for has removed its lock: take part in the next
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._try()

    def close(self) -> None:
        if self.alone:
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def locked(descriptor: int | None, *, shared: bool = False, without: bool = True) -> bool:
    """Try for a lock; `without`: the answer where the system has no locks, or none of folders."""
    if descriptor is None:
        return without
    try:
        portable.lock(descriptor, shared=shared)
    except BlockingIOError:
        return False
    except OSError:
        return without
    return True


def close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def shared(descriptor: int) -> bool:
    """The lock of a user of an artefact; False: it is just being removed."""
    return locked(descriptor, shared=True)


def distrust(path: Path, follow: bool = True) -> str | None:
    """Why what lies here must not be executed, or None: whoever can write here could let this user run anything."""
    about = path.stat(follow_symlinks=follow)
    if stat.S_ISLNK(about.st_mode):
        return "is a link"
    if problem := portable.owner_problem(about.st_uid):
        return problem
    if about.st_mode & 0o022 and os.name == "posix":
        return f"can be written by others (mode {stat.S_IMODE(about.st_mode):o}; chmod go-w helps)"
    return None


def remove_if_left(folder: Path) -> None:
    """Remove a folder of ours whose process is gone."""
    try:
        if (
            folder.is_symlink()
            or not portable.is_own(folder.stat().st_uid)
            or time.time() - folder.stat().st_mtime < YOUNG
        ):
            return
        descriptor = portable.open_folder(folder)
    except OSError:
        return
    try:
        if locked(descriptor, without=False):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        close(descriptor)


@functools.cache
def private() -> Cache:
    """A cache of this process alone, in the temporary folder; what killed processes left of theirs is removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PRIVATE}*"):
        remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_PRIVATE))
    locked(portable.open_folder(folder))  # until the process ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Cache(folder)


def default_folder() -> Path:
    """$ROOKERY_CACHE/artefacts, or artefacts in the user's cache folder."""
    base = os.environ.get("ROOKERY_CACHE")
    if base:
        return Path(base).absolute() / "artefacts"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")).absolute() / "rookery" / "artefacts"


def _what(folder: Path) -> str:
    try:
        return str(json.loads((folder / PLAN).read_text())["what"])
    except (OSError, ValueError, KeyError, TypeError):
        return "?"
