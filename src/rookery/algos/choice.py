"""Which algorithms can act in a space: for the refusal of one that cannot. The registry is a table of strings, so they are imported
only when somebody is told.
"""

from __future__ import annotations

from rookery.core import registry
from rookery.core.errors import ConfigError


def instead(kind: str) -> str:
    """`use a, b or c (…), or`: the algorithms that act in spaces of a kind, for the middle of a sentence."""
    *others, last = [name for name in registry.names("algo") if kind in _actions_of(name)] or [""]
    if not last:
        return "no algorithm here can (`rookery list algos`);"
    return f"use {', '.join(others) + ' or ' if others else ''}{last} (`rookery list algos`), or"


def _actions_of(name: str) -> tuple[str, ...]:
    try:
        return registry.lookup("algo", name).actions
    except (ConfigError, AttributeError):  # a user's, whose module is missing: not what the refusal is about
        return ()
