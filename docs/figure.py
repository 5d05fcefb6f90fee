"""The picture of the learning curves, from docs/curves/*.json as bench/learn.py writes them.

One small panel per preset: mean over the seeds, a band from the worst to the best seed, the gate as a dashed line. The picture
carries the hash of its data, so whether it is current can be told without drawing it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

Curve = tuple[list[float], list[float], list[float], list[float]]
INK, BAND, GATE = "#1b3a57", "#8fb4d4", "#b0413e"


def load(folder: Path) -> list[dict[str, Any]]:
    """The stored curves, by preset; none if there is no such folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def fingerprint(folder: Path) -> str:
    """Hash of all that the picture shows."""
    text = json.dumps([[c["preset"], c["gate"], [run["curve"] for run in c["runs"]]] for c in load(folder)])
    return f"curves sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def current(folder: Path, picture: Path) -> bool:
    """Whether the picture shows these curves; without curves there must be no picture to be wrong."""
    if not load(folder):
        return True
    return picture.exists() and fingerprint(folder) in picture.read_text(encoding="utf-8")


def curve_of(runs: list[dict[str, Any]]) -> Curve:
    """(steps, mean, lowest, highest) over the seeds, at the steps that all seeds were evaluated at."""
    seeds = [{int(step): float(value) for step, value in run["curve"]} for run in runs if run["curve"]]
    steps = sorted(set.intersection(*(set(seed) for seed in seeds))) if seeds else []
    columns = [[seed[step] for seed in seeds] for step in steps]
    mean = [sum(column) / len(column) for column in columns]
    return [float(s) for s in steps], mean, [min(c) for c in columns], [max(c) for c in columns]


def draw(folder: Path, picture: Path) -> None:
    """Write the picture as SVG; does nothing without curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = load(folder)
    if not curves:
        return
    width = min(len(curves), 3)
    rows = -(-len(curves) // width)
    style = {"svg.hashsalt": "rookery", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        shape = {"figsize": (3.1 * width, 2.3 * rows), "squeeze": False, "layout": "constrained"}
        drawing, axes = plt.subplots(rows, width, **shape)
        panels = list(axes.flat)
        for axis, found in zip(panels, curves):
            panel(axis, found)
        for axis in panels[len(curves) :]:
            axis.set_axis_off()
        picture.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(picture, metadata={"Date": None, "Description": fingerprint(folder)}, facecolor="white")
        plt.close(drawing)


def panel(axis: Any, found: dict[str, Any]) -> None:
    """One preset."""
    steps, mean, low, high = curve_of(found["runs"])
    axis.fill_between(steps, low, high, color=BAND, alpha=0.5, linewidth=0)
    axis.plot(steps, mean, color=INK, linewidth=1.4)
    if found["gate"] is not None:  # one run of a task that has none
        axis.axhline(found["gate"], color=GATE, linestyle="--", linewidth=0.9)
    axis.set_title(f"{found['preset']}  ({len(found['runs'])} seeds)", fontsize=8)
    axis.set_xlabel("env steps")
    axis.set_ylabel(f"greedy {found.get('figure', 'return')}")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axis.margins(x=0.01)
