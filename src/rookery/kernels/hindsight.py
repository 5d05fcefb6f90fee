"""Which goal a drawn step is given in hindsight: the address of a successor in the same episode.

    FUTURE    a step of the episode from the drawn one on, uniformly         its successor's address
    LAST      the newest step of the episode
    EPISODE   any step of the episode that is still in the ring, uniformly

An episode is walked row by row, so a draw costs as many looks as the episode is long. Holes are stepped
over; a walk ends where the episode does, at the write head and at the oldest row. Layout and addresses are
those of `rookery.kernels.gather`.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import njit

from rookery.kernels.gather import CLOSED, COUNT, FINAL, FIRST, FLAGS, HEAD, VALID, WIDTH

FUTURE, LAST, EPISODE = range(3)
NONE = -1  # no further row


@njit(cache=True)
def _onward(slot, column, head, meta):
    """(slot of the episode's next row or NONE, address of this row's successor)."""
    slots, columns = meta.shape[:2]
    if meta[slot, column, FLAGS] & CLOSED:
        return NONE, -1 - np.int64(meta[slot, column, FINAL])
    following = after = slot + 1 if slot + 1 < slots else 0
    while following != head and not meta[following, column, FLAGS] & (VALID | FIRST):
        following = following + 1 if following + 1 < slots else 0
    if following != head and meta[following, column, FLAGS] & FIRST:
        return NONE, after * columns + column  # its episode is lost: the first hole holds the successor
    return (NONE if following == head else following), following * columns + column


@njit(cache=True)
def _opening(slot, column, oldest, meta):
    """The first row of the episode that is still in the ring."""
    s = slot
    while not meta[slot, column, FLAGS] & FIRST and s != oldest:
        s = s - 1 if s > 0 else meta.shape[0] - 1
        flags = meta[s, column, FLAGS]
        if flags & VALID:
            if flags & CLOSED:
                break
            slot = s
    return slot


@njit(cache=True)
def choose_goals(index, uniform, strategy, lanes, meta, goal_at):
    """goal_at[i] = address of the observation whose achieved goal step index[i] is given;
    uniform [N] in [0, 1) chooses it.
    """
    slots, columns = meta.shape[:2]
    for i in range(index.shape[0]):
        start, column = index[i] // columns, index[i] % columns
        lane = lanes[column // lanes[0, WIDTH]]
        head = lane[HEAD]
        if strategy == EPISODE:
            start = _opening(start, column, (head - lane[COUNT]) % slots, meta)
        slot, length = start, 0
        while slot != NONE:
            slot, goal = _onward(slot, column, head, meta)
            length += 1
        if strategy != LAST:
            slot = start
            for _ in range(min(int(uniform[i] * length), length - 1) + 1):
                slot, goal = _onward(slot, column, head, meta)
        goal_at[i] = goal
