"""The zoo: presets, one file per task family.

What was measured for each is in `results.json`, read only when asked for.

The curves behind it, one file per preset, are in `curves/`: a link to docs/curves of the repository,
so that there is one copy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rookery.core import registry


@dataclass(frozen=True, slots=True)
class Result:
    """How far a preset can be trusted."""

    status: str = "draft"  # gold: ≥ 5 seeds, gate met, curve stored · silver: probes and one full run · draft
    measured: dict[str, Any] | None = None  # figure of the counted runs; None: not measured

    def __str__(self) -> str:
        if not self.measured:
            return "not measured"
        low, high = self.measured.get("interval") or (None, None)
        between = f" [{low:g}, {high:g}]" if low is not None and high is not None else ""
        figure = "return" if "return_iqm" in self.measured else "success"
        parts = [f"{figure} {self.measured[f'{figure}_iqm']:g}{between}"]
        parts += [f"{self.measured['steps']} steps"] if "steps" in self.measured else []
        seeds = self.measured.get("seeds")
        parts += [] if seeds is None else [f"{seeds} seed{'' if seeds == 1 else 's'}"]
        return ", ".join(parts)


def preset(name: str) -> dict[str, Any]:
    """The nested dict of a preset; an unknown name is a ConfigError with a hint."""
    preset = registry.lookup("preset", name)
    return dict(preset)


def results() -> dict[str, Result]:
    """preset → what was measured."""
    raw = json.loads(resources.files("rookery.zoo").joinpath("results.json").read_text(encoding="utf-8"))
    return {name: Result(row["status"], row["measured"]) for name, row in raw.items()}


def curves_of(preset: str) -> dict[str, Any] | None:
    """What is stored of a preset's measured seeds, evaluations during training included; None if nothing is."""
    file = resources.files("rookery.zoo").joinpath("curves", f"{preset}.json")
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def points_of(stored: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(env steps, figures) of each seed in what `curves_of` gives."""
    import numpy as np

    pairs = [np.array(run["curve"], np.float64).reshape(-1, 2) for run in stored["runs"]]
    return [(pair[:, 0], pair[:, 1]) for pair in pairs]
