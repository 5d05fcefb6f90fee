"""Normaliser: the first layer of a model. Its statistics are buffers, so they travel with the weights.

y      = clip((x − mean) / √(var + ε), ±10)                                   the identity before the first `observe`
merge  of (mean, var, n) with a batch (m, v, k), N = n + k, δ = m − mean      (Chan, Golub and LeVeque 1979)
       mean ← mean + δ k / N
       var  ← (n var + k v + δ² n k / N) / N
       n    ← min(N, n_max)                                                   from there on an exponential average
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rookery.core.spec import Leaf, without_mask
from rookery.core.team import AGENTS, PRESENT, WORLD, Team
from rookery.core.tree import Tree, tree_map

EPSILON = 1e-8  # 1 + ε is 1 in float32, so an untouched normaliser is exactly the identity
CLIP = 10.0
MOST = 1_000_000.0  # n_max: a larger count would let new data vanish in float32's rounding


class Normalise(nn.Module):
    """Running mean and variance of one array, element by element."""

    plain = True  # core.plain

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: Sequence[int]):
        super().__init__()
        self.shape = tuple(shape)
        self.register_buffer("mean", torch.zeros(self.shape, dtype=torch.float32, device="cpu"))
        self.register_buffer("var", torch.ones(self.shape, dtype=torch.float32, device="cpu"))
        self.register_buffer("count", torch.zeros((), dtype=torch.float32, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        scaled = ((x - self.mean) / torch.sqrt(self.var + EPSILON)).clamp(-CLIP, CLIP)
        return torch.where(self.count > 0, scaled, x)

    def observe(self, x: Any) -> None:
        """Merge raw observations [N, …] (any leading dimensions, tensor or array) into the statistics, in place."""
        with torch.no_grad():
            rows = torch.as_tensor(x, dtype=torch.float64, device=self.mean.device)
            rows = rows.reshape(rows.shape[: rows.dim() - len(self.shape)].numel(), *self.shape)
            k = float(len(rows))
            if k == 0:
                return
            v, m = torch.var_mean(rows, dim=0, correction=0)
            n, mean, var = self.count.double(), self.mean.double(), self.var.double()
            total, delta = n + k, m - mean
            self.mean.copy_(mean + delta * (k / total))
            self.var.copy_((n * var + k * v + delta.square() * (n * k / total)) / total)
            self.count.copy_(total.clamp(max=MOST))


class Scale(Normalise):
    """Running mean and deviation of returns: a critic tells how many deviations from the mean a return will be."""

    plain = True  # core.plain

    def __init__(self) -> None:
        super().__init__(())

    def into(self, x: Tensor) -> Tensor:
        """A return as the critic tells it."""
        return (x - self.mean) / torch.sqrt(self.var + EPSILON)

    def back(self, y: Tensor) -> Tensor:
        """What a critic tells, as a return."""
        return y * torch.sqrt(self.var + EPSILON) + self.mean


class NormaliseObs(nn.Module):
    """A normaliser for every float box of an observation; the other leaves pass.

    Built from the spec without action mask.
    """

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree):
        super().__init__()
        shapes: list[tuple[int, ...]] = []

        def place(leaf: Leaf) -> int | None:
            if leaf.kind != "box" or leaf.dtype.kind != "f":
                return None
            shapes.append(leaf.shape)
            return len(shapes) - 1

        # leaf → number of its normaliser: names of leaves ("type", "a.b") cannot all be names of modules
        self.places = tree_map(place, obs_spec)
        self.parts = nn.ModuleList(Normalise(shape) for shape in shapes)

    def forward(self, obs: Tree) -> Tree:
        return tree_map(lambda place, x: x if place is None else self.parts[place](x), self.places, obs)

    def observe(self, obs: Tree) -> None:
        """Merge observations with any common leading dimensions."""

        def show(place: int | None, x: Any) -> None:
            part = None if place is None else self.parts[place]
            if isinstance(part, Normalise):
                part.observe(x)

        tree_map(show, self.places, obs)


class NormaliseTeam(NormaliseObs):
    """From what a team sees to what its networks see.

    agents     by statistics of one member, which all share, taken over those who are present
    world      the env's state by statistics of its own; a joined world is what members see, normalised
    the rest   (present, rewards, masks) is as it is
    """

    plain = True  # core.plain

    def __init__(self, team: Team):
        super().__init__({AGENTS: team.obs} | ({} if team.joined else {WORLD: team.world}))

    def forward(self, obs: Tree) -> Tree:
        there = obs[PRESENT].bool()
        view = lambda place, x: x if place is None else self._shown(place, x, there)  # noqa: E731
        seen = {**obs, AGENTS: tree_map(view, self.places[AGENTS], obs[AGENTS])}
        if WORLD in self.places and self.places[WORLD] is not None:
            seen[WORLD] = self.parts[self.places[WORLD]](obs[WORLD])
        return seen

    def _shown(self, place: int, x: Tensor, there: Tensor) -> Tensor:
        """Zeros of who is not there stay zeros: −mean / deviation would be something to see."""
        seen = x.reshape(*there.shape, -1) != 0
        known = (there | seen.any(-1)).reshape(*there.shape, *[1] * (x.dim() - there.dim()))
        return torch.where(known, self.parts[place](x), 0.0)

    def observe(self, obs: Tree) -> None:
        there = torch.as_tensor(obs[PRESENT]).bool()

        def show(place: int | None, x: Any) -> None:
            part: Any = None if place is None else self.parts[place]
            if part is not None:
                part.observe(torch.as_tensor(x)[there])

        tree_map(show, self.places[AGENTS], obs[AGENTS])
        if WORLD in self.places and self.places[WORLD] is not None:
            world: Any = self.parts[self.places[WORLD]]
            world.observe(obs[WORLD])


def normaliser_of(obs_spec: Tree) -> NormaliseObs | None:
    """For a spec without action mask; None if there is no float box to normalise."""
    normaliser = NormaliseObs(obs_spec)
    return normaliser if len(normaliser.parts) else None


def observation_of(obs: Tree) -> Tree:
    """The observation as networks see it: without the action mask; a lone remaining entry is unwrapped."""
    return without_mask(obs)


def observe(module: nn.Module, obs: Tree) -> None:
    """Show raw observations [N, …], with or without action mask, to every normaliser inside a network. A module whose
    parts see different things of them says so: `sees(obs)` gives (part, what it sees)."""
    if isinstance(module, NormaliseObs):
        module.observe(observation_of(obs))
        return
    sees: Any = getattr(module, "sees", None)
    for part, seen in [(child, obs) for child in module.children()] if sees is None else sees(obs):
        observe(part, seen)
