"""Which algorithms can do what another cannot, for its refusal: act in a space, have a memory. The registry is a table of strings, so
they are imported only when somebody is told.
"""

from __future__ import annotations

from typing import Any

from rookery.core import registry
from rookery.core.errors import ConfigError


def instead(kind: str) -> str:
    """`use a, b or c (…), or`: the algorithms that act in spaces of a kind, for the middle of a sentence."""
    found = listed([name for name in registry.names("algo") if kind in _told(name, "actions", ())])
    if not found:
        return "no algorithm here can (`rookery list algos`);"
    return f"use {found} (`rookery list algos`), or"


def remembering(kind: str) -> str:
    """`a, b or c`: the algorithms that act in spaces of a kind and can have a memory; PPO's if there is none."""
    able = [name for name in registry.names("algo") if kind in _told(name, "actions", ())]
    return listed([name for name in able if _told(name, "recurrent", "no") != "no"]) or "ppo"


def listed(names: list[str]) -> str:
    """`a, b or c`."""
    *others, last = names or [""]
    return f"{', '.join(others)} or {last}" if others else last


def _told(name: str, attribute: str, otherwise: Any) -> Any:
    try:
        return getattr(registry.lookup("algo", name), attribute, otherwise)
    except ConfigError:  # a user's, whose module is missing: not what the refusal is about
        return otherwise
