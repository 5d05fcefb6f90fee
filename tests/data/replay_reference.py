"""A slow replay that is obviously right: one Python list of rows per column. And a generator of
random chunks to feed it with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk


@dataclass
class Row:
    obs: np.ndarray
    action: int
    reward: float
    terminated: bool
    truncated: bool
    first: bool
    valid: bool
    final: np.ndarray | None = None  # true last observation, if the row ended (or its episode was lost)


@dataclass
class Column:
    rows: list[Row] = field(default_factory=list)  # since ever; only the newest are "in the ring"
    pending: np.ndarray | None = None


class Reference:
    """The rows of every column, and what a replay of `keep` rows per column must answer."""

    def __init__(self, columns: int, collectors: int, keep: int):
        self.columns = [Column() for _ in range(columns)]
        self.width, self.keep = columns // collectors, keep

    def add(self, chunk: Chunk) -> None:
        r = chunk.rows
        finals = {(int(t), int(b)): chunk.final_obs[k] for k, (t, b) in enumerate(chunk.final_at)}
        for b in range(self.width):
            column = self.columns[chunk.collector * self.width + b]
            newest = next((row for row in reversed(column.rows) if row.valid), None)
            if newest is not None and r["first"][0, b] and newest.final is None:
                newest.final = column.pending  # the env was renewed: nothing more is known of that episode
            for t in range(len(r["valid"])):
                flags = (bool(r[name][t, b]) for name in ("terminated", "truncated", "first", "valid"))
                column.rows.append(
                    Row(
                        r["obs"][t, b].copy(),
                        int(r["action"][t, b]),
                        float(r["reward"][t, b]),
                        *flags,
                        finals.get((t, b)),
                    )
                )
            column.pending = chunk.last_obs[b].copy()

    def live(self, c: int) -> list[int]:
        """Numbers of the valid rows of a column that are still kept."""
        rows = self.columns[c].rows
        return [i for i in range(max(0, len(rows) - self.keep), len(rows)) if rows[i].valid]

    @property
    def size(self) -> int:
        return sum(len(self.live(c)) for c in range(len(self.columns)))

    def number_of(self, key: int) -> tuple[int, int]:
        """(column, number of the row) of a key slot · columns + column: row i lies in slot i modulo (keep + 1)."""
        slot, c = divmod(key, len(self.columns))
        newest = len(self.columns[c].rows) - 1
        return c, newest - (newest - slot) % (self.keep + 1)

    def frames(self, c: int, i: int, k: int) -> list[np.ndarray]:
        """The last k frames ending at row i, never from before its episode or from before the oldest row kept."""
        rows = self.columns[c].rows
        out = [rows[i].obs]
        for j in reversed([j for j in self.live(c) if j < i]):
            if rows[i].first or rows[j].final is not None or len(out) == k:
                break
            out.insert(0, rows[j].obs)
            i = j
        return [out[0]] * (k - len(out)) + out

    def transition(self, c: int, i: int, n: int, gamma: float, stack: int) -> dict[str, Any]:
        column = self.columns[c]
        path = [j for j in self.live(c) if j >= i]  # valid rows from i to the head
        total, k, last = 0.0, 0, i
        for j in path[:n]:
            total += gamma**k * column.rows[j].reward
            k, last = k + 1, j
            if column.rows[j].final is not None:
                break
        row = column.rows[last]
        following = [j for j in path if j > last]
        successor = (
            row.final if row.final is not None else column.rows[following[0]].obs if following else column.pending
        )
        before = self.frames(c, last, stack - 1) if stack > 1 else []
        return {
            "obs": np.stack(self.frames(c, i, stack)) if stack > 1 else column.rows[i].obs,
            "next_obs": np.stack([*before, successor]) if stack > 1 else successor,
            "action": column.rows[i].action,
            "reward": np.float32(total),
            "discount": np.float32(0.0 if row.terminated else gamma**k),
        }


class Envs:
    """Makes random chunks that keep the contract: episodes end, holes appear, now and then
    an env is lost and renewed."""

    def __init__(
        self,
        rng: np.random.Generator,
        width: int,
        collector: int = 0,
        ends: float = 0.15,
        holes: float = 0.1,
        lost: float = 0.02,
    ):
        self.rng, self.width, self.collector = rng, width, collector
        self.ends, self.holes, self.lost = ends, holes, lost
        self.obs = self._frame(width)
        self.first = np.ones(width, bool)

    def _frame(self, *lead: int) -> np.ndarray:
        return self.rng.integers(1, 1 << 24, size=(*lead, 2)).astype(np.float32)  # different every time

    def chunk(self, rows: int, version: int = 0) -> Chunk:
        renewed = self.rng.random(self.width) < self.lost
        self.obs[renewed], self.first[renewed] = self._frame(self.width)[renewed], True
        out: dict[str, list[np.ndarray]] = {
            name: [] for name in ("obs", "action", "reward", "terminated", "truncated", "first", "valid")
        }
        final_at, final_obs = [], []
        for t in range(rows):
            valid = self.rng.random(self.width) >= self.holes
            ended = valid & (self.rng.random(self.width) < self.ends)
            terminated = ended & (self.rng.random(self.width) < 0.5)
            step = {
                "obs": self.obs.copy(),
                "first": self.first.copy(),
                "valid": valid,
                "terminated": terminated,
                "truncated": ended & ~terminated,
            }
            step |= {
                "action": self.rng.integers(5, size=self.width),
                "reward": self.rng.normal(size=self.width).astype(np.float32),
            }
            for name, value in step.items():
                out[name].append(value)
            after = self._frame(self.width)
            for b in np.flatnonzero(ended):
                final_at.append((t, b))
                final_obs.append(self._frame())
            self.obs[valid] = after[valid]
            self.first = np.where(valid, ended, self.first)
        finals = np.stack(final_obs) if final_obs else np.zeros((0, 2), np.float32)
        at = np.array(final_at, np.int64).reshape(-1, 2)
        return Chunk(
            {name: np.stack(parts) for name, parts in out.items()}, self.obs.copy(), finals, at, version, self.collector
        )


def simple_chunk(obs: list[float], reward: list[float], last: float, **more: Any) -> Chunk:
    """One column with scalar observations. more: ends = {row: (terminated, final observation)}, first and holes
    (rows), version, collector."""
    n = len(obs)
    ends = more.get("ends", {})
    flags = {name: np.zeros((n, 1), bool) for name in ("terminated", "truncated", "first")}
    for row, (terminated, _) in ends.items():
        flags["terminated" if terminated else "truncated"][row] = True
    flags["first"][list(more.get("first", []))] = True
    valid = np.ones((n, 1), bool)
    valid[list(more.get("holes", []))] = False
    rows = {
        "obs": np.array(obs, np.float32).reshape(n, 1, 1),
        "action": np.arange(n).reshape(n, 1),
        "reward": np.array(reward, np.float32).reshape(n, 1),
        "valid": valid,
    }
    finals = np.array([final for _, final in ends.values()], np.float32).reshape(-1, 1)
    at = np.array([(row, 0) for row in ends], np.int64).reshape(-1, 2)
    return Chunk(
        rows | flags, np.array([[last]], np.float32), finals, at, more.get("version", 0), more.get("collector", 0)
    )
