"""Players and seats: a seat is one agent in one env, a player a named policy; a seating says who sits where.

Single-agent training is one player in every seat. Policy mapping, parameter sharing, opponents and leagues are other
seatings and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rookery.core.errors import ConfigError

MAIN = "main"  # the player of single-agent training


@dataclass(frozen=True)
class Seating:
    """player of every column of a collector."""

    seats: tuple[str, ...]

    @classmethod
    def single(cls, columns: int, player: str = MAIN) -> Seating:
        return cls((player,) * columns)

    def columns(self) -> dict[str, np.ndarray]:
        """player → its columns, in increasing order."""
        return {p: np.flatnonzero([s == p for s in self.seats]) for p in dict.fromkeys(self.seats)}

    def check(self, players: list[str]) -> None:
        for column, player in enumerate(self.seats):
            if player not in players:
                raise ConfigError(
                    f"seat {column} is given to player {player!r}, who is not among the players {players}"
                )
