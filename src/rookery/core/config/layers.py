"""Layers of a config, merged so that each value remembers where it came from.

    defaults < algorithm < preset < file < argument < command line

A mapping is merged key by key; anything else replaces what was below. Three things replace a mapping as a whole: an
empty mapping, another `algo.name`, and inside a section another `kind` (the options of one algorithm or schedule mean
nothing to another). A key that is another way to say the same as its neighbours (`model.layers`) removes those of lower
layers: `replacing`. A text in place of a mapping in `SHORT` stands for its most important key.
"""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rookery.core.config.yaml import KeyPath

DEFAULT = "default"
MAX_DEPTH = 32
SHORT: dict[KeyPath, str] = {("env", "workers"): "mode", ("pool",): "kind"}  # pool=ray means pool.kind=ray


@dataclass(frozen=True, slots=True)
class Layer:
    """One origin of values. The tree is copied when merged, never changed."""

    source: str  # "preset cartpole-ppo", "file x.yaml", "command line", "algorithm dqn", "argument"
    tree: Mapping[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def source_of(self, path: KeyPath) -> str:
        line = self.lines.get(path)
        return self.source if line is None else f"{self.source}, line {line}"


class Merged:
    """The merged tree of plain values, and the source of each."""

    def __init__(self, layers: Iterable[Layer]):
        self.tree: dict[str, Any] = {}
        self.problems: list[tuple[KeyPath, str, str]] = []  # (path, what is wrong, source)
        self._sources: dict[KeyPath, str] = {}
        for layer in layers:
            if isinstance(layer.tree, Mapping):
                self._merge(self.tree, layer.tree, (), layer)
            else:
                self._bad((), f"expected sections, got {type(layer.tree).__name__}", layer)

    def source(self, path: KeyPath) -> str:
        """Where the value at path came from; inside a list it is the list that was set."""
        for end in range(len(path) if self.has(path) else 0, 0, -1):
            if path[:end] in self._sources:
                return self._sources[path[:end]]
        return DEFAULT

    def has(self, path: KeyPath) -> bool:
        """Whether some layer gave a value here."""
        node: Any = self.tree
        for part in path:
            if isinstance(node, list) and part.isdigit() and int(part) < len(node):
                node = node[int(part)]
            elif isinstance(node, dict) and part in node:
                node = node[part]
            else:
                return False
        return True

    def _merge(self, below: dict[str, Any], above: Mapping[Any, Any], path: KeyPath, layer: Layer) -> None:
        for key, value in above.items():
            if not isinstance(key, str) or not _is_text(key):
                self._bad(path, f"expected names as keys, got {key!r}", layer)
                continue
            here = (*path, key)
            if len(here) > MAX_DEPTH:
                self._bad(here[:3], f"nested more than {MAX_DEPTH} levels deep", layer)
                return
            if here in SHORT and isinstance(value, str):
                value = {SHORT[here]: value}
            if not isinstance(value, Mapping):
                self._forget(here)
                below[key] = self._plain(value, here, layer)
                self._sources[here] = layer.source_of(here)
                continue
            if not isinstance(below.get(key), dict) or not value or _other(below[key], value, here):
                self._forget(here)
                below[key] = {}
                self._sources[here] = layer.source_of(here)
            self._merge(below[key], value, here, layer)

    def _plain(self, value: Any, path: KeyPath, layer: Layer) -> Any:
        """A copy made of None, bool, int, float, str, list and dict."""
        if isinstance(value, list | tuple) and len(path) <= MAX_DEPTH:
            return [self._plain(part, (*path, str(i)), layer) for i, part in enumerate(value)]
        if isinstance(value, Mapping) and len(path) <= MAX_DEPTH:  # inside a list
            inner: dict[str, Any] = {}
            self._merge(inner, value, path, layer)
            return inner
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            value = value.item()
        wrong = _wrong(value)
        if wrong:
            self._bad(path, wrong, layer)
        return None if wrong else value

    def _bad(self, path: KeyPath, what: str, layer: Layer) -> None:
        self.problems.append((path, what, layer.source_of(path)))

    def _forget(self, path: KeyPath) -> None:
        for known in [known for known in self._sources if known[: len(path)] == path]:
            del self._sources[known]


def replacing(layers: Iterable[Layer], section: str, key: str, replaced: tuple[str, ...]) -> list[Layer]:
    """The layers, without what `section.key` replaces wherever it comes from a lower layer than that key."""
    layers = list(layers)
    parts = [part if isinstance(part := layer.tree.get(section), Mapping) else {} for layer in _readable(layers)]
    top = max((i for i, part in enumerate(parts) if key in part), default=0)
    if not top or parts[top][key] is None:
        return layers
    kept = [{name: value for name, value in part.items() if name not in replaced} for part in parts[:top]]
    lower = [
        layer if kept[i] == parts[i] else Layer(layer.source, {**layer.tree, section: kept[i]}, layer.lines)
        for i, layer in enumerate(layers[:top])
    ]
    return lower + layers[top:]


def _readable(layers: list[Layer]) -> list[Layer]:
    """A layer that is no mapping is complained about when it is merged."""
    return [layer if isinstance(layer.tree, Mapping) else Layer(layer.source, {}) for layer in layers]


def _other(below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath) -> bool:
    """Whether `above` is another thing than `below`, rather than a change of it."""
    tag = "name" if path == ("algo",) else "kind" if len(path) > 1 else None
    return tag in below and tag in above and below[tag] != above[tag] if tag else False


def _wrong(value: Any) -> str:
    """What makes a scalar unfit for a config, or an empty string."""
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int):
        return "" if abs(value) < 2**63 else "expected a number below 2^63, got a larger one"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"expected a finite number, got {value}"
    if isinstance(value, str):
        return "" if _is_text(value) else f"expected text without control characters, got {value[:60]!r}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"expected a plain value (number, text, true/false, null, list, mapping), got an object of type {kind}"


def _is_text(value: str) -> bool:
    """No lone surrogates, control or line-separating characters: YAML and terminals disagree about them."""
    if value.isprintable():
        return True
    odd = {"Cc", "Cs", "Cn", "Zl", "Zp"}
    return all(char in "\n\t" or (unicodedata.category(char) not in odd and char != "\ufeff") for char in value)
