"""`rookery eval`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from rookery.cli.sources import TRUST
from rookery.core.errors import UsageError


def evaluate(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of a run."),
    episodes: int = typer.Option(None, min=1, help="Episodes to play. [default: eval.episodes of the run]"),
    checkpoint: str = typer.Option("last", metavar="best|last|STEP", help="Which weights."),
    seed: int = typer.Option(None, min=0, help="Seed of the episodes. [default: run.seed]"),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
    trust: bool = TRUST,
) -> None:
    """Play episodes with a trained policy, greedily."""
    if checkpoint not in ("best", "last") and not checkpoint.isdigit():
        raise UsageError(f"--checkpoint: expected best, last or a number of steps, got {checkpoint!r}")
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    from rookery import evaluate_run

    result = evaluate_run(folder, episodes, checkpoint, seed, trust=trust)
    if as_json:
        typer.echo(json.dumps(result))
        return
    typer.echo(f"checkpoint  {result['checkpoint']}")
    typer.echo(f"return      {result['mean']:.2f} ± {result['std']:.2f}  greedy, {len(result['returns'])} episodes")
    typer.echo(f"returns     {' '.join(f'{value:g}' for value in result['returns'])}")
    for name, mean in result.get("players", {}).items():
        typer.echo(f"player      {name}: {mean:.2f}")
