"""Memory: one hidden state per seat, between the steps of an actor.

Arrays [seats, …] by name, zeros at the start of an episode. An actor may be asked for some of its seats only;
the others keep their state. What was *input* to a step can be recorded for the learner.
It stands alone so that what happens to a seat's state can be read, and tested, without a network.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.core.errors import UsageError
from rookery.core.spec import zeros
from rookery.core.tree import Tree, flatten, tree_copy_into, tree_map, tree_take

Seats = Any  # indices of seats, or None for all


class Memory:
    """States of `seats` seats, of the shapes in `spec`."""

    def __init__(self, spec: Tree, seats: int):
        self.spec, self.seats = spec, seats
        self.now: Tree = zeros(spec, seats)

    def reset(self, seats: Seats = None, states: Tree = None) -> None:
        """Put chosen seats (indices or a mask; None: all) to chosen states [n, …] (None: zeros)."""
        index = slice(None) if seats is None else seats
        if states is None:
            tree_map(lambda part: part.__setitem__(index, 0), self.now)
            return
        for path, part in flatten(self.now).items():
            state = flatten(states).get(path)
            wanted = part[index].shape
            if state is None or np.shape(state) != wanted:
                got = "nothing" if state is None else f"shape {np.shape(state)}"
                raise UsageError(f"the state {path!r} of these seats must have shape {wanted}, got {got}.")
        tree_copy_into(self.now, index, states)

    def take(self, seats: Seats = None) -> Tree:
        """A copy of the states of some seats."""
        return tree_map(np.copy, self.now if seats is None else tree_take(self.now, seats))

    def put(self, states: Tree, seats: Seats = None) -> None:
        tree_copy_into(self.now, slice(None) if seats is None else seats, states)

    def state(self) -> dict[str, Any]:
        return {"now": tree_map(np.copy, self.now)}

    def restore(self, state: dict[str, Any]) -> None:
        tree_copy_into(self.now, ..., tree_map(np.asarray, state["now"]))
