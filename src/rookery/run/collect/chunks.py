"""Parts of chunks: what a collector cuts, joins and hands on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.tree import Tree, tree_map


def cut(buffer: dict[str, Tree], t: int, i: int) -> tuple[tuple[int, int], Tree] | None:
    """Row t of column i is the hole of a dropped episode: its last good row is cut there, like at a time limit."""
    rows = np.flatnonzero(buffer["valid"][:t, i])
    if not len(rows) or buffer["terminated"][rows[-1], i] or buffer["truncated"][rows[-1], i]:
        return None
    buffer["truncated"][rows[-1], i] = True
    return (int(rows[-1]), int(i)), tree_map(lambda x: x[t, i].copy(), buffer["obs"])


def copied(chunk: Chunk) -> Chunk:
    rows, last = (tree_map(np.copy, tree) for tree in (chunk.rows, chunk.last_obs))
    return replace(chunk, rows=rows, last_obs=last)


def joined(parts: list[Chunk]) -> Chunk:
    offsets = np.cumsum([0, *(len(part.rows["reward"]) for part in parts)])
    at = [part.final_at + np.array([offset, 0]) for part, offset in zip(parts, offsets)]
    rows = tree_map(lambda *xs: np.concatenate(xs), *(part.rows for part in parts))
    final = tree_map(lambda *xs: np.concatenate(xs), *(part.final_obs for part in parts))
    ended = [end for part in parts for end in part.episodes]
    last = parts[-1]
    return replace(last, rows=rows, final_obs=final, final_at=np.concatenate(at), episodes=ended)


def apart(chunk: Chunk) -> Chunk:
    """The chunk as if episodes began with it: a store cuts what it holds of them, and does not link it to what came
    after a gap."""
    valid = chunk.rows["valid"]
    leading = np.cumsum(valid, 0) == valid  # no decision before: holes, and the first row behind them
    return replace(chunk, rows=chunk.rows | {"first": chunk.rows["first"] | leading})


def decided(chunk: Chunk) -> Chunk | None:
    """A chunk of a player that may wait, for a store that need not keep rows in which it only did; None if no row is
    left.

    Every hole of a player that waits holds what the next valid row of its column does, so nothing is lost.
    """
    kept = chunk.rows["valid"].any(1)
    if kept.all():
        return chunk
    if not kept.any():
        return None
    place = np.cumsum(kept) - 1
    at = np.stack([place[chunk.final_at[:, 0]], chunk.final_at[:, 1]], 1)
    return replace(chunk, rows=tree_map(lambda x: x[kept], chunk.rows), final_at=at)
