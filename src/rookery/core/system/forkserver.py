"""The server that child processes are forked from (`start=forkserver`):
what is imported there once is there in every child.

It outlives its parent, if only for a moment. If that was killed, the server removes the folder with its
socket, which the parent cannot; and it ends without taking its interpreter apart, which would keep whoever
reads the run's output waiting.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from multiprocessing import current_process
from multiprocessing.util import get_temp_dir

FOLDER = "ROOKERY_SERVER_FOLDER"  # environment variable that the parent sets
DYING = 5.0  # seconds that a killed parent may take until it is gone
LONGEST = 107 - len("/pymp-12345678/listener-12345678")  # the name of a socket has at most 107 bytes


def server_folder() -> str:
    """Where the server's socket is; under /tmp if the usual folder has too long a name for sockets."""
    usual = tempfile.gettempdir()
    try:
        if len(os.fsencode(usual)) > LONGEST and os.access("/tmp", os.W_OK):
            tempfile.tempdir = "/tmp"
        return get_temp_dir()
    finally:
        tempfile.tempdir = usual


def forget_server() -> None:
    """In a child that may start a server of its own: it has a folder of its own, too."""
    current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]
    os.environ.pop(FOLDER, None)


def _end(folder: str, server: int, parent: int) -> None:
    if os.getpid() != server:
        return
    until = time.monotonic() + DYING  # its files are closed a moment before it is gone
    while os.getppid() == parent and time.monotonic() < until:
        time.sleep(0.005)
    if os.getppid() != parent:  # else the parent does it, and may still want it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if folder := os.environ.get(FOLDER):
    atexit.register(_end, folder, os.getpid(), os.getppid())
