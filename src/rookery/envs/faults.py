"""FaultConfig: how long envs may take and how often they may fail.

Patience and Renewal: the account of one worker, of one env.

strain after a failure = max(strain before − steps since then / FORGIVING, 0) + 1        at most `renewals` is borne
"""

from __future__ import annotations

import logging
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from rookery.core.config.section import Section
from rookery.core.errors import ERRORS as ERRORS
from rookery.core.errors import EnvError
from rookery.core.system.command import own_code as own_code

log = logging.getLogger(__name__)
Seconds = Annotated[float, Field(gt=0, le=1e6)]
FORGIVING = 20  # good steps that make up for one failure: 1 failure in 100 steps goes on for ever, 1 in 10 does not
LONGEST_PAUSE = 30.0  # seconds
SHOWN = "\nIt was raised in:\n"  # before the env's own code in a message
_OURS = str(Path(__file__).parents[1])
_INSTALLED = ("<", sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


class FaultConfig(Section):
    """`env.faults`: deadlines and budgets. A renewed env begins its next episode; the unfinished one is dropped."""

    step_seconds: Seconds = 60.0  # an env that takes longer for one step counts as hung
    reset_seconds: Seconds = 300.0  # the same for a reset, and for starting a worker process
    renewals: Annotated[int, Field(ge=0)] = 5  # failures in a row of one env (or worker) that are borne; 0: none
    backoff_seconds: Annotated[float, Field(ge=0, le=60)] = (
        0.1  # pause before the second renewal in a row, then doubled
    )


class Raised(EnvError):
    """The env's own code raised, so another env in its place may do better."""

    def __init__(self, text: str, cause: BaseException | None = None):
        """`cause`: none in another process, where only the text arrives."""
        super().__init__(text)
        self.__cause__ = cause


def place(error: BaseException) -> str:
    """` (my_env.py:12 in step)`: the innermost line of the user's own code that an error came through; empty: none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)] or frames
    return f" ({own[-1].filename}:{own[-1].lineno} in {own[-1].name})" if own else ""


def failure(where: str, doing: str, what: str, act: Any, name: str) -> str:
    """The sentence about an env that failed; `act`: the action it was given, if any."""
    shown = act if isinstance(act, dict | tuple) else np.asarray(act).tolist()
    last = "" if act is None else f" Last action: {shown}."
    return f"{where}: {doing} failed: {what.rstrip('.')}.{last} `rookery check-env {name}` looks at it alone."


class Patience:
    """The failures of one env or worker."""

    def __init__(self, faults: FaultConfig):
        self.faults, self.failures = faults, 0
        self._strain = 0.0

    def bears(self, steps: int) -> bool:
        """Whether another failure is borne, so many steps after the last one."""
        self._strain = max(self._strain - steps / FORGIVING, 0.0) + 1.0
        self.failures = 1 if self._strain == 1.0 else self.failures + 1
        return self._strain <= self.faults.renewals

    @property
    def pause(self) -> float:
        """Seconds to wait before the renewal."""
        if self.failures < 2:
            return 0.0
        return float(min(self.faults.backoff_seconds * 2 ** (self.failures - 2), LONGEST_PAUSE))


class Failures:
    """Those of all envs of an engine: the first is told with the code that raised, the others are counted."""

    def __init__(self) -> None:
        self.count = 0

    def told(self, error: Raised) -> str:
        """What is said behind the sentence."""
        self.count += 1
        if self.count > 1:
            return f" {self.count} failures of these envs so far."
        return "" if error.__cause__ is None else SHOWN + own_code(error.__cause__)


class Renewal:
    """What is done about an env that raises: a new one, again and again if need be, within the budget."""

    def __init__(self, faults: FaultConfig, failures: Failures):
        self._patience, self._failures, self._last = Patience(faults), failures, 0

    def __call__(self, error: Raised, steps: int, anew: Callable[[], None]) -> int:
        """`anew` puts another env in its place and may raise `Raised`;
        returns how often it was called. `steps`: done so far.
        """
        for times in range(1, 1_000_000):
            patience, limit = self._patience, self._patience.faults.renewals
            borne, self._last = patience.bears(steps - self._last), steps
            more = self._failures.told(error)
            if not limit:
                log.error("An env failed, and env.faults.renewals=0.%s", more)
                error.shown = True
                raise error
            if not borne:
                sentence = f"{error} This was failure {patience.failures} in a row, and env.faults.renewals={limit}."
                given_up = EnvError(sentence)
                given_up.shown = True
                raise given_up from error.__cause__
            log.warning("%s A new env takes its place.%s", error, more)
            time.sleep(patience.pause)
            try:
                anew()
                return times
            except Raised as again:
                error = again
        raise error
