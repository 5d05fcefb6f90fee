"""What the suites share: equality to the bit with the place of the first difference, states as a checkpoint keeps
them, refusals."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rookery.core.errors import RookeryError
from rookery.core.segments import Segments
from rookery.core.spec import Leaf
from rookery.core.tree import Tree
from rookery.run.checkpoints.statefile import read_state, write_state


def difference(a: Any, b: Any, place: str = "") -> str | None:
    """Where two nested values differ first, in words; None: they are equal to the bit (NaN equals NaN)."""
    if is_dataclass(a) and not isinstance(a, type):
        if type(a) is not type(b):
            return f"{place or 'they'}: a {type(a).__name__} and a {type(b).__name__}"
        a, b = ({field.name: getattr(x, field.name) for field in fields(x)} for x in (a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return f"{place or 'they'}: the keys {list(a)} and {list(b)}"
        parts = ((a[key], b[key], f"{place}/{key}" if place else str(key)) for key in a)
        return next((words for part in parts if (words := difference(*part))), None)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"{place or 'they'}: {len(a)} and {len(b)} parts"
        return next((words for i, (x, y) in enumerate(zip(a, b)) if (words := difference(x, y, f"{place}[{i}]"))), None)
    if isinstance(a, np.ndarray | torch.Tensor | np.generic) or isinstance(b, np.ndarray | torch.Tensor | np.generic):
        return _of_arrays(_array(a), _array(b), place)
    return None if a == b or (a != a and b != b) else f"{place or 'they'}: {a!r:.80} and {b!r:.80}"


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _of_arrays(a: np.ndarray, b: np.ndarray, place: str) -> str | None:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{place or 'they'}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"
    if a.tobytes() == b.tobytes():
        return None
    unequal = ~((a == b) | ((a != a) & (b != b))) if a.dtype.kind in "fc" else a != b
    if not unequal.any():
        return None  # −0 and 0, or another NaN
    at = tuple(int(i) for i in np.argwhere(unequal)[0])
    return f"{place or 'they'}: {a[at]!r} and {b[at]!r} at {at}, {int(unequal.sum())} of {a.size} differ"


def assert_same(a: Any, b: Any, what: str) -> None:
    """`what` says which two things must be equal; the first difference is added."""
    words = difference(a, b)
    assert words is None, f"{what}: {words}"


def through_checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    """A state as a resumed run gets it: written to disk and read again. What cannot be kept is an error that names its
    place."""
    with tempfile.TemporaryDirectory(prefix="rookery-") as folder:
        names = write_state(Path(folder), {"state": state})
        return _owned(read_state(Path(folder), names)["state"])


def _owned(value: Any) -> Any:
    """Arrays that are read when they are copied are read now: the files are about to go."""
    if isinstance(value, dict):
        return {key: _owned(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_owned(part) for part in value]
    if not isinstance(value, Segments):
        return value
    array = np.zeros(value.shape, value.dtype)
    value.copy_to(array)
    return Segments(array, value.rows, {})


def refusal(call: Callable[[], Any], doing: str) -> str:
    """The sentence with which `call` is refused; anything but a RookeryError fails."""
    try:
        call()
    except RookeryError as error:
        text = str(error)
        assert len(text.split()) >= 4, f"{doing} is refused without a sentence: {text!r}"
        return text
    except Exception as error:
        raise AssertionError(
            f"{doing} must be refused with a RookeryError that says what is wrong, it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    raise AssertionError(f"{doing} is not refused")


def random_action(spec: Tree, num: int, rng: np.random.Generator) -> Tree:
    """Actions [num, …] as algorithms give them: choices count from 0, boxes are filled within their bounds."""
    if isinstance(spec, dict):
        return {key: random_action(part, num, rng) for key, part in spec.items()}
    if spec.kind == "box":
        return _inside(spec, num, rng)
    sizes = np.array(spec.sizes).reshape(spec.shape or ())
    return rng.integers(0, sizes, (num, *spec.shape)).astype(spec.dtype)


def _inside(leaf: Leaf, num: int, rng: np.random.Generator) -> np.ndarray:
    nowhere = np.full(leaf.shape, np.inf, np.float32)
    low, high = (np.asarray(nowhere if bound is None else bound) for bound in (leaf.low, leaf.high))
    bounded = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    return (low + (high - low) * rng.random((num, *leaf.shape))).astype(leaf.dtype)
