"""`rookery doctor`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rookery.cli import sources

if TYPE_CHECKING:
    from rookery.doctor.doctor import Diagnosis, Outcome

_WORDS = {
    "env": "stepping the envs",
    "act": "choosing actions",
    "transport": "filling chunks",
    "store": "adding to the store and drawing from it",
    "update": "updates",
    "eval": "evaluation",
    "checkpoint": "checkpoints",
    "log": "reports",
    "other": "everything else",
}


def doctor(
    words: list[str] = typer.Argument(None, metavar="PRESET|FILE|KEY=VALUE", help="A preset, file or run; changes."),
    file: Path = typer.Option(
        None, "--config", "-c", metavar="FILE", help="A .yaml, or a .py that defines `experiment`."
    ),
    algo: str = typer.Option(None, help="Algorithm, as in `rookery list algos`."),
    env: str = typer.Option(None, help="Env: an id, or package.module:EnvId, which is imported first."),
    seconds: float = typer.Option(20.0, min=0.1, help="Measuring in all; building and compiling come on top."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
    trust: bool = sources.TRUST,
) -> None:
    """Say where the time of a config goes and what would make it faster, predicted and measured.

    Trains for some seconds and leaves nothing behind: rookery doctor cartpole-dqn
    """
    named, extra = sources.sort_words(words), sources.as_overrides(algo, env, None)
    if named.preset and Path(named.preset).is_file() and file is None:
        named, file = sources.Words(None, named.overrides), Path(named.preset)
    config, factory = sources.described(named, file, extra, trust)
    from rookery.doctor.doctor import examine

    report = examine(config, seconds, factory, say=lambda text: typer.echo(f"{text} …", err=True))
    start = ["-c", str(file)] if file else [named.preset] if named.preset else []
    command = shlex.join(["train", *start, *extra, *named.overrides])
    if as_json:
        typer.echo(json.dumps(report.to_dict() | {"command": f"rookery {command}"}))
        return
    for line in _lines(report, f"rookery {command}"):
        typer.echo(line)


def _lines(diagnosis: Diagnosis, command: str) -> Iterator[str]:
    from rookery.doctor.placement import duration

    yield f"{diagnosis.steps_per_second:.0f} env steps/s, {diagnosis.updates_per_second:.0f} updates/s"
    yield f"{diagnosis.bound}"
    yield ""
    yield f"  {'share':<12}{'':>6}  {'µs per env step':>16}"
    for name, share in diagnosis.shares.items():
        yield f"  {name:<12}{share:>6.1%}  {diagnosis.microseconds[name]:>16.1f}  {_WORDS[name]}"
    yield ""
    yield f"  mode      {diagnosis.mode}"
    yield f"  threads   {diagnosis.threads}  ({diagnosis.threads_reason})"
    yield f"  engine    {diagnosis.engine}, {diagnosis.envs} env{'s' * (diagnosis.envs != 1)}"
    row = f"{duration(diagnosis.env_row * 1e3)} for those of one collector"
    yield f"  env step  {row}, {diagnosis.env_computing:.0%} of it computing"
    yield f"  quota     {diagnosis.quota} CPU{'s' * (diagnosis.quota != 1)}"
    yield from _advice(diagnosis, command)
    for remark in diagnosis.remarks:
        yield f"note: {remark}."


def _advice(diagnosis: Diagnosis, command: str) -> Iterator[str]:
    yield ""
    advised = [outcome for outcome in diagnosis.outcomes if outcome.advised]
    others = [outcome for outcome in diagnosis.outcomes if not outcome.advised]
    yield (
        "what to change:"
        if advised
        else "nothing that was tried makes it more than 5 % faster without changing learning"
    )
    for outcome in advised:
        yield f"  {_told(outcome)}"
        yield f"      {_with(command, outcome)}"
    for outcome in others:
        if outcome.measured is not None and not outcome.why_not.startswith("measured"):
            yield f"not advised, {outcome.why_not}: {_told(outcome)}"
    rest = [outcome for outcome in others if outcome.measured is None or outcome.why_not.startswith("measured")]
    late = [outcome for outcome in rest if outcome.why_not.startswith("not measured")]
    for outcome in late:
        figures = f"predicted {outcome.predicted:.2f} ×; {outcome.effect}{_note(outcome)}"
        yield f"{outcome.why_not}: {' '.join(outcome.overrides)}: {figures}"
    if rest := [outcome for outcome in rest if outcome not in late]:
        yield "would not help:"
        for outcome in rest:
            yield f"  {' '.join(outcome.overrides)}: {outcome.why_not}{_note(outcome)}"


def _with(command: str, outcome: Outcome) -> str:
    """The command with the changes in place of what it says of the same keys."""
    from rookery.core.config.overrides import parse_override

    keys = {parse_override(text)[0] for text in outcome.overrides}
    kept = [
        word
        for word in shlex.split(command)
        if "=" not in word or word.startswith("-") or parse_override(word)[0] not in keys
    ]
    return shlex.join([*kept, *outcome.overrides])


def _note(outcome: Outcome) -> str:
    return f" ({outcome.note})" if outcome.note else ""


def _told(outcome: Outcome) -> str:
    figures = f"predicted {outcome.predicted:.2f} ×, measured {outcome.measured:.2f} ×"
    return f"{' '.join(outcome.overrides)}: {figures}; {outcome.effect}{_note(outcome)}; resume {outcome.resume}"
