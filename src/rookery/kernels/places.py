"""Places of the replay ring (see `rookery.kernels.gather`) for those who choose them by priority:
which were just filled, and what a draw uses up.

It stands alone between the two that it joins: `gather` knows nothing of priorities, `sumtree` nothing of the ring.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import njit

from rookery.kernels.gather import DRAWN, FLAGS, HEAD, LO, REUSE, SPENT, VALID, WIDTH


@njit(cache=True)
def newest(lane, meta, rows, steps, gone):
    """Addresses of a lane's newest rows: the valid ones into steps, the holes and the slot at the head into gone.

    Returns how many there are of each.
    Whatever else the insertion of these rows has overwritten lies in the same slots.
    """
    slots, columns = meta.shape[:2]
    n, m = 0, 0
    for r in range(rows + 1):
        slot = (lane[HEAD] - rows + r) % slots
        for column in range(lane[LO], lane[LO] + lane[WIDTH]):
            if r < rows and meta[slot, column, FLAGS] & VALID:
                steps[n] = slot * columns + column
                n += 1
            else:
                gone[m] = slot * columns + column
                m += 1
    return n, m


@njit(cache=True)
def take(index, mass, filled, lanes, meta, max_reuse, spent):
    """Count the draws index[filled:]; one that a row had no draws left for is dropped,
    with its entry of mass. max_reuse 0: no limit.

    Returns (how many draws of the batch stay, how many rows were used up by them);
    spent receives the addresses of those rows.
    """
    columns, width, used_up = meta.shape[1], lanes[0, WIDTH], 0
    for i in range(filled, index.shape[0]):
        slot, column = index[i] // columns, index[i] % columns
        row, lane = meta[slot, column], lanes[column // width]
        if max_reuse > 0 and row[REUSE] >= max_reuse:
            continue
        row[REUSE] += 1
        lane[DRAWN] += 1
        if max_reuse > 0 and row[REUSE] >= max_reuse:
            lane[SPENT] += 1
            spent[used_up] = index[i]
            used_up += 1
        index[filled], mass[filled] = index[i], mass[i]
        filled += 1
    return filled, used_up
