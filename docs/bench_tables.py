"""The tables of speed, made from bench/results/latest.json alone: a short one for the README,
the whole one for docs/speed.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHORT = {  # works of the README's table → what they are called there
    "dqn-1env-1/1": "DQN, 1 env, 1 update per step",
    "dqn-8env-1/4": "DQN, 8 envs, 1 update per 4 steps",
    "ppo-8x128": "PPO, 8 envs",
    "sac-256": "SAC, 256 × 256",
    "solve-ppo": "CartPole ≥ 475 with PPO, from process start",
    "solve-dqn": "CartPole ≥ 475 with DQN, from process start",
}
OURS = ("rookery compiled, native engine", "rookery compiled", "rookery")
MISSING = "Not measured yet: `make bench`.\n"
Table = Callable[[list[str], list[list[str]]], str]


def read(file: Path) -> dict[str, Any] | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def short(file: Path, table: Table) -> str:
    """One line per work: ours, Stable-Baselines3's, and the ratio with its range."""
    measured = read(file)
    if measured is None:
        return MISSING
    by = {(row["work"], row["peer"]): row for row in measured["rows"]}
    lines = []
    for work, told in SHORT.items():
        theirs = by.get((work, "stable-baselines3"))
        ours = next((by[work, peer] for peer in OURS if (work, peer) in by), None)
        if ours and theirs:
            plain = by.get((work, "rookery compiled"))
            lines.append([told, value(ours), value(theirs), ratio(ours), ratio(plain) if plain else "", str(ours["n"])])
    head = ["work", "Rookery", "Stable-Baselines3", "ratio", "ratio with gymnasium's env", "n"]
    return about(measured) + table(head, lines)


def whole(file: Path, table: Table) -> str:
    """Every row, with its range, what was done, and when."""
    measured = read(file)
    if measured is None:
        return MISSING
    head = [
        "work",
        "who",
        "median [range]",
        "unit",
        "ratio [range]",
        "to",
        "target",
        "n",
        "steps",
        "updates",
        "network",
        "batch",
        "commit",
        "date",
    ]
    lines = []
    for row in measured["rows"]:
        spread = f"{number(row['median'])} [{number(row['low'])}, {number(row['high'])}]"
        shares = [row.get("base") or "", row.get("target", ""), str(row["n"])]
        done = [_text(row.get(key)) for key in ("env_steps", "updates", "network", "batch", "commit")]
        who = row["peer"] + (f" ({row['solved']} of {row['n']} solved)" if "solved" in row else "")
        when = _text(row.get("date"))[:10]
        lines.append([row["work"], who, spread, row.get("unit", "env steps / s"), ratio(row), *shares, *done, when])
    return about(measured) + table(head, lines)


def about(measured: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    machine = f"{measured['machine']}, {measured['cores']} cores, one thread each"
    return f"{machine}; {versions}; commit {measured['commit']}.\n\n"


def value(row: dict[str, Any]) -> str:
    unit = row.get("unit", "env steps / s")
    return f"{number(row['median'])} {'/ s' if unit == 'env steps / s' else unit}"


def ratio(row: dict[str, Any]) -> str:
    found = row.get("ratio", row.get("ratio_to_sb3"))
    if found is None:
        return ""
    return f"{found:.2f} [{number(row['ratio_low'])}, {number(row['ratio_high'])}]"


def number(found: float | None) -> str:
    """Three digits that count; a dash for what was never reached."""
    if found is None:
        return "–"
    return f"{found:.0f}" if abs(found) >= 100 else f"{found:.3g}"


def _text(found: Any) -> str:
    return "" if found is None else str(found)
