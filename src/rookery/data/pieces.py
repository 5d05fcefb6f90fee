"""Pieces of a chunk: what is left of its rows, finals and successor when it is cut in time."""

from __future__ import annotations

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.tree import tree_map


def piece(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Rows start … stop − 1 as a chunk of its own; arrays are views. Episode ends are not carried."""
    rows = {name: tree_map(lambda x: x[start:stop], value) for name, value in chunk.rows.items()}
    last = chunk.last_obs if stop >= len(chunk.rows["valid"]) else tree_map(lambda x: x[stop], chunk.rows["obs"])
    here = (chunk.final_at[:, 0] >= start) & (chunk.final_at[:, 0] < stop)
    final_obs = tree_map(lambda x: x[here], chunk.final_obs) if len(here) else chunk.final_obs
    return Chunk(rows, last, final_obs, chunk.final_at[here] - np.array([start, 0]), chunk.version, chunk.collector)
