"""Normaliser of a team (`model.normalise_obs`): what members see, in deviations from the mean of what all of them see.

    agents     statistics of one member, shared by all and taken over those who are present; who is not there stays zeros
    world      the env's state by statistics of its own; a joined world is what members see, normalised
    the rest   (present, rewards, masks) is as it is

It stands alone because `nets.normalise` knows one agent, and `nets.teams` need not know of statistics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rookery.core.team import AGENTS, PRESENT, WORLD, Team
from rookery.core.tree import Tree, tree_map
from rookery.nets.normalise import NormaliseObs


class NormaliseTeam(NormaliseObs):
    """From what a team sees to what its networks see."""

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
