"""Trust: whose code a config may name.

A config that is given by `-c`, by a preset or in Python is the user's own. One that is read from the folder of a run
may be somebody else's. It is trusted if this user has started a run that names the same code with the same arguments (a
list of hashes in the user's state folder), or says so (`--trust`). Otherwise it may name Rookery's own code,
gymnasium's ids and the packages of installed entry points, and of those only what is an env, a wrapper, a network or an
optimiser by its looks: nothing is called to find that out.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.system.files import open_regular
from rookery.core.system.portable import is_own
from rookery.run.config.config import Config, tree_sha256

log = logging.getLogger("rookery.run")
PLUGINS = "gymnasium.envs"  # entry points that gymnasium itself loads
_WRAPPERS = ("wrappers", "train_wrappers", "eval_wrappers")
_METHODS = {  # what a class has, by the last word of the key
    "encoder": ("forward",),
    "kind": ("forward",),
    "optimiser": ("step", "state_dict"),
}


# --- whose it is ---


def list_file() -> Path:
    """Hashes of what this user's runs named, one per line."""
    named = os.environ.get("XDG_STATE_HOME", "")
    state = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    return state / "rookery" / "trusted"


def remember(config: Config) -> None:
    """This user starts a run with this config. A tree that names no code needs no trust and is not noted."""
    tree = config.dump()
    if not list(_named(tree)) or remembered(tree):
        return
    try:
        file = list_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_regular(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as opened:  # one short write: runs may start at the same time
            opened.write(_line(tree))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        log.warning(
            "the run goes on, but its folder will need --trust: the list of your runs cannot be kept: %s", error
        )


def vouched(tree: Mapping[str, Any], known: Config | None) -> bool:
    """Whether the user stands for all that a tree names: has started a run with it, or names the same in a config of
    their own, `known`."""
    return remembered(tree) or (known is not None and set(_named(tree)) <= set(_named(known.dump())))


def remembered(tree: Mapping[str, Any]) -> bool:
    """Whether this user has started a run that names the same."""
    try:
        line = _line(tree)
        descriptor = open_regular(list_file())
    except (OSError, RuntimeError, TypeError, ValueError):  # there is no list, or the tree holds what no config does
        return False
    with os.fdopen(descriptor, "rb") as opened:
        about = os.fstat(descriptor)
        if not is_own(about.st_uid) or about.st_mode & 0o022:
            log.warning(
                "%s does not belong to you alone, so it is not believed: chmod 600 it, or remove it", list_file()
            )
            return False
        return line in opened


def _line(tree: Mapping[str, Any]) -> bytes:
    """The hash of all code that a tree names and of what is handed to it; the rest is ours to check, and may change."""
    env = _mapping(tree.get("env"))
    cache = _mapping(tree.get("learning")).get("cache")
    calls: list[Any] = [cache, tree.get("import"), [env.get(key) for key in ("id", "kwargs", "per_env", *_WRAPPERS)]]
    if (seating := _mapping(tree.get("run")).get("seating")) is not None:
        calls.append(seating)
    for prefix, (algo, model) in _sections(tree):
        calls.append([prefix, algo.get("optimiser"), algo.get("optimiser_options")])
        calls.append([model.get("encoder"), model.get("kwargs"), model.get("core")])
    return f"{tree_sha256({'calls': calls})}\n".encode()


def may_name_code(tree: Mapping[str, Any], where: str, trust: bool, known: Config | None) -> bool:
    """Before anything is imported: whether the user stands for a tree; one that they do not stand for may not name
    foreign code."""
    if trust or vouched(tree, known):
        return True
    names = [f"{key}={name}" for key, name in _named(tree) if _foreign(name)]
    if names:
        raise ConfigError(
            f"{where} is not of a run that you have started, and names code that is neither Rookery's nor an installed "
            f"plugin of gymnasium: {', '.join(names)}. Opening it would execute that code with your rights. "
            f"If you know it, say --trust (in Python trust=True), or give the config as your own with -c {where}"
        )
    return False


def _foreign(name: str) -> bool:
    module = name.partition(":")[0]
    package = module.partition(".")[0]
    return package != "rookery" and not f"{module}.".startswith("torch.optim.") and package not in _plugins()


def _plugins() -> set[str]:
    return {entry.module.partition(".")[0] for entry in entry_points(group=PLUGINS)}


# --- what it names ---


def _named(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, module or module:name) of all code in a tree, which may be malformed; registered names are no code. The
    folder of compiled updates counts: they are loaded as they lie there."""
    for name in _texts(tree.get("import")):
        yield "import", name
    if isinstance(cache := _mapping(tree.get("learning")).get("cache"), str):
        yield "learning.cache", cache
    env = _mapping(tree.get("env"))
    chosen = [choice for part in _WRAPPERS for choice in _list(env.get(part))]
    wrappers = [choice.get("name") if isinstance(choice, Mapping) else choice for choice in chosen]
    named = [("run.seating", _mapping(tree.get("run")).get("seating")), ("env.id", env.get("id"))]
    named += [("env.wrappers", name) for name in wrappers]
    for prefix, (algo, model) in _sections(tree):
        named.append((f"{prefix}algo.optimiser", algo.get("optimiser")))
        named.append((f"{prefix}model.encoder", model.get("encoder")))
        core = model.get("core")
        named.append((f"{prefix}model.core.kind", core if isinstance(core, str) else _mapping(core).get("kind")))
    yield from ((key, name) for key, name in named if isinstance(name, str) and ":" in name)


def _sections(tree: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """(prefix of the keys, (algo, model)) of the run and of each player."""
    players = {f"players.{name}.": part for name, part in _mapping(tree.get("players")).items()}
    for prefix, part in ({"": tree} | players).items():
        algo, model = (_mapping(_mapping(part).get(section)) for section in ("algo", "model"))
        yield prefix, (algo, model)


def refusals(config: Config, trusted: bool, needs_env: bool = True) -> Iterator[str]:
    """What a config names by path, looked at before it is called: `os:system` is no env. What only an env would need
    may be missing where none is made."""
    for key, name in dict.fromkeys(_named(config.dump())):
        if key in ("import", "learning.cache"):
            continue
        if not trusted and _foreign(name):  # however it was written: this is what would be imported
            yield f"{key}: {name!r} is foreign code; if you know it, say --trust"
            continue
        if name.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
            yield (
                f"{key}: {name!r} is part of Python's standard library; expected a class of yours, package.module:Class"
            )
            continue
        try:
            code = _code(key, name, config)
        except ConfigError as error:
            if needs_env or not key.startswith("env."):
                yield f"{key}: {error}"
            continue
        if code is not None and (problem := _unfit(key, code, trusted)):
            yield f"{key}: {name!r} {problem}"


def _code(key: str, name: str, config: Config) -> Any:
    """What would be called; None of `module:EnvId`, which gymnasium makes."""
    if key != "env.id":
        return registry.load(name)
    from rookery.envs.builders import multi, single

    target = single.target_of(name) if config.env.agents == 1 else multi.target_of(name, config.env.api)
    return None if isinstance(target, str) else target


def _unfit(key: str, code: Any, trusted: bool) -> str:
    """Why it cannot be what the key is for, or may not; empty if nothing is wrong with it."""
    if key == "run.seating":
        return "" if trusted and callable(code) else "is not a function of yours; if you know it, say --trust"
    wanted = _METHODS.get(key.rpartition(".")[2], ("reset", "step"))
    if not callable(code):
        return f"is a {type(code).__name__}; expected a class with {' and '.join(wanted)}, or a function that makes one"
    if isinstance(code, type):
        if not trusted and _foreign(code.__module__):  # reached through a module of ours
            return f"is defined in {code.__module__}, which is foreign code; if you know it, say --trust"
        hands_on = trusted and key == "env.wrappers" and hasattr(code, "__getattr__")
        fits = hands_on or all(callable(getattr(code, method, None)) for method in wanted)
        return "" if fits else f"is a class without {' and '.join(wanted)}, so it is not called"
    if trusted or (key == "env.id" and registry.is_env_factory(code)):
        return ""
    return (
        f"is a function, and the config is not of a run that you have started: expected a class with "
        f"{' and '.join(wanted)}, or a function marked @rookery.env_factory. If you know it, say --trust"
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _texts(value: Any) -> list[str]:
    return [text for text in _list(value) if isinstance(text, str)]
