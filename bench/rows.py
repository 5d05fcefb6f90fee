"""From what the contenders printed to rows of the table: the check that all did the same work,
ratios, and merging with older rows.

    value = steps / seconds  (env steps / s; / CPU s: of the seconds that were computed)   ·   10⁶ seconds / steps  (µs)
            ·   seconds  (s), infinite if the task was not solved
    ratio = value / base, or base / value where less is better: above 1 is better than the base

Ratios are taken within a round, where both ran one after the other; the row has their median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

from works import CPU_RATE, MICRO, SOLVED, Work

TOLERANCE = 0.02  # of steps, updates per step and parameters: a loop may end in the middle of a round, or count log α
Result = dict[str, Any]
Row = dict[str, Any]


class OtherWork(SystemExit):
    """Two contenders did not do the same, so their times cannot be compared."""


def check_same_work(name: str, base: str, seen: dict[str, list[Result]]) -> None:
    """Steps, updates, parameters, layers and batch of every run must be those of the base."""
    wanted = seen[base][0]
    for peer, results in seen.items():
        for result in results:
            for key in ("network", "batch"):
                if result[key] != wanted[key]:
                    raise OtherWork(f"{name}: {peer} ran with {key} {result[key]}, {base} with {wanted[key]}")
            for key in ("steps", "updates", "parameters"):
                if abs(result[key] - wanted[key]) > TOLERANCE * wanted[key]:
                    raise OtherWork(f"{name}: {peer} has {result[key]} {key}, {base} {wanted[key]}")


def value_of(work: Work, result: Result) -> float:
    if work.kind == "solve" and result["return"] < SOLVED:
        return math.inf
    if work.unit == MICRO:
        return 1e6 * result["seconds"] / result["steps"]
    seconds = result["cpu" if work.unit == CPU_RATE else "seconds"]
    return result["steps"] / seconds if work.higher_is_better else seconds


def ratio_of(work: Work, value: float, base: float) -> float:
    """How much better than the base; 0 where the task was not solved, NaN where the base did not solve it."""
    if math.isinf(base):
        return math.nan
    return value / base if work.higher_is_better else base / value


def rows_of(name: str, work: Work, seen: dict[str, list[Result]], about: Row) -> list[Row]:
    """One row per contender; `about` (date, commit) is part of each."""
    if work.kind in ("train", "operation", "engine") and work.base is not None:
        check_same_work(name, work.base, seen)
    values = {peer: [value_of(work, result) for result in results] for peer, results in seen.items()}
    rows = []
    for peer, mine in values.items():
        row = {"work": name, "peer": peer, "unit": work.unit, "n": len(mine), "target": work.target, "base": work.base}
        row |= _spread("median", "low", "high", mine)
        if work.base is not None:
            row |= _spread(
                "ratio", "ratio_low", "ratio_high", [ratio_of(work, *p) for p in zip(mine, values[work.base])]
            )
        row["ratio_to_sb3"] = row.get("ratio") if work.base == "stable-baselines3" else None
        if work.unit == CPU_RATE:  # beside it: what a clock on the wall says, which neighbours slow down
            row |= _spread("wall", "wall_low", "wall_high", [r["steps"] / r["seconds"] for r in seen[peer]])
        last = seen[peer][-1]
        row |= {"env_steps": last.get("steps")}
        row |= {key: last.get(key) for key in ("updates", "parameters", "network", "batch")}
        if work.kind == "solve":
            row["solved"] = sum(math.isfinite(value) for value in mine)
            row["returns"] = [result["return"] for result in seen[peer]]
        rows.append(row | about)
    return rows


def own_rows(name: str, results: list[Result], about: Row) -> list[Row]:
    """Rows of a script that measures several figures of Rookery alone: `figures` is a list of
    {name, value, unit, target}."""
    rows = []
    for place, figure in enumerate(results[0]["figures"]):
        values = [result["figures"][place]["value"] for result in results]
        row = {"work": f"{name}-{figure['name']}", "peer": "rookery", "unit": figure["unit"], "n": len(values)}
        row |= {"target": figure.get("target", ""), "base": None, "ratio_to_sb3": None}
        row |= _spread("median", "low", "high", values)
        empty = dict.fromkeys(("env_steps", "updates", "parameters", "network", "batch"))
        rows.append(row | empty | {"env_steps": results[0].get("steps")} | about)
    return rows


def checkpoint_share(rows: list[Row]) -> list[Row]:
    """The share of wall time that saving every 10 000 steps takes of a DQN on Pong, once both have been measured."""
    by = {(row["work"], row["peer"]): row for row in rows}
    save, pace = by.get(("checkpoint-next-seconds", "rookery")), by.get(("pong-dqn-8env", "rookery compiled"))
    if save is None or pace is None:
        return []
    share = 100 * save["median"] / (save["median"] + 10_000 / pace["median"])
    numbers = {"median": share, "low": share, "high": share, "unit": "% of wall time", "target": "≤ 5 %"}
    return [save | numbers | {"work": "checkpoint-share"}]


def _spread(middle: str, low: str, high: str, values: Iterable[float]) -> Row:
    """Median, least and greatest; what is not finite becomes null, as JSON has no word for it."""
    found = list(values)
    numbers = {middle: statistics.median(found), low: min(found), high: max(found)}
    if any(math.isnan(value) for value in found):
        return dict.fromkeys(numbers)
    return {key: value if math.isfinite(value) else None for key, value in numbers.items()}


def merged(old: list[Row], new: list[Row], order: Iterable[str]) -> list[Row]:
    """Old rows, replaced where the same work and peer were measured again, in the order of the works."""
    rows = {(row["work"], row["peer"]): row for row in old} | {(row["work"], row["peer"]): row for row in new}
    names = list(order)

    def place(row: Row) -> int:
        found = [i for i, name in enumerate(names) if row["work"] == name or row["work"].startswith(f"{name}-")]
        return found[0] if found else len(names)

    return sorted(rows.values(), key=place)


def line(row: Row) -> str:
    """One line for the console."""
    ratio = (
        f"{row['ratio']:6.2f} × [{row['ratio_low']:.2f} … {row['ratio_high']:.2f}]"
        if row.get("ratio") is not None
        else ""
    )
    solved = f"  {row['solved']} of {row['n']} solved" if "solved" in row else ""
    spread = f"[{number(row['low'])} … {number(row['high'])}]"
    measured = f"{number(row['median']):>9} {row['unit']:14} {spread:22} n={row['n']}"
    return f"{row['work']:20} {row['peer']:24} {measured} {ratio}{solved}"


def number(value: float | None) -> str:
    """Three digits that count; a value that was never reached is a dash."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
