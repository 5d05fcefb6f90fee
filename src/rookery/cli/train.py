"""`rookery train`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from rookery.cli import completion, sources
from rookery.core.errors import UsageError
from rookery.core.system.command import stand_somewhere


def train(
    context: typer.Context,
    words: list[str] = typer.Argument(
        None,
        metavar="PRESET|ALGO ENV|KEY=VALUE",
        help="A preset, or algorithm and env; changes: algo.gamma=0.9",
        autocompletion=completion.words,
    ),
    file: Path = typer.Option(
        None, "--config", "-c", metavar="FILE", help="A .yaml, or a .py that defines `experiment`."
    ),
    algo: str = typer.Option(None, help="Algorithm, as in `rookery list algos`.", autocompletion=completion.algos),
    env: str = typer.Option(
        None, help="Env: an id, or package.module:EnvId, which is imported first.", autocompletion=completion.envs
    ),
    seed: int = typer.Option(None, help="Seed of everything: run.seed."),
    out: Path = typer.Option(None, metavar="DIR", help="Folder of this run. [default: a new one in run.out]"),
    resume: Path = typer.Option(None, metavar="DIR", help="Go on with the run in this folder, exactly."),
    on_exists: str = typer.Option(None, metavar="fail|resume|new", help="What to do if --out holds a run already."),
    init_from: str = typer.Option(None, metavar="RUN[@best|last|STEP]", help="Start with the weights of another run."),
    cluster: str = typer.Option(None, metavar="local|auto|ADDRESS", help="Collectors on Ray: pool=ray pool.cluster=…"),
    trust: bool = sources.TRUST,
) -> int:
    """Train a policy, or go on training one.

    rookery train cartpole-ppo · rookery train -c my.yaml · rookery train dqn CartPole-v1 algo.lr=1e-3
    """
    if on_exists not in (None, "fail", "resume", "new"):
        raise UsageError(f"--on-exists: expected fail, resume or new, got {on_exists!r}")
    named = sources.sort_words(words)
    extra = sources.as_overrides(algo, env, seed, cluster)
    options = {"resume": resume, "init_from": init_from, "on_exists": on_exists, "out": out, "trust": trust}
    if resume is not None:
        yaml = file if file is not None and file.suffix != ".py" else None  # a .py may hold the env and callbacks
        _alone(resume, {"PRESET": named.preset, "-c": yaml, "--out": out, "--on-exists": on_exists})
    _starting()
    experiment = sources.experiment(named, file, extra, options)
    result = experiment.train(raise_signals=False)
    again = None
    if resume is None:
        again = _again(context.obj, experiment.config.run.seed + 1)
    _report(result, _next(result, again, has_id=experiment.config.env.id is not None))
    return int(result.exit_code)


def _starting() -> None:
    """To people a word before torch is imported, which takes seconds, and one if kernels are compiled, which takes
    more."""
    if not sys.stderr.isatty():
        return
    _say("starting …")
    from rookery.kernels.compiling import at_first_compile

    at_first_compile(lambda: _say("compiling kernels (once on this machine) …"))


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody is looking
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _alone(resume: Path, others: dict[str, Any]) -> None:
    """A resumed run takes everything from its folder."""
    options = [name for name, value in others.items() if value is not None]
    if options:
        raise UsageError(
            f"--resume {resume} takes everything from that folder, so {options[0]} cannot be given too. "
            f"To start another run from its weights use --init-from {resume}"
        )


def _again(arguments: Sequence[str], seed: int) -> str:
    """The command that trains the same with another seed, as the user wrote it; in a folder of its own."""
    same: list[str] = []
    waiting, seeded = iter(arguments), False
    for word in waiting:
        name, equals, _ = word.partition("=")
        if name in ("--out", "--on-exists"):
            if not equals:
                next(waiting, None)
        elif name in ("--seed", "run.seed"):
            if not equals:
                next(waiting, None)
            same += [f"{name}={seed}"] if equals else [name, str(seed)]
            seeded = True
        else:
            same.append(word)
    return f"{_program()} " + shlex.join(same if seeded else [*same, "--seed", str(seed)])


def _next(result: Any, again: str | None, *, has_id: bool) -> list[str]:
    """Commands to try next; a run whose env was given in Python can only be evaluated there."""
    folder, program = shlex.quote(str(result.folder)), _program()
    commands = [f"{program} eval {folder}"] if has_id else []
    if result.status == "preempted":
        return [f"{program} train --resume {folder}", *commands]
    longer = f"{program} train --resume {folder} train.max_steps={2 * result.summary['steps']}"
    return [*commands, *([again] if again and has_id else []), longer]


def _program() -> str:
    """How this command can be called again: `rookery`, or its path if it is not on PATH (after `make train`)."""
    called = sys.argv[0]
    if shutil.which("rookery") or not called.endswith("rookery"):
        return "rookery"
    stand_somewhere()
    near = os.path.relpath(called)
    return shlex.quote(called if near.startswith("..") else near)


def _report(result: Any, commands: list[str]) -> None:
    """The result in a short table, what to try next, and last the folder: scripts read that line."""
    summary = result.summary
    rows = {name: summary.get(name) for name in ("steps", "updates", "episodes")}
    if summary.get("return_mean") is not None:
        rows["return"] = f"{summary['return_mean']:.2f}  mean of the last episodes, exploring"
    scores = summary.get("eval") or {}
    if scores.get("mean") is not None:
        rows["evaluation"] = f"{scores['mean']:.2f} ± {scores['std']:.2f}  greedy, {len(scores['returns'])} episodes"
    seconds = (summary.get("time") or {}).get("wall_seconds")
    if seconds:
        rows["time"] = f"{seconds:.1f} s"
    typer.echo(f"\n{result.status}: {result.reason}")
    for name, value in rows.items():
        if value is not None:
            typer.echo(f"  {name:<11}{value}")
    typer.echo("\nnext:")
    for command in commands:
        typer.echo(f"  {command}")
    typer.echo(f"\nrun: {result.folder}")
