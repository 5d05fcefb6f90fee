"""Sequences in the replay ring: which rows begin one, when it is complete, and which rows belong to it.

A column's episode is cut into windows of `length` learnt rows, one beginning at every `stride`-th row of the episode,
so neighbours overlap by length − stride. Up to `burn_in` rows before the first warm the memory up. A window is complete
when its last row is there or its episode has ended; until then it is not drawn. Only valid rows belong to a window:
holes are stepped over. What is where in the ring: `rookery.kernels.gather`, on whose constants this file is built.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import njit

REWARD, FLAGS, FINAL = 0, 1, 2  # as in gather (numba's cache does not notice changes in another file: a test compares)
VALID, FIRST, TERMINATED, TRUNCATED, CUT = 1, 2, 4, 8, 16
CLOSED = TERMINATED | TRUNCATED | CUT
LO, WIDTH, HEAD, COUNT = 0, 1, 2, 3
READY = 64  # this row begins a complete window


@njit(cache=True)
def _back(slot, column, oldest, meta):
    """The slot of the valid row before in the same episode, or −1."""
    if meta[slot, column, FLAGS] & FIRST:
        return -1
    while slot != oldest:
        slot = slot - 1 if slot > 0 else meta.shape[0] - 1
        flags = meta[slot, column, FLAGS]
        if flags & VALID:
            return -1 if flags & CLOSED else slot
        if flags & FIRST:
            return -1
    return -1


@njit(cache=True)
def _finish(slot, column, oldest, age, length, stride, everything, meta, out, n):
    """Mark the windows that the row at `slot`, number `age` of its episode, completes;
    `everything`: the episode is over.
    """
    columns, back = meta.shape[1], 0
    while slot >= 0 and back < length:
        start = age - back
        if start % stride == 0 and (everything or back == length - 1) and not meta[slot, column, FLAGS] & READY:
            meta[slot, column, FLAGS] |= READY
            out[n] = slot * columns + column
            n += 1
        slot = _back(slot, column, oldest, meta)
        back += 1
    return n


@njit(cache=True)
def _lost(slot, column, oldest, age, length, stride, meta, out, n):
    """Mark the windows of an episode that has got no end:
    its last row, number `age`, is at `slot` or before holes there.
    """
    while slot != oldest and not meta[slot, column, FLAGS] & VALID:
        slot = slot - 1 if slot > 0 else meta.shape[0] - 1
    flags = meta[slot, column, FLAGS]
    if flags & VALID and not flags & (TERMINATED | TRUNCATED):
        n = _finish(slot, column, oldest, age, length, stride, True, meta, out, n)
    return n


@njit(cache=True)
def advance(lane, meta, age, rows, length, stride, out):
    """After `insert` of `rows` rows: count the steps of each episode and mark complete windows.

    age[column]: valid rows of the running episode so far. out receives the addresses of the rows that begin the windows
    that became complete; returns how many.
    """
    slots, n = meta.shape[0], 0
    oldest = (lane[HEAD] - lane[COUNT]) % slots
    for t in range(rows):
        slot = (lane[HEAD] - rows + t) % slots
        for column in range(lane[LO], lane[LO] + lane[WIDTH]):
            flags = meta[slot, column, FLAGS]
            if flags & FIRST:
                if age[column] > 0 and slot != oldest:  # lost while there were holes: `cut` sees the first row only
                    before = slot - 1 if slot > 0 else slots - 1
                    n = _lost(before, column, oldest, age[column] - 1, length, stride, meta, out, n)
                age[column] = 0
            if not flags & VALID:
                continue
            over = flags & CLOSED != 0
            n = _finish(slot, column, oldest, age[column], length, stride, over, meta, out, n)
            age[column] += 1
    return n


@njit(cache=True)
def cut(lane, meta, age, first, length, stride, out):
    """Before `insert`: columns whose next row begins another episode though the last did not
    end complete what they have.
    """
    if lane[COUNT] == 0:
        return 0
    slots, n = meta.shape[0], 0
    oldest, newest = (lane[HEAD] - lane[COUNT]) % slots, (lane[HEAD] - 1) % slots
    for b in range(lane[WIDTH]):
        column = lane[LO] + b
        if first[b] and age[column] > 0:
            n = _lost(newest, column, oldest, age[column] - 1, length, stride, meta, out, n)
    return n


@njit(cache=True)
def window(index, burn_in, lanes, meta, reward_of, at, next_at, reward, flags_out):
    """The rows of each window that begins (after its burn-in) at index[i].

    at, next_at [T, N]: addresses of the observations and of their true successors; reward [T, N]; flags_out [T, N]:
    flags of the rows, 0 where there is none (padding: before a burn-in that is shorter, and after the end).
    """
    (slots, columns), total = meta.shape[:2], at.shape[0]
    for i in range(index.shape[0]):
        start, column = index[i] // columns, index[i] % columns
        lane = lanes[column // lanes[0, WIDTH]]
        head = lane[HEAD]
        oldest = (head - lane[COUNT]) % slots
        slot, warm = start, 0
        while warm < burn_in:
            before = _back(slot, column, oldest, meta)
            if before < 0:
                break
            slot, warm = before, warm + 1
        for t in range(burn_in - warm):
            _pad(slot * columns + column, i, t, at, next_at, reward, flags_out)
        t = burn_in - warm
        while t < total:
            flags = meta[slot, column, FLAGS]
            at[t, i] = slot * columns + column
            reward[t, i], flags_out[t, i] = reward_of[slot, column, REWARD], flags
            if flags & CLOSED:
                next_at[t, i] = -1 - np.int64(meta[slot, column, FINAL])
                t += 1
                break
            following = after = slot + 1 if slot + 1 < slots else 0
            while following != head and not meta[following, column, FLAGS] & (VALID | FIRST):
                following = following + 1 if following + 1 < slots else 0
            lost = following != head and meta[following, column, FLAGS] & FIRST
            next_at[t, i] = (after if lost else following) * columns + column
            t += 1
            if lost or following == head:
                break
            slot = following
        for rest in range(t, total):
            _pad(slot * columns + column, i, rest, at, next_at, reward, flags_out)


@njit(cache=True)
def errors(index, length, eta, lanes, meta, error, out):
    """out[i] = η max |e| + (1 − η) mean |e| over the learnt rows of the window that begins at
    index[i]; error: |e| by address.

    NaN where the error of one of them is not known (NaN).
    """
    slots, columns = meta.shape[:2]
    for i in range(index.shape[0]):
        slot, column = index[i] // columns, index[i] % columns
        head = lanes[column // lanes[0, WIDTH], HEAD]
        most, total, rows = 0.0, 0.0, 0
        while rows < length:
            size = np.float64(error[slot * columns + column])
            most, total, rows = max(most, size), total + size, rows + 1
            following = slot + 1 if slot + 1 < slots else 0
            while following != head and not meta[following, column, FLAGS] & (VALID | FIRST):
                following = following + 1 if following + 1 < slots else 0
            over = following == head or meta[following, column, FLAGS] & FIRST
            if over or meta[slot, column, FLAGS] & CLOSED:
                break
            slot = following
        out[i] = eta * most + (1.0 - eta) * total / rows


@njit(cache=True)
def _pad(address, i, t, at, next_at, reward, flags_out):
    """A row that is not there: some real observation, so that nothing unseen is computed with, but no flags."""
    at[t, i], next_at[t, i], reward[t, i], flags_out[t, i] = address, address, 0.0, 0
