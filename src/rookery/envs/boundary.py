"""The boundary: every observation and reward is checked, cast and copied where it leaves an env.

Always, at about a microsecond per step: keys, shape, kind of dtype, range of discrete values, NaN and infinity.
Observations are copied into preallocated buffers [B, …], so an env that reuses its array changes nothing. Discrete
values are stored counted from 0. Finiteness is tested for all envs at once by one dot product; only if that fails does
the slow search for the culprit start.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.spec import Leaf, zeros
from rookery.core.tree import Tree, tree_map

log = logging.getLogger(__name__)

Write = Callable[[int, Any], None]
LARGEST = float(np.finfo(np.float32).max)  # rewards are stored as float32
_OLD = "An env with the old API (reset gives obs, step gives obs, reward, done, info) needs env.api=four"
_KIND = {"f": "floating point", "i": "integer", "u": "unsigned integer", "b": "boolean", "O": "object"}


class BadValue(Exception):
    """An env gave something its space does not allow; the vector env adds which env, episode and step."""


def number(reward: Any) -> float:
    """A reward as a float: Python and numpy numbers, and arrays with one element."""
    if isinstance(reward, float):  # np.float64 too, the most frequent case
        return float(reward)
    if isinstance(reward, int | np.integer | np.floating | np.bool_):
        try:
            return float(reward)
        except OverflowError:  # an int that no float can hold
            return math.inf if reward > 0 else -math.inf
    if getattr(reward, "size", 0) == 1 and hasattr(reward, "item") and not np.ma.is_masked(reward):
        plain = reward.item()
        if isinstance(plain, int | float):
            return number(plain)
    shape = f" of shape {tuple(reward.shape)}" if hasattr(reward, "shape") else ""
    several = " Has it one for each of several agents? Set env.api=tuple." if isinstance(reward, list | tuple) else ""
    raise BadValue(
        f"the reward is a {type(reward).__name__}{shape}, expected one number. Return float(reward).{several}"
    )


def flag(value: Any, name: str) -> bool:
    """`terminated` or `truncated` as a bool. What is not false must equal True: a text or NaN does not; None is
    neither."""
    if not value and value is not None:
        return False
    if value is None or isinstance(value, str) or value != 1:
        raise BadValue(f"{name} is {value!r} ({type(value).__name__}), expected True or False. Return bool({name}).")
    return True


def reset_problem(result: Any) -> str | None:
    """What is wrong with the form of what `reset` returned."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return None
    got = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
    return f"it returned {got}, expected (obs, info) with info a dict. {_OLD}"


def step_problem(result: Any) -> str | None:
    """What is wrong with the form of what `step` returned."""
    if isinstance(result, tuple) and len(result) == 5:
        return None
    got = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
    return f"it returned {got}, expected (obs, reward, terminated, truncated, info). {_OLD}"


@dataclass(slots=True)
class Part:
    """One leaf of the observation: its buffer [B, …] and its checks."""

    where: str
    leaf: Leaf
    buffer: np.ndarray
    write: Write  # copy one env's value into its row
    fill: Callable[[Any], None]  # copy a whole batch
    sound: Callable[[], bool]  # is the whole buffer finite and in range?


class Receiver:
    """Buffers of B observations and the checks on what is written into them."""

    def __init__(self, space: spaces.Space, spec: Tree, num: int):
        self._begin(spec, num)
        self.write, self.fill = self._compile(space, spec, self.obs, "the observation")
        self.sound = all_of([part.sound for part in self.parts if part.sound is not _always])

    def _begin(self, spec: Tree, num: int) -> None:
        """Buffers, and nobody who writes into them yet."""
        self.obs, self.num = zeros(spec, num), num
        self.parts: list[Part] = []
        self._told: set[str] = set()

    def row(self, i: int) -> Tree:
        """A copy of the observation of env i."""
        return tree_map(lambda buffer: np.array(buffer[i]), self.obs)

    def problem(self, i: int) -> tuple[str, bool] | None:
        """(what is wrong with row i, whether it is a matter of NaN or infinity), or None."""
        for part in self.parts:
            row = part.buffer[i]
            if part.leaf.kind == "box":
                if row.dtype.kind == "f" and not np.isfinite(row).all():
                    first = tuple(int(k) for k in np.argwhere(~np.isfinite(row))[0])
                    return f"{part.where}{list(first) or ''} is {row[first]}", True
            elif part.leaf.kind != "discrete" and not _in_range(row, part.leaf):
                return f"{part.where} is {row.tolist()}, outside its space {_values(part.leaf)}", False
        return None

    def look_closely(self, i: int) -> None:
        """The full check, for the first observations of an env:
        leaving the bounds of a Box is told once, not an error.
        """
        self._look(i, self.parts)

    def _look(self, i: int, parts: list[Part]) -> None:
        for part in parts:
            low, high = part.leaf.low, part.leaf.high
            if low is None or high is None or part.where in self._told:
                continue
            row = part.buffer[i]
            outside = (row < low.astype(row.dtype)) | (row > high.astype(row.dtype))
            if outside.any():
                self._told.add(part.where)
                at = tuple(np.argwhere(outside)[0])
                log.warning(
                    "%s%s = %s of env %d lies outside its Box [%s, %s]: widen the space; training goes on (said once)",
                    *(part.where, list(map(int, at)) or "", row[at], i, low[at], high[at]),
                )

    def _compile(
        self, space: spaces.Space, spec: Tree, buffer: Tree, where: str
    ) -> tuple[Write, Callable[[Any], None]]:
        if isinstance(space, spaces.Dict):
            inner = [
                (k, self._compile(s, spec[str(k)], buffer[str(k)], f"{where}[{k!r}]")) for k, s in space.spaces.items()
            ]
            return _dict_writers(inner, where)
        if isinstance(space, spaces.Tuple):
            each = [self._compile(s, spec[str(i)], buffer[str(i)], f"{where}[{i}]") for i, s in enumerate(space.spaces)]
            return _tuple_writers(each, where)
        part = (_discrete if isinstance(space, spaces.Discrete) else _array)(space, spec, buffer, where)
        self.parts.append(part)
        return part.write, part.fill


def all_of(checks: list[Callable[[], bool]]) -> Callable[[], bool]:
    if len(checks) == 1:
        return checks[0]
    return lambda: all(check() for check in checks)


def _always() -> bool:
    return True


def _dict_writers(inner: list[tuple[Any, tuple[Write, Any]]], where: str) -> tuple[Write, Callable[[Any], None]]:
    keys = {key: None for key, _ in inner}.keys()
    writers = [(key, pair[0]) for key, pair in inner]
    fillers = [(key, pair[1]) for key, pair in inner]

    def check(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise BadValue(f"{where} is a {type(value).__name__}, expected a dict with the keys {list(keys)}")
        missing, extra = [k for k in keys if k not in value], [k for k in value if k not in keys]
        if missing or extra:
            problem = f"{f'lacks the keys {missing}' if missing else ''}{' and ' if missing and extra else ''}"
            problem += f"has the extra keys {extra}" if extra else ""
            raise BadValue(
                f"{where} {problem}; its space declares {list(keys)}. Return exactly these, or change the space."
            )

    def write(i: int, value: Any) -> None:
        if value.__class__ is not dict or value.keys() != keys:
            check(value)
        for key, part in writers:
            part(i, value[key])

    def fill(value: Any) -> None:
        check(value)
        for key, part in fillers:
            part(value[key])

    return write, fill


def _tuple_writers(each: list[tuple[Write, Any]], where: str) -> tuple[Write, Callable[[Any], None]]:
    def check(value: Any) -> None:
        if not isinstance(value, tuple | list) or len(value) != len(each):
            got = f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else type(value).__name__
            raise BadValue(f"{where} is a {got}, expected a tuple of {len(each)} as its space declares")

    def write(i: int, value: Any) -> None:
        check(value)
        for part, (writer, _) in zip(value, each):
            writer(i, part)

    def fill(value: Any) -> None:
        check(value)
        for part, (_, filler) in zip(value, each):
            filler(part)

    return write, fill


def _discrete(space: spaces.Space, leaf: Leaf, buffer: np.ndarray, where: str) -> Part:
    start, n = leaf.start, leaf.sizes[0]

    def write(i: int, value: Any) -> None:
        if value.__class__ is not int:
            value = _integer(value, where)
        if not start <= value < start + n:
            raise BadValue(f"{where} is {value}, outside its space {_values(leaf)}")
        buffer[i] = value - start

    def fill(value: Any) -> None:
        array = _coerced(value, buffer.shape, buffer.dtype, "iu", where)
        if ((array < start) | (array >= start + n)).any():
            raise BadValue(f"{where} is {array.tolist()}, outside its space {_values(leaf)}")
        np.subtract(array, start, out=buffer, casting="unsafe")

    return Part(where, leaf, buffer, write, fill, _always)


def _integer(value: Any, where: str) -> int:
    if isinstance(value, int | np.integer):
        return int(value)
    if getattr(value, "size", 0) == 1 and getattr(value, "dtype", np.dtype("O")).kind in "iu":
        return int(value.item())
    got = f"{getattr(value, 'dtype', type(value).__name__)}"
    raise BadValue(f"{where} is a {got}, expected an integer as its Discrete space declares. Return int(obs).")


def _array(space: spaces.Space, leaf: Leaf, buffer: np.ndarray, where: str) -> Part:
    """A Box, MultiDiscrete or MultiBinary leaf."""
    dtype, shape = np.dtype(space.dtype), leaf.shape
    kinds = dtype.kind if leaf.kind == "box" else "iub"
    rows = [buffer[i : i + 1].reshape(shape) for i in range(len(buffer))]
    array_type = np.ndarray

    def write(i: int, value: Any) -> None:
        if value.__class__ is array_type and value.dtype is dtype and value.shape == shape:
            rows[i][...] = value
        else:
            rows[i][...] = _coerced(value, shape, dtype, kinds, where)

    def fill(value: Any) -> None:
        buffer[...] = _coerced(value, buffer.shape, dtype, kinds, where)

    if leaf.kind != "box":
        sound: Callable[[], bool] = lambda: _in_range(buffer, leaf)  # noqa: E731
    else:
        sound = finite_test(buffer) if buffer.dtype.kind == "f" else _always
    return Part(where, leaf, buffer, write, fill, sound)


def finite_test(buffer: np.ndarray) -> Callable[[], bool]:
    """Are all numbers finite? A dot product costs a quarter of `np.isfinite(…).all()` on small arrays.

    The factor 2⁻⁶⁴ keeps the largest finite numbers from overflowing, so that they do not even cause a warning.
    """
    flat = buffer.reshape(-1)
    if buffer.dtype.itemsize < 4:  # half precision cannot hold the factor
        return lambda: bool(np.isfinite(flat).all())
    small = np.full_like(flat, 2.0**-64)

    def finite() -> bool:
        try:
            return math.isfinite(flat.dot(small))
        except (RuntimeWarning, FloatingPointError):  # ∞ − ∞, where such warnings are errors
            return False

    return finite


def _coerced(value: Any, shape: tuple[int, ...], dtype: np.dtype, kinds: str, where: str) -> np.ndarray:
    """The value as an array of the declared shape and kind; widths may differ (float64 for float32), kinds may not."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors that require a gradient
        raise BadValue(f"{where} is not an array: {error}") from error
    if np.ma.is_masked(value):
        raise BadValue(f"{where} has masked values, which nobody could learn from. Return plain numbers.")
    if array.shape != shape:
        raise BadValue(
            f"{where} has shape {array.shape}, expected {shape} as its space declares. Change one of the two."
        )
    if array.dtype.kind not in kinds:
        got, want = _KIND.get(array.dtype.kind, array.dtype.kind), _KIND[dtype.kind]
        raise BadValue(
            f"{where} is {array.dtype} ({got}), expected {dtype} ({want}) as its space declares. "
            f"Return np.asarray(obs, dtype=np.{dtype.name}), or declare the space with dtype=np.{array.dtype.name}."
        )
    if array.dtype != dtype and dtype.kind != "f":
        narrow = array.astype(dtype)
        if not (narrow == array).all():
            raise BadValue(
                f"{where} holds {array.max()} or {array.min()}, which does not fit its declared dtype {dtype}"
            )
    return array


def _in_range(array: np.ndarray, leaf: Leaf) -> bool:
    """0 ≤ value < size for multi-discrete and multi-binary arrays;
    one comparison, as negative numbers are huge unsigned ones.
    """
    if leaf.kind == "multi_binary":
        return bool((array.view(np.uint8) <= 1).all())
    return bool((array.view(np.uint64) < np.asarray(leaf.sizes, np.uint64)).all())


def _values(leaf: Leaf) -> str:
    if leaf.kind == "discrete":
        return f"{leaf.start} … {leaf.start + leaf.sizes[0] - 1}"
    return "0 … 1" if leaf.kind == "multi_binary" else f"of sizes {list(leaf.sizes)}"
