"""How manifest and state of an older format become those of the next one, step by step; alone, for it only grows.

1 → 2   arrays may be kept in pieces
2 → 3   every run has players: `players/<name>/{learner, store}`, knobs and modes by player, one form of a collector's
        state
3 → 4   the manifest keeps the config; every part of the state is there, also if it is empty
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.core.chunk import MAIN
from rookery.envs.vector import AGENT


@dataclass(frozen=True, slots=True)
class Migration:
    """Turns manifest (as read) and state of one format version into those of the next."""

    manifest: Callable[[dict[str, Any]], dict[str, Any]] = dict
    state: Callable[[dict[str, Any]], dict[str, Any]] = dict


def to_players(state: dict[str, Any]) -> dict[str, Any]:
    """Format 2 knew two forms: that of a run without named players becomes the other one."""
    state = dict(state)
    if "players" not in state:
        state["players"] = {MAIN: {name: state.pop(name) for name in ("learner", "store") if name in state}}
        state["run"] = dict(state["run"])
        for name in ("knobs", "mode"):
            if name in state["run"]:
                state["run"][name] = {MAIN: state["run"][name]}
    if "pool" in state:
        state["pool"] = {
            key: _collector(saved) if key.isdigit() and saved is not None else saved
            for key, saved in state["pool"].items()
        }
    return state


def _collector(saved: dict[str, Any]) -> dict[str, Any]:
    if "players" in saved:
        return {key: value for key, value in saved.items() if key != "obs"}
    first = np.asarray(saved["first"], bool)
    rows = {"obs": saved["obs"], "first": first}
    rows |= {"actor": saved["actors"][MAIN]} if "actors" in saved else {}
    rows |= {"frames": saved["frames"]} if "frames" in saved else {}
    return {"env": saved["env"], "seats": {}, "acting": {AGENT: np.ones(len(first), bool)}, "players": {MAIN: rows}}


def to_complete(state: dict[str, Any]) -> dict[str, Any]:
    """Formats before 4 left out what was empty or not known yet, so that nobody noticed what was missing."""
    state = dict(state)
    run, players = state["run"], state["players"]
    gaps = {name: [] for name in players} | run.get("gaps", {})
    begin: dict[str, Any] = {
        "seating": {},
        "added": {},
        "owed": [],
        "rests": [],
        "record": {},
        "stop": None,
        "seen": [],
    }
    state["run"] = {**begin, **run, "gaps": gaps}
    if "callbacks" in state:
        state["callbacks"] = {"heard": {}, **state["callbacks"]}
    state["players"] = {name: {part: _complete(saved) for part, saved in own.items()} for name, own in players.items()}
    if "meters" in state:
        clocks = {"phases": {"spent": {}}, "rates": {"seconds": 0.0, "counts": {}}}
        episodes = {"successes": {"values": np.zeros(0)}, **state["meters"]["episodes"]}
        state["meters"] = {"time": clocks, **state["meters"], "episodes": episodes}
    if "pool" in state:
        state["pool"] = {
            key: _complete_collector(saved) if key.isdigit() and saved is not None else saved
            for key, saved in state["pool"].items()
        }
    return state


def _complete(part: dict[str, Any]) -> dict[str, Any]:
    """A learner, a store, or a mixture of stores."""
    if "tensors" in part:
        return {"kept": {}, **part}
    if "ring" in part:
        return {"alarm": {"outside": []}, **part}
    if "chunks" in part:  # a rollout
        return part
    return {name: _complete(inner) if isinstance(inner, dict) else inner for name, inner in part.items()}


def _complete_collector(saved: dict[str, Any]) -> dict[str, Any]:
    untold: dict[str, Any] = {"settings": {"before": [], "during": []}}
    seats = {agent: np.zeros(len(acting), np.int64) for agent, acting in saved["acting"].items()} | saved["seats"]
    env = (untold if "resumes" in saved["env"] else {}) | saved["env"]
    if "envs" in env:
        env["envs"] = {number: untold | one for number, one in env["envs"].items()}
    players = {name: {"held": {}, **rows} for name, rows in saved["players"].items()}
    return saved | {"env": env, "seats": seats, "players": players}


MIGRATIONS: dict[int, Migration] = {  # format version it starts from → how to get to the next one
    1: Migration(),
    2: Migration(state=to_players),
    3: Migration(state=to_complete),
}
