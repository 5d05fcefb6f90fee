"""Registry: which names exist, as a table of strings.

    kind → name → "module:attribute" and one sentence

Listing imports nothing; `lookup` imports the one module that defines the thing.
Users add to it with `register`, usually in a module that their config names under `import:`.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from rookery.core.catalogue import BUILTIN, MOVED, OTHER_NAMES
from rookery.core.errors import ConfigError, EnvError

log = logging.getLogger(__name__)
Kind = Literal["algo", "env", "preset", "model", "encoder", "wrapper", "sink", "callback"]
KINDS: tuple[str, ...] = get_args(Kind)
Factory = TypeVar("Factory", bound=Callable[..., Any])
_MARK = "__rookery_env_factory__"


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered name."""

    kind: str
    name: str
    target: Any  # "module:attribute", or the object itself if a user registered that
    summary: str = ""

    @property
    def where(self) -> str:
        """`module:attribute` of the definition."""
        if isinstance(self.target, str):
            return self.target
        owner = self.target if hasattr(self.target, "__qualname__") else type(self.target)
        return f"{owner.__module__}:{owner.__qualname__}"


_TABLE: dict[str, dict[str, Entry]] = {
    kind: {name: Entry(kind, name, *row) for name, row in BUILTIN.get(kind, {}).items()} for kind in KINDS
}
_IMPORTED: dict[str, None] = {}
_MOVED_TOLD: set[str] = set()


def register(kind: str, name: str, target: Any, summary: str = "") -> None:
    """Add a name that a config may use.

    Registering the same definition again is harmless; another definition under a taken name is an error.

    Args:
        kind: algo, env, preset, model, encoder, wrapper, sink or callback.
        name: in the config; no space, `=` or `,` in it.
        target: `"module:attribute"`, imported when first used, or the object itself.
        summary: one sentence for `rookery list`.
    """
    table = _table(kind)
    if not isinstance(name, str) or not name or any(sign in name for sign in " =,"):
        raise ConfigError(
            f"cannot register the {kind} {name!r}: a name is a non-empty string without space, '=' and ','"
        )
    if isinstance(target, str) and not all(target.partition(":")):
        raise ConfigError(f"cannot register the {kind} {name!r}: expected 'module:attribute', got {target!r}")
    entry = Entry(kind, name, target, summary)
    if name in table and table[name].where != entry.where:
        raise ConfigError(
            f"the {kind} {name!r} is already defined by {table[name].where}; choose another name for {entry.where}"
        )
    table[name] = entry


def unregister(kind: str, name: str) -> None:
    """Forget a name (for tests and notebooks); an unknown name is ignored."""
    _table(kind).pop(name, None)


def names(kind: str) -> list[str]:
    """All names of a kind, sorted."""
    return sorted(_table(kind))


def entries(kind: str) -> list[Entry]:
    """All entries of a kind, sorted by name."""
    return [_table(kind)[name] for name in names(kind)]


def entry(kind: str, name: str) -> Entry:
    """The entry of a name, without importing it."""
    table = _table(kind)
    if name not in table:
        plain = "".join(sign for sign in name.lower() if sign.isalnum())
        other = OTHER_NAMES.get(kind, {}).get(plain)
        hint = f", which is {other} here." if other else f".{did_you_mean(name, table)}"
        if kind == "preset":  # too many to list
            hint = f".{_presets_like(name, table)} All of them: rookery list presets"
            raise ConfigError(f"unknown preset {name!r}{hint}")
        raise ConfigError(f"unknown {kind} {name!r}{hint} Known: {', '.join(sorted(table)) or 'none'}.")
    return table[name]


def env_factory(function: Factory) -> Factory:
    """Marks a function that makes an env (`@rookery.env_factory`): configs of others may name it, too."""
    setattr(function, _MARK, True)
    return function


def is_env_factory(code: Any) -> bool:
    return getattr(code, _MARK, False) is True


def lookup(kind: str, name: str) -> Any:
    """The object behind a name; imports the module that defines it."""
    registered = entry(kind, name)
    return load(registered.target) if isinstance(registered.target, str) else registered.target


def load(target: str) -> Any:
    """The object behind `"module:attribute"`."""
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"expected 'module:attribute', got {target!r}")
    value: Any = import_module(module_name)
    if module_name in MOVED and not hasattr(value, attribute.partition(".")[0]):  # a room bears its name now
        value = _moved(module_name)
    for part in attribute.split("."):
        if not hasattr(value, part):
            hint = did_you_mean(
                part, [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []
            )
            raise ConfigError(f"{target!r}: module {module_name!r} has no {attribute!r}.{hint}")
        value = getattr(value, part)
    return value


def import_module(name: str) -> Any:
    """Import a module; a missing one (not a failing one) becomes a sentence."""
    try:
        module = importlib.import_module(name)
        if name.partition(".")[0] != "rookery":
            _IMPORTED[name] = None
        return module
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            if name in MOVED:
                return _moved(name)
            raise ConfigError(
                f"there is no module {name!r}: is it installed, and is its folder the current one or on PYTHONPATH?"
            ) from error
        raise ConfigError(
            f"importing {name!r} failed: it needs the module {error.name!r}, which is not installed"
        ) from error
    except SystemExit as error:  # a script without a guard, perhaps
        raise EnvError(
            f"importing {name!r} ends the process by sys.exit or os._exit ({error.code!r}): a module that a config "
            'names must only define things. What it does as a script must stand under `if __name__ == "__main__":`'
        ) from error
    except (ValueError, TypeError) as error:  # importlib's answer to "" and to "..name"
        raise ConfigError(f"{name!r} is not the name of a module: {error}") from error


def _moved(name: str) -> Any:
    """A module of ours under the name it had in an earlier version; that it has another is said once."""
    if name not in _MOVED_TOLD:
        _MOVED_TOLD.add(name)
        log.warning("the module %s is now %s: please write it so", name, MOVED[name])
    return importlib.import_module(MOVED[name])


def imported() -> tuple[str, ...]:
    """Modules of users that were imported here, in order:
    another process must import them too to know the same names.
    """
    return tuple(_IMPORTED)


def import_again(names: Iterable[str]) -> None:
    """In another process, what `imported()` said there.

    What cannot be found any more is passed over: whoever needs it is told so.
    """
    for name in names:
        with suppress(ConfigError):
            import_module(name)


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` names that the word was probably meant to be, best first."""
    candidates = sorted(set(known))
    word = word[:64]  # garbage may be long, and the search is quadratic
    lower = word.lower()
    distances = {name: _edits(lower, name.lower()) for name in candidates if abs(len(name) - len(word)) <= 3}
    close = {name: d for name, d in distances.items() if d <= max(1, len(word) // 4)}
    if close:
        best = min(close.values())
        return [name for name in candidates if close.get(name) == best][:count]
    return difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)


def _presets_like(name: str, known: Iterable[str]) -> str:
    """Three presets that somebody may have meant: spelt nearly so, or of the same task or algorithm."""
    parts = set(re.split(r"[-_ ]", name.lower()))
    alike = sorted(known, key=lambda other: (-len(parts & set(other.split("-"))), len(other)))
    near = [*nearest(name, known), *difflib.get_close_matches(name.lower(), sorted(known), n=3), *alike]
    three = [repr(other) for other in dict.fromkeys(near)][:3]
    return f" Did you mean {' or '.join(three)}?" if three else ""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or an empty string: to be appended to a sentence."""
    close = nearest(word, known) if isinstance(word, str) else []
    return f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def _edits(a: str, b: str) -> int:
    """Levenshtein distance with swaps of neighbours (difflib's ratio ranks 'lr' behind 'log' for 'l')."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _table(kind: str) -> dict[str, Entry]:
    if kind not in _TABLE:
        raise ConfigError(f"unknown kind of name {kind!r}.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    return _TABLE[kind]
