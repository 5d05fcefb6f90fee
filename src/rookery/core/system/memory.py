"""How much memory this process may still allocate, and whether something fits, before it is allocated.

The operating system hands memory out lazily: without asking first, what is too large would be noticed hours later, by
the out-of-memory killer.
"""

from __future__ import annotations

from pathlib import Path

from rookery.core.errors import ConfigError
from rookery.core.system.portable import kernel_text

LEARNT = 4  # copies of every number that is learnt: itself, its gradient, two moments
SMALLER = "Lower the sizes of the networks: model.hidden, model.layers, model.core, env.stack or the algorithm's own."


def available_bytes(root: Path = Path("/")) -> int | None:
    """What this process may still allocate: the tighter of the machine's and the container's;
    None if nothing can be read.
    """
    bounds = [_meminfo(root / "proc/meminfo"), *_cgroup_bounds(root)]
    known = [bound for bound in bounds if bound is not None]
    return max(0, min(known)) if known else None


def check_room(needed: int, what: str, advice: str) -> None:
    """Refuse what needs more than there is; `what` begins the sentence: `env.stack=9 needs`."""
    available = available_bytes()
    if available is not None and needed > available:
        raise ConfigError(
            f"{what} at least {human(needed)} of memory ({needed} bytes), but {human(available)} ({available} bytes) "
            f"are available. {advice}"
        )


def check_networks(count: int) -> None:
    """Refuse networks of so many bytes of parameters."""
    check_room(LEARNT * count, "the networks with their gradients and moments need", SMALLER)


def human(count: float) -> str:
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
