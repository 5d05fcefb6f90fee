"""Index arithmetic of the replay ring: insert, draw, follow n steps, stack frames, gather.

The ring is [slots, columns]; a collector owns a *lane* of neighbouring columns with its own write head. A lane of
`count` rows fills the slots head − count … head − 1 (modulo slots); the head's slot holds only the pending observation.
Per row, `meta` has 16 bytes so that one cache line answers a draw:

    meta[slot, column] = (reward as float32 bits, flags, final, reuse)

`final` is the row's place in the side table of final observations, or −1. An address ≥ 0 is slot · columns + column in
the ring, an address a < 0 is entry −1 − a of the side table. No random numbers are drawn here: uniforms come as arrays.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import njit

REWARD, FLAGS, FINAL, REUSE = range(4)  # last axis of meta
VALID, FIRST, TERMINATED, TRUNCATED, CUT = 1, 2, 4, 8, 16  # CUT: the episode went on, its rows are lost
CLOSED = TERMINATED | TRUNCATED | CUT  # the successor lies in the side table

# Columns of the table of lanes: first column, number of columns, slot written next, rows stored, rows too old
# to draw, valid steps stored, those in rows too old, fresh steps without draws left, draws of all stored
# steps, valid steps ever inserted.
LO, WIDTH, HEAD, COUNT, STALE, STEPS, STALE_STEPS, SPENT, DRAWN, INSERTED = range(10)
META, LANE = 4, 10  # how many

# what `insert` answers for a chunk that it refuses (and leaves the ring as it was)
BAD_SHAPE, MISSING_FINAL, STRAY_FINAL, NOT_ENDED = -1, -2, -3, -4


@njit(cache=True)
def _fault(reward, terminated, truncated, first, valid, final_at, allow_cut):
    """0, or why these rows cannot be stored. final_at must list exactly the ended rows, in (t, b) order."""
    rows, width = valid.shape
    if not (
        reward.shape == terminated.shape == truncated.shape == first.shape == valid.shape and final_at.shape[1] == 2
    ):
        return BAD_SHAPE
    closed = np.ones(width, np.bool_)  # was the row above closed, or a hole?
    k = 0
    for t in range(rows):
        for b in range(width):
            if t > 0 and first[t, b] and not closed[b]:
                return NOT_ENDED
            listed = k < final_at.shape[0] and final_at[k, 0] == t and final_at[k, 1] == b
            ended = valid[t, b] and (terminated[t, b] or truncated[t, b])
            if ended and not listed:
                return MISSING_FINAL
            if listed and not ended and not (allow_cut and valid[t, b]):
                return STRAY_FINAL
            k += listed
            closed[b] = listed or not valid[t, b]
    return 0 if k == final_at.shape[0] else STRAY_FINAL


@njit(cache=True)
def _drop_oldest(lane, meta, free, rows, max_reuse):
    """Forget the oldest rows of a lane: the counters lose them, their final observations become free."""
    slots = meta.shape[0]
    for r in range(rows):
        slot = (lane[HEAD] - lane[COUNT] + r) % slots
        for b in range(lane[LO], lane[LO] + lane[WIDTH]):
            row = meta[slot, b]
            if row[FLAGS] & VALID:
                lane[STEPS] -= 1
                lane[DRAWN] -= row[REUSE]
                if r < lane[STALE]:
                    lane[STALE_STEPS] -= 1
                elif max_reuse > 0 and row[REUSE] >= max_reuse:
                    lane[SPENT] -= 1
            if row[FINAL] >= 0:
                free[0] += 1
                free[free[0]], row[FINAL] = row[FINAL], -1
    lane[COUNT] -= rows
    lane[STALE] = max(0, lane[STALE] - rows)


@njit(cache=True)
def _cut_before(lane, meta, free, taken, at, first):
    """Close the newest rows whose episode did not end but whose column now starts another; returns how many.

    Their successor is the pending observation, about to be overwritten:
    taken[at:] receives pairs (column in lane, side-table entry).
    """
    if lane[COUNT] == 0:
        return 0
    cuts = 0
    slot = (lane[HEAD] - 1) % meta.shape[0]
    for b in range(lane[WIDTH]):
        row = meta[slot, lane[LO] + b]
        if first[0, b] and row[FLAGS] & VALID and not row[FLAGS] & CLOSED:
            row[FLAGS] |= CUT
            row[FINAL] = free[free[0]]
            free[0] -= 1
            taken[at + 2 * cuts], taken[at + 2 * cuts + 1] = b, row[FINAL]
            cuts += 1
    return cuts


@njit(cache=True)
def insert(
    lane, meta, version_of, free, taken, reward, terminated,
    truncated, first, valid, final_at, version, max_reuse, allow_cut,
):  # fmt: skip
    """Write the rows' rewards and flags at the head of a lane and move the head; 1 ≤ T < slots.

    `free` is a stack with its height in free[0]; it must hold K + width entries, K = len(final_at). Returns the
    number of cuts, or a negative fault. taken[:K] receives the side-table entries of final_at, taken[K:] the cuts.
    The caller then copies the observations.
    """
    fault = _fault(reward, terminated, truncated, first, valid, final_at, allow_cut)
    if fault != 0:
        return fault
    rows, width = valid.shape
    slots, finals = meta.shape[0], final_at.shape[0]
    cuts = _cut_before(lane, meta, free, taken, finals, first)
    _drop_oldest(lane, meta, free, max(0, lane[COUNT] + rows - (slots - 1)), max_reuse)
    for t in range(rows):
        slot = (lane[HEAD] + t) % slots
        version_of[slot] = version
        for b in range(width):
            flags = 0
            if valid[t, b]:
                flags = VALID | TERMINATED * terminated[t, b] | TRUNCATED * truncated[t, b]
                lane[STEPS] += 1
                lane[INSERTED] += 1
            row = meta[slot, lane[LO] + b]
            row[REWARD] = np.float32(reward[t, b]).view(np.int32)  # its bits
            row[FLAGS], row[FINAL], row[REUSE] = flags | FIRST * first[t, b], -1, 0
    for k in range(finals):
        row = meta[(lane[HEAD] + final_at[k, 0]) % slots, lane[LO] + final_at[k, 1]]
        taken[k] = row[FINAL] = free[free[0]]
        free[0] -= 1
        if not row[FLAGS] & CLOSED:
            row[FLAGS] |= CUT
    lane[HEAD] = (lane[HEAD] + rows) % slots
    lane[COUNT] += rows
    return cuts


@njit(cache=True)
def expire(lanes, meta, version_of, oldest_version, max_reuse):
    """Exclude from drawing the rows of every lane that were collected before oldest_version."""
    slots = meta.shape[0]
    for c in range(lanes.shape[0]):
        lane = lanes[c]
        while lane[STALE] < lane[COUNT]:
            slot = (lane[HEAD] - lane[COUNT] + lane[STALE]) % slots
            if version_of[c, slot] >= oldest_version:
                break
            for b in range(lane[LO], lane[LO] + lane[WIDTH]):
                if meta[slot, b, FLAGS] & VALID:
                    lane[STALE_STEPS] += 1
                    lane[SPENT] -= max_reuse > 0 and meta[slot, b, REUSE] >= max_reuse
            lane[STALE] += 1


@njit(cache=True)
def _take(lanes, meta, slot, column, max_reuse):
    """Count one draw of a row; true if it was the last one allowed."""
    meta[slot, column, REUSE] += 1
    lane = lanes[column // lanes[0, WIDTH]]
    lane[DRAWN] += 1
    spent = max_reuse > 0 and meta[slot, column, REUSE] >= max_reuse
    lane[SPENT] += spent
    return spent


@njit(cache=True)
def draw(uniform, filled, index, lanes, meta, max_reuse, wanted=VALID):
    """Fill index[filled:] with addresses of rows drawn uniformly by rejection; returns how many are filled.

    Each uniform number in [0, 1) is one attempt; rows without the wanted flag (holes) or
    without draws left are rejected.
    """
    slots, columns = meta.shape[:2]
    width = lanes[0, WIDTH]
    total = 0
    for c in range(lanes.shape[0]):
        total += lanes[c, COUNT] - lanes[c, STALE]
    for i in range(uniform.shape[0]):
        if filled == index.shape[0] or total == 0:
            break
        x = min(int(uniform[i] * (total * width)), total * width - 1)  # the product may round up to its bound
        r, b, c = x // width, x % width, 0
        while r >= lanes[c, COUNT] - lanes[c, STALE]:
            r -= lanes[c, COUNT] - lanes[c, STALE]
            c += 1
        slot = (lanes[c, HEAD] - lanes[c, COUNT] + lanes[c, STALE] + r) % slots
        column = lanes[c, LO] + b
        row = meta[slot, column]
        if row[FLAGS] & wanted and (max_reuse == 0 or row[REUSE] < max_reuse):
            _take(lanes, meta, slot, column, max_reuse)
            index[filled] = slot * columns + column
            filled += 1
    return filled


@njit(cache=True)
def eligible(lanes, meta, max_reuse, out, wanted=VALID):
    """Write the addresses of all rows that may be drawn, lane by lane in time order; returns how many."""
    slots, columns = meta.shape[:2]
    n = 0
    for c in range(lanes.shape[0]):
        lane = lanes[c]
        for r in range(lane[STALE], lane[COUNT]):
            slot = (lane[HEAD] - lane[COUNT] + r) % slots
            for column in range(lane[LO], lane[LO] + lane[WIDTH]):
                row = meta[slot, column]
                if row[FLAGS] & wanted and (max_reuse == 0 or row[REUSE] < max_reuse):
                    out[n] = slot * columns + column
                    n += 1
    return n


@njit(cache=True)
def draw_listed(uniform, filled, index, listed, lanes, meta, max_reuse):
    """As `draw`, from an explicit list of eligible addresses:
    every uniform number gives a row until the list is used up.
    """
    columns = meta.shape[1]
    left = listed.shape[0]
    for i in range(uniform.shape[0]):
        if filled == index.shape[0] or left == 0:
            break
        p = min(int(uniform[i] * left), left - 1)
        index[filled] = listed[p]
        filled += 1
        if _take(lanes, meta, listed[p] // columns, listed[p] % columns, max_reuse):
            left -= 1
            listed[p] = listed[left]
    return filled


@njit(cache=True)
def _before(slot, column, oldest, meta):
    """The slot of the row before, over holes; the same slot at an episode start and at the oldest row."""
    if meta[slot, column, FLAGS] & FIRST:
        return slot
    s = slot
    while s != oldest:
        s = s - 1 if s > 0 else meta.shape[0] - 1
        flags = meta[s, column, FLAGS]
        if flags & VALID:
            return slot if flags & CLOSED else s
    return slot


@njit(cache=True)
def _frames(slot, column, oldest, meta, out):
    """out[:] = addresses of the last frames ending at slot, oldest first."""
    for f in range(out.shape[0] - 1, -1, -1):
        out[f] = slot * meta.shape[1] + column
        slot = _before(slot, column, oldest, meta)


@njit(cache=True)
def _successor(slot, column, head, meta):
    """(address of a row's successor, slot of the next row of its episode). No next row: −1. Holes are stepped over."""
    slots, columns = meta.shape[:2]
    if meta[slot, column, FLAGS] & CLOSED:
        return -1 - np.int64(meta[slot, column, FINAL]), -1
    following = after = slot + 1 if slot + 1 < slots else 0
    while following != head and not meta[following, column, FLAGS] & (VALID | FIRST):
        following = following + 1 if following + 1 < slots else 0
    if following != head and meta[following, column, FLAGS] & FIRST:
        return after * columns + column, -1  # its episode is lost: the first hole holds the successor
    return following * columns + column, following if following != head else -1


@njit(cache=True)
def follow(index, n_step, gamma, lanes, meta, reward_of, obs_at, next_at, reward, discount):
    """For each drawn row: n-step reward (`equations.returns.n_step` of a replay), bootstrap discount, addresses of its
    observation and of its successor.

        reward = Σ_{j<k} γ^j r_j        discount = γ^k (1 − terminated_{k−1})

    k ≤ n_step counts the steps really taken: it is smaller where an episode ends or the write head is reached.
    Holes are stepped over. obs_at and next_at are [N, stack], oldest frame first.
    """
    (slots, columns), stack = meta.shape[:2], obs_at.shape[1]
    for i in range(index.shape[0]):
        start, column = index[i] // columns, index[i] % columns
        lane = lanes[column // lanes[0, WIDTH]]
        head = lane[HEAD]
        slot, total, factor, k = start, 0.0, 1.0, 0
        while True:
            total += factor * reward_of[slot, column, REWARD]
            factor *= gamma
            k += 1
            successor, following = _successor(slot, column, head, meta)
            if k == n_step or following < 0:
                break
            slot = following
        reward[i] = total
        discount[i] = 0.0 if meta[slot, column, FLAGS] & TERMINATED else factor
        oldest = (head - lane[COUNT]) % slots
        _frames(start, column, oldest, meta, obs_at[i])
        _frames(slot, column, oldest, meta, next_at[i, : stack - 1])
        next_at[i, stack - 1] = successor


@njit(cache=True)
def follow_each(index, n_step, gamma, lanes, meta, paid, finals, reward):
    """reward[i, g] = Σ_{j<k} γ^j r_j of member g, as `follow` sums the team's; what members are paid for a row stands
    in its successor: paid [slots · columns, G], finals [entries, G]."""
    columns, members = meta.shape[1], reward.shape[1]
    for i in range(index.shape[0]):
        slot, column = index[i] // columns, index[i] % columns
        head = lanes[column // lanes[0, WIDTH], HEAD]
        total, factor, k = np.zeros(members), 1.0, 0
        while True:
            successor, following = _successor(slot, column, head, meta)
            row = paid[successor] if successor >= 0 else finals[-1 - successor]
            for g in range(members):
                total[g] += factor * row[g]
            factor *= gamma
            k += 1
            if k == n_step or following < 0:
                break
            slot = following
        for g in range(members):
            reward[i, g] = total[g]


@njit(cache=True)
def copy_members(ring, finals, at, members, out):
    """out[i, g, f] = what member g saw in the row at address at[i, f], each as words; ring and finals are
    [rows · members, words], out is [N · members · frames, words]."""
    frames = at.shape[1]
    for i in range(at.shape[0]):
        for f in range(frames):
            a = at[i, f]
            for g in range(members):
                row = ring[a * members + g] if a >= 0 else finals[(-1 - a) * members + g]
                to = (i * members + g) * frames + f
                for j in range(out.shape[1]):
                    out[to, j] = row[j]


@njit(cache=True)
def copy_rows(ring, finals, at, out):
    """out[i] = the row at address at[i]; all arrays are 2-d views of one element type."""
    for i in range(at.shape[0]):
        row = ring[at[i]] if at[i] >= 0 else finals[-1 - at[i]]
        for j in range(out.shape[1]):
            out[i, j] = row[j]
