"""PlayerHandle: a player of a trainer, from outside."""

from __future__ import annotations

from typing import Any

from rookery.acting.policy import Policy
from rookery.run.parts import Parts


class PlayerHandle:
    """Its weights, and the player as a callable policy on the live weights."""

    def __init__(self, parts: Parts):
        self._parts = parts

    def weights(self) -> dict[str, Any]:
        return self._parts.learner.weights()

    def set_weights(self, weights: dict[str, Any]) -> None:
        self._parts.learner.set_weights(weights)

    def __call__(self, batch: Any, *, greedy: bool = True) -> Any:
        """`handle(Batch(obs=[obs])).action[0]`."""
        parts = self._parts
        seed = parts.streams.seed_of("policy")
        return Policy(parts.actor(), parts.algo.obs_spec, parts.algo.action_spec, seed)(batch, greedy=greedy)
