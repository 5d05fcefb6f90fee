"""Sequences of a replay, as algorithms with memory learn from them (R2D2 and teams): rows that only warm the memory up,
and after them those that are learnt from."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field

from rookery.algos.base import AlgoConfig, Positive, Share
from rookery.core.tree import Tree, tree_map, tree_take
from rookery.data.replay.sequences import Window


class SequenceConfig(AlgoConfig):
    """Options of learning from sequences."""

    sequence: Positive = 20  # learnt rows per sequence
    overlap: Annotated[int, Field(ge=0)] = 10  # rows that neighbouring sequences share
    burn_in: Annotated[int, Field(ge=0)] = 10  # rows before them that only warm the memory up
    stored_state: bool = True  # sequences begin with the state recorded when acting; false: with zeros
    eta: Share = 0.9  # share of the largest error in a sequence's priority, the rest is their mean

    @property
    def window(self) -> Window:
        return Window(self.sequence, self.burn_in, self.sequence - self.overlap, self.eta)


def overlap_problem(config: Any) -> list[str]:
    """The rule of such options."""
    c = config.algo
    if c.overlap >= c.sequence:
        return [f"algo.overlap={c.overlap} must be smaller than algo.sequence={c.sequence}. Lower algo.overlap."]
    return []


class Learnt:
    """The learnt rows of a batch of sequences [T, N], by the names that `b` has."""

    def __init__(self, b: Any, c: SequenceConfig):
        self._b, self._burn_in, self._stored = b, c.burn_in, c.stored_state

    def __getattr__(self, name: str) -> Tree:
        rows = vars(self)[name] = tree_take(getattr(self._b, name), slice(self._burn_in, None))  # cut once
        return rows

    def start(self, net: Any) -> Tree:
        """What a network remembers before the first of them: recorded when acting, then burnt in."""
        b, k = self._b, self._burn_in
        state = tree_take(b.state, 0)
        state = state if self._stored else tree_map(torch.zeros_like, state)
        if k == 0:
            return state
        return tree_take(net.unroll(tree_take(b.obs, slice(k)), state, b.first[:k], b.valid[:k])[1], -1)
