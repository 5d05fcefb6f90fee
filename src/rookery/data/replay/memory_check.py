"""How much memory a replay needs, before anything is allocated (F24).

Arrays are allocated lazily by the operating system: without this check a replay that is too large would be noticed
hours later, by the out-of-memory killer.
"""

from __future__ import annotations

import math

from rookery.core.errors import ConfigError
from rookery.core.spec import bytes_of, describe
from rookery.core.system.memory import human
from rookery.core.tree import Tree
from rookery.data.replay.priorities import priority_bytes

META_BYTES = 16  # reward, flags, final, reuse of one step
STEPS_PER_EPISODE = 50  # assumed for the side table of final observations, whose size is not known beforehand


def replay_bytes(capacity: int, columns: int, obs_spec: Tree, row_spec: Tree, prioritised: bool = False) -> int:
    """Bytes of a full replay; row_spec holds what is stored beside the observation (the action)."""
    places = (math.ceil(capacity / columns) + 1) * columns
    frame = bytes_of(obs_spec)
    rows = places * (frame + bytes_of(row_spec) + META_BYTES) + capacity * frame // STEPS_PER_EPISODE
    return rows + (priority_bytes(places) if prioritised else 0)


def check_replay_fits(
    capacity: int,
    columns: int,
    obs_spec: Tree,
    row_spec: Tree,
    max_memory: float,
    available: int | None,
    prioritised: bool = False,
) -> None:
    """Refuse a replay that needs more than the fraction max_memory of the available bytes."""
    needed = replay_bytes(capacity, columns, obs_spec, row_spec, prioritised)
    if available is None or needed <= max_memory * available:
        return
    fits = _largest_capacity(max_memory * available, columns, obs_spec, row_spec, prioritised)
    raise ConfigError(
        f"store.capacity={capacity} needs {human(needed)} ({needed} bytes: observations {describe(obs_spec)}, "
        f"{columns} columns), but {human(available)} ({available} bytes) are available, of which "
        f"store.max_memory={max_memory:g} may be used. The largest capacity that fits is {fits}. Lower store.capacity, "
        "use smaller observations (uint8, fewer pixels; let env.stack stack the frames), free memory, or set "
        "store.mmap=true to keep the replay on disk."
    )


def _largest_capacity(budget: float, columns: int, obs_spec: Tree, row_spec: Tree, prioritised: bool) -> int:
    low, high = 0, max(1, int(budget))
    while low < high:
        middle = (low + high + 1) // 2
        if replay_bytes(middle, columns, obs_spec, row_spec, prioritised) <= budget:
            low = middle
        else:
            high = middle - 1
    return low
