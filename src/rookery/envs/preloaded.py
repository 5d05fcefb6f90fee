"""Imported once by the server that workers are forked from (`env.workers.start=forkserver`), so that they start quickly.

The server outlives a parent that was killed, if only for a moment: it removes the folder with its socket, which the parent cannot.
"""

from __future__ import annotations

import atexit
import os
import shutil

import rookery.envs.groups
import rookery.envs.worker  # noqa: F401

FOLDER = "ROOKERY_SERVER_FOLDER"  # environment variable that the parent sets


def _tidy(folder: str, parent: int) -> None:
    if os.getppid() != parent:  # else the parent does it, and may still want it
        shutil.rmtree(folder, ignore_errors=True)


if folder := os.environ.get(FOLDER):
    atexit.register(_tidy, folder, os.getppid())
