"""`rookery config`: show, diff, schema, keys."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from rookery.cli import sources
from rookery.cli.names import show_keys

app = typer.Typer(help="Look at configs: show, diff, schema, keys.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def show(
    words: list[str] = typer.Argument(None, metavar="PRESET|KEY=VALUE", help="A preset or run folder, and changes."),
    file: Path = typer.Option(
        None, "--config", "-c", metavar="FILE", help="A .yaml, or a .py that defines `experiment`."
    ),
    algo: str = typer.Option(None, help="Algorithm."),
    env: str = typer.Option(None, help="Env."),
    where: bool = typer.Option(False, "--sources", help="Say for each value where it came from."),
    as_json: bool = typer.Option(False, "--json", help="JSON instead of YAML."),
    trust: bool = sources.TRUST,
) -> None:
    """Print the whole config that `rookery train` would use with the same words."""
    from rookery.core.config.yaml import write_text
    from rookery.run.config.config import flat

    named, extra = sources.sort_words(words), sources.as_overrides(algo, env, None)
    if named.preset and Path(named.preset).is_dir():
        config = sources.run_config(Path(named.preset), [*extra, *named.overrides], trust)
    else:
        config = sources.make_config(named, file, extra)
    if where:
        for key, value in flat(config.dump()).items():
            typer.echo(f"{key} = {json.dumps(value)}  # {config.provenance(key)}")
    else:
        typer.echo(json.dumps(config.dump(), indent=2) if as_json else write_text(config.dump()).rstrip())


@app.command("diff")
def diff(
    a: str = typer.Argument(..., help="A preset, a file or the folder of a run."),
    b: str = typer.Argument(..., help="Another one."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
    trust: bool = sources.TRUST,
) -> None:
    """Print the keys in which two configs differ."""
    from rookery.run.config.config import diff as difference

    differences = difference(sources.any_config(a, trust), sources.any_config(b, trust))
    if as_json:
        typer.echo(json.dumps({key: {"a": left, "b": right} for key, (left, right) in differences.items()}, indent=2))
        return
    for key, (left, right) in differences.items():
        typer.echo(f"{key}: {json.dumps(left)} → {json.dumps(right)}")
    if not differences:
        typer.echo("no difference")


@app.command("schema")
def schema(algo: str = typer.Argument(..., help="Algorithm, as in `rookery list algos`.")) -> None:
    """Print the JSON schema of a config."""
    from rookery.run.config.resolve import json_schema

    typer.echo(json.dumps(json_schema(algo), indent=2))


@app.command("keys")
def keys(algo: str = typer.Argument(..., help="Algorithm, as in `rookery list algos`.")) -> None:
    """Print every key of a config with default, type and meaning."""
    from rookery.core.config.fields import keys_of
    from rookery.run.config.resolve import models_of

    for section, model in models_of(algo).items():
        typer.echo(f"\n{section}: {(model.__doc__ or '').strip().splitlines()[0]}")
        show_keys(keys_of(model, section))
