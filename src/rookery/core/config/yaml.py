"""YAML as configs need it: `1e-3` is a number, a key given twice is an error, and every value knows its line.

The stock loader follows YAML 1.1, where `1e-3` is a string, `on` is true, `010` is eight and `12:30` is 750. This one
reads numbers as people write them, `true`, `false` and `null`; everything else is a string. No tag creates an object.
A text is bounded, and so is what its aliases would make of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rookery.core.errors import ConfigError

KeyPath = tuple[str, ...]
MOST_DEPTH = 50
MOST_BYTES = 1 << 19  # of a config file
MOST_VALUES = 20_000  # keys and values of a config, every alias counted with all that it stands for

_INT = re.compile(r"^[-+]?(?:[0-9]+(?:_[0-9]+)*|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?
         |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
         |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
    re.X,
)
_FIRST = list("-+0123456789.")
_TOO_MANY = f"more than {MOST_VALUES} keys and values, or nested more than {MOST_DEPTH} deep: that is no config"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[Any]] = {}
    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        if self.nodes > MOST_VALUES or self.depth > MOST_DEPTH:
            raise yaml.YAMLError(_TOO_MANY)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes whatever either reading of YAML would take for something else than a string."""

    yaml_implicit_resolvers = {first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()}

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _number(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    return int(text, 16) if "x" in text else int(text)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, _FIRST)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, _FIRST)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", _INT, _FIRST)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, _FIRST)


def read_value(text: str, where: str) -> Any:
    """One value as written behind `key=`."""
    return _construct(text, where)[0]


def read_file(path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The tree in a file, and the line of every key in it."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error
    return read_text(data, path)


def read_text(data: bytes, path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The tree in the content of a file."""
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{path} has more than {MOST_BYTES} bytes: that is no config")
    try:
        tree, lines = _construct(data.decode(), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error
    if tree is None:
        return {}, {}
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{path}: expected sections such as `algo:` and `env:`, got {type(tree).__name__} {str(tree)[:60]!r}"
        )
    return tree, lines


def write_text(tree: Mapping[str, Any]) -> str:
    """A plain tree as YAML that `read_file` reads back to the same tree."""
    return yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _construct(text: str, where: str) -> tuple[Any, dict[KeyPath, int]]:
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, {}
            seen = _Seen(where)
            seen.walk(node, (), 0)
            return loader.construct_document(node), seen.lines
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        at = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{where}{at}: this is not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:  # !!bool zzz
        raise ConfigError(f"{where}: this is not valid YAML: {str(error)[:200]}") from error


class _Seen:
    """Notes the line of every key; refuses keys given twice, and aliases that would make a small file enormous."""

    def __init__(self, where: str):
        self.where, self.values = where, 0
        self.lines: dict[KeyPath, int] = {}

    def walk(self, node: yaml.Node, path: KeyPath, depth: int) -> None:
        self.values += 1
        if depth > MOST_DEPTH or self.values > MOST_VALUES:
            raise ConfigError(f"{self.where}, line {node.start_mark.line + 1}: {_TOO_MANY}")
        if isinstance(node, yaml.SequenceNode):
            for i, part in enumerate(node.value):
                self.walk(part, (*path, str(i)), depth + 1)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._key(key, (*path, str(key.value)))
                self.walk(value, (*path, str(key.value)), depth + 1)

    def _key(self, key: yaml.Node, here: KeyPath) -> None:
        line = key.start_mark.line + 1
        if here in self.lines:
            first = self.lines[here]
            raise ConfigError(f"{self.where}, line {line}: {'.'.join(here)} is given twice, first in line {first}")
        self.lines[here] = line
