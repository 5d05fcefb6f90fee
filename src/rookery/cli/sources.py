"""What the user pointed at: a preset, a file, an algorithm with an env, or the folder of a run;
and how it becomes a Config.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rookery.core import registry
from rookery.core.errors import CheckpointError, ConfigError, UsageError

if TYPE_CHECKING:
    from rookery.run.config.config import Config
    from rookery.run.experiment.experiment import Experiment


TRUST = typer.Option(False, "--trust", help="The folder is somebody else's: import the code that its config names.")


@dataclass(frozen=True, slots=True)
class Words:
    """The free words of a command line, sorted: at most one preset, and overrides."""

    preset: str | None
    overrides: list[str]


def sort_words(words: Sequence[str] | None) -> Words:
    """Words with `=` are overrides, one without is the preset; `ppo CartPole-v1` is an algorithm with an env."""
    from rookery.core.config.overrides import override

    plain, overrides = ([w for w in words or () if ("=" in w) == changes] for changes in (False, True))
    algos, presets = set(registry.names("algo")), set(registry.names("preset"))
    if len(plain) == 2 and len(algos & set(plain)) == 1 and not presets & set(plain):
        algo, env = sorted(plain, key=lambda word: word not in algos)
        return Words(None, [override("algo.name", algo), override("env.id", env), *overrides])
    if len(plain) > 1:
        whole = next((word for word in plain if word in presets), None)
        more = f" The preset {whole} has its algorithm and env already." if whole else ""
        raise UsageError(
            f"expected at most one preset, or an algorithm and an env, and overrides such as algo.gamma=0.98, "
            f"got {' '.join(map(repr, plain))}.{more}"
        )
    return Words(plain[0] if plain else None, overrides)


def as_overrides(algo: str | None, env: str | None, seed: int | None, cluster: str | None = None) -> list[str]:
    """`--algo`, `--env`, `--seed` and `--cluster` as overrides, so that a contradiction with `key=value` is noticed."""
    from rookery.core.config.overrides import override

    values = {"algo.name": algo, "env.id": env, "run.seed": seed}
    values |= {"pool.kind": None if cluster is None else "ray", "pool.cluster": cluster}
    return [override(key, value) for key, value in values.items() if value is not None]


def experiment(words: Words, file: Path | None, extra: Sequence[str], options: Mapping[str, Any]) -> Experiment:
    """The Experiment that a command line describes; options are those of `Experiment`, None where not given."""
    from rookery import Experiment

    code = _code_of(file)
    if options["resume"] is not None:
        # What code gave (env, callbacks, sinks) cannot be saved; the config comes from the run's folder.
        return Experiment(**code, **options, overrides=[*extra, *words.overrides])
    config = make_config(words, file, extra)
    if config.env.id is None and "env" not in code:
        raise ConfigError("env.id is missing: give --env ID (`rookery list envs`), or env.id in the config")
    return Experiment(config, **code, **options)


def described(words: Words, file: Path | None, extra: Sequence[str], trust: bool = False) -> tuple[Config, Any]:
    """The config that a command line describes, and the env factory of a Python file;
    a run's folder stands for its config.
    """
    if words.preset and Path(words.preset).is_dir() and file is None:
        return run_config(Path(words.preset), [*extra, *words.overrides], trust), None
    config, factory = make_config(words, file, extra), _code_of(file).get("env")
    if config.env.id is None and factory is None:
        raise ConfigError("env.id is missing: give --env ID (`rookery list envs`), or env.id in the config")
    return config, factory


def _code_of(file: Path | None) -> dict[str, Any]:
    """What an Experiment in a Python file was given besides its config."""
    if file is None or file.suffix != ".py":
        return {}
    experiment = experiment_in(file)
    names = {"env": "env_factory", "callbacks": "callbacks", "sinks": "own_sinks"}  # argument → attribute of Experiment
    code = {name: getattr(experiment, attribute, None) for name, attribute in names.items()}
    return {name: value for name, value in code.items() if value is not None}


def make_config(words: Words, file: Path | None, extra: Sequence[str]) -> Config:
    """The config that a command line describes."""
    from rookery.run.config.resolve import load_config

    overrides = [*extra, *words.overrides]
    if words.preset in registry.names("algo"):
        own = [name for name in registry.names("preset") if words.preset in name.split("-")]
        raise UsageError(
            f"{words.preset!r} is an algorithm, not a preset. Name an env too: {words.preset} CartPole-v1"
            + (f"; or one of its presets: {', '.join(own[:3])}" if own else "")
        )
    if words.preset is None and file is None and not any(text.startswith("algo.name=") for text in overrides):
        raise UsageError("name a preset (`rookery list presets`), or give -c FILE, or --algo with --env")
    if file is None:
        return load_config(words.preset, overrides=overrides)
    if file.suffix == ".py":
        return load_config(words.preset, tree=_tree_of(experiment_in(file), file), overrides=overrides)
    _see_folder(file)
    return load_config(words.preset, file, overrides=overrides)


def run_config(folder: Path, overrides: Sequence[str] = (), trust: bool = False) -> Config:
    """The config with which the run in a folder was started, with changes from the command line."""
    from rookery.run.config.resolve import load_run_config
    from rookery.run.experiment.folder import check_contents

    file = folder / "config.yaml"
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    if not file.is_file():
        raise CheckpointError(f"{folder} is not the folder of a run: it has no config.yaml")
    check_contents(folder)
    return load_run_config(file, overrides=overrides, trust=trust)


def any_config(what: str, trust: bool = False) -> Config:
    """The config behind one word: a run's folder, a YAML file, or a preset."""
    from rookery.run.config.resolve import load_config

    path = Path(what)
    if path.is_dir():
        return run_config(path, trust=trust)
    if path.suffix in (".yaml", ".yml", ".py") or path.is_file():
        return make_config(Words(None, []), path, ())
    return load_config(what)


@functools.cache
def experiment_in(file: Path) -> Any:
    """`experiment` as a Python file defines it; the file is executed once."""
    if not file.is_file():
        raise ConfigError(f"cannot read the config file {file}: there is no such file")
    _see_folder(file)
    name = f"experiment_of_{file.stem}"  # a file called json.py must not replace the module json
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes defined there must be found again by name
    spec.loader.exec_module(module)
    if not hasattr(module, "experiment"):
        raise ConfigError(
            f"{file} defines no `experiment`: assign it an Experiment, a Config or a dict of config sections"
        )
    return module.experiment


def _tree_of(experiment: Any, file: Path) -> Mapping[str, Any]:
    config = getattr(experiment, "config", experiment)
    tree = config.dump() if hasattr(config, "dump") else config
    if not isinstance(tree, Mapping):
        raise ConfigError(
            f"{file}: `experiment` is a {type(experiment).__name__}; "
            "expected an Experiment, a Config or a dict of config sections"
        )
    return tree


def _see_folder(file: Path) -> None:
    """Modules next to a config file can be named in its `import:`."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
