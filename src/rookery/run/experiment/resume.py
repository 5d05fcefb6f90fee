"""Where a run comes from: its config, the run it goes on with, the run whose weights it starts with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.core import registry
from rookery.core.config.overrides import Overrides, as_texts, override
from rookery.core.config.yaml import read_file
from rookery.core.errors import ConfigError, RookeryError, UsageError
from rookery.core.restoring import restoring
from rookery.run.build import Parts
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.manifest import Checkpoint
from rookery.run.checkpoints.statefile import weights_of
from rookery.run.config.config import ABSENT, Config, diff, flat, tree_sha256
from rookery.run.config.resolve import load_config, load_run_config
from rookery.run.experiment.folder import RunFolder

log = logging.getLogger("rookery.run")

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
    trust: bool = False,
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
        return load_run_config(RunFolder.read(Path(resume)).config, algo, env, overrides, trust=trust)
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


def check_same(config: Config, file: Path, checkpoint: Checkpoint | None, trust: bool = False) -> str | None:
    """A resumed run may be longer or report elsewhere, but must be the run that saved the checkpoint, whose manifest
    keeps its config: `file` (config.yaml) may have been edited since.

    Manifests of formats before 4 have only a hash, so `file` has to be believed; returned is why, if it was changed.
    """
    reason, manifest = None, None if checkpoint is None else checkpoint.manifest
    if manifest is not None and manifest.config is not None:
        saved = manifest.config
    elif file.exists():
        saved = load_run_config(file, trust=trust, known=config, needs_env=False).dump()
        if manifest is not None and manifest.config_sha256 not in (None, tree_sha256(read_file(file)[0])):
            reason = f"{file.name} is not the one with which its checkpoint was saved, by Rookery {manifest.rookery}"
            log.warning("the run goes on, but perhaps not bit for bit: %s", reason)
    else:
        return None
    refuse_changes(saved, config)
    if manifest is not None and manifest.format < 3 and any(player.prefix for player in config.players.values()):
        return "begun before 0.2, when replays and β of named players followed other counts"
    return reason


def refuse_changes(saved: Mapping[str, Any], config: Config) -> None:
    """A resumed run may be longer or report elsewhere, but must be the same run."""
    now = config.dump()
    before = _with_new_keys(saved, now)
    changed = {
        key: pair
        for key, pair in diff(before, now).items()
        if not key.startswith(CHANGEABLE) and pair != REWORDED.get(".".join(key.split(".")[-2:]))
    }
    if changed:
        pairs = "; ".join(
            f"{key}: {a!r} in the run, {b!r} now ({config.provenance(key) if b is not ABSENT else 'missing'})"
            for key, (a, b) in changed.items()
        )
        raise ConfigError(
            f"a resumed run goes on exactly as it began, so it cannot change {pairs}. Start a new run with --out, "
            "or one from this one's weights with --init-from."
        )


def _with_new_keys(saved: Mapping[str, Any], now: dict[str, Any]) -> Mapping[str, Any]:
    """The tree of an older version, with the defaults of the keys that have come since; only what the present config
    says is resolved, for it names the code that may be imported."""
    known = flat(saved)
    new = {key for key in flat(now) if key not in known and not _other_form(key, known)}
    if not any(not key.startswith(CHANGEABLE) for key in new):
        return saved
    defaults = flat(load_config(tree=_without(now, new)).dump())
    return known | {key: defaults[key] for key in new if key in defaults}


def _other_form(key: str, known: Mapping[str, Any]) -> bool:
    """Whether the older tree says the same in another form: a number for a schedule, or a schedule for a number."""
    return any(name.startswith(f"{key}.") or key.startswith(f"{name}.") for name in known)


def _without(tree: Mapping[str, Any], keys: set[str], prefix: str = "") -> dict[str, Any]:
    """The tree without these dotted keys, and without what they leave empty."""
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            if inner := _without(value, keys, f"{key}."):
                kept[name] = inner
        elif key not in keys:
            kept[name] = value
    return kept


def saved_modes(saved: dict[str, Any] | None) -> dict[str, Any]:
    """player → how the run being resumed executes its updates. Before the first one that is chosen again, by the same
    rule and with the same fall-back."""
    if saved is None:
        return {}
    with restoring():
        modes, players = saved["run"]["mode"], saved["players"]
        return {name: modes[name] for name, part in players.items() if int(part["learner"]["updates"])}


def start_from(parts: Parts, source: str) -> None:
    """Weights and normaliser statistics of another run; everything else starts anew."""
    path, at, which = source.rpartition("@")
    if not at or not (which in ("best", "last") or which.isdecimal()):  # an @ may belong to the path
        path, which = source, "last"
    try:
        state, _ = Checkpoints(RunFolder.read(Path(path)).checkpoints).load(which, weights_of)
        with restoring():
            parts.players.set_weights(state)
    except RookeryError as error:
        parts.pool.close()
        raise type(error)(f"--init-from {source}: {error}") from error
