"""How much memory a replay needs, and how much there is, before anything is allocated (F24).

Arrays are allocated lazily by the operating system: without this check a replay that is too large would be noticed
hours later, by the out-of-memory killer.
"""

from __future__ import annotations

import math
from pathlib import Path

from rookery.core.errors import ConfigError
from rookery.core.spec import bytes_of, describe
from rookery.core.system.portable import kernel_text
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


def available_bytes(root: Path = Path("/")) -> int | None:
    """What this process may still allocate: the tighter of the machine's and the container's;
    None if nothing can be read.
    """
    bounds = [_meminfo(root / "proc/meminfo"), *_cgroup_bounds(root)]
    known = [bound for bound in bounds if bound is not None]
    return max(0, min(known)) if known else None


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
        f"store.capacity={capacity} needs {_human(needed)} ({needed} bytes: observations {describe(obs_spec)}, "
        f"{columns} columns), but {_human(available)} ({available} bytes) are available, of which "
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


def _human(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _meminfo(path: Path) -> int | None:
    for line in kernel_text(path).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_bounds(root: Path) -> list[int | None]:
    """Free bytes under the limit of this process's cgroup and of each of its parents, v2 and v1."""
    bounds: list[int | None] = []
    for line in kernel_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base, names = (
                root / "sys/fs/cgroup/memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        bounds += [_cgroup_free(base.joinpath(*parts[:n]), names) for n in range(len(parts) + 1)]
    return bounds


def _cgroup_free(folder: Path, names: tuple[str, str, str]) -> int | None:
    limit, used = kernel_text(folder / names[0]).strip(), kernel_text(folder / names[1]).strip()
    if not limit or not used or limit == "max":
        return None
    # pages of files that were not used lately are given back on demand
    cache = [
        int(line.split()[1])
        for line in kernel_text(folder / "memory.stat").splitlines()
        if line.startswith(names[2] + " ")
    ]
    return int(limit) - int(used) + sum(cache)
