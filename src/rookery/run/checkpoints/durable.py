"""Files that survive a crash, and files that are not trusted: write durably, hash while writing, read within bounds."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rookery.core.errors import CheckpointError
from rookery.core.system import portable
from rookery.core.system.files import open_regular
from rookery.core.system.portable import fsync_folder

MOST_OPEN = 64  # files of one checkpoint that wait for their fsync; a process may have 1024 files open
MOST_VALUES = 1_000_000  # in a JSON file: far above what a run writes, far below what would fill the memory
MOST_LINE_BYTES = 1 << 24  # of metrics.jsonl
BLOCK = 1 << 20  # bytes hashed and written at a time: still in the cache when they are written

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class FileInfo(NamedTuple):
    """What the manifest keeps about one file."""

    sha256: str
    bytes: int


class NewFiles:
    """Writes new files into one folder; on leaving the context without an error they and their names are durable.

    They are hashed while they are written. The fsyncs run side by side at the end: the file system then joins them into
    one or two commits of its journal, where one after the other each would wait for its own.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._open: list[int] = []

    def write(self, name: str, blocks: Iterable[bytes | memoryview]) -> FileInfo:
        """One file; it must not exist yet."""
        if len(self._open) >= MOST_OPEN:
            self._sync()
        sha, size = hashlib.sha256(), 0
        with open(self.folder / name, "xb", buffering=BLOCK) as file:
            self._open.append(os.dup(file.fileno()))
            for block in blocks:
                view = memoryview(block)
                for start in range(0, len(view), BLOCK):
                    part = view[start : start + BLOCK]
                    sha.update(part)
                    file.write(part)
                size += len(view)
        return FileInfo(sha.hexdigest(), size)

    def __enter__(self) -> NewFiles:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                if (folder := portable.open_folder(self.folder)) is not None:
                    self._open.append(folder)
                self._sync()
        finally:
            self._close()

    def _sync(self) -> None:
        try:
            with ThreadPoolExecutor(min(8, len(self._open))) as pool:
                list(pool.map(os.fsync, self._open))  # the list raises what any of them raised
        except RuntimeError:  # no thread can be started (a limit on processes): one after the other
            for descriptor in self._open:
                os.fsync(descriptor)
        self._close()

    def _close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open = []


def write_file(path: Path, data: bytes) -> FileInfo:
    """A new, durable file with this content; its name is left to `fsync_folder`."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileInfo(hashlib.sha256(data).hexdigest(), len(data))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably: a reader, or a crash, sees the old content or the new one."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        write_file(temporary, data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(path.parent)


def check_name(name: str) -> None:
    """Refuse what is not the plain name of a file in this very folder."""
    if not _PLAIN_NAME.fullmatch(name):
        raise CheckpointError(f"{name!r} is not a plain file name; this checkpoint was not written by Rookery.")


def open_plain(path: Path) -> int:
    """Descriptor of a regular file; a link, pipe or folder in its place is refused."""
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read as a regular file: {error.strerror}.") from error


def read_file(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > limit:
        raise CheckpointError(f"{path} is larger than {limit} bytes; this checkpoint was not written by Rookery.")
    return data


def hash_file(path: Path, expected_bytes: int) -> FileInfo:
    """SHA-256 of a regular file; one of another size is not read at all."""
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != expected_bytes:
                return FileInfo("", size)
            return FileInfo(hashlib.file_digest(file, "sha256").hexdigest(), size)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def json_lines(path: Path) -> Iterator[Any]:
    """The values of a file with one per line, one by one; of a last line that is half written nothing."""
    with os.fdopen(open_plain(path), "rb") as file:
        while (line := file.readline(MOST_LINE_BYTES)).endswith(b"\n"):
            if line.strip():
                yield parse_json(line, path)
    if len(line) == MOST_LINE_BYTES:
        raise CheckpointError(f"{path} has a line of more than {MOST_LINE_BYTES} bytes; it was not written by Rookery.")


def parse_json(data: bytes, path: Path) -> Any:
    """Strict JSON: no NaN words, no key twice; how many values it can hold is counted before they are made."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(items := dict(pairs)) != len(pairs):
            raise ValueError("a key occurs twice")
        return items

    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > MOST_VALUES:
        raise CheckpointError(f"{path} holds more than {MOST_VALUES} values; it was not written by Rookery.")
    try:
        return json.loads(data, parse_constant=refuse, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
