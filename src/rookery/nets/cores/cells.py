"""Recurrent cells: the hidden state is what they give.

    GRU    r, z = σ(W x + U h)      n = tanh(W_n x + r (U_n h + b_n))  h' = (1 − z) n + z h            (Cho 2014)
    LSTM   i, f, o = σ(W x + U h)   g = tanh(W_g x + U_g h)            c' = f c + i g, h' = o tanh c'  (Hochreiter 1997)

The state is a dict of [..., size] tensors, zeros at the start of an episode. Cells are written out: as
straight-line tensor code they are compiled three times faster than torch's own recurrent modules, and the input
products of all steps are one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rookery.nets.config import CoreConfig
from rookery.nets.cores.stepwise import State

ENTRIES = {"gru": ("h",), "lstm": ("h", "c")}  # of a state


class Core(nn.Module):
    """x [..., in_features] with a state → y [..., size] with the next state."""

    plain = True  # core.plain

    def __init__(self, in_features: int, config: CoreConfig):
        super().__init__()
        self.kind, self.size = config.kind, config.size
        gates = {"gru": 3, "lstm": 4}[config.kind]
        self.from_input = nn.Linear(in_features, gates * config.size, device="cpu")
        self.from_state = nn.Linear(config.size, gates * config.size, device="cpu")
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(config.size), 1 / math.sqrt(config.size))

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step, with any leading dimensions that x and state share."""
        return self._cell(self.from_input(x), state)

    def unroll(self, x: Tensor, state: State, first: Tensor, valid: Tensor) -> tuple[Tensor, State]:
        """x [T, B, …] from state [B, …];
        where `first` [T, B] an episode begins with zeros, where not `valid` nothing happens.

        (y [T, B, size], the state *after* each step [T, B, size]).
        """
        inputs = self.from_input(x).unbind(0)
        keep, seen = (1.0 - first.float()).unsqueeze(-1).unbind(0), valid.bool().unsqueeze(-1).unbind(0)
        after: list[State] = []
        for one, kept, real in zip(inputs, keep, seen):
            new = self._cell(one, {name: part * kept for name, part in state.items()})[1]
            state = {name: torch.where(real, part, state[name]) for name, part in new.items()}
            after.append(state)
        states = {name: torch.stack([part[name] for part in after]) for name in ENTRIES[self.kind]}
        return states["h"], states

    def _cell(self, from_input: Tensor, state: State) -> tuple[Tensor, State]:
        h, from_state = state["h"], self.from_state(state["h"])
        if self.kind == "gru":
            (r_x, z_x, n_x), (r_h, z_h, n_h) = from_input.chunk(3, -1), from_state.chunk(3, -1)
            z, n = torch.sigmoid(z_x + z_h), torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
            h = n + z * (h - n)
            return h, {"h": h}
        i, f, g, o = (from_input + from_state).chunk(4, -1)
        c = torch.sigmoid(f) * state["c"] + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, {"h": h, "c": c}
