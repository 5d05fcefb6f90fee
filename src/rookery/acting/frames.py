"""Frames: the last k observations of every seat, stacked as the networks see them (`core.spec.stacked_spec`).

An episode begins with its first frame repeated k times. Members of a team have a stack each; frames from before a
member came are zeros.
The replay stores single frames and stacks by the same rule when it is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.core.spec import Leaf, frame_axis, stacked_spec
from rookery.core.tree import Tree, leaves, tree_map, walk


class Frames:
    """Memory of `seats` seats; `stacked` [B, …] is valid until the next call."""

    def __init__(self, spec: Tree, seats: int, stack: int):
        shapes, whole = dict(walk(spec)), dict(walk(stacked_spec(spec, stack)))
        # per leaf: [B, k, *frame] (of a team [B, k, G, *frame], or [B, *frame]), axes before those of frames; None: it
        # is not stacked
        self._memory: list[tuple[np.ndarray, int | None]] = []

        def place(path: str, leaf: Leaf) -> np.ndarray:
            axes = frame_axis(spec, path)
            at = 0 if axes is None else axes
            lead = (*leaf.shape[:at], *(() if axes is None else (stack,)))
            memory = np.zeros((seats, *lead, *leaf.shape[at:]), leaf.dtype)
            self._memory.append((memory if axes is None else np.moveaxis(memory, 1 + axes, 1), axes))
            return memory.reshape(seats, *whole[path].shape)  # a view

        self.stacked: Tree = _built(spec, {path: place(path, leaf) for path, leaf in shapes.items()})

    def push(self, obs: Tree, first: Any = None, moved: Any = None) -> Tree:
        """Add the newest frames [B, …].

        Where `first`, they begin an episode; where not `moved` (a hole), they replace the newest.
        """
        starts = None if first is None or not np.any(first) else np.asarray(first, bool)
        still = None if moved is None or np.all(moved) else ~np.asarray(moved, bool)
        for (memory, axes), frame in zip(self._memory, leaves(tree_map(lambda _, x: x, self.stacked, obs))):
            if axes is None:
                memory[...] = frame
                continue
            if still is None:
                memory[:, :-1] = memory[:, 1:]
            else:
                memory[~still, :-1] = memory[~still, 1:]
            memory[:, -1] = frame
            if starts is not None:
                memory[starts] = np.asarray(frame)[starts][:, None]
        return self.stacked

    def after(self, seat: int, obs: Tree) -> Tree:
        """What seat would see if `obs` [*frame] came next in its episode; a copy, nothing changes."""
        seen = []
        for (memory, axes), whole, frame in zip(
            self._memory, leaves(self.stacked), leaves(tree_map(lambda _, x: x, self.stacked, obs))
        ):
            if axes is None:
                frames = np.array(frame)
            else:
                frames = np.moveaxis(np.concatenate([memory[seat, 1:], np.asarray(frame)[None]]), 0, axes)
            seen.append(frames.reshape(whole.shape[1:]))
        return _built(self.stacked, dict(zip((path for path, _ in walk(self.stacked)), seen)))

    def state(self) -> dict[str, Any]:
        return {"frames": {str(i): memory.copy() for i, (memory, _) in enumerate(self._memory)}}

    def restore(self, state: dict[str, Any]) -> None:
        for i, (memory, _) in enumerate(self._memory):
            memory[...] = state["frames"][str(i)]


def repeated(obs: Tree, spec: Tree, stack: int) -> Tree:
    """Single frames [N, …] as if each had been seen `stack` times: for statistics; `spec` is the stacked one."""
    whole, parts = dict(walk(spec)), {}
    for path, x in walk(obs):
        axes = frame_axis(spec, path)
        if axes is not None:
            x = np.repeat(np.expand_dims(np.asarray(x), 1 + axes), stack, axis=1 + axes)
        parts[path] = x.reshape(len(x), *whole[path].shape)
    return _built(obs, parts)


def _built(like: Tree, flat: dict[str, Any]) -> Tree:
    """A tree of the structure of `like` from its leaves by path."""
    values = iter(flat.values())
    return tree_map(lambda _: next(values), like)
