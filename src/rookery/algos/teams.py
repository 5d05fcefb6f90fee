"""What algorithms of teams share that have a policy and a central critic (COMA, MADDPG, ATOC).

x [..., G, k] is what each member does: a choice one-hot, its probabilities, or a vector.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rookery.core.team import PRESENT
from rookery.core.tree import Tree


def side_by_side(x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """[..., G, A] → [..., Σ sizes]: the real choices of every member, as rules want logits."""
    return torch.cat([x[..., k, :n] for k, n in enumerate(sizes)], -1)


def of_others(x: Tensor) -> Tensor:
    """What each member is told of everybody, [..., G, G, k]: zeros for itself."""
    return x.unsqueeze(-3) * (1.0 - _self(x))


def with_own(x: Tensor, own: Tensor) -> Tensor:
    """What everybody does [..., G, G, k], but each member itself does `own` [..., G, k]."""
    return torch.where(_self(x) > 0.0, own.unsqueeze(-3), x.unsqueeze(-3))


def _self(x: Tensor) -> Tensor:
    return torch.eye(x.shape[-2], device=x.device).unsqueeze(-1)


def over_members(x: Tensor, obs: Tree) -> Tensor:
    """Mean over the members that are present: [..., G] → [...]; 0 if there are none."""
    there = obs[PRESENT].float()
    return torch.where(there > 0.0, x, 0.0).sum(-1) / there.sum(-1).clamp(min=1.0)


def world_problem(config: Any, wants: str | None = None, instead: str = "use vdn") -> list[str]:
    """The rule of critics and mixers that see the world; `wants`: what in the config says so."""
    if config.env.world != "none":
        return []
    wants = wants or f"algo.name={config.algo.name} has a part that sees the world"
    return [f"{wants}, but env.world=none. Set env.world=auto, or {instead}."]
