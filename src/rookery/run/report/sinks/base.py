"""Sink: where reports go. A sink of one's own inherits it and overrides what it needs.

class Lines(Sink):
    def report(self, record):
        print(record["steps"], record.get("episode/return_mean"))

Experiment("cartpole-ppo", sinks=[Lines()])

`log.sinks` names sinks that are registered: a user's by `rookery.register("sink", "lines", Lines)`, those that come
with Rookery in `core/catalogue.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rookery.core.errors import UsageError
from rookery.run.report.sinks.values import Record


class Sink:
    """Every method does nothing by itself. A sink may raise: `Sinks` sees to it that this never stops a run."""

    name: str = ""  # in messages and checkpoints; empty: that of the class

    @classmethod
    def from_config(cls, config: Any) -> Sink:
        """The sink of a run whose `log.sinks` names it; `config` is the whole of the run's config."""
        return cls()

    def open(self, folder: Path, resume_step: int | None) -> None:
        """Before the first report; resume_step is the step a resumed run goes on from, None for a new run."""

    def watch(self, present: Callable[[], Record]) -> None:
        """`present()` gives counts and metrics as they stand between two reports; for whoever draws now and then."""

    def report(self, record: Record) -> None:
        """One report: "steps" and metric → value. The record must not be changed."""

    def tick(self, steps: int) -> None:
        """After every round, which may be one env step: it must return at once. It is called only if it is
        overridden."""

    def note(self, text: str) -> None:
        """One line for people that stays, such as how updates are executed."""

    def busy(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Around what takes its time (compiling); what it gives is called with the closing line. By default both are
        notes."""
        self.note(text)
        return nullcontext(self.note)

    def state(self) -> dict[str, Any] | None:
        """What `restore` needs to take back all reports after this moment; None: nothing can or need be taken back."""
        return None

    def restore(self, state: dict[str, Any]) -> None:
        """After `open`: take back what was reported after `state`, by a run that was killed then."""

    def close(self) -> None:
        """After the last report, also when the run failed; a second time it does nothing."""


HOOKS = tuple(name for name in vars(Sink) if callable(getattr(Sink, name)) and not name.startswith("_"))


def checked(sinks: Iterable[Any]) -> list[Sink]:
    """The same sinks; an object that is none is an error that says what to inherit."""
    objects = list(sinks)
    for sink in objects:
        if not isinstance(sink, Sink):
            raise UsageError(f"{_called(sink)} is no sink. {_INSTEAD}")
    return objects


def checked_class(made: Any, name: str) -> type[Sink]:
    """The class that is registered under a name; anything else is an error that says what to inherit."""
    if not (isinstance(made, type) and issubclass(made, Sink)):
        raise UsageError(f"log.sinks: {name!r} is {_called(made)}, which is no class of sinks. {_INSTEAD}")
    return made


_INSTEAD = (
    "Inherit rookery.run.report.sinks.Sink and override what you need of "
    + ", ".join(HOOKS[:-1])
    + f" and {HOOKS[-1]}: the rest does nothing."
)


def _called(sink: Any) -> str:
    return f"the class {sink.__name__}" if isinstance(sink, type) else f"an object of {type(sink).__name__}"
