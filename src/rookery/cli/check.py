"""`rookery check-env`."""

from __future__ import annotations

import json

import typer


def check_env(
    env: str = typer.Argument(..., metavar="ID|MODULE:CLASS", help="A gymnasium id, module:EnvId or module:Class."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> int:
    """Check that an env keeps its contract: spaces, dtypes, seeding, truncation, NaN. Exit code 3 if it does not."""
    from rookery.core.errors import EnvError
    from rookery.envs.checker import check_env as check

    report = check(env)
    problems = list(report.problems)
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    elif problems:
        typer.echo(f"{env}: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
        for i, problem in enumerate(problems, 1):
            typer.echo(f"  {i}. {problem}")
    else:
        typer.echo(f"{env}: no problems found")
    return EnvError.exit_code if problems else 0
