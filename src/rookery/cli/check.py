"""`rookery check-env`."""

from __future__ import annotations

import json

import typer


def check_env(
    env: str = typer.Argument(..., metavar="ID|MODULE:CLASS", help="A gymnasium id, module:EnvId or module:Class."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> int:
    """Check that an env keeps its contract.

    Spaces, dtypes, seeding, truncation, NaN; in sentences what to change. Exit code 3 if there are problems.
    """
    from rookery.core import registry
    from rookery.core.errors import EnvError
    from rookery.envs.build import find_spec
    from rookery.envs.checker import check_env as check

    if ":" not in env and env not in registry.names("env"):
        find_spec(env)  # an unknown id is a mistake in the command, not in an env
    report = check(env)
    typer.echo(json.dumps(report.to_dict()) if as_json else str(report))
    return 0 if report.ok else EnvError.exit_code
