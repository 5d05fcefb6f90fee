"""What one step contains: the shape, dtype and meaning of every array, derived from gymnasium spaces.

A spec is a tree of `Leaf`. Dict and Tuple spaces become dicts (a tuple's keys are "0", "1", …), float64 becomes
float32. An observation with the top-level key `action_mask` carries the legal actions as 0 / 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rookery.core.errors import ConfigError
from rookery.core.system.memory import check_room
from rookery.core.tree import Tree, leaves, tree_map, walk

Kind = Literal["box", "discrete", "multi_discrete", "multi_binary"]
MASK = "action_mask"
AGENTS, PRESENT = "agents", "present"  # parts of what a team sees (`core.team`)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of a step, without its leading dimensions."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: np.dtype
    sizes: tuple[int, ...] = ()  # choices per head: discrete (n,), multi_discrete (n1, n2, …), multi_binary (2, …)
    start: int = 0  # smallest value of a discrete space
    low: np.ndarray | None = field(default=None, compare=False)  # box only
    high: np.ndarray | None = field(default=None, compare=False)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def choices(self) -> int:
        """Entries that a mask of such an action has: one per choice; 0 where nothing can be masked."""
        return sum(self.sizes) if self.kind in ("discrete", "multi_discrete") else 0

    @property
    def is_image(self) -> bool:
        return self.kind == "box" and self.dtype == np.uint8 and len(self.shape) == 3


def spec_of(space: Any, where: str = "the space") -> Tree:
    """The tree of leaves of a gymnasium space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {str(key): spec_of(part, f"{where}[{key!r}]") for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return {str(i): spec_of(part, f"{where}[{i}]") for i, part in enumerate(space.spaces)}
    if isinstance(space, spaces.Discrete):
        return Leaf("discrete", (), np.dtype(np.int64), (int(space.n),), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        if np.ndim(space.nvec) != 1:
            raise ConfigError(
                f"{where} is MultiDiscrete({space.nvec.tolist()}): only one dimension is supported. "
                "Flatten it with a wrapper."
            )
        if np.any(space.start):
            raise ConfigError(
                f"{where} is {space}: MultiDiscrete that starts at 0 is supported. Shift it with a wrapper."
            )
        return Leaf("multi_discrete", space.shape, np.dtype(np.int64), tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.MultiBinary):
        return Leaf("multi_binary", space.shape, np.dtype(np.int8), (2,) * int(np.prod(space.shape)))
    if isinstance(space, spaces.Box):
        dtype = np.dtype(np.float32) if space.dtype == np.float64 else np.dtype(space.dtype)
        with np.errstate(over="ignore"):  # a float64 bound beyond float32 means "unbounded"
            low, high = space.low.astype(dtype), space.high.astype(dtype)
        return Leaf("box", space.shape, dtype, low=low, high=high)
    known = "Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple"
    raise ConfigError(
        f"{where} is a {type(space).__name__}, which is not supported ({known} are). Convert it with a wrapper."
    )


def zeros(spec: Tree, *lead: int) -> Tree:
    """Numpy arrays of the spec with leading dimensions."""
    return tree_map(lambda leaf: np.zeros((*lead, *leaf.shape), leaf.dtype), spec)


def bytes_of(spec: Tree) -> int:
    """Bytes of one step's arrays."""
    return sum(leaf.bytes for leaf in leaves(spec))


def describe(spec: Tree) -> str:
    """`box float32 (4,)`, `discrete of 2 int64 ()` or `{a: …, b/c: …}`: for messages."""
    if isinstance(spec, Leaf):
        extra = f" of {'×'.join(map(str, spec.sizes))}" if spec.sizes else ""
        return f"{spec.kind}{extra} {spec.dtype} {spec.shape}"
    return "{" + ", ".join(f"{path}: {describe(leaf)}" for path, leaf in walk(spec)) + "}"


def is_mask(path: str) -> bool:
    """Whether a leaf of an observation, by its path, is the action mask:
    it belongs to one step and is never stacked.
    """
    return path == MASK


def frame_axis(obs_spec: Tree, path: str) -> int | None:
    """Axes that a part of an observation has before those of its frames: 0, or 1 of what members of a team see; None
    if it belongs to one step and is never stacked: masks, and whatever else a team is told (`core.team`)."""
    present = obs_spec.get(PRESENT) if isinstance(obs_spec, dict) else None
    if isinstance(present, Leaf) and present.kind == "multi_binary" and AGENTS in obs_spec:
        return 1 if path == AGENTS or path.startswith(f"{AGENTS}/") else None
    return None if is_mask(path) else 0


def stacked_spec(obs_spec: Tree, stack: int) -> Tree:
    """The observation as networks see it with the last `stack` frames: [stack, *frame], oldest first; of members of a
    team [G, stack, *frame].

    Frames of an image become its channels: [C, H, W] gives [stack · C, H, W], [H, W] and [H, W, 1] give [stack, H, W].
    """
    if stack == 1:
        return obs_spec
    bounds = 2 * stack * bytes_of(obs_spec)
    check_room(bounds, f"env.stack={stack} frames of {describe(obs_spec)} need", "Lower env.stack.")

    def stacked(path: str, leaf: Leaf) -> Leaf:
        axes = frame_axis(obs_spec, path)
        if not axes:
            return leaf if axes is None else _stacked_leaf(leaf, stack, path)
        one = _stacked_leaf(one_of(leaf), stack, path)
        low, high = (None if bound is None else np.stack([bound] * leaf.shape[0]) for bound in (one.low, one.high))
        return Leaf(one.kind, (leaf.shape[0], *one.shape), one.dtype, one.sizes, one.start, low, high)

    parts = iter([stacked(path, leaf) for path, leaf in walk(obs_spec)])
    return tree_map(lambda _: next(parts), obs_spec)


def one_of(leaf: Leaf) -> Leaf:
    """[G, …] → […]: that of the first member, whose bounds are everybody's."""
    bounds = (None if bound is None else bound[0] for bound in (leaf.low, leaf.high))
    return Leaf(leaf.kind, leaf.shape[1:], leaf.dtype, leaf.sizes, leaf.start, *bounds)


def _stacked_leaf(leaf: Leaf, stack: int, path: str) -> Leaf:
    if leaf.kind == "discrete":
        return Leaf("multi_discrete", (stack,), leaf.dtype, leaf.sizes * stack)
    shape, where = (stack, *leaf.shape), f"the observation {path!r}" if path else "the observation"
    if leaf.is_image:
        channels_first, gray = leaf.shape[0] < leaf.shape[2], leaf.shape[2] == 1
        if not channels_first and not gray:
            raise ConfigError(
                f"env.stack={stack} cannot stack {where} of shape {leaf.shape}: "
                "images need their channels first, [C, H, W], or none. Turn the axes with a wrapper."
            )
        shape = (stack * leaf.shape[0], *leaf.shape[1:]) if channels_first else (stack, *leaf.shape[:2])
    if leaf.kind == "multi_discrete":
        raise ConfigError(
            f"env.stack={stack} cannot stack {where}, which is {describe(leaf)}: "
            "Box, Discrete and MultiBinary can be stacked."
        )
    low, high = (
        None if bound is None else np.repeat(bound[None], stack, axis=0).reshape(shape)
        for bound in (leaf.low, leaf.high)
    )
    return Leaf(leaf.kind, shape, leaf.dtype, leaf.sizes * stack, low=low, high=high)


def without_mask(spec: Tree) -> Tree:
    """The observation as networks see it: without the action mask; a lone remaining entry is unwrapped."""
    if isinstance(spec, dict) and MASK in spec:
        rest = {key: value for key, value in spec.items() if key != MASK}
        return next(iter(rest.values())) if len(rest) == 1 else rest
    return spec


def mask_of(obs: Tree) -> Any:
    """The action mask inside an observation, or None."""
    return obs.get(MASK) if isinstance(obs, dict) else None


def spec_to_json(spec: Tree) -> Any:
    """Plain values of a spec; bounds that are the same everywhere are one number, infinity is a word."""
    if isinstance(spec, dict):
        return {"parts": {key: spec_to_json(part) for key, part in spec.items()}}
    plain = {"kind": spec.kind, "shape": list(spec.shape), "dtype": spec.dtype.str, "sizes": list(spec.sizes)}
    bounds = {"low": _bound_to_json(spec.low), "high": _bound_to_json(spec.high)}
    return plain | {"start": spec.start} | {name: bound for name, bound in bounds.items() if bound is not None}


def spec_from_json(plain: Any) -> Tree:
    """The spec of these plain values."""
    if "parts" in plain:
        return {key: spec_from_json(part) for key, part in plain["parts"].items()}
    shape, dtype = tuple(plain["shape"]), np.dtype(plain["dtype"])
    check_room(2 * math.prod(shape) * dtype.itemsize, f"the bounds of a space of shape {shape} need", "Is it damaged?")
    bounds = {
        name: np.broadcast_to(np.array(plain[name], dtype), shape).copy() if name in plain else None
        for name in ("low", "high")
    }
    return Leaf(plain["kind"], shape, dtype, tuple(plain["sizes"]), int(plain["start"]), **bounds)


def _bound_to_json(bound: np.ndarray | None) -> Any:
    if bound is None:
        return None
    uniform = bound.size > 0 and bool((bound == bound.flat[0]).all())
    return _words(bound.flat[0].item() if uniform else bound.tolist())


def _words(values: Any) -> Any:
    if isinstance(values, list):
        return [_words(value) for value in values]
    return values if np.isfinite(values) else ("inf" if values > 0 else "-inf")
