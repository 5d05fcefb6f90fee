"""Judge: initial priorities from the actor, as in Ape-X (Horgan 2018):
TD errors of single steps, with the weights that acted.

    priority_t = |h(r_t + γ (1 − terminated_t) h⁻¹(max_a Q(s'_t, a))) − Q(s_t, a_t)|

h is the rescaling of R2D2, else h(x) = x.
A store of sequences makes one number of those of a sequence (Kapturowski 2019).

Q(s_t, a_t) and max_a Q(s_t, a) are known when acting (`EpsilonGreedy.tell`), and the successor of a row is what the row
below it saw. Only what has no row is computed here: what is acted on after the last one, and where truncated episodes
ended; an actor with memory has then seen the row before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rookery.acting.actor import Actor
from rookery.acting.rules import BEST, CHOSEN, Arrays, EpsilonGreedy, best_q
from rookery.core.errors import ConfigError
from rookery.core.tree import Tree, tree_copy_into, tree_map
from rookery.equations.value import rescale, unscale

PRIORITY = "priority"  # field of a chunk's rows


class Judge:
    """Fills the priorities of the chunks of one actor, whose rule it lets tell what it knows."""

    def __init__(self, actor: Actor, gamma: float, eps: float | None = None):
        if not isinstance(actor.rule, EpsilonGreedy):
            raise ConfigError(
                "store.priority.initial=actor needs an algorithm that acts by the Q values of one choice, such as dqn "
                "or r2d2 with Discrete actions; others do not know TD errors when they act. Set "
                "store.priority.initial=max."
            )
        actor.rule.tell = True
        self._gamma, self._eps, self._acting = np.float32(gamma), eps, actor
        self._actor = Actor(actor.outputs, _Best(), actor.reader, actor.device, actor.memory_spec)  # its own buffers
        self._ends: list[tuple[int, int, np.float32]] = []  # (row, column, value of the final observation)

    def begin(self) -> None:
        """Before the first row of a chunk."""
        self._ends = []

    def ended(self, t: int, seen: Tree, finals: Sequence[tuple[int, Tree]], terminated: np.ndarray) -> None:
        """Row t ended in some columns with these observations; `seen` [B, …] is what the actor saw, as they are."""
        truncated = [(i, obs) for i, obs in finals if not terminated[i]]
        if not truncated:
            return
        batch = tree_map(np.copy, seen)
        for i, obs in truncated:
            tree_copy_into(batch, i, obs)
        value = self._value(batch)
        self._ends += [(t, i, value[i]) for i, _ in truncated]

    def fill(self, rows: dict[str, Any], last: Tree) -> None:
        """Write the priorities of a chunk; `last` [B, …] is what is acted on next."""
        best = rows[BEST]
        after = np.concatenate([best[1:], self._value(last)[None]])
        for t, i, value in self._ends:
            after[t, i] = value
        after = after if self._eps is None else unscale(torch.from_numpy(after), self._eps).numpy()
        target = rows["reward"] + self._gamma * np.where(rows["terminated"], np.float32(0.0), after)
        target = target if self._eps is None else rescale(torch.from_numpy(target), self._eps).numpy()
        np.abs(target - rows[CHOSEN], out=rows[PRIORITY])

    def _value(self, obs: Tree) -> np.ndarray:
        """max_a Q of what would be seen next, after all that the seats have seen so far."""
        self._actor.restore(self._acting.state())
        return self._actor.act(obs, None)[BEST]


class _Best:
    """No action, only the value of the best one."""

    def __call__(
        self, out: Arrays, rng: Any, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        return {BEST: best_q(out["q"], mask)}

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return action

    def from_env(self, action: np.ndarray) -> np.ndarray:
        return action
