"""Team: several agents that are learned as one body with an axis of its members, read from the body's own specs.

    agents        what each member sees, a tree of arrays [G, …]; zeros for who is not there
    present       int8 [G]: who must act
    world         the env's state [S], if it tells one; else what the members see is all that is known of it
    rewards       what each member was paid since the team acted last [G]; only with `reward: own`, in the successor of
                  the row that earned it, so that workers, pools and chunks need not know of it
    action_mask   one entry per choice of every member, side by side; only if some member has a mask

Its action is [G], a choice of every member, or [G, d]. Whoever is not present does nothing, whatever stands there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rookery.core.spec import AGENTS, PRESENT, Leaf, one_of
from rookery.core.tree import Tree, leaves, tree_map

__all__ = ["AGENTS", "OWN", "PRESENT", "REWARDS", "WHO", "WORLD", "Team"]

WORLD, REWARDS = "world", "rewards"
OWN, WHO = "own", "who"  # of an agent that sees more than its own (`envs.multi.central`)


@dataclass(frozen=True, slots=True)
class Team:
    """Specs of one member, as networks that all members share see them."""

    members: int
    obs: Tree  # without a mask
    action: Leaf  # of the member with the most choices, or dimensions
    sizes: tuple[int, ...]  # choices of each member; () if they act in boxes
    world: Leaf  # the env's state, or all that the members see and who of them is present
    joined: bool = False  # that is all that they see: the env tells no state
    own: bool = False  # each member is paid by itself: `rewards` is told

    @property
    def world_size(self) -> int:
        """Numbers that a mixer or central critic sees."""
        return math.prod(self.world.shape)

    @classmethod
    def of(cls, obs_spec: Tree, action_spec: Tree) -> Team | None:
        """The team behind these specs; None if they are those of one agent."""
        if not (isinstance(obs_spec, dict) and {AGENTS, PRESENT} <= obs_spec.keys() and isinstance(action_spec, Leaf)):
            return None
        (members,) = obs_spec[PRESENT].shape
        obs = tree_map(one_of, obs_spec[AGENTS])
        joined = members * (1 + sum(math.prod(leaf.shape) for leaf in leaves(obs)))
        world = obs_spec.get(WORLD, Leaf("box", (joined,), np.dtype(np.float32)))
        flags = WORLD not in obs_spec, REWARDS in obs_spec
        if action_spec.kind == "box":
            return cls(members, obs, one_of(action_spec), (), world, *flags)
        action = Leaf("discrete", (), action_spec.dtype, (max(action_spec.sizes),))
        return cls(members, obs, action, action_spec.sizes, world, *flags)
