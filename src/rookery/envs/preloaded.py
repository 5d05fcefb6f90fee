"""Imported once by the server that workers are forked from (`env.workers.start=forkserver`), so that they start quickly.

The server outlives its parent, if only for a moment. If that was killed, the server removes the folder with its socket, which the parent cannot; and it
ends without taking its interpreter apart, which would keep whoever reads the output of the run waiting for a second of CPU time.
"""

from __future__ import annotations

import atexit
import os
import shutil

import rookery.envs.groups
import rookery.envs.worker  # noqa: F401

FOLDER = "ROOKERY_SERVER_FOLDER"  # environment variable that the parent sets


def _end(folder: str, server: int, parent: int) -> None:
    if os.getpid() != server:
        return
    if os.getppid() != parent:  # else the parent does it, and may still want it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if folder := os.environ.get(FOLDER):
    atexit.register(_end, folder, os.getpid(), os.getppid())
