"""What the user pointed at: a preset, a file, an algorithm with an env, or the folder of a run; and how it becomes a Config."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.core.errors import CheckpointError, ConfigError, UsageError

if TYPE_CHECKING:
    from rookery.run.resolve import Config

MAY_CHANGE = ("train", "eval", "checkpoint", "log", "sentinel")  # sections that do not change what was learnt so far


@dataclass(frozen=True, slots=True)
class Words:
    """The free words of a command line, sorted: at most one preset, and overrides."""

    preset: str | None
    overrides: list[str]


def sort_words(words: Sequence[str] | None) -> Words:
    """Words with `=` are overrides, one without is the preset."""
    plain = [word for word in words or () if "=" not in word]
    if len(plain) > 1:
        raise UsageError(
            f"expected at most one preset and overrides such as algo.gamma=0.98, got {' '.join(map(repr, plain))}"
        )
    return Words(plain[0] if plain else None, [word for word in words or () if "=" in word])


def as_overrides(algo: str | None, env: str | None, seed: int | None) -> list[str]:
    """`--algo`, `--env` and `--seed` as overrides, so that a contradiction with `key=value` is noticed."""
    from rookery.core.overrides import override

    given = {"algo.name": algo, "env.id": env, "run.seed": seed}
    return [override(key, value) for key, value in given.items() if value is not None]


def experiment(words: Words, file: Path | None, extra: Sequence[str], options: Mapping[str, Any]) -> Any:
    """The Experiment that a command line describes; options are those of `Experiment`, None where not given."""
    from rookery.run.experiment import Experiment

    overrides = [*extra, *words.overrides]
    if file is not None and file.suffix == ".py":
        found = experiment_in(file)
        if isinstance(found, Experiment):
            return _changed(found, words, file, overrides, options)
    config = make_config(words, file, extra)
    if config.env.id is None:
        raise ConfigError("env.id is missing: give --env ID (`rookery list envs`), or env.id in the config")
    return Experiment(config, **options)


def make_config(words: Words, file: Path | None, extra: Sequence[str]) -> Config:
    """The config that a command line describes."""
    from rookery.run.resolve import load_config

    overrides = [*extra, *words.overrides]
    if words.preset is None and file is None and not any(text.startswith("algo.name=") for text in overrides):
        raise UsageError("name a preset (`rookery list presets`), or give -c FILE, or --algo with --env")
    if file is None:
        return load_config(words.preset, overrides=overrides)
    if file.suffix == ".py":
        return load_config(words.preset, tree=_tree_of(experiment_in(file), file), overrides=overrides)
    _see_folder(file)
    return load_config(words.preset, file, overrides=overrides)


def resumed(folder: Path, overrides: Sequence[str], options: Mapping[str, Any]) -> Any:
    """The Experiment that goes on with the run in a folder."""
    from rookery.run.experiment import Experiment
    from rookery.run.resolve import diff

    before, after = run_config(folder), run_config(folder, overrides)
    for key in diff(before, after):
        if key.partition(".")[0] not in MAY_CHANGE:
            raise ConfigError(
                f"{key} cannot change in the middle of a run (only {', '.join(MAY_CHANGE)} can). "
                f"To start another run from these weights use --init-from {folder}"
            )
    return Experiment(after, **options)


def run_config(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """The config with which the run in a folder was started, with changes from the command line."""
    from rookery.run.resolve import load_config

    file = folder / "config.yaml"
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    if not file.is_file():
        raise CheckpointError(f"{folder} is not the folder of a run: it has no config.yaml")
    return load_config(file=file, overrides=overrides)


def any_config(what: str) -> Config:
    """The config behind one word: a run's folder, a YAML file, or a preset."""
    from rookery.run.resolve import load_config

    path = Path(what)
    if path.is_dir():
        return run_config(path)
    if path.suffix in (".yaml", ".yml", ".py") or path.is_file():
        return make_config(Words(None, []), path, ())
    return load_config(what)


def experiment_in(file: Path) -> Any:
    """`experiment` as a Python file defines it."""
    if not file.is_file():
        raise ConfigError(f"cannot read the config file {file}: there is no such file")
    _see_folder(file)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # classes defined there must be found again by name
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
            f"{file}: `experiment` is a {type(experiment).__name__}; expected an Experiment, a Config or a dict of config sections"
        )
    return tree


def _see_folder(file: Path) -> None:
    """Modules next to a config file can be named in its `import:`."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
