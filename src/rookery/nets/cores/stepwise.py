"""Stepwise: a core that is given by its step on rows [N, …]. It folds and unfolds leading dimensions, and unrolls.

It stands alone because the transformer and a user's own core are made of it, and know nothing of one another.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


class Stepwise(nn.Module):
    """x [..., in_features] with a state → y [..., size] with the next state."""

    plain = True  # core.plain

    size: int
    shapes: dict[str, tuple[int, ...]]  # of the entries of a state

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of rows [N, …]."""
        raise TypeError(f"{type(self).__name__} defines no cell()")

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step, with any leading dimensions that x and state share."""
        lead = x.shape[:-1]
        if len(lead) == 1:
            return self.cell(x, state)
        rows = math.prod(lead)  # not -1: there may be no rows at all
        folded = {name: part.reshape(rows, *self.shapes[name]) for name, part in state.items()}
        y, after = self.cell(x.reshape(rows, x.shape[-1]), folded)
        return y.reshape(*lead, self.size), {n: part.reshape(*lead, *self.shapes[n]) for n, part in after.items()}

    def unroll(self, x: Tensor, state: State, first: Tensor, valid: Tensor) -> tuple[Tensor, State]:
        """x [T, B, …] from state [B, …];
        where `first` [T, B] an episode begins with zeros, where not `valid` nothing is remembered.

        (y [T, B, size], the state *after* each step [T, B, …]).
        """
        seen: list[Tensor] = []
        after: list[State] = []
        for one, begins, real in zip(x.unbind(0), first.bool().unbind(0), valid.bool().unbind(0)):
            fresh = {name: torch.where(_like(begins, part), 0.0, part) for name, part in state.items()}
            y, new = self.cell(one, fresh)
            state = {name: torch.where(_like(real, part), part, state[name]) for name, part in new.items()}
            seen.append(y)
            after.append(state)
        return torch.stack(seen), {name: torch.stack([part[name] for part in after]) for name in self.shapes}


def _like(flag: Tensor, part: Tensor) -> Tensor:
    """Flags [B] against a part of the state [B, …]."""
    return flag.reshape(-1, *[1] * (part.dim() - 1))
