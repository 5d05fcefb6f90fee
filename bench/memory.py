"""Memory of a replay of Atari frames, measured: each grey 84 × 84 frame is stored once and stacked when it is read.

    python bench/memory.py [--capacity 1000000] [--columns 8] [--length 900]

Fills the replay through its ordinary door with episodes of `length` steps, samples from it, and prints what the process
holds beyond what it held before. The target for a million frames is 7.5 GB. Never a pass/fail test.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.spec import Leaf
from rookery.data import ReplayConfig, ReplayStore
from rookery.data.replay.memory_check import replay_bytes

FRAME = Leaf("box", (84, 84), np.dtype(np.uint8))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (6,))
ROUND = 16  # rows per chunk


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def filled(capacity: int, columns: int, length: int, batch_size: int = 32) -> ReplayStore:
    """A full replay of episodes that all end every `length` steps."""
    config = ReplayConfig(capacity=capacity, batch_size=batch_size, min_fill=batch_size, max_memory=None)
    store = ReplayStore(config, FRAME, CHOICE, columns, 0.99, 1, np.random.default_rng(0), stack=4)
    rows = -(-capacity // columns)
    for at in range(0, rows, ROUND):
        store.add(chunk(range(at, min(at + ROUND, rows)), columns, length))
    return store


def chunk(times: range, columns: int, length: int) -> Chunk:
    """The rows of these moments, in frames whose tint tells the episode."""
    lead, moments = (len(times), columns), np.array(times)
    first, last = moments % length == 0, moments % length == length - 1
    tint = (moments // length % 255 + 1).astype(np.uint8)
    flags = {"first": first, "terminated": last, "truncated": last & False, "valid": last | True}
    rows = {key: np.repeat(flag[:, None], columns, 1) for key, flag in flags.items()}
    rows |= {"action": np.zeros(lead, np.int64), "reward": np.zeros(lead, np.float32)}
    rows["obs"] = np.broadcast_to(tint[:, None, None, None], (*lead, 84, 84)).copy()
    at = np.argwhere(rows["terminated"]).astype(np.int64)
    after = np.uint8(times.stop // length % 255 + 1)
    return Chunk(rows, np.full((columns, 84, 84), after), rows["obs"][tuple(at.T)], at, 0, 0, [])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--capacity", type=int, default=1_000_000)
    arguments.add_argument("--columns", type=int, default=8)
    arguments.add_argument("--length", type=int, default=900)
    given = arguments.parse_args()
    filled(given.capacity // 100, given.columns, given.length).sample()  # compiles, and touches what is small
    before = resident()
    store = filled(given.capacity, given.columns, given.length)
    batch, _ = store.sample()
    used = resident() - before
    told = {
        "capacity": given.capacity,
        "steps": store.size,
        "bytes": used,
        "bytes_per_step": round(used / store.size, 1),
    }
    told |= {"estimated": replay_bytes(given.capacity, given.columns, FRAME, {"action": CHOICE})}
    told |= {"batch": list(batch["obs"].shape)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
