"""WorkerLink: the way from a remote pool to one of its workers, whatever it is made of."""

from __future__ import annotations

from typing import Any, Protocol

from rookery.run.pools.worker import CollectRequest

UNREADY = "was not ready when the run was told to end"


class Abandoned(Exception):
    """A worker is lost, and the run has been told to end: nobody waits for another one."""


class WorkerLink(Protocol):
    """The way to one worker, which is being started; `answer("start")` waits for it.

    Every method raises `Lost` if there is nobody at the other end any more.
    """

    pid: int

    def ask(self, name: str, *args: Any) -> None: ...
    def collect(self, request: CollectRequest) -> None:
        """Ask for a round with the weights that were published last."""
        ...

    def ready(self) -> bool:
        """Whether `answer` would not have to wait."""
        ...

    def answer(self, name: str) -> Any:
        """What it says to the last question. Errors that it has a sentence for are raised here."""
        ...

    def part(self) -> None:
        """Ask it to close its envs and go, without waiting."""
        ...

    def end(self, seconds: float) -> None:
        """Gone for certain when this returns: killed, unless it goes by itself in time."""
        ...
