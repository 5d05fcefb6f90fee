"""Validation of a merged config tree:
every problem at once, each with its key, what was expected, what came, and where from.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rookery.core.config.fields import accepts, annotations_at, fields_at, misread
from rookery.core.config.layers import DEFAULT, Merged
from rookery.core.config.synonyms import keys_for, nearly
from rookery.core.config.yaml import KeyPath
from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean, nearest

_DOTTED = re.compile(r"\b[a-z_]\w*(?:\.[a-z_]\w*)+\b")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a config."""

    key: str  # dotted; empty for the tree as a whole
    message: str  # what was expected and what came
    source: str = ""  # where the value was set
    hint: str = ""  # " Did you mean …?"

    def __str__(self) -> str:
        where = f" (set by {self.source})" if self.source else ""
        return f"{self.key}{': ' if self.key else ''}{self.message}{where}.{self.hint}"


class InvalidConfig(ConfigError):
    """All problems of a config."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(dict.fromkeys(problems))
        lines = [str(problem) for problem in self.problems]
        many = f"the config has {len(lines)} problems:\n" + "\n".join(
            f"  {i}. {line}" for i, line in enumerate(lines, 1)
        )
        super().__init__(lines[0] if len(lines) == 1 else many)


class Checker:
    """Collects the problems of one merged tree, section by section."""

    def __init__(self, merged: Merged, elsewhere: Callable[[KeyPath], str] | None = None):
        self.merged = merged
        self._elsewhere = elsewhere or (lambda path: "")  # who has a key that does not exist here, as a sentence
        self.problems = [Problem(".".join(path), what, source) for path, what, source in merged.problems]
        self.known: dict[str, str] = {}  # dotted keys of all sections → what they mean
        self._spoilt: set[str] = set()  # keys whose values cannot be trusted when contradictions are looked for

    def section(self, name: str, model: type[BaseModel]) -> BaseModel | None:
        """The validated section. With problems inside, what is left of it without the wrong keys, or None."""
        raw = copy.deepcopy(self.merged.tree.get(name, {}))
        if not isinstance(raw, dict):
            fields = ", ".join(model.model_fields)
            self.add((name,), f"expected a mapping with some of {fields}, got {_short(raw)}")
            raw = {}
        self._misread(model, (), raw, raw, name)
        for _ in range(2):  # the second time without the wrong keys
            try:
                return model.model_validate(raw)
            except ValidationError as error:
                self._collect(name, model, raw, error)
        return None

    def add(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Note a problem with the value at path,
        unless that value or a part of it has been complained about already.
        """
        key = ".".join(path)
        self._spoilt.add(key)
        if any(f"{problem.key}.".startswith(f"{key}.") for problem in self.problems):
            return
        source = self.merged.source(path) if path and self.merged.has(path) else ""
        self.problems.append(Problem(key, message, source, hint))

    def rule(self, message: str) -> None:
        """Note a contradiction, or `key: what is wrong with it`. Names of keys are followed by their sources.

        A rule about keys that are wrong anyway is left out: it may be a mere consequence.
        """
        keys = _DOTTED.findall(message)
        if any(key in self._spoilt or key.partition(".")[0] in self._spoilt for key in keys):
            return
        key, colon, rest = message.partition(": ")
        if colon and key in self.known:  # about one value only
            self.add(tuple(key.split(".")), rest.rstrip("."))
        else:
            self.problems.append(Problem("", message.rstrip("."), self._sources(keys)))

    def unknown(self, path: KeyPath, siblings: Collection[str]) -> None:
        """Note a key that does not exist."""
        *parents, word = path
        prefix = "".join(f"{parent}." for parent in parents)
        close = [f"{prefix}{name}" for name in nearest(word, siblings)]
        elsewhere = sorted(key for key in self.known if key.rpartition(".")[2] == word or key == word)
        names = list(dict.fromkeys([*close, *elsewhere[:2]]))
        hint = self._synonym(word)
        if not hint or not any(f" {name}" in hint for name in close):  # a misspelt key of ours may be another's word
            hint += did_you_mean_exactly(close if hint else names)
        hint = hint or self._synonym_elsewhere(word)
        hint = (
            hint
            or self._elsewhere(path)
            or self._synonym(nearly(word))
            or (f" Known: {', '.join(siblings)}." if siblings else "")
        )
        self._spoilt.update(names)
        self.add(path, "unknown key", hint)

    def _synonym(self, word: str) -> str:
        """` In Rookery that is algo.lr: …`, of a name that other libraries use."""
        for key in keys_for(word):
            if key in self.known:
                self._spoilt.add(key)
                return f" In Rookery that is {key}" + (f": {self.known[key]}." if self.known[key] else ".")
        return ""

    def _synonym_elsewhere(self, word: str) -> str:
        """The same, of a key that other algorithms have."""
        for key in keys_for(word):
            if others := self._elsewhere(tuple(key.split("."))):
                return f" In Rookery that is {key}.{others}"
        return ""

    def finish(self) -> None:
        """Raise if there was any problem."""
        if self.problems:
            raise InvalidConfig(self.problems)

    def _sources(self, keys: Iterable[str]) -> str:
        """`algo.rollout: preset cartpole-ppo, env.num: command line`."""
        sections = {key.partition(".")[0] for key in self.known}
        sources = {key: self.merged.source(tuple(key.split("."))) for key in keys if key.partition(".")[0] in sections}
        lines = [f"{key}: {source}" for key, source in sources.items() if source != DEFAULT]
        return ", ".join(lines) or ("defaults" if sources else "")

    def _misread(self, model: type[BaseModel], path: KeyPath, node: Any, raw: dict[str, Any], name: str) -> None:
        """Take true where a number belongs, and the reverse, out of raw: pydantic would accept them."""
        if isinstance(node, dict | list):
            for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
                self._misread(model, (*path, str(key)), value, raw, name)
            return
        annotations = annotations_at(model, path)
        if annotations and all(misread(annotation, node) for annotation in annotations):
            self.add((name, *path), f"expected {_expected(annotations)}, got {_short(node)}")
            _remove(raw, path)

    def _collect(self, name: str, model: type[BaseModel], raw: dict[str, Any], error: ValidationError) -> None:
        """Turn pydantic's errors into problems, and take the wrong keys out of raw."""
        for item in error.errors(include_url=False):
            path = _real(item["loc"], raw, item["type"] == "missing")
            full = (name, *path)
            if item["type"] == "extra_forbidden":
                self.unknown(full, fields_at(model, path[:-1]))
            elif item["type"] == "missing":
                self.add(full, f"is missing; expected {_expected(annotations_at(model, path))}")
            elif item["type"] in ("value_error", "assertion_error") and not path:
                self.rule(str(item["ctx"]["error"]))  # a rule between fields of the section
                self._spoilt.add(name)
            elif item["type"] in ("value_error", "assertion_error"):
                self.add(full, str(item["ctx"]["error"]).rstrip("."))
            else:
                annotations = annotations_at(model, path)
                expected = (
                    f"expected {_expected(annotations)}"
                    if annotations
                    else item["msg"].replace("Input should be", "expected")
                )
                self.add(full, f"{expected}, got {_short(item['input'])}", _choice_hint(item))
        for item in error.errors(include_url=False):
            _remove(raw, _real(item["loc"], raw, False))


def did_you_mean_exactly(names: Collection[str]) -> str:
    """` Did you mean 'a' or 'b'?` for names that were found already."""
    return f" Did you mean {' or '.join(repr(name) for name in names)}?" if names else ""


def _expected(annotations: list[Any]) -> str:
    return " or ".join(dict.fromkeys(accepts(annotation) for annotation in annotations)) or "nothing here"


def _choice_hint(item: Any) -> str:
    if item["type"] != "literal_error":
        return ""
    return did_you_mean(item["input"], re.findall(r"'([^']*)'", item["ctx"]["expected"]))


def _real(location: tuple[int | str, ...], raw: Any, missing: bool) -> KeyPath:
    """pydantic's location without the names of union members, which are not keys."""
    path: list[str] = []
    node = raw
    for i, part in enumerate(location):
        inside = (
            part in node
            if isinstance(node, dict)
            else isinstance(node, list) and isinstance(part, int) and part < len(node)
        )
        if inside:
            node = node[part]
        elif not (missing and i == len(location) - 1):
            continue
        path.append(str(part))
    return tuple(path)


def _remove(raw: dict[str, Any], path: KeyPath) -> None:
    """Delete the value at path; inside a list, the whole list goes. An empty path empties the section."""
    if not path:
        raw.clear()
        return
    node: Any = raw
    for part in path[:-1]:
        if not isinstance(node.get(part), dict):
            node.pop(part, None)
            return
        node = node[part]
    node.pop(path[-1], None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
