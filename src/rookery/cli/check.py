"""`rookery check-env`."""

from __future__ import annotations

import json
from typing import get_args

import typer


def check_env(
    env: str = typer.Argument(..., metavar="ID|MODULE:CLASS", help="A gymnasium id, module:EnvId or module:Class."),
    words: list[str] = typer.Argument(None, metavar="KEY=VALUE", help="Options of the env: env.teams.red='[a, b]'"),
    api: str = typer.Option("auto", "--api", help="env.api: four; with several agents: parallel, turns, dict, tuple."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> int:
    """Check that an env keeps its contract.

    Spaces, dtypes, seeding, truncation, NaN; in sentences what to change. Exit code 3 if there are problems.
    """
    from rookery.core import registry
    from rookery.core.errors import EnvError, UsageError
    from rookery.envs.builders.single import find_spec
    from rookery.envs.check.checker import check_env as check
    from rookery.envs.config import Api

    if ":" not in env and env not in registry.names("env"):
        find_spec(env)  # an unknown id is a mistake in the command, not in an env
    if api not in get_args(Api):
        raise UsageError(f"--api {api}: expected one of {', '.join(get_args(Api))}")
    report = check(env, api=api, settings=words or [])
    typer.echo(json.dumps(report.to_dict()) if as_json else str(report))
    return 0 if report.ok else EnvError.exit_code
