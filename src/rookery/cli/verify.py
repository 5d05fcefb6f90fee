"""`rookery verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rookery.core.errors import UsageError

if TYPE_CHECKING:
    from rookery.studies.verify import Verdict


def verify(
    words: list[str] = typer.Argument(..., metavar="PRESET...|KEY=VALUE", help="Presets that have a gate; changes."),
    seeds: int = typer.Option(None, min=1, help="How many. [default: as many as were measured]"),
    first: int = typer.Option(0, min=0, help="The first seed; the stored results begin with 0."),
    jobs: int = typer.Option(None, min=1, help="Runs at a time. [default: as many as the CPU quota has room for]"),
    out: Path = typer.Option(Path("runs/verify"), metavar="DIR", help="Where the runs are kept, one folder per seed."),
    episodes: int = typer.Option(None, min=1, help="Greedy test episodes per policy. [default: 100]"),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output; progress goes to stderr."),
) -> int:
    """Train the seeds of a preset anew and compare with what was measured for it; exit code 0 if it holds, else 1.

    Interrupted, it leaves runs that go on when the same command is given again: rookery verify cartpole-ppo
    """
    presets, overrides = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if not presets:
        raise UsageError("name a preset that has a gate, e.g. rookery verify cartpole-ppo")
    if any(text.startswith("run.seed=") for text in overrides):
        raise UsageError("run.seed cannot be given to verify, which trains several: use --first and --seeds")
    verdicts = _verdicts(
        presets, overrides, range(first, first + seeds) if seeds else first, out, (jobs, episodes, as_json)
    )
    holds = all(verdict.holds for verdict in verdicts)
    from rookery.studies.verify import together

    overall = together(verdicts) if len(verdicts) > 1 else None
    if as_json:
        report = {"holds": holds, "overrides": overrides, "presets": {v.preset: v.to_dict() for v in verdicts}}
        typer.echo(json.dumps(report | {"together": overall}))
    elif overall is not None:
        low, high = overall["interval"]
        typer.echo(f"together: IQM of the scores {overall['score_iqm']:.3f} [{low:.3f}, {high:.3f}], 1 being the gate;")
        typer.echo("          the interval redraws seeds within each preset; it holds if every preset does")
    return 0 if holds else 1


def _verdicts(
    presets: list[str], overrides: list[str], seeds: range | int, out: Path, how: tuple[int | None, int | None, bool]
) -> list[Verdict]:
    """One after the other; all names are checked before anything is trained.

    `seeds`: a number is the first of the gate's.
    """
    from rookery.run.config.resolve import load_config
    from rookery.studies.gates import EPISODES
    from rookery.studies.verify import Options, gate_of, summary_of, verify

    jobs, episodes, quiet = how
    gates = {preset: gate_of(preset) for preset in presets}
    for preset in presets:
        load_config(preset, overrides=overrides)
    options = Options(lambda text: typer.echo(text, err=quiet), jobs, episodes or EPISODES)
    if overrides:
        typer.echo(f"changed: {' '.join(overrides)}; what is stored belongs to the preset without changes", err=quiet)
    verdicts = []
    try:
        for preset, gate in gates.items():
            wanted = seeds if isinstance(seeds, range) else range(seeds, seeds + gate.seeds)
            verdicts.append(verify(preset, overrides, wanted, out, options))
            for line in summary_of(verdicts[-1]):
                typer.echo(line, err=quiet)
    except KeyboardInterrupt:
        typer.echo(f"the runs in {out} are saved: the same command goes on with them", err=True)
        raise
    return verdicts
