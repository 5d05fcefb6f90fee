"""Chunk: what one collector collected for one player, T rows of B columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rookery.core.tree import Tree

MAIN = "main"  # the player of a run whose config names none: it sits in every seat


@dataclass(slots=True)
class EpisodeEnd:
    """One finished episode, as the env (with its training wrappers) saw it."""

    env: int  # column in its collector
    episode: int  # number of the episode in that column, from 0
    seed: int | None
    length: int
    total: float  # undiscounted return
    terminated: bool
    truncated: bool
    info: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # numbers that callbacks attached to the episode

    @property
    def success(self) -> float | None:
        """1.0 or 0.0 if the last info tells `is_success` (a goal env's word), else None."""
        success = self.info.get("is_success")
        return None if success is None else float(bool(np.all(success)))


@dataclass(slots=True)
class Chunk:
    """Rows [T, B] in numpy arrays.

    The successor of row (t, b) is its entry of final_obs if it ended, else obs[t + 1, b], or last_obs[b] for the last
    row. A hole (`valid` false) was neither decided nor learnt from, and is never counted.
    """

    rows: dict[str, Tree]  # obs action reward terminated truncated first valid, and extras of the policy such as logp
    last_obs: Tree  # [B, …] what is acted on next
    final_obs: Tree  # [K, …] true last observations of the K ended rows, in (t, b) order
    final_at: np.ndarray  # int64 [K, 2]
    version: int = 0  # updates done when the acting weights were published
    collector: int = 0
    episodes: list[EpisodeEnd] = field(default_factory=list)  # of the envs, that ended meanwhile
    waits: bool = False  # the player may wait for others: some rows may hold no decision of it at all

    @property
    def steps(self) -> int:
        return int(np.count_nonzero(self.rows["valid"]))


class Collected(dict[str, Chunk]):
    """What one collector collected:
    player → its chunk, and the counts of the envs, whose steps need not be anybody's rows.
    """

    def __init__(self, chunks: dict[str, Chunk], steps: int, episodes: list[EpisodeEnd]):
        super().__init__(chunks)
        self.steps = steps  # env steps
        self.episodes = episodes  # that ended
