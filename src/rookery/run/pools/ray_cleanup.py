"""A program of its own, which is why it stands alone: started with a folder by the process that made it: removes the
folder when its input ends.

Its input is a pipe from that process, so it comes to its turn however that ended. If nothing was written into it, that
process was killed, and whoever still has files open in the folder is ended, too: Ray's agents would otherwise live on
for a minute.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path


def holders(folder: str) -> set[int]:
    """Processes with open files below a folder, where the system tells (Linux)."""
    pids = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or is another user's
            opened = (os.readlink(file) for file in (process / "fd").iterdir())
            if any(name.startswith(f"{folder}/") for name in opened):
                pids.add(int(process.name))
    return pids


def main() -> None:
    folder, parting = sys.argv[1], sys.stdin.read()
    # a parent that parts has ended its processes itself, and has files open there, too
    for _ in range(10 if not parting else 0):
        pids = holders(folder)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        if not pids:
            break
        time.sleep(0.1)  # one of them may just have started another
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
