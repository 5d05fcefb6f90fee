"""Node: the inside of a Batch, a dict of leaves and nodes, and what runs over two of them leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rookery.core.batch.leaf import below, like, put


class Node:
    """What Batch dresses up."""

    __slots__ = ("_data",)
    _data: dict[str, Any]


def is_void(value: Any) -> bool:
    """A node without any leaf, but perhaps with other such nodes."""
    return isinstance(value, Node) and all(is_void(part) for part in value._data.values())


def kind_of(value: Any) -> str:
    """For messages."""
    return (
        "a nested batch"
        if isinstance(value, Node)
        else "nothing (None)"
        if value is None
        else f"a {type(value).__name__}"
    )


def assign(node: Node, index: Any, value: Any, path: str = "") -> None:
    """`leaf[index] = value` for every leaf; what a value node lacks is zero, what it has too many is an error."""
    if isinstance(value, Node):
        return _assign_node(node, index, value, path)
    for key, leaf in node._data.items():
        if isinstance(leaf, Node):
            assign(leaf, index, value, below(path, key))
        elif leaf is not None:
            put(leaf, index, value, below(path, key))


def _assign_node(node: Node, index: Any, value: Node, path: str) -> None:
    if extra := [below(path, key) for key in value._data if key not in node._data]:
        raise KeyError(f"rows cannot bring new keys: {extra} (keys: {sorted(node._data)})")
    for key, leaf in node._data.items():
        new, at = value._data.get(key), below(path, key)
        new = None if is_void(new) else new
        if new is not None and (leaf is None or isinstance(new, Node) != isinstance(leaf, Node)):
            raise TypeError(f"key {at!r} holds {kind_of(leaf)}, but the assigned rows hold {kind_of(new)}")
        if isinstance(leaf, Node):
            assign(leaf, index, type(leaf)() if new is None else new, at)
        elif leaf is not None:
            put(leaf, index, new, at)


def combine(op: Callable[[Any, Any], Any], node: Node, other: Any, result: Node, path: str = "") -> None:
    """`op(leaf, operand)` for every leaf, written into `result`, which is `node` itself for operators in place."""
    paired = isinstance(other, Node)
    if paired and node._data.keys() != other._data.keys():
        at = f" below {path!r}" if path else ""
        raise KeyError(f"the batches have different keys{at}: {sorted(node._data)} and {sorted(other._data)}")
    for key, leaf in node._data.items():
        operand, at = other._data[key] if paired else other, below(path, key)
        if leaf is None:
            result._data[key] = None
        elif paired and (operand is None or isinstance(leaf, Node) != isinstance(operand, Node)):
            raise TypeError(f"key {at!r} holds {kind_of(leaf)} on one side and {kind_of(operand)} on the other")
        elif isinstance(leaf, Node):
            result._data[key] = leaf if result is node else type(leaf)()
            combine(op, leaf, operand, result._data[key], at)
        else:
            result._data[key] = op(leaf, like(operand, leaf))
