"""PlayerHandle: a player of a trainer, from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.acting.policy import Policy
from rookery.run.players import Player


class PlayerHandle:
    """Its weights, and the player as a callable policy on the live weights: `handle(Batch(obs=[obs])).action[0]`.

    A player with memory remembers from call to call of one handle: keep it.
    """

    def __init__(self, player: Player, knobs: Mapping[str, float]):
        self._learner, spec = player.learner, player.algo.action_spec
        self._policy = Policy(player.actor(), player.frame_spec, spec, player.streams.seed_of("policy"))
        self._policy.actor.knobs = knobs

    def weights(self) -> dict[str, Any]:
        return self._learner.weights()

    def set_weights(self, weights: dict[str, Any]) -> None:
        self._learner.set_weights(weights)

    def reset(self, seats: Any = None) -> None:
        """Forget what was seen, in all rows or in these."""
        self._policy.reset(seats)

    def __call__(self, batch: Any, *, greedy: bool = True) -> Any:
        """Actions for the observations; greedy=False acts as in training, with a random stream of its own."""
        return self._policy(batch, greedy=greedy)
