"""What a command owes whoever started it: streams that cannot break it, and an exit code that tells the truth.

It stands alone because it must be in force before anything large, or of the user's, is imported.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rookery.core.errors import UsageError


class _Enduring(io.FileIO):
    """A standard stream that nobody may be reading any more: what is written there is lost, and no more than that."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)  # None: a pipe that is full and does not wait
        except OSError:
            return len(data)


def enduring_streams() -> None:
    """A full disk, a pipe that `head` has closed, a terminal that is gone or has no `…`: printing never fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file would get its number, and all that is printed
            os.dup2(nowhere, number)
    if nowhere > 2:
        os.close(nowhere)
    else:
        os.set_inheritable(nowhere, True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        if before is None or isinstance(before, io.TextIOWrapper):
            raw = io.BufferedWriter(_Enduring(number, "w", closefd=False))
            encoding = getattr(before, "encoding", None) or "utf-8"
            lines, through = (getattr(before, option, False) for option in ("line_buffering", "write_through"))
            stream = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=lines, write_through=through)
            setattr(sys, name, stream)


class SilentExit(SystemExit):
    """Somebody's code wanted to end the process as if all were well."""


@contextmanager
def told_exits() -> Iterator[None]:
    """Inside, `os._exit(0)` in this process raises `SilentExit`: otherwise nobody could tell it from a finished run."""
    real, process = os._exit, os.getpid()

    def told(status: int) -> NoReturn:
        if status == 0 and os.getpid() == process:  # children end so
            raise SilentExit("os._exit(0) was called")
        real(status)

    os._exit = told
    try:
        yield
    finally:
        os._exit = real


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """From where somebody's own code was called to where it raised; without Python's imports and what is ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _of_python(frame.filename)]
    while frames and _OURS in Path(frames[-1].filename).parents:  # the caller of os._exit
        frames.pop()
    first = next((i for i, frame in enumerate(frames) if _OURS not in Path(frame.filename).parents), len(frames))
    return frames[first:]


def own_code(error: BaseException) -> str:
    """`own_frames` as Python shows them."""
    return "".join(traceback.format_list(own_frames(error))).rstrip()


def exit_place(error: SystemExit) -> str:
    """Which line of which file called sys.exit, exit or os._exit."""
    frames = own_frames(error) or traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}"


_OURS = Path(__file__).parent.parent.parent


def _of_python(file: str) -> bool:
    return file.startswith(("<frozen importlib", "<frozen _sitebuiltins")) or file == importlib.__file__


def stand_somewhere() -> None:
    """If the current folder was deleted, go to `/`: from nowhere Python starts no process, and MKL ends this one."""
    try:
        os.getcwd()
    except OSError:
        os.chdir("/")
        _gone.append(True)


_gone: list[bool] = []  # whether that was so


def absolute(path: Path) -> Path:
    """The whole path; UsageError if it would have to begin in a folder that was deleted."""
    stand_somewhere()
    if _gone and os.getcwd() == "/" and not path.is_absolute():
        raise UsageError(f"the folder that {path} lies in was deleted. Go to another one, or write the whole path.")
    return Path(os.path.abspath(path))
