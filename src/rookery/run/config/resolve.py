"""From layers of plain values to one validated `Config`.

1. The layers are merged; every value remembers its source.
2. `import:` modules are imported and names are looked up in the registry.
3. Each section is validated by its own closed model; then come the rules between sections, and the algorithm's own
rules.

Every problem is reported at once. The caller's objects are never changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rookery.core import registry
from rookery.core.config.check import Checker
from rookery.core.config.fields import keys_of
from rookery.core.config.layers import Layer, Merged, replacing
from rookery.core.config.overrides import Overrides, as_texts, parse_overrides
from rookery.core.config.schema import schema_of
from rookery.core.config.yaml import MOST_BYTES, read_file, read_text
from rookery.core.errors import ConfigError
from rookery.data.kinds import kind_of
from rookery.run.checkpoints import durable
from rookery.run.config.config import OTHERS, SECTIONS, Config
from rookery.run.config.option_owners import owners
from rookery.run.config.players import PLAYERS_SCHEMA, implied, named_by_players, players_of, seats_of
from rookery.run.config.rules import broken_rules
from rookery.run.config.trust import may_name_code

log = logging.getLogger(__name__)


def load_config(
    preset: str | None = None,
    file: str | Path | None = None,
    algo: str | type | None = None,
    env: str | None = None,
    overrides: Overrides = (),
    tree: Mapping[str, Any] | None = None,
    *,
    needs_env: bool = True,
) -> Config:
    """Resolve a config. Later wins: defaults < algorithm < preset < file < algo, env and tree < overrides.

    Args:
        preset: its name, as in `rookery list presets`.
        file: a YAML file.
        algo: an algorithm's name or class.
        env: its id.
        overrides: `key=value` texts, or a dict of such keys.
        tree: sections as plain values.
        needs_env: False if no env is made from it: then the env, and modules under `import:`, may be missing here.
    """
    return resolve(layers_of(preset, file, algo, env, as_texts(overrides), tree), needs_env=needs_env)


def load_run_config(
    file: Path,
    algo: str | type | None = None,
    env: str | None = None,
    overrides: Overrides = (),
    *,
    trust: bool = False,
    known: Config | None = None,
    needs_env: bool = True,
) -> Config:
    """The config in the folder of a run, perhaps somebody else's (`trust`). `known`: one that is the user's own."""
    tree, lines = read_text(durable.read_file(file, MOST_BYTES), file)
    trusted = may_name_code(tree, str(file), trust, known)
    layers = layers_of(None, None, algo, env, as_texts(overrides), None)
    return resolve([Layer(f"file {file}", tree, lines), *layers], trusted, needs_env=needs_env)


def load_saved_config(tree: Mapping[str, Any], where: str, *, trust: bool, known: Config) -> Config:
    """The same of a tree that a checkpoint holds."""
    trusted = may_name_code(tree, where, trust, known)
    return resolve(layers_of(None, None, None, None, (), tree), trusted)


def layers_of(
    preset: str | None,
    file: str | Path | None,
    algo: str | type | None,
    env: str | None,
    overrides: Sequence[str],
    tree: Any,
) -> list[Layer]:
    """The layers above the algorithm's own, lowest first."""
    layers = []
    if preset is not None:
        layers.append(Layer(f"preset {preset}", registry.lookup("preset", preset)))
    if file is not None:
        layers.append(Layer(f"file {file}", *read_file(Path(file))))
    if isinstance(algo, type):
        name: str = getattr(algo, "name", algo.__name__.lower())
        registry.register("algo", name, algo)
        algo = name
    named = {"algo": {"name": algo}} if algo is not None else {}
    named |= {"env": {"id": env}} if env is not None else {}
    layers += [Layer("argument", part) for part in (named, tree) if part]
    return [*layers, parse_overrides(overrides)]


def resolve(layers: Sequence[Layer], trusted: bool = True, *, needs_env: bool = True) -> Config:
    """Merge, look up, validate. Raises `ConfigError` with every problem."""
    layers = named_by_players(layers)
    first = Merged(layers)
    early = Checker(first)
    imports = _imports(first, early, needs_env)
    algorithm = _algorithm(first, early)
    own = [Layer(f"algorithm {first.tree['algo']['name']}", algorithm.defaults)] if algorithm else []
    merged = Merged(replacing([*own, *layers], "model", "layers", ("hidden", "convs")))
    checker = Checker(merged, partial(owners, algo=first.tree["algo"]["name"]) if algorithm else None)
    checker.problems += [problem for problem in early.problems if problem not in checker.problems]
    models = _models(algorithm)
    checker.known = {key.key: key.comment for name, model in models.items() for key in keys_of(model, name)}
    for name in merged.tree:
        if name not in SECTIONS and name not in OTHERS:
            checker.unknown((name,), [*SECTIONS, *OTHERS])
    sections = {name: checker.section(name, model) for name, model in models.items()}
    players = players_of(layers, merged, checker)
    seats = seats_of(merged, checker)
    if all(sections.get(name) is not None for name in SECTIONS):
        players = players or implied(sections)
        parts: dict[str, Any] = {"imports": imports, "players": players, "seats": seats, "merged": merged, **sections}
        config = Config(**parts)
        for message in broken_rules(config, trusted, needs_env=needs_env):
            checker.rule(message)
        checker.finish()
        return config
    checker.finish()
    raise AssertionError("a section is missing, but no problem was noted")


def models_of(algo: str) -> dict[str, type[BaseModel]]:
    """section → its model, for an algorithm."""
    return _models(registry.lookup("algo", algo))


def json_schema(algo: str) -> dict[str, Any]:
    """JSON schema of a config for an algorithm, for editors and other tools."""
    schema = schema_of(f"Rookery config for {algo}", models_of(algo))
    schema["properties"] |= PLAYERS_SCHEMA
    return schema


def _imports(merged: Merged, checker: Checker, needed: bool) -> tuple[str, ...]:
    """Import the users' modules, which may register names; if they are not `needed`, a missing one is only told."""
    modules = merged.tree.get("import", [])
    if not isinstance(modules, list) or not all(isinstance(name, str) and name for name in modules):
        checker.add(("import",), f"expected a list of modules, got {modules!r}")
        return ()
    for name in modules:
        try:
            registry.import_module(name)
        except ConfigError as error:
            if needed:
                checker.add(("import",), str(error).rstrip("."))
            else:
                log.warning("import: %s Going on without it, for no env is made here.", error)
    return tuple(modules)


def _algorithm(merged: Merged, checker: Checker) -> Any:
    section = merged.tree.get("algo")
    name = section.get("name") if isinstance(section, dict) else None
    if not isinstance(name, str):
        known = ", ".join(registry.names("algo"))
        checker.add(
            ("algo", "name"),
            f"expected the name of an algorithm ({known}), got {name!r}; choose one with --algo or a preset",
        )
        return None
    try:
        return registry.lookup("algo", name)
    except ConfigError as error:
        checker.add(("algo", "name"), str(error).rstrip("."))
        return None


def _models(algorithm: Any) -> dict[str, type[BaseModel]]:
    """section → model. Without an algorithm, those of algo and store are unknown."""
    models: dict[str, type[BaseModel]] = {}
    for name, target in SECTIONS.items():
        if target:
            models[name] = registry.load(target)
        elif algorithm is not None:
            models[name] = algorithm.Config if name == "algo" else kind_of(algorithm).model()
    return models
