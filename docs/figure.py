"""The pictures of the learning curves, from docs/curves/*.json as bench/learn.py writes
them; drawn as `rookery plot` does.

One picture of a few presets for the first screen, a panel each, one of all of them, and one per preset. Each carries
the hash of its data, so whether it is current can be told without drawing it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rookery.studies.curves import Curve, curve_of
from rookery.studies.plot import Words, draw
from rookery.zoo import points_of

# What others published for the same task at 1 000 000 steps: preset → (who, return). Their curves
# are not published as numbers.
PUBLISHED = {"hopper-sac": ("Stable-Baselines3 at 1M steps", 2326.0)}
DRAWN = 2  # raise it when pictures should be drawn anew although their data is the same


def load(folder: Path) -> list[dict[str, Any]]:
    """The stored curves, by preset; none if there is no such folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def fingerprint(curves: list[dict[str, Any]]) -> str:
    """Hash of all that a picture shows."""
    shown = [[c["preset"], c["gate"], [run["curve"] for run in c["runs"]], *beside_of(c)] for c in curves]
    text = json.dumps([DRAWN, *shown])
    return f"curves sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def wanted(folder: Path, picture: Path, hero: Sequence[str] = ()) -> dict[Path, list[dict[str, Any]]]:
    """picture → the curves in it: the given one has all, `hero.svg` beside it those of `hero`, and `curves/PRESET.svg`
    one each."""
    curves = {stored["preset"]: stored for stored in load(folder)}
    each = {picture.with_suffix("") / f"{preset}.svg": [stored] for preset, stored in curves.items()}
    few = [curves[preset] for preset in hero if preset in curves]
    first = {picture.with_name("hero.svg"): few} if few else {}
    return {picture: list(curves.values()), **first, **each} if curves else {}


def stale(folder: Path, picture: Path, hero: Sequence[str] = ()) -> list[Path]:
    """Pictures that do not show these curves, or whose curves are gone."""
    expected = wanted(folder, picture, hero)
    old = [path for path, found in expected.items() if not _shows(path, fingerprint(found))]
    return old + [path for path in sorted(picture.with_suffix("").glob("*.svg")) if path not in expected]


def update(folder: Path, picture: Path, hero: Sequence[str] = ()) -> list[Path]:
    """Draw, or take away, what is stale; returns what was changed."""
    expected, changed = wanted(folder, picture, hero), stale(folder, picture, hero)
    for path in changed:
        if path not in expected:
            path.unlink()
            continue
        found = expected[path]
        panels = {title(one): [curve(one), *others(one)] for one in found}
        figures = {one.get("figure", "return") for one in found}
        word = figures.pop() if len(figures) == 1 else "return or success"
        draw(panels, path, Words("env steps", f"greedy {word}", fingerprint(found)))
    return changed


def curve(found: dict[str, Any]) -> Curve:
    return curve_of(found["preset"], points_of(found), found["gate"])


def beside_of(found: dict[str, Any]) -> list[tuple[str, float]]:
    """(who, return) that was published for this preset's task."""
    return [PUBLISHED[found["preset"]]] if found["preset"] in PUBLISHED else []


def others(found: dict[str, Any]) -> list[Curve]:
    """What others published, as level lines."""
    x = curve(found).x
    return [Curve(who, x, *(np.full(len(x), level) for _ in range(3)), runs=1) for who, level in beside_of(found)]


def title(found: dict[str, Any]) -> str:
    count = len(found["runs"])
    return f"{found['preset']}  ({count} seed{'s' * (count != 1)})"


def _shows(picture: Path, text: str) -> bool:
    return picture.exists() and text in picture.read_text(encoding="utf-8")
