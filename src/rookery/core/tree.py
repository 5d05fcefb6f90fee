"""Trees: a leaf, or a dict from names to trees. The hot paths use these plain dicts; `Batch` is the public edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Tree = Any  # a leaf (array, tensor, Leaf) or dict[str, Tree]


def tree_map(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """Apply fn to every leaf of trees of identical structure."""
    if isinstance(tree, dict):
        return {key: tree_map(fn, value, *(other[key] for other in rest)) for key, value in tree.items()}
    return fn(tree, *rest)


def leaves(tree: Tree) -> list[Any]:
    """All leaves, in the order of the keys."""
    return [leaf for _, leaf in walk(tree)]


def walk(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of every leaf; the path of a lone leaf is the empty string."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            part = _escape(str(key))
            yield from walk(value, f"{path}/{part}" if path else part)
    else:
        yield path, tree


def _escape(key: str) -> str:
    """A key as one part of a path, as in JSON pointers (RFC 6901): an env may name an observation "robot/arm"."""
    if "/" in key or "~" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return key or "~2"  # our own addition: the empty key, which would look like no part at all


def _unescape(part: str) -> str:
    return "" if part == "~2" else part.replace("~1", "/").replace("~0", "~")


def flatten(tree: Tree) -> dict[str, Any]:
    """`{"a": {"b": x}}` becomes `{"a/b": x}`; a "/" inside a key becomes "~1"."""
    return dict(walk(tree))


def unflatten(flat: dict[str, Any]) -> Tree:
    """The inverse of `flatten`, but for empty dicts: they have no leaf and leave no trace."""
    if list(flat) == [""]:
        return flat[""]
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        node = tree
        *parents, last = [_unescape(part) for part in path.split("/")]
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


def tree_take(tree: Tree, index: Any) -> Tree:
    """Index every leaf alike."""
    return tree_map(lambda leaf: leaf[index], tree)


def tree_copy_into(target: Tree, index: Any, source: Tree) -> None:
    """`target[index] = source`, leaf by leaf."""
    if isinstance(target, dict):
        for key, value in target.items():
            tree_copy_into(value, index, source[key])
    else:
        target[index] = source
