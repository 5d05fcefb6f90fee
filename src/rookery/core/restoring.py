"""Taking over a saved state: what it lacks, or has in another type or shape, is a sentence that names the part.

The digest of a checkpoint says that its bytes are those that were written, not that they are what this build and this
config need. So whatever goes wrong while a state is read is told as a mistake of the checkpoint (`restoring`), and what
was silently cast, repeated or left out shows when the restored object is asked for its state again (`check_restored`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rookery.core.errors import BatchError, CheckpointError
from rookery.core.segments import Segments

ADVICE = (
    "another build of Rookery, another config or other callbacks wrote it, or it was changed. Go on with what wrote "
    "it, or start a new run from its weights with --init-from."
)
MISTAKES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, BatchError)
OPAQUE = ("chunks", "snapshot")  # cut anew when they are restored; an env's own


@contextmanager
def restoring(part: str = "") -> Iterator[None]:
    """Around whatever reads the part of a loaded state that has this path."""
    where = f" in {part!r}" if part else ""
    try:
        yield
    except CheckpointError as error:
        if part in str(error):
            raise
        raise CheckpointError(f"{part}: {error}") from error
    except KeyError as error:
        raise CheckpointError(f"the checkpoint is whole but holds no {error}{where}: {ADVICE}") from error
    except MISTAKES as error:
        text = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"the checkpoint is whole but cannot be taken over{where} ({type(error).__name__}: {text}): {ADVICE}"
        ) from error


def check_restored(saved: Any, now: Any, part: str) -> None:
    """Refuse a saved state that is not what the object restored from it would save: `now`."""
    if problem := _difference(saved, now, part):
        raise CheckpointError(f"the checkpoint is whole but {problem}: {ADVICE}")


def _difference(saved: Any, now: Any, path: str) -> str | None:
    """The first place where kind, type or shape differ; values are not compared."""
    if isinstance(now, dict) and isinstance(saved, dict):
        return _other_keys(saved, now, path) or _first(
            _difference(saved[key], value, f"{path}/{key}") for key, value in now.items() if key not in OPAQUE
        )
    if isinstance(now, list) and isinstance(saved, list) and len(now) == len(saved):
        return _first(_difference(a, b, f"{path}/{i}") for i, (a, b) in enumerate(zip(saved, now)))
    expected, got = _kind(now), _kind(saved)
    if expected == got or (expected, got) == ("a float", "an int"):
        return None
    return f"has {got} as {path!r}, where {expected} belongs"


def _other_keys(saved: Collection[str], now: Collection[str], path: str) -> str | None:
    missing, extra = [[key for key in a if key not in b] for a, b in ((now, saved), (saved, now))]
    if missing:
        return f"holds no {path + '/' + missing[0]!r}"
    return f"holds {path + '/' + extra[0]!r}, for which there is no place" if extra else None


def _first(problems: Iterator[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)


def _kind(value: Any) -> str:
    """In words; numbers of numpy and of Python are the same, pieces of an array and the whole as well."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Segments) or (hasattr(value, "dtype") and hasattr(value, "shape")):
        kind = "a tensor" if type(value).__module__.startswith("torch") else "an array"
        return f"{kind} of {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {"int": "an int", "NoneType": "null", "dict": "a mapping"}.get(
        type(value).__name__, f"a {type(value).__name__}"
    )
