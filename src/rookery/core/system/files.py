"""Files in a folder that somebody else may have prepared: they are what they should be, or they are not opened.

A symbolic link would lead out of the folder, a pipe would keep the reader waiting for ever, and opening a device may do
anything. A file is looked at before it is opened, opened without following links or waiting, and looked at again, for
it may have been replaced in between. Where the system has no O_NOFOLLOW the first look has to do.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from rookery.core.system import portable

_FLAGS = portable.READ | portable.NOFOLLOW | portable.NONBLOCK
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


def in_place_of(path: Path, kind: int = stat.S_IFREG) -> str | None:
    """What lies where a regular file (S_IFDIR: a folder) belongs, in words; None if it is one, or nothing is there."""
    try:
        actual = stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return None
    return None if actual == kind else _KINDS.get(actual, "something else")


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Descriptor of a regular file; anything else in its place is an OSError that says what."""
    _refuse(path, in_place_of(path))
    descriptor = os.open(path, flags | _FLAGS, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        _refuse(path, "no regular file")
    return descriptor


def read_regular(path: Path) -> bytes:
    """All bytes of a regular file."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()


def check_folder(path: Path) -> None:
    """An OSError if something else than a folder lies there."""
    _refuse(path, in_place_of(path, stat.S_IFDIR))


def _refuse(path: Path, actual: str | None) -> None:
    if actual is not None:
        raise OSError(errno.EINVAL, f"it is {actual}, which is not followed or opened", str(path))
