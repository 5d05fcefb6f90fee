"""state.json: what a run is doing, for whoever looks at its folder. Replaced as a whole, at most once a second, never
waited for. It stands alone: the run never reads it."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rookery.core.system.files import open_regular
from rookery.run.experiment.folder import plain

EVERY = 1.0  # seconds between two writings


class LiveState:
    """Writes the file; a disk that refuses it does not disturb the run."""

    def __init__(self, path: Path):
        self._path = path
        self._fixed = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
        self._report: dict[str, Any] = {}
        self._next = 0.0

    def report(self, metrics: dict[str, Any]) -> None:
        """The last report; typed values (pictures, tables) are left out."""
        self._report = {name: value for name, value in metrics.items() if isinstance(value, int | float | str)}

    def due(self) -> bool:
        """Whether it was not written for a while; asked after every round."""
        return time.monotonic() >= self._next

    def tell(self, status: str, **counts: Any) -> None:
        self._next = time.monotonic() + EVERY
        content = {"status": status, **self._fixed, "updated": time.time(), **counts, "report": self._report}
        beside = self._path.with_suffix(".tmp")
        with suppress(OSError):
            with os.fdopen(open_regular(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
                file.write(json.dumps(plain(content), allow_nan=False) + "\n")
            os.replace(beside, self._path)
