"""What this torch has: whether it was tested, can export at all,
and has the internals that our changes to its compiler are written for.

Nothing here imports the compiler; whoever asks about its internals has done so.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

TESTED = "2.13.0"  # as in constraints.txt
OLDEST = (2, 6)  # whose AOTInductor makes packages
HINT = f"compiled updates are tested with torch {TESTED} (pip install torch=={TESTED})"


def version() -> str:
    return str(torch.__version__)


def numbers(version: str) -> tuple[int, ...]:
    """(major, minor)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def tested() -> bool:
    """Whether this is the torch that everything here was tested with, up to fixes and build."""
    return numbers(version()) == numbers(TESTED)


def untested() -> str | None:
    """What a run says of a torch that was not tested, or None."""
    return None if tested() else f"torch {version()} is not a tested one: {HINT}"


def no_export() -> str | None:
    """Why this torch cannot compile an update at all, or None."""
    if numbers(version()) < OLDEST:
        return f"torch {version()} is older than {'.'.join(map(str, OLDEST))}; {HINT}"
    if importlib.util.find_spec("torch.export") is None or importlib.util.find_spec("torch._inductor") is None:
        return f"torch {version()} has no torch.export or no AOTInductor; {HINT}"
    if not hasattr(getattr(torch._C, "_aoti", None), "AOTIModelContainerRunnerCpu"):
        return f"torch {version()} cannot load what AOTInductor builds for CPUs; {HINT}"
    return None


def lacking(owner: Any, *names: str) -> str | None:
    """The first of these attributes that it does not have, in words."""
    where = getattr(owner, "__qualname__", None) or getattr(owner, "__name__", str(owner))
    return next((f"{where} has no {name}" for name in names if not hasattr(owner, name)), None)


def refusing(function: Callable[..., Any], *names: str) -> str | None:
    """The first of these arguments that it does not take, in words."""
    taken = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return None
    return next((f"{function.__qualname__} takes no {name}" for name in names if name not in taken), None)


def unknown(options: dict[str, Any]) -> str | None:
    """The first of these options that inductor does not have, in words."""
    return next((f"inductor has no option {name}" for name in options if not known(name)), None)


def known(option: str) -> bool:
    """Whether inductor has this option."""
    from torch._inductor import config

    place: Any = config
    for part in option.split("."):
        if not hasattr(place, part):
            return False
        place = getattr(place, part)
    return True
