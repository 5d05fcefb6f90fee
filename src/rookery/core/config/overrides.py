"""Overrides: `section.key=value` as written on a command line, values in YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rookery.core.config.layers import SHORT, Layer
from rookery.core.config.yaml import KeyPath, read_value
from rookery.core.errors import ConfigError

COMMAND_LINE = "command line"
Overrides = Sequence[str] | Mapping[str, Any]  # ["algo.lr=1e-3"], or {"algo.lr": 1e-3}


def as_texts(overrides: Overrides) -> list[str]:
    """`key=value` texts, as they are parsed; of a dict, whose values are taken as they are."""
    if isinstance(overrides, str):
        return [overrides]
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [override(str(key), value) for key, value in overrides.items()]


def parse_overrides(overrides: Sequence[str], source: str = COMMAND_LINE) -> Layer:
    """One layer from `key=value` texts. Two different values for one key are an error, whichever way they are spelt."""
    values: dict[KeyPath, tuple[Any, str]] = {}
    for text in overrides:
        path, value = parse_override(text)
        for known, (other, spelling) in values.items():
            short, long = sorted((known, path), key=len)
            if long[: len(short)] == short and (known != path or other != value):
                raise ConfigError(f"{spelling!r} and {text!r} contradict each other: give {'.'.join(short)} once.")
        values[path] = (value, text)
    tree: dict[str, Any] = {}
    for path, (value, _) in values.items():
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return Layer(source, tree)


def parse_override(text: str) -> tuple[KeyPath, Any]:
    """`"algo.lr=1e-3"` → `(("algo", "lr"), 0.001)`."""
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"expected an override such as algo.gamma=0.98, got {text!r}")
    parsed = read_value(value, f"{COMMAND_LINE}: {key.strip()}")
    return ((*path, SHORT[path]) if path in SHORT and isinstance(parsed, str) else path), parsed


def override(key: str, value: Any) -> str:
    """The text that `parse_override` reads back to (key, value), for callers that have the value already."""
    try:
        return f"{key}={json.dumps(value, ensure_ascii=False)}"
    except TypeError as error:
        raise ConfigError(f"{key}: expected numbers, text, lists and mappings, got {value!r} ({error}).") from None
