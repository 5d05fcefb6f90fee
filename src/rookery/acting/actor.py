"""Actor: a model with a rule and memory per seat. It reads live weights, or those of a message; it never learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rookery.acting.fast_forward import Quick, quick
from rookery.acting.memory import Memory, Seats
from rookery.acting.rules import Arrays, Rule, RuleWithMemory
from rookery.core.plain import plain_method
from rookery.core.spec import mask_of
from rookery.core.tree import Tree, leaves, tree_map, tree_take

Outputs = Callable[[Any, Tree, Any, Any], tuple[dict[str, torch.Tensor], Any]]


@dataclass(slots=True)
class Message:
    """What travels from learner to actors. Local actors read the learner's live weights, so these are no part of it."""

    version: int = 0  # updates done
    knobs: dict[str, float] = field(default_factory=dict)


class Messages(dict[str, Message]):
    """player → its message for one round, and who sits where in the episodes that begin in it (None: as before)."""

    seating: Mapping[str, Mapping[str, float]] | None = None  # agent → player → weight


class Actor:
    """`act(obs) → {"action", …}` for B seats at once.

    With memory, what was input to the step is returned as "state".

    Args:
        outputs: (reader, obs, state, first) → (dict of tensors, state); the algorithm's.
        rule: how these outputs become an action.
        reader: gives `outputs` the networks, as `s` does in an update.
        device: where the networks are.
        memory: spec of one seat's hidden state; None for a feed-forward model.
    """

    def __init__(
        self,
        outputs: Outputs,
        rule: Rule,
        reader: Any,
        device: torch.device | str = "cpu",
        memory: Tree = None,
    ):
        self.outputs, self.rule, self.reader, self.device = outputs, rule, reader, torch.device(device)
        self.quiet = getattr(reader, "quiet", reader)  # networks without the noise of noisy layers, for greedy acting
        self.knobs: Mapping[str, float] = {}
        self.version = 0
        self.memory_spec = memory
        self.memory: Memory | None = None  # made for as many seats as the first observations have
        self._noise = rule if isinstance(rule, RuleWithMemory) else None  # a rule that remembers, too
        self.judge: Any = (
            None  # gives the rows of chunks their initial priorities (`acting.judge`); None: nobody asked for them
        )
        self.stack = 1  # frames per observation; whoever asks the actor keeps them (`acting.frames`)
        self._inputs: Tree = None
        self._source: Any = None  # the reader that was used last
        self._quick: Quick | None = None  # for that reader and inputs shaped like `_inputs`

    def load(self, message: Message) -> None:
        """Take over knobs and version."""
        self.knobs, self.version = message.knobs, message.version

    def act(
        self,
        obs: Tree,
        rng: np.random.Generator | None,
        first: Any = None,
        *,
        greedy: bool = False,
        seats: Seats = None,
    ) -> Arrays:
        """Actions for the observations [B, …] of `seats` (None: all); `rng` may be None when greedy.

        Where `first`, an episode begins and the seat's memory with it.
        """
        state = None if self.memory_spec is None else self._state(len(leaves(obs)[0]), first, seats)
        inputs = obs if state is None else {"obs": obs, "state": state}
        reader = self.quiet if greedy else self.reader
        if self._inputs is None or reader is not self._source or not fits(self._inputs, inputs):
            self._prepare(inputs, reader)
        if self._quick is not None:
            arrays, after = self._quick(inputs)
        else:
            arrays, after = self._by_torch(inputs, first)
        mask = mask_of(obs) if isinstance(obs, dict) else None
        if self._noise is not None and not greedy:
            self._noise.begin(np.zeros(len(leaves(obs)[0]), bool) if first is None else np.asarray(first, bool))
        out = self.rule(arrays, rng, self.knobs, mask, greedy)  # type: ignore[arg-type]
        if state is not None:
            self.memory.put(after, seats)  # type: ignore[union-attr]
            out["state"] = state
        return out

    def undo(self, seats: np.ndarray, before: Tree = None) -> None:
        """What was just decided for these seats was not done:
        memory goes back to `before` [B, …] (`act`'s "state"), noise to what it was.
        """
        if self.memory is not None and before is not None:
            self.memory.put(tree_take(before, seats), seats)
        if self._noise is not None:
            self._noise.undo(seats)

    def _state(self, rows: int, first: Any, seats: Seats) -> Tree:
        """The state that is input to this step."""
        if self.memory is None or (seats is None and self.memory.seats != rows):
            self.memory = Memory(self.memory_spec, rows if seats is None else int(np.max(seats)) + 1)
        if first is not None and np.any(first):
            self.memory.reset(np.flatnonzero(first) if seats is None else np.asarray(seats)[np.asarray(first)])
        return self.memory.take(seats)

    def peek(self, rows: int, first: Any = None) -> Tree:
        """The state that would be input to the next step; nothing changes. None without memory."""
        if self.memory_spec is None:
            return None
        memory = (
            self.memory if self.memory is not None and self.memory.seats == rows else Memory(self.memory_spec, rows)
        )
        state = memory.take()
        if first is not None:
            tree_map(lambda part: part.__setitem__(np.asarray(first, bool), 0), state)
        return state

    def _by_torch(self, arrays: Tree, first: Any) -> tuple[Arrays, Tree]:
        inputs = self._tensors(arrays)
        with torch.inference_mode():
            out, after = self._outputs(self._source, inputs, first)
        return {key: tensor.cpu().numpy() for key, tensor in out.items()}, tree_map(lambda t: t.cpu().numpy(), after)

    def _outputs(self, reader: Any, inputs: Tree, first: Any) -> tuple[dict[str, torch.Tensor], Any]:
        if self.memory_spec is None:
            return self.outputs(reader, inputs, None, first)[0], {}
        return self.outputs(reader, inputs["obs"], inputs["state"], first)

    def _prepare(self, inputs: Tree, reader: Any) -> None:
        # torch's own allocations are 64-byte aligned; matrix products may round differently on other alignments,
        # and numpy's differ from run to run
        self._inputs = tree_map(lambda x: torch.from_numpy(np.asarray(x)).clone(), inputs)
        self._source = reader
        nets = getattr(reader, "_nets", {}).values()
        modules = [part for net in nets for part in net.module.modules()]
        owner, name = getattr(self.outputs, "__self__", None), getattr(self.outputs, "__name__", "")
        plain = self.device.type == "cpu" and owner is not None and plain_method(owner, name)
        self._quick = quick(self._outputs, reader, self._inputs, modules) if plain else None

    def _tensors(self, arrays: Tree) -> Tree:
        if isinstance(arrays, dict):
            tree_map(lambda t, x: t.copy_(torch.from_numpy(x)), self._inputs, arrays)
        else:
            self._inputs.numpy()[...] = arrays
        return self._inputs if self.device.type == "cpu" else tree_map(lambda t: t.to(self.device), self._inputs)

    def state(self) -> dict[str, Any]:
        """What a resumed run needs besides weights and knobs; empty if neither model nor rule remembers anything."""
        memory: dict[str, Any] = {} if self.memory_spec is None else {"memory": None}  # None: it has not acted yet
        if self.memory is not None:
            memory = {"memory": self.memory.state(), "seats": self.memory.seats}
        return memory if self._noise is None else memory | {"rule": self._noise.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.memory = None
        if self.memory_spec is not None and state["memory"] is not None:
            self.memory = Memory(self.memory_spec, int(state["seats"]))
            self.memory.restore(state["memory"])
        if self._noise is not None:
            self._noise.restore(state["rule"])


def fits(inputs: Tree, arrays: Tree) -> bool:
    """Whether the buffers have the shapes of these arrays."""
    if isinstance(inputs, dict):
        return all(fits(value, arrays[key]) for key, value in inputs.items())
    return tuple(inputs.shape) == arrays.shape
