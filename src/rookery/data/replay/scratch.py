"""The large arrays of a replay in a scratch file instead of in memory,
so that a replay may be larger than memory (`store.mmap`).

The file has no name: it vanishes with the process, however that ends, and a resumed run fills a new one from
its checkpoint. Its space is taken at once. A disk that is full later would otherwise end the process with a
signal in the middle of a write.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rookery.core.errors import ConfigError
from rookery.core.spec import bytes_of
from rookery.core.system.portable import reserve
from rookery.core.tree import Tree

Zeros = Callable[[tuple[int, ...], np.dtype], np.ndarray]


def scratch_bytes(capacity: int, columns: int, fields: dict[str, Tree]) -> int:
    """Bytes of a replay's arrays on disk; flags, rewards and final observations stay in memory."""
    return (math.ceil(capacity / columns) + 1) * columns * bytes_of(fields)


def scratch_folder(mmap: bool | str, run_folder: Path | None) -> Path | None:
    """Where `store.mmap` puts the file; None: memory."""
    if mmap is False:
        return None
    if mmap is True:
        if run_folder is None:
            raise ConfigError(
                "store.mmap=true keeps the replay in the run's folder, but a trainer without Experiment has none. "
                "Set store.mmap to a folder."
            )
        return run_folder
    return Path(mmap).expanduser().absolute()


def check_disk(needed: int, folder: Path) -> None:
    """Refuse a replay that the disk has no room for."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ConfigError(
            f"store.mmap: {folder} cannot be used: {error.strerror}. Set it to an existing folder."
        ) from error
    if needed > free:
        raise ConfigError(
            f"store.mmap: the replay needs {needed} bytes in {folder}, where {free} bytes are free. "
            "Lower store.capacity, or set store.mmap to a folder on a larger disk."
        )


def on_disk(folder: Path) -> Zeros:
    """A maker of arrays of zeros, each in a nameless file in this folder."""

    def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size == 0:
            return np.zeros(shape, dtype)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                reserve(file.fileno(), size)
                return np.memmap(file, dtype, "r+", shape=shape).view(np.ndarray)
        except OSError as error:
            raise ConfigError(
                f"store.mmap: {size} bytes cannot be kept in {folder}: {error.strerror}. "
                "Lower store.capacity, or set store.mmap to another folder."
            ) from error

    return zeros
