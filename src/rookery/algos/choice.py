"""Which algorithms can do what another cannot, for its refusal: act in a space, have a memory, learn own rewards.

The registry is a table of strings, so they are imported only when somebody is told.
"""

from __future__ import annotations

from typing import Any

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.team import Team


def instead(kind: str, sits: str = "agent") -> str:
    """`use a, b or c (…), or`: the algorithms that act in spaces of a kind, for the middle of a sentence."""
    able = listed(_acting_in(kind, sits))
    if not able:
        return "no algorithm here can (`rookery list algos`);"
    return f"use {able} (`rookery list algos`), or"


def remembering(kind: str, sits: str = "agent") -> str:
    """`a, b or c`: the algorithms that act in spaces of a kind and can have a memory; PPO's if there is none."""
    able = [name for name in _acting_in(kind, sits) if getattr(algorithm_of(name), "recurrent", "no") != "no"]
    return listed(able) or "ppo"


def listed(names: list[str]) -> str:
    """`a, b or c`."""
    *others, last = names or [""]
    return f"{', '.join(others)} or {last}" if others else last


def algorithm_of(name: str) -> Any:
    """The algorithm of a name, or None."""
    try:
        return registry.lookup("algo", name)
    except ConfigError:  # a user's, whose module is missing: not what the refusal is about
        return None


def _acting_in(kind: str, sits: str) -> list[str]:
    """For a single agent, or for a team."""
    able = {name: algorithm_of(name) for name in registry.names("algo")}
    return [
        name
        for name, algo in able.items()
        if kind in getattr(algo, "actions", ()) and getattr(algo, "sits", "agent") == sits
    ]


def check_rewards(algo: Any) -> None:
    """Refuse rewards of each member (`reward: own`) where an algorithm has one value of the whole team."""
    team = Team.of(algo.obs_spec, algo.action_spec)
    if team is not None and team.own and not algo.own_rewards:
        raise ConfigError(
            f"env.teams says reward=own, but algo.name={algo.name} learns from one reward of the whole team. Set "
            "reward=sum, or use maddpg."
        )
