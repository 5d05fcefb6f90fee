"""RolloutStore: each row is learnt from once, in one batch [T, B] of all collectors.

Chunks may have any length: what is longer than the batch waits for the next one.
Rows are copied once, into buffers that torch shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rookery.core.chunk import Chunk
from rookery.core.errors import BatchError, CheckpointError, ConfigError, UsageError
from rookery.core.tree import Tree, flatten, tree_map, unflatten, walk
from rookery.data.aligned import aligned_zeros
from rookery.data.pieces import piece
from rookery.data.store import Store

TYPES = {"reward": "float32", "terminated": "bool", "truncated": "bool", "first": "bool", "valid": "bool"}
NEEDED = ("obs", "action", "reward", "terminated", "truncated", "first", "valid")


class RolloutStore(Store):
    """A `Store` that is ready when every collector has delivered its rows; it hands them out once.

    Args:
        rows: env steps per env and rollout.
        columns: envs of all collectors together.
        collectors: who deliver chunks, each with equally many columns.
    """

    once = True

    def __init__(self, rows: int, columns: int, collectors: int = 1):
        if columns % collectors or rows < 1:
            raise ConfigError(
                f"a rollout of {rows} rows and {columns} columns cannot be shared by {collectors} collectors: "
                "they need equally many columns."
            )
        self.rows, self.columns, self.collectors, self.width = rows, columns, collectors, columns // collectors
        self._filled = [0] * collectors  # rows in the buffers
        self._backlog: list[list[Chunk]] = [[] for _ in range(collectors)]  # rows beyond the buffers, own copies
        self._finals: list[list[tuple[np.ndarray, Tree]]] = [
            [] for _ in range(collectors)
        ]  # (final_at, final_obs) of the rows in the buffers
        self._versions = [0] * collectors
        self._handed_out = False
        self._spec: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        self._buffer: dict[str, np.ndarray] = {}  # leaf of a row → [T, B, …]
        self._last: dict[str, np.ndarray] = {}  # leaf of the observation → [B, …]
        self._batch: dict[str, Tree] = {}  # the same memory, as tensors

    @property
    def size(self) -> int:
        """Valid steps that were not handed out yet."""
        waiting = sum(chunk.steps for chunks in self._backlog for chunk in chunks)
        return waiting + (
            0
            if self._handed_out or not self._buffer
            else sum(int(np.count_nonzero(self._part("valid", c))) for c in range(self.collectors))
        )

    def add(self, chunk: Chunk) -> None:
        """Take rows of one collector. Overwrites the batch handed out last."""
        self._check(chunk)
        self._begin_next()
        self._take(chunk)

    def ready(self) -> bool:
        if self._handed_out:
            return all(_rows(chunks) >= self.rows for chunks in self._backlog)
        return all(filled == self.rows for filled in self._filled)

    def sample(self) -> tuple[dict[str, Tree], None]:
        """All rows [T, B], with last_obs [B, …], final_obs [K, …] and final_at [K, 2];
        valid until the next `add` or `sample`.
        """
        if not self.ready():
            raise UsageError(
                f"a rollout of {self.rows} rows is not complete: the collectors delivered {self._filled}. "
                "Call sample() only when ready() is true."
            )
        self._begin_next()
        self._handed_out = True
        final_at, final_obs = self._all_finals()
        return {
            **self._batch,
            "final_at": torch.from_numpy(final_at),
            "final_obs": tree_map(lambda x: torch.from_numpy(x).clone(), final_obs),  # into aligned memory
        }, None

    def feedback(self, keys: Any, outputs: dict[str, Any]) -> None:
        """Rows are not drawn again: nothing to learn from the update."""

    def counts(self) -> dict[str, int]:
        """Nothing: every step is inserted and handed out once, so the run's own count says it."""
        return {}

    def metrics(self) -> dict[str, float]:
        """size [steps waiting], fill [fraction of the next batch],
        staleness [updates between the collectors' newest weights].
        """
        filled = [min(_rows(chunks), self.rows) for chunks in self._backlog] if self._handed_out else self._filled
        staleness = max(self._versions) - sum(self._versions) / self.collectors
        return {"size": float(self.size), "fill": sum(filled) / (self.rows * self.collectors), "staleness": staleness}

    def _check(self, chunk: Chunk) -> None:
        where = f"chunk of collector {chunk.collector}"
        if not 0 <= chunk.collector < self.collectors:
            raise BatchError(f"{where}: this store was made for collectors 0 to {self.collectors - 1}.")
        missing = [name for name in NEEDED if name not in chunk.rows]
        if missing:
            raise BatchError(f"{where} has no rows.{missing[0]} (there is: {', '.join(chunk.rows)}).")
        flat, obs = flatten(chunk.rows), flatten({"obs": chunk.last_obs})
        rows = len(chunk.rows["valid"])
        self._spec = self._spec or {path: (leaf.shape[2:], leaf.dtype) for path, leaf in flat.items()}
        if set(flat) != set(self._spec):
            raise BatchError(f"{where} has the fields {sorted(flat)}, earlier chunks had {sorted(self._spec)}.")
        ended = len(chunk.final_at)
        finals = flatten({"obs": chunk.final_obs}) if ended else {}
        for path, (shape, dtype) in self._spec.items():
            parts: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [("rows", flat, (rows, self.width))]
            if path in obs or path.split("/")[0] == "obs":
                parts += [("last_obs", obs, (self.width,))] + ([("final_obs", finals, (ended,))] if ended else [])
            for name, leaves, lead in parts:
                if path not in leaves or leaves[path].shape != (*lead, *shape) or leaves[path].dtype != dtype:
                    problem = f"is {leaves[path].dtype} {leaves[path].shape}" if path in leaves else "is missing"
                    raise BatchError(f"{where}: {path} of {name} {problem}, it must be {dtype} {(*lead, *shape)}.")
        if chunk.final_at.shape != (ended, 2) or ended != int(
            np.count_nonzero(chunk.rows["valid"] & (chunk.rows["terminated"] | chunk.rows["truncated"]))
        ):
            raise BatchError(
                f"{where}: final_at must be [K, 2] and list every ended row; it is {chunk.final_at.shape}."
            )

    def _begin_next(self) -> None:
        """After a batch was handed out, its buffers are filled again, with the backlog first."""
        if not self._handed_out:
            return
        self._handed_out = False
        self._filled = [0] * self.collectors
        self._finals = [[] for _ in range(self.collectors)]
        backlog, self._backlog = self._backlog, [[] for _ in range(self.collectors)]
        for chunks in backlog:
            for chunk in chunks:
                self._take(chunk, owned=True)

    def _take(self, chunk: Chunk, owned: bool = False) -> None:
        """Into the buffers as far as there is room; the rest waits, as a copy unless it is ours already."""
        number, rows = chunk.collector, len(chunk.rows["valid"])
        self._versions[number] = chunk.version
        room = min(rows, self.rows - self._filled[number])
        if room:
            self._write(chunk if room == rows else piece(chunk, 0, room))
        if room < rows:
            rest = chunk if room == 0 else piece(chunk, room, rows)
            self._backlog[number].append(rest if owned else _copied(rest))

    def _write(self, chunk: Chunk) -> None:
        if not self._buffer:
            self._allocate()
        number = chunk.collector
        at, columns = self._filled[number], slice(number * self.width, (number + 1) * self.width)
        end = at + len(chunk.rows["valid"])
        for column in np.flatnonzero(chunk.rows["first"][0]) if 0 < at < end else ():
            self._cut(number, columns.start + int(column), at)
        for path, leaf in walk(chunk.rows):
            self._buffer[path][at:end, columns] = leaf
        for path, leaf in walk(chunk.last_obs):
            self._last[path][columns] = leaf
        if len(chunk.final_at):
            self._finals[number].append(
                (chunk.final_at + np.array([at, columns.start]), tree_map(np.copy, chunk.final_obs))
            )
        self._filled[number] = end

    def _cut(self, number: int, column: int, at: int) -> None:
        """Another episode begins in row `at`: if the last one did not end,
        it is cut at what would have been acted on next.
        """
        rows = np.flatnonzero(self._buffer["valid"][:at, column])
        if not len(rows) or self._buffer["terminated"][rows[-1], column] or self._buffer["truncated"][rows[-1], column]:
            return
        self._buffer["truncated"][rows[-1], column] = True
        final = unflatten({path: buffer[column : column + 1].copy() for path, buffer in self._last.items()})
        self._finals[number].append((np.array([[rows[-1], column]], np.int64), final))

    def _allocate(self) -> None:
        self._buffer = {
            path: aligned_zeros((self.rows, self.columns, *shape), dtype) for path, (shape, dtype) in self._spec.items()
        }
        obs = {
            path[4:]: spec for path, spec in self._spec.items() if path.split("/")[0] == "obs"
        }  # "obs/a" → "a", "obs" → ""
        self._last = {path: aligned_zeros((self.columns, *shape), dtype) for path, (shape, dtype) in obs.items()}
        batch = unflatten({path: torch.from_numpy(buffer) for path, buffer in self._buffer.items()})
        self._batch = {
            **batch,
            "last_obs": unflatten({path: torch.from_numpy(buffer) for path, buffer in self._last.items()}),
        }

    def _all_finals(self) -> tuple[np.ndarray, Tree]:
        """Finals of all collectors in (t, b) order."""
        parts = [part for finals in self._finals for part in finals]
        if not parts:
            return np.zeros((0, 2), np.int64), unflatten(
                {path: np.zeros((0, *buffer.shape[1:]), buffer.dtype) for path, buffer in self._last.items()}
            )
        at = np.concatenate([part[0] for part in parts])
        order = np.lexsort((at[:, 1], at[:, 0]))
        return at[order], tree_map(lambda *leaves: np.concatenate(leaves)[order], *(part[1] for part in parts))

    def _part(self, path: str, number: int) -> np.ndarray:
        """The filled rows of one collector."""
        return self._buffer[path][: self._filled[number], number * self.width : (number + 1) * self.width]

    def _partial(self, number: int) -> Chunk:
        """What a collector has in the buffers, as one chunk."""
        lo = number * self.width
        last = unflatten({path: buffer[lo : lo + self.width] for path, buffer in self._last.items()})
        finals = self._finals[number]
        empty = unflatten({path: np.zeros((0, *buffer.shape[1:]), buffer.dtype) for path, buffer in self._last.items()})
        at = np.concatenate([part[0] for part in finals]) - np.array([0, lo]) if finals else np.zeros((0, 2), np.int64)
        final_obs = tree_map(lambda *leaves: np.concatenate(leaves), *(part[1] for part in finals)) if finals else empty
        rows = unflatten({path: self._part(path, number) for path in self._buffer})
        return Chunk(rows, last, final_obs, at, self._versions[number], number)

    def state(self) -> dict[str, Any]:
        """The rows that were not handed out, as chunks.

        Large arrays are views: write or copy them before the next `add`.
        """
        chunks = (
            []
            if self._handed_out or not self._buffer
            else [self._partial(c) for c in range(self.collectors) if self._filled[c]]
        )
        chunks += [chunk for waiting in self._backlog for chunk in waiting]
        return {"chunks": {str(i): _saved(chunk) for i, chunk in enumerate(chunks)}, "versions": list(self._versions)}

    def restore(self, state: dict[str, Any]) -> None:
        self._filled, self._handed_out = [0] * self.collectors, False
        self._backlog, self._finals = [[] for _ in range(self.collectors)], [[] for _ in range(self.collectors)]
        chunks = state["chunks"]
        for i in range(len(chunks)):
            saved = tree_map(np.asarray, chunks[str(i)]["arrays"])
            _check_types(saved, f"chunks/{i}/arrays")
            version, number = map(int, chunks[str(i)]["numbers"])
            self.add(Chunk(saved["rows"], saved["last_obs"], saved["final_obs"], saved["final_at"], version, number))
        self._versions = [int(version) for version in state["versions"]]


def _check_types(saved: dict[str, Tree], path: str) -> None:
    """What a store that has seen no chunk yet cannot compare with earlier ones."""
    rows, obs = saved["rows"], flatten(saved["last_obs"])
    wanted = {f"rows/{name}": (rows[name], rows["valid"].shape, np.dtype(kind)) for name, kind in TYPES.items()}
    wanted["final_at"] = (saved["final_at"], (len(saved["final_at"]), 2), np.dtype(np.int64))
    for name, final in flatten(saved["final_obs"]).items():
        shape = (len(saved["final_at"]), *obs[name].shape[1:])
        wanted[f"final_obs/{name}"] = (final, shape, obs[name].dtype)
    for name, (array, shape, dtype) in wanted.items():
        if array.shape != shape or array.dtype != dtype:
            raise CheckpointError(
                f"the saved rollout has {array.dtype} {array.shape} as {path}/{name}, expected {dtype} {shape}."
            )


def _saved(chunk: Chunk) -> dict[str, Any]:
    arrays = {"rows": chunk.rows, "last_obs": chunk.last_obs, "final_obs": chunk.final_obs, "final_at": chunk.final_at}
    return {"arrays": arrays, "numbers": [chunk.version, chunk.collector]}


def _copied(chunk: Chunk) -> Chunk:
    rows, last_obs, final_obs = (tree_map(np.copy, part) for part in (chunk.rows, chunk.last_obs, chunk.final_obs))
    return Chunk(rows, last_obs, final_obs, chunk.final_at.copy(), chunk.version, chunk.collector)


def _rows(chunks: list[Chunk]) -> int:
    return sum(len(chunk.rows["valid"]) for chunk in chunks)
