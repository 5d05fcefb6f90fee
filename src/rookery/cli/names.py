"""`rookery list` and `rookery explain`."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from rookery.cli import completion
from rookery.core import registry
from rookery.core.errors import UsageError

if TYPE_CHECKING:
    from rookery.core.config.fields import Key

_KINDS = {f"{kind}s": kind for kind in registry.KINDS}
_WHAT = {
    "algo": "algorithms: --algo, algo.name",
    "env": "envs: --env, env.id",
    "preset": "tuned configs, with what was measured: rookery train PRESET",
    "model": "networks that we bring",
    "encoder": "encoders that were registered: model.encoder",
    "wrapper": "wrappers of envs: env.wrappers",
    "sink": "where reports go: log.sinks",
    "callback": "callbacks that were registered",
}


def list_names(
    kind: str = typer.Argument(
        None,
        metavar="[algos|envs|presets|models|...]",
        help=f"One of {', '.join(_KINDS)}; alone: what can be listed.",
        autocompletion=completion.kinds,
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON list on standard output."),
) -> None:
    """List what can be named in a config."""
    if kind is None:
        if as_json:
            typer.echo(json.dumps(list(_KINDS)))
            return
        for name, single in _KINDS.items():
            typer.echo(f"rookery list {name:<10}  {_WHAT[single]}")
        return
    if kind not in _KINDS:
        raise UsageError(f"cannot list {kind!r}.{registry.did_you_mean(kind, _KINDS)} Known: {', '.join(_KINDS)}.")
    rows = _rows(_KINDS[kind])
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    wide = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        typer.echo(f"{row['name']:<{wide}}  {_line(row)}".rstrip())


def explain(
    name: str = typer.Argument(
        ...,
        metavar="ALGO|MODULE:CLASS",
        help="As in `rookery list algos`, or your own.",
        autocompletion=completion.algos,
    ),
) -> None:
    """Explain an algorithm: equations, options, metrics."""
    from rookery.core.config.fields import keys_of

    name = name.removeprefix("algo.")
    algorithm = registry.load(name) if ":" in name else registry.lookup("algo", name)
    typer.echo((sys.modules[algorithm.__module__].__doc__ or algorithm.__doc__ or "").strip())
    typer.echo(f"\nDefined in {algorithm.__module__}:{algorithm.__qualname__}.")
    typer.echo(f"Acts in spaces of kind {', '.join(algorithm.actions)}.")
    typer.echo("\nOptions")
    show_keys(keys_of(algorithm.Config, "algo"))
    if algorithm.defaults:
        from rookery.run.config.config import flat

        typer.echo("\nPrefers, in other sections")
        for key, value in flat(algorithm.defaults).items():
            typer.echo(f"  {key} = {json.dumps(value)}")
    typer.echo("\nMetrics")
    wide = max((len(metric) for metric in algorithm.metrics), default=0)
    for metric, sentence in algorithm.metrics.items():
        typer.echo(f"  {metric:<{wide}}  {sentence}")
    if ":" in name:
        return
    if algorithm.__module__.startswith("rookery."):
        _show_presets(name)
        typer.echo(f"\nPage: docs/algorithms/{name}.md of the repository")
    typer.echo(f"Other sections: rookery config keys {name}")


def _show_presets(algo: str) -> None:
    """Presets of an algorithm with what was measured."""
    from rookery.zoo import Result, results

    measured = results()
    typer.echo("\nPresets")
    for preset in registry.names("preset"):
        if registry.lookup("preset", preset)["algo"]["name"] == algo:
            result = measured.get(preset, Result())
            typer.echo(f"  {preset}: {result.status}, {result}")


def show_keys(keys: Iterable[Key]) -> None:
    """One paragraph per option: key = default, then what it accepts and means."""
    for key in keys:
        default = (
            key.default if isinstance(key.default, str) and key.default.startswith("(") else json.dumps(key.default)
        )
        typer.echo(f"  {key.key} = {default}")
        text = f"{key.comment} ({key.accepts})" if key.comment else key.accepts
        typer.echo(textwrap.fill(text, 116, initial_indent="      ", subsequent_indent="      "))


def _rows(kind: str) -> list[dict[str, Any]]:
    entries = registry.entries(kind) + (registry.entries("encoder") if kind == "model" else [])
    rows: list[dict[str, Any]] = [{"name": e.name, "where": e.where, "summary": e.summary} for e in entries]
    if kind == "preset":
        from rookery.zoo import Result, results

        measured = results()
        for row in rows:
            result = measured.get(row["name"], Result())
            row |= {"status": result.status, "measured": result.measured, "figure": str(result)}
    if kind == "env":
        import gymnasium

        from rookery.envs.tasks import chain, goals, probes

        probes.register()
        goals.register()
        chain.register()
        known = {row["name"] for row in rows}
        specs = sorted(gymnasium.registry.items())
        rows += [
            {"name": name, "where": _entry_point(spec), "summary": ""} for name, spec in specs if name not in known
        ]
    return rows


def _entry_point(spec: Any) -> str:
    target = spec.entry_point or spec.vector_entry_point
    return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"


def _line(row: dict[str, Any]) -> str:
    if "status" in row:
        return f"{row['status']:<6}  {row['figure']:<14}  {row['summary']}"
    return f"{row['summary']}  ({row['where']})" if row["summary"] else row["where"]
