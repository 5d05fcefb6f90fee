"""Seats: which player sits for which agent in which env, drawn once per agent and episode.

    P(agent's player = p) = weight_p / Σ weights

An agent with one possible player draws nothing, so giving another agent a choice changes nobody else's numbers. A
function of the user's (`run.seating`) may choose instead, among the players that `seats` names:

    fn(agents, episode, env, worker, rng) → {agent: player}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import UsageError

By = Callable[[list[str], int, int, int, np.random.Generator], Mapping[str, str]]
Chances = Mapping[str, Mapping[str, float]]  # agent → player → weight


def agents_of(chances: Chances, player: str) -> list[str]:
    """All for whom the player may ever sit, in the order of the env."""
    return [agent for agent, weights in chances.items() if player in weights]


def checked_weights(chances: Chances, agent: str, weights: Mapping[str, float]) -> dict[str, float]:
    """Other weights for the players of an agent, if they are possible."""
    known = chances.get(agent, {})
    if not known:
        raise UsageError(
            f"seats of the config names the agents {', '.join(chances) or 'none'}, but not {agent!r}: nobody else can "
            f"be seated"
        )
    if unknown := [name for name in weights if name not in known]:
        raise UsageError(
            f"{unknown[0]!r} cannot sit for {agent!r}: `seats:` of the config names {', '.join(known)} for it. "
            f"Name it there"
        )
    if not any(weights.values()) or not all(0 <= weight < math.inf for weight in weights.values()):
        raise UsageError(
            f"seats of {agent!r} need weights that are not negative, one of them positive; got {dict(weights)}"
        )
    return {name: float(weight) for name, weight in weights.items()}


class Seats:
    """The seating of B envs. Without a generator everybody has its most likely player, for evaluation."""

    def __init__(
        self,
        chances: Chances,
        num: int,
        rng: np.random.Generator | None,
        *,
        noted: bool = True,
        by: By | None = None,
        worker: int = 0,
    ):
        """`noted`: ended episodes say who sat where, as is wanted of players that have names. `by`: who is asked for
        the seats of an episode."""
        self.num, self.rng, self._noted, self._by, self._worker = num, rng, noted, by, worker
        self._know(chances)
        likely = {agent: int(np.argmax(list(weights.values()))) for agent, weights in chances.items()}
        self._now = {
            agent: np.full(num, k) for agent, k in likely.items()
        }  # number of the player among the agent's own
        for i in range(num):
            self.draw(i)

    def _know(self, chances: Chances) -> None:
        self.chances = chances
        self._edges = {agent: np.cumsum(list(weights.values())) for agent, weights in chances.items()}
        self._number = {agent: {name: k for k, name in enumerate(weights)} for agent, weights in chances.items()}

    def extend(self, chances: Chances, rng: np.random.Generator | None) -> None:
        """Further players for some agents, named behind those that are known; they sit from the next episodes on."""
        self.rng = self.rng or rng
        self._know(chances)

    def agents(self, player: str) -> list[str]:
        """All for whom the player may ever sit, in the order of the env."""
        return agents_of(self.chances, player)

    def held(self, agent: str, player: str) -> np.ndarray:
        """bool [B]: where the player sits for this agent now."""
        return self._now[agent] == self._number[agent][player]

    def of_player(self, player: str) -> dict[str, np.ndarray]:
        """agent → bool [B]: where the player sits for it now."""
        return {agent: self.held(agent, player) for agent in self.agents(player)}

    def changing(self, player: str) -> bool:
        """Whether the player's seats differ from episode to episode, or from env to env."""
        return any(len(self.chances[agent]) > 1 for agent in self.agents(player))

    def note(self, end: EpisodeEnd) -> dict[str, Any]:
        """For the info of an episode that ended: agent → its player, and its return (of an only agent, the
        episode's)."""
        if not self._noted:
            return {}
        seats = {agent: list(weights)[self._now[agent][end.env]] for agent, weights in self.chances.items()}
        return {"seats": seats, "returns": end.info.get("returns") or dict.fromkeys(seats, end.total)}

    def draw(self, i: int, episode: int = 0) -> None:
        """Seat everybody in env i anew, for the episode that begins."""
        if self.rng is None:
            return
        if self._by is not None:
            self._ask(i, episode, self._by, self.rng)
            return
        for agent, edges in self._edges.items():
            if len(edges) > 1:
                chosen = int(np.searchsorted(edges, self.rng.random() * edges[-1], side="right"))
                self._now[agent][i] = min(chosen, len(edges) - 1)  # a product may round up to the last edge

    def _ask(self, i: int, episode: int, by: By, rng: np.random.Generator) -> None:
        seats = by(list(self.chances), episode, i, self._worker, rng)
        for agent, players in self._number.items():
            player = seats.get(agent) if isinstance(seats, Mapping) else None
            if player not in players:
                raise UsageError(
                    f"run.seating gave {player!r} for the agent {agent!r} in episode {episode} of env {i}, expected "
                    f"{' or '.join(map(repr, players))}: a mapping agent → one of the players that `seats` names for it"
                )
            self._now[agent][i] = players[player]

    def change(self, seating: Chances) -> None:
        """Other weights for the episodes that begin from now on; who has none is not drawn."""
        for agent, weights in seating.items():
            self._edges[agent] = np.cumsum([weights.get(player, 0.0) for player in self.chances[agent]])

    def state(self) -> dict[str, Any]:
        """The generator belongs to the run's `Streams`."""
        return {agent: now.copy() for agent, now in self._now.items()}

    def restore(self, state: dict[str, Any]) -> None:
        for agent, now in self._now.items():
            now[:] = state[agent]
