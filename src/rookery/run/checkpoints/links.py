"""Hard links to files of an earlier checkpoint of the same folder, found by their SHA-256.

A link is a second name of the same bytes: removing the earlier checkpoint does not touch them. But it shares their
damage, too. So a checkpoint shares no file with the one before it, only with the one before that: there are two chains,
and one bad file leaves either the newest checkpoint whole or its neighbour. Where a file system has no links, or the
file is not what the manifest says any more, nothing is linked and the caller writes the bytes again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from rookery.run.checkpoints.durable import FileInfo


class Earlier:
    """The files of one committed checkpoint, but for those that are also files of the checkpoint `apart_from`."""

    def __init__(self, folder: Path, infos: Mapping[str, FileInfo], apart_from: Path | None = None):
        taken = set() if apart_from is None else {entry.inode() for entry in os.scandir(apart_from)}
        shared = {entry.name for entry in os.scandir(folder) if entry.inode() in taken}
        self._files = {info.sha256: (folder / name, info) for name, info in infos.items() if name not in shared}

    def __contains__(self, sha256: str | None) -> bool:
        return sha256 in self._files

    def link(self, sha256: str, name: Path) -> FileInfo | None:
        """Give the file with this hash a second name; None if that is not possible. Its bytes are durable since its
        own checkpoint was."""
        if sha256 not in self._files:
            return None
        path, info = self._files[sha256]
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size != info.bytes:
                return None
            os.link(path, name)
        except (
            OSError
        ):  # another file system, or too many links: the bytes are written, which tells what is wrong if it fails
            return None
        return info
