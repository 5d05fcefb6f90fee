"""Settings: calls with arguments that the methods of envs got (`foreach_env("set_phase", 2)`),
so that a restored env gets them again; and how envs are asked, so that the same mistake is the same sentence wherever
they live.

A replayed episode is exact only if the env is told the same at the same steps: before its reset what held then, and
during it what came in between. Of several calls of one method only the last before the reset counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rookery.core.errors import ERRORS, EnvError, RookeryError, UsageError
from rookery.core.registry import did_you_mean
from rookery.envs.faults import place

Call = tuple[str, list[Any], dict[str, Any]]  # method, arguments, keyword arguments: JSON values
CALLED = (
    "a function was called with the envs (foreach_env), and what it did to them a resumed run would not repeat; a "
    "method called by its name is repeated ({name})"
)
BEFORE = -1  # the "step" of calls before the reset


class Settings:
    """What B envs were told. Everyone is told the same, but their episodes began at different times."""

    def __init__(self, num: int):
        self.now: dict[str, Call] = {}  # method → its last call
        self._before: list[dict[str, Call]] = [{} for _ in range(num)]  # as it was when the running episode began
        self._during: list[list[tuple[int, Call]]] = [[] for _ in range(num)]  # (steps of the episode done, call)

    def note(self, name: str, args: Any, kwargs: Any, lengths: list[int]) -> bool:
        """Remember a call that came after so many steps of each env's episode;
        false if it holds what cannot be saved.
        """
        try:
            call = (name, plain(list(args)), plain(dict(kwargs)))
        except TypeError:
            return False
        self.now[name] = call
        for calls, length in zip(self._during, lengths):
            calls.append((length, call))
        return True

    def begin(self, i: int) -> None:
        """Env i begins an episode."""
        self._before[i], self._during[i] = dict(self.now), []

    def at(self, i: int, step: int) -> list[Call]:
        """The calls that env i got after so many steps of its running episode, or BEFORE it."""
        if step == BEFORE:
            return list(self._before[i].values())
        return [call for length, call in self._during[i] if length == step]

    def state(self, i: int) -> dict[str, Any]:
        during = [[length, *call] for length, call in self._during[i]]
        return {"before": [list(call) for call in self._before[i].values()], "during": during}

    def restore(self, i: int, state: dict[str, Any]) -> None:
        names = [name for name, *_ in state["before"]] + [name for _, name, *_ in state["during"]]
        if inner := [name for name in names if name.startswith("__")]:  # nobody's setting: somebody wrote it here
            raise ValueError(f"an env was told {inner[0]!r}")
        self._before[i] = {name: (name, args, kwargs) for name, args, kwargs in state["before"]}
        self._during[i] = [(int(step), (name, args, kwargs)) for step, name, args, kwargs in state["during"]]
        self.now = self._before[i] | {call[0]: call for _, call in self._during[i]}


def called(function: Callable[..., Any], things: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """function(thing, …) with every env or collector; what it raises is told as a mistake of whoever called."""
    if not callable(function):
        raise UsageError(f"expected a function that takes what it is called with, got {function!r}")
    with told_as(UsageError, getattr(function, "__name__", type(function).__name__)):
        return [function(thing, *args, **kwargs) for thing in things]


def attributes(envs: Sequence[Any], name: str, title: str, read: Callable[[Any, str], Any] = getattr) -> list[Any]:
    """The attribute of every env."""
    try:
        return [read(env, name) for env in envs]
    except AttributeError as error:
        near = did_you_mean(name, {*dir(getattr(envs[0], "unwrapped", envs[0])), *dir(envs[0])})
        raise UsageError(f"foreach_env: {title} has no method or attribute {name!r}.{near}") from error


def answers_of(values: Sequence[Any], name: str, *args: Any, **kwargs: Any) -> list[Any]:
    """What the methods answer, or the attributes themselves."""
    with told_as(EnvError, name):
        return [value(*args, **kwargs) if callable(value) else value for value in values]


@contextmanager
def told_as(kind: type[RookeryError], name: str) -> Iterator[None]:
    """Whatever is raised inside becomes a sentence of this kind: what, and in which line of whose code."""
    try:
        yield
    except RookeryError:
        raise
    except ERRORS as error:
        raise kind(f"{name} raised {type(error).__name__}: {error}{place(error)}") from error


def told_in(state: dict[str, Any]) -> dict[str, Call]:
    """Method → its last call, from the saved state of a vector env:
    of the first of its envs that knows, since all were told the same.
    """
    settings = Settings(1)
    for saved in (state, *state.get("envs", {}).values()):
        if saved.get("settings"):
            settings.restore(0, saved["settings"])
            break
    return settings.now


def plain(value: Any) -> Any:
    """The value as JSON would give it back; a TypeError if JSON cannot hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(part) for key, part in value.items()}
    raise TypeError(f"{type(value).__name__} is no JSON value")


def attribute(get: Callable[[str], Any], name: Any, told: bool, env: str) -> Any:
    """What envs that are numbers can answer to `call`: an attribute of the env in Python, by `get`; no method, no
    function and nothing that is `told` arguments."""
    known = isinstance(name, str) and not told
    try:
        value = get(name) if known else None
    except AttributeError:
        known, value = False, None
    if not known or callable(value):
        what = name if isinstance(name, str) else "a function"
        raise UsageError(
            f"{env}: {what} cannot be called, the native engine's envs are numbers. Set env.engine=gymnasium"
        )
    return value
