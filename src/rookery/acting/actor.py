"""Actor: a model with a rule and memory per seat. It reads live weights, or those of a message; it never learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rookery.acting.quick import quick
from rookery.acting.rules import Arrays, Rule
from rookery.core.spec import mask_of
from rookery.core.tree import Tree, tree_map

Outputs = Callable[[Any, Tree, Any, Any], tuple[dict[str, torch.Tensor], Any]]


@dataclass(slots=True)
class Message:
    """What travels from learner to actors. Local actors read the learner's live weights, so these are no part of it."""

    version: int = 0  # updates done
    knobs: dict[str, float] = field(default_factory=dict)


class Actor:
    """`act(obs) → {"action", …}` for B seats at once.

    `outputs(reader, obs, state, first) → (dict of tensors, state)` is the algorithm's; `reader` gives it the networks.
    """

    def __init__(self, outputs: Outputs, rule: Rule, reader: Any, device: torch.device | str = "cpu"):
        self.outputs, self.rule, self.reader, self.device = outputs, rule, reader, torch.device(device)
        self.knobs: Mapping[str, float] = {}
        self.version = 0
        self.stack = 1  # frames per observation; whoever asks the actor keeps them (`acting.frames`)
        self._inputs: Tree = None
        self._quick: Callable[[Tree], Arrays] | None = None  # for observations of the shapes of `_inputs`

    def load(self, message: Message) -> None:
        """Take over knobs and version."""
        self.knobs, self.version = message.knobs, message.version

    def act(self, obs: Tree, rng: np.random.Generator | None, first: Any = None, *, greedy: bool = False) -> Arrays:
        """Actions for the observations [B, …]; `rng` may be None when greedy."""
        if self._inputs is None or not fits(self._inputs, obs):
            self._prepare(obs)
        if self._quick is not None:
            arrays = self._quick(obs)
        else:
            with torch.inference_mode():
                out, _ = self.outputs(self.reader, self._tensors(obs), None, first)
            arrays = {key: tensor.cpu().numpy() for key, tensor in out.items()}
        mask = mask_of(obs) if isinstance(obs, dict) else None
        return self.rule(arrays, rng, self.knobs, mask, greedy)  # type: ignore[arg-type]

    def _prepare(self, obs: Tree) -> None:
        # torch's own allocations are 64-byte aligned; matrix products may round differently on other alignments, and numpy's
        # differ from run to run
        self._inputs = tree_map(lambda x: torch.from_numpy(np.asarray(x)).clone(), obs)
        nets = getattr(self.reader, "_nets", {}).values()
        modules = [part for net in nets for part in net.module.modules()]
        self._quick = quick(self.outputs, self.reader, self._inputs, modules) if self.device.type == "cpu" else None

    def _tensors(self, obs: Tree) -> Tree:
        if isinstance(obs, dict):
            tree_map(lambda t, x: t.copy_(torch.from_numpy(x)), self._inputs, obs)
        else:
            self._inputs.numpy()[...] = obs
        return self._inputs if self.device.type == "cpu" else tree_map(lambda t: t.to(self.device), self._inputs)


def fits(inputs: Tree, obs: Tree) -> bool:
    """Whether the buffers have the shapes of these observations."""
    if isinstance(inputs, dict):
        return all(fits(value, obs[key]) for key, value in inputs.items())
    return tuple(inputs.shape) == obs.shape
