"""Our changes to inductor, each optional: tried before it is used, and left out where this torch cannot have it.

A change reaches into torch's internals, which any version may move. So it says what it needs (`problem`), and on a
torch that was not tested it must also prove itself: an update that fails to compile with it, or computes something else
than its trace, is compiled again without it. What was left out, and why, lies in the plan of the artefact, so that
every run that loads it says so.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rookery.learning.compiled.internals import HINT, known, version

LeftOut = dict[str, str]  # name of a change → why
OPTIONS = {  # of inductor, with or without our changes
    "compile_threads": 1,  # it would start a process per core
    "aot_inductor.precompile_headers": False,  # 300 MB in a folder whose name anybody can take first; saves 4 s of 25
}


@dataclass(frozen=True)
class Change:
    """One change, by the name that people are told.

    `module`, in this package, is imported when it is needed: most import the compiler. It has `problem()`, why
    this torch cannot have the change or None; if it changes inductor, also OPTIONS of inductor and `applied()`,
    a context in which it compiles.
    """

    name: str
    module: str
    traced: bool = False  # it changes the trace, not inductor

    def problem(self) -> str | None:
        """Why this torch cannot have it, or None."""
        try:
            return self.part("problem")()
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    def part(self, name: str) -> Any:
        """Something of its module."""
        return getattr(importlib.import_module(f"rookery.learning.compiled.{self.module}"), name)


CHANGES = (
    Change("loops for small matrix products", "small_matmul", traced=True),
    Change("our own matrix products", "matmul"),
    Change("intermediate results on the stack", "stack_buffers"),
)


def usable() -> tuple[tuple[Change, ...], LeftOut]:
    """(the changes that this torch can have, the others)."""
    problems = {change: change.problem() for change in CHANGES}
    left_out = {change.name: problem for change, problem in problems.items() if problem is not None}
    return tuple(change for change, problem in problems.items() if problem is None), left_out


def options(changes: tuple[Change, ...]) -> dict[str, Any]:
    """Inductor's, for these changes."""
    chosen = {name: value for name, value in OPTIONS.items() if known(name)}
    for change in changes:
        if not change.traced:
            chosen |= change.part("OPTIONS")
    return chosen


@contextlib.contextmanager
def applied(changes: tuple[Change, ...]) -> Iterator[None]:
    """While inductor compiles."""
    with contextlib.ExitStack() as stack:
        for change in changes:
            if not change.traced:
                stack.enter_context(change.part("applied")())
        yield


def decompositions(changes: tuple[Change, ...]) -> dict[Any, Callable[..., Any]]:
    """For make_fx."""
    return {op: how for change in changes if change.traced for op, how in change.part("decompositions")().items()}


def in_words(left_out: LeftOut) -> str:
    """One line of what compiled updates go without."""
    reasons = "; ".join(f"{name} ({why})" for name, why in sorted(left_out.items()))
    return f"with torch {version()} compiled updates go without {reasons}. They are right, but slower; {HINT}"
