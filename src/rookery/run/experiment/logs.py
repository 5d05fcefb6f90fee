"""The text log of a run: everything under the logger "rookery" goes to log.txt, warnings also to the console."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from rookery.core.errors import UsageError
from rookery.core.system.files import open_regular

NAME = "rookery"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}


class _LogFile(logging.FileHandler):
    """A full disk must not fill the screen with logging's own tracebacks: the file is given up, training goes on."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.fdopen(open_regular(Path(self.baseFilename), flags), "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        logging.getLogger(NAME).removeHandler(self)
        error = sys.exc_info()[1]
        logging.getLogger(__name__).warning(
            "%s can no longer be written (%s); the text log ends here", self.baseFilename, error
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written is flushed once more
            super().close()


class _Stderr(logging.StreamHandler):
    """Looks sys.stderr up each time, because the live view replaces it while it is on the screen."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


class TextLog:
    """Handlers of one run; `close` (or leaving the context) removes them and restores the level."""

    def __init__(self, path: Path, level: str = "INFO", console: bool = True):
        """level: DEBUG, INFO, WARN or ERROR, for the file; the console gets warnings and errors. Existing text is
        kept."""
        if level.upper() not in LEVELS:
            raise UsageError(f"log level {level!r} is unknown; expected DEBUG, INFO, WARN or ERROR.")
        try:
            file: logging.Handler = _LogFile(path, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the log file {path} cannot be opened: {error.strerror}.") from error
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        file.setLevel(LEVELS[level.upper()])
        self._handlers = [file]
        if console:
            screen = _Stderr()
            screen.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
            screen.setLevel(logging.WARNING)
            self._handlers.append(screen)
        self._logger = logging.getLogger(NAME)
        self._level = self._logger.level
        self._logger.setLevel(min(handler.level for handler in self._handlers))
        for handler in self._handlers:
            self._logger.addHandler(handler)

    def close(self) -> None:
        if not self._handlers:
            return
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            handler.close()
        self._handlers = []
        self._logger.setLevel(self._level)

    def __enter__(self) -> TextLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
