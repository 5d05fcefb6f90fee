"""From the algorithm's actions to the env's: arrays [B, …] become what each env's action space holds.

Algorithms count discrete choices from 0 and may leave a Box; the env gets `start + a`, and box actions
clipped to the bounds and, where the box holds whole numbers, rounded. What an env gets is always a fresh
copy: it may keep or change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from gymnasium import spaces

from rookery.core.errors import EnvError
from rookery.core.spec import describe, mask_of, spec_of
from rookery.core.tree import Tree, leaves, walk

Convert = Callable[[Tree], Any]


def batched(space: spaces.Space) -> Convert:
    """tree of arrays [B, …] → a batch in the structure of the space (what a gymnasium vector env takes)."""
    if isinstance(space, spaces.Dict):
        parts = {key: batched(part) for key, part in space.spaces.items()}
        return lambda action: {key: part(action[str(key)]) for key, part in parts.items()}
    if isinstance(space, spaces.Tuple):
        each = [(str(i), batched(part)) for i, part in enumerate(space.spaces)]
        return lambda action: tuple(part(action[key]) for key, part in each)
    if isinstance(space, spaces.Box):
        return _clipped(space)
    dtype = space.dtype
    if isinstance(space, spaces.Discrete) and space.start:
        return lambda action: (action + space.start).astype(dtype)
    return lambda action: np.array(action, dtype)


def split(space: spaces.Space) -> Callable[[Tree], list[Any]]:
    """tree of arrays [B, …] → list of B actions, one per env."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda action: (action + start).tolist()) if start else (lambda action: action.tolist())
    if isinstance(space, spaces.Dict):
        parts = {key: split(part) for key, part in space.spaces.items()}
        return lambda action: _zip_dicts({key: part(action[str(key)]) for key, part in parts.items()})
    if isinstance(space, spaces.Tuple):
        each = [(str(i), split(part)) for i, part in enumerate(space.spaces)]
        return lambda action: list(zip(*(part(action[key]) for key, part in each)))
    convert = batched(space)
    return lambda action: list(convert(action))


def action_spec_of(space: spaces.Space, where: str) -> Tree:
    """The spec of an action space, in which there must be something to decide."""
    spec = spec_of(space, where)
    empty = [
        f"{where}{f'[{path!r}]' if path else ''} is {describe(leaf)}" for path, leaf in walk(spec) if 0 in leaf.shape
    ]
    if empty or not leaves(spec):
        what = empty[0] if empty else f"{where} is {space}"
        raise EnvError(f"{what}: it is empty, so there is nothing to decide. Leave it out, or give it a size above 0.")
    return spec


def legal_sample(space: spaces.Space, obs: Tree) -> Any:
    """A random action of the env's space, legal by the observation's action mask if it has one."""
    mask = mask_of(obs)
    if mask is None or isinstance(mask, dict) or (form := _masked(space, iter(np.asarray(mask, np.int8)))) is None:
        return space.sample()
    return space.sample(mask=form)


def _masked(space: spaces.Space, entries: Iterator[np.int8]) -> Any:
    """The next entries of a mask, one per choice, in the form that gymnasium wants for this space; None: no choices."""
    if isinstance(space, spaces.Discrete):
        return np.array(list(islice(entries, int(space.n))), np.int8)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(np.array(list(islice(entries, int(n))), np.int8) for n in space.nvec)
    if isinstance(space, spaces.Dict):
        return {key: _masked(part, entries) for key, part in space.spaces.items()}
    return tuple(_masked(part, entries) for part in space.spaces) if isinstance(space, spaces.Tuple) else None


class Contains:
    """`Discrete.contains` at a twentieth of its price for a Python int, which is what we give to envs.

    Many envs assert `action_space.contains(action)` in each step: a third of the time of gymnasium's CartPole.
    """

    def __init__(self, space: spaces.Discrete):
        self.space, self.start = space, int(space.start)
        self.end = self.start + int(space.n)

    def __call__(self, x: Any) -> bool:
        return self.start <= x < self.end if x.__class__ is int else spaces.Discrete.contains(self.space, x)


def quicken(space: spaces.Space) -> None:
    """Let an env's action space, if it is Discrete, answer `contains` quickly; the answers stay the same."""
    if type(space) is spaces.Discrete:
        vars(space)["contains"] = Contains(space)


def not_finite(action: Tree, index: int) -> bool:
    """Whether the action of env `index` holds NaN or infinity, which is the policy's fault and not the env's."""
    rows = (np.asarray(leaf)[index] for leaf in leaves(action))
    return any(row.dtype.kind == "f" and not np.isfinite(row).all() for row in rows)


def shape_problem(action: Tree, spec: Tree, num: int) -> str | None:
    """How a batch of actions [B, …] differs from its spec in form, if it does."""
    if isinstance(spec, dict):
        if not isinstance(action, dict) or action.keys() != spec.keys():
            got = list(action) if isinstance(action, dict) else type(action).__name__
            return f"{got}, expected a dict with the keys {list(spec)}"
        problems = ((key, shape_problem(action[key], part, num)) for key, part in spec.items())
        return next((f"in {key!r} {problem}" for key, problem in problems if problem), None)
    wanted = (num, *spec.shape)
    return None if np.shape(action) == wanted else f"shape {np.shape(action)}, expected {wanted}"


def _clipped(space: spaces.Box) -> Convert:
    dtype, low, high = space.dtype, space.low, space.high
    if dtype.kind in "iu":
        return lambda action: np.rint(np.clip(action, low, high)).astype(dtype)
    if np.isinf(low).all() and np.isinf(high).all():
        return lambda action: np.array(action, dtype)

    def clip(action: Tree) -> np.ndarray:
        nonlocal low, high
        if action.shape != low.shape:
            low, high = (
                np.ascontiguousarray(np.broadcast_to(bound, action.shape)) for bound in (space.low, space.high)
            )
        # np.clip costs twice as much on small arrays, and so do bounds that numpy has to broadcast
        return np.minimum(np.maximum(action, low), high).astype(dtype, copy=False)

    return clip


def _zip_dicts(columns: dict[Any, list[Any]]) -> list[dict[Any, Any]]:
    return [dict(zip(columns, row)) for row in zip(*columns.values())]
