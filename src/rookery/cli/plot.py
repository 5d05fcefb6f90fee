"""`rookery plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rookery.core import registry
from rookery.core.errors import UsageError

if TYPE_CHECKING:
    from rookery.studies.curves import Curve

METRIC = "eval/return_mean"


def plot(
    names: list[str] = typer.Argument(..., metavar="RUN...|PRESET...", help="Run folders; presets: stored curves."),
    metric: str = typer.Option(None, help=f"A column of metrics.jsonl. [default: {METRIC}]"),
    x: str = typer.Option("steps", metavar="steps|seconds", help="What goes to the right."),
    out: Path = typer.Option(None, metavar="FILE", help="A .png, .svg or .pdf. [default: by the first name, .png]"),
) -> None:
    """Draw learning curves: runs that differ only by their seed become one line with a band.

    rookery plot runs/a runs/b · rookery plot runs/verify/cartpole-ppo-* --out ppo.svg ·
    rookery plot cartpole-ppo cartpole-dqn
    """
    if x not in ("steps", "seconds"):
        raise UsageError(f"--x: expected steps or seconds, got {x!r}")
    folders = [Path(name) for name in names if Path(name).is_dir()]
    presets = [name for name in names if not Path(name).is_dir()]
    if presets and (metric is not None or x != "steps"):
        raise UsageError(
            f"of the preset {presets[0]} only evaluations by env steps are stored, "
            "so --metric and --x cannot be given with it"
        )
    from rookery.studies.curves import grouped, read_run
    from rookery.studies.plot import Words, draw

    stored = [_stored(preset) for preset in presets]
    metric = metric or _common({name for name, _, _ in stored})
    panels = grouped([read_run(folder, metric, x) for folder in folders])  # type: ignore[arg-type]
    for _, env, curve in stored:
        panels.setdefault(env, []).append(curve)
    file = out or Path(f"{Path(names[0]).name if len(names) == 1 else 'curves'}.png")
    draw(panels, file, Words("env steps" if x == "steps" else "seconds", metric))
    for title, curves in panels.items():
        for curve in curves:
            typer.echo(f"{title}  {curve.label}: {curve.method}, {len(curve.x)} points")
    typer.echo(f"drawn: {file}")


def _common(metrics: set[str]) -> str:
    """What is drawn if nothing was asked for: what the presets were judged by."""
    if len(metrics) > 1:
        raise UsageError(
            f"these presets were judged by different metrics ({', '.join(sorted(metrics))}): plot them apart"
        )
    return metrics.pop() if metrics else METRIC


def _stored(preset: str) -> tuple[str, str, Curve]:
    """(metric, env, curve) of a preset that was measured."""
    from rookery.studies.curves import curve_of
    from rookery.zoo import curves_of, points_of

    if preset not in registry.names("preset"):
        hint = registry.did_you_mean(preset, registry.names("preset"))
        raise UsageError(f"{preset!r} is neither the folder of a run nor a preset.{hint}")
    curves = curves_of(preset)
    if curves is None:
        raise UsageError(
            f"no curves are stored of {preset}: "
            f"train it (`rookery train {preset} --out runs/{preset}`) and plot the run's folder"
        )
    env = registry.lookup("preset", preset)["env"]["id"]
    return f"eval/{curves.get('figure', 'return')}_mean", env, curve_of(preset, points_of(curves), curves["gate"])
