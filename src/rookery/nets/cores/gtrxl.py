"""Gated transformer-XL (Parisotto 2020): attention over the last M steps as a memory.

    e⁰     = W x
    c      = norm([m¹ … m^M, e])                       of each layer: its inputs of the last M steps, and of this one
    s_j    = ((q + u)·k_j + (q + v)·W_R p(i − j)) / √d      q, k, v from c; i − j steps ago (Dai 2019, section 3.3)
    y      = W_O Σ_j softmax(s)_j v_j                  over what was seen since the episode began
    e'     = gate(e, relu(y)),       e_next = gate(e', relu(W₂ relu(W₁ norm(e'))))

    gate(x, y):   r = σ(W_r y + U_r x)    z = σ(W_z y + U_z x − b)    n = tanh(W_n y + U_n (r x))    (1 − z) x + z n

p(k) are sines and cosines of k at geometric frequencies. With b = 2 a layer begins near the identity, which is what
makes it learn at all by reinforcement. The state holds the inputs of every layer in the last M steps and which of them
are real, zeros at the start of an episode; so it is kept, recorded, reset and resumed as that of any other core.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rookery.nets.config import CoreConfig
from rookery.nets.cores.stepwise import State, Stepwise

BIAS = 2.0  # b: gates are nearly closed at first


def positions(steps: int, size: int, device: torch.device) -> Tensor:
    """p(steps), …, p(1), p(0): [steps + 1, size], sines in the first half and cosines in the second."""
    ago = torch.arange(steps, -1, -1, device=device, dtype=torch.float32)
    half = (size + 1) // 2
    rate = torch.exp(torch.arange(half, device=device, dtype=torch.float32) * (-math.log(10_000.0) / half))
    angle = ago.unsqueeze(-1) * rate
    return torch.cat([angle.sin(), angle.cos()], -1)[:, :size]


class Gate(nn.Module):
    """x and what is added to it, y → as much of both as it wants."""

    plain = True  # core.plain

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.from_new = nn.Linear(size, 3 * size, bias=False, device="cpu")
        self.from_old = nn.Linear(size, 2 * size, bias=False, device="cpu")
        self.reset = nn.Linear(size, size, bias=False, device="cpu")
        self.bias = nn.Parameter(torch.full((size,), BIAS, device="cpu"))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        (r_y, z_y, n_y), (r_x, z_x) = self.from_new(y).chunk(3, -1), self.from_old(x).chunk(2, -1)
        z = torch.sigmoid(z_y + z_x - self.bias)
        n = torch.tanh(n_y + self.reset(torch.sigmoid(r_y + r_x) * x))
        return x + z * (n - x)


class Block(nn.Module):
    """One layer: attention and a perceptron, both gated."""

    plain = True  # core.plain

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads, self.width = heads, size // heads
        self.norm, self.norm_after = nn.LayerNorm(size, device="cpu"), nn.LayerNorm(size, device="cpu")
        self.query = nn.Linear(size, size, bias=False, device="cpu")
        self.key = nn.Linear(size, size, bias=False, device="cpu")
        self.value = nn.Linear(size, size, bias=False, device="cpu")
        self.place = nn.Linear(size, size, bias=False, device="cpu")
        self.out = nn.Linear(size, size, bias=False, device="cpu")
        self.content_bias = nn.Parameter(torch.zeros(heads, self.width, device="cpu"))
        self.place_bias = nn.Parameter(torch.zeros(heads, self.width, device="cpu"))
        self.wide, self.narrow = nn.Linear(size, 4 * size, device="cpu"), nn.Linear(4 * size, size, device="cpu")
        self.attended, self.computed = Gate(size), Gate(size)

    def forward(self, e: Tensor, memory: Tensor, real: Tensor, place: Tensor) -> Tensor:
        """e [N, size] after memory [N, M, size]; real [N, M + 1]: what may be looked at; place [M + 1, size]."""
        context = self.norm(torch.cat([memory, e.unsqueeze(1)], 1))
        query = self._split(self.query(context[:, -1]))  # [N, H, d]
        key, value = self._split(self.key(context)), self._split(self.value(context))  # [N, M + 1, H, d]
        content = torch.einsum("nhd,nmhd->nhm", query + self.content_bias, key)
        where = torch.einsum("nhd,mhd->nhm", query + self.place_bias, self._split(self.place(place)))
        score = torch.where(real.unsqueeze(1) > 0, (content + where) / math.sqrt(self.width), -1e9)
        y = torch.einsum("nhm,nmhd->nhd", score.softmax(-1), value).flatten(1)
        e = self.attended(e, torch.relu(self.out(y)))
        return self.computed(e, torch.relu(self.narrow(torch.relu(self.wide(self.norm_after(e))))))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.width))


class GTrXL(Stepwise):
    """`layers` blocks that look at the last `memory` steps."""

    plain = True  # core.plain

    def __init__(self, in_features: int, config: CoreConfig):
        super().__init__()
        self.size, self.steps = config.size, config.memory
        self.shapes = {"memory": (config.layers, config.memory, config.size), "real": (config.memory,)}
        self.embed = nn.Linear(in_features, config.size, device="cpu")
        self.blocks = nn.ModuleList(Block(config.size, config.heads) for _ in range(config.layers))

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        e, memory = self.embed(x), state["memory"]  # [N, size], [N, L, M, size]
        real = torch.cat([state["real"], torch.ones_like(state["real"][:, :1])], 1)
        place, after = positions(self.steps, self.size, x.device), []
        for k, block in enumerate(self.blocks):
            after.append(torch.cat([memory[:, k, 1:], e.unsqueeze(1)], 1))
            e = block(e, memory[:, k], real, place)
        return e, {"memory": torch.stack(after, 1), "real": real[:, 1:]}
