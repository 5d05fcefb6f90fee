"""Where a run comes from: its config, the run it goes on with, the run whose weights it starts with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.core import registry
from rookery.core.config.overrides import Overrides, as_texts, override
from rookery.core.errors import ConfigError, RookeryError, UsageError
from rookery.run.build import Parts
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.manifest import understood
from rookery.run.config.config import Config, diff
from rookery.run.config.resolve import load_config
from rookery.run.experiment.folder import RunFolder

CHANGEABLE = (
    "train.",
    "eval.",
    "log.",
    "checkpoint.",
    "sentinel.",
    "run.name",
    "run.out",
    "run.on_exists",
    "learning.cache",
    "learning.deadline",
    "learning.restarts",
    "store.mmap",
    "env.workers.",
    "pool.kind",
    "pool.start",
    "pool.cluster",
    "pool.cpus",
    "pool.gpus",
    "env.faults.",
)
REWORDED = {  # defaults that earlier versions wrote out, and the word for the same thing now
    "model.convs": ([[32, 8, 4], [64, 4, 2], [64, 3, 1]], "auto"),
}


def resolve_config(
    config: Config | str | Mapping[str, Any] | None,
    named: Mapping[str, Any],
    overrides: Overrides,
    resume: Path | str | None,
) -> Config:
    """A config from what the caller gave: a Config, a preset's name, a tree, or a run to resume.

    `named` may hold an algorithm (name or class), the id of an env, a class of encoders under `model`, and a seed.
    """
    algo, env, model, overrides = named.get("algo"), named.get("env"), named.get("model"), as_texts(overrides)
    if (seed := named.get("seed")) is not None:
        overrides.append(override("run.seed", seed))
    if isinstance(config, Config):
        if algo or env or model or overrides:
            raise UsageError("give a resolved Config, or a preset with algo, env, model, seed and overrides, not both")
        return config
    if model is not None:
        if not isinstance(model, type):
            raise UsageError(
                f"model takes a class of encoders, of which every network gets its own, but got {_instance(model)}: "
                f"pass {type(model).__name__} itself, and what it is made with as model.kwargs."
            )
        registry.register("encoder", model.__name__, model)
        overrides = [*overrides, f"model.encoder={model.__name__}"]
    if config is None and resume is not None:
        return load_config(file=RunFolder.read(Path(resume)).config, algo=algo, env=env, overrides=overrides)
    if isinstance(config, str):
        return load_config(preset=config, algo=algo, env=env, overrides=overrides)
    return load_config(algo=algo, env=env, overrides=overrides, tree=config)


def factory_of(env: Any) -> Any:
    """What makes one env, if it is no id."""
    if env is None or isinstance(env, str):
        return None
    if not callable(env):
        raise UsageError(
            f"env takes an id, a class or a function that makes one env, for a run makes env.num of them and more to "
            f"evaluate, but got {_instance(env)}: pass lambda: {type(env).__name__}(…)"
        )
    return env


def _instance(thing: Any) -> str:
    return f"an instance of {type(thing).__name__}"


def check_same(saved: Config, config: Config) -> None:
    """A resumed run may be longer or report elsewhere, but must be the same run."""
    changed = {
        key: pair
        for key, pair in diff(saved, config).items()
        if not key.startswith(CHANGEABLE) and pair != REWORDED.get(".".join(key.split(".")[-2:]))
    }
    if changed:
        lines = "\n".join(f"  {key}: {a!r} in the run, {b!r} now" for key, (a, b) in changed.items())
        raise ConfigError(
            f"the run being resumed had other values:\n{lines}\nA resumed run goes on exactly as it began; start a "
            f"new one with --out, "
            "or take over its weights with --init-from."
        )


def saved_modes(saved: dict[str, Any] | None) -> dict[str, Any]:
    """player → how the run being resumed executes its updates, once that is decided."""
    if saved is None:
        return {}
    modes, players = saved["run"]["mode"], saved["players"]
    return {name: modes[name] for name, part in players.items() if int(part["learner"]["updates"])}


def start_from(parts: Parts, source: str) -> None:
    """Weights and normaliser statistics of another run; everything else starts anew."""
    path, at, which = source.rpartition("@")
    if not at or not (which in ("best", "last") or which.isdecimal()):  # an @ may belong to the path
        path, which = source, "last"
    try:
        state, _ = Checkpoints(RunFolder.read(Path(path)).checkpoints).load(which)
        with understood():
            parts.players.set_weights(state)
    except RookeryError as error:
        parts.pool.close()
        raise type(error)(f"--init-from {source}: {error}") from error
