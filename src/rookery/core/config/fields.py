"""Fields of config sections, read from their annotations: which keys exist, and what each accepts, in words."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import textwrap
import tokenize
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rookery.core.config.section import Section
from rookery.core.config.yaml import KeyPath
from rookery.core.schedule import Schedule

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "null",
    Any: "anything",
}
_SIGNS = {
    "ge": "≥",
    "gt": ">",
    "le": "≤",
    "lt": "<",
    "multiple_of": "a multiple of",
    "min_length": "length ≥",
    "max_length": "length ≤",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One option of a config, as `rookery explain` and `rookery config keys` show it."""

    key: str  # dotted, from the root of the config
    default: Any  # plain value; REQUIRED if there is none
    accepts: str
    comment: str


REQUIRED = "(required)"


@functools.cache
def keys_of(model: type[BaseModel], prefix: str) -> tuple[Key, ...]:
    """All options of a section, those of sub-sections included."""
    comments = comments_of(model)
    keys: list[Key] = []
    for name, info in model.model_fields.items():
        key = f"{prefix}.{name}"
        inner = [part for part in members(_full(info)) if _is_model(part) and part is not Schedule]
        if len(inner) == 1 and not info.is_required():
            if info.default is None:  # a sub-section that is absent unless asked for
                keys.append(Key(key, None, accepts(_full(info)), comments.get(name, "")))
            keys += keys_of(inner[0], key)
        else:
            keys.append(Key(key, _default(info), accepts(_full(info)), comments.get(name, "")))
    return tuple(keys)


@functools.cache
def comments_of(model: type[BaseModel]) -> dict[str, str]:
    """field → the comment on its line or lines (a formatter may break a long one), own fields and inherited ones."""
    comments: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls not in (BaseModel, Section):
            source = textwrap.dedent(inspect.getsource(cls))
            body = ast.parse(source).body[0]
            fields = [node for node in getattr(body, "body", []) if isinstance(node, ast.AnnAssign)]
            at = {
                line: ast.unparse(node.target)
                for node in fields
                for line in range(node.lineno, (node.end_lineno or 0) + 1)
            }
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.COMMENT and at.get(token.start[0]) in model.model_fields:
                    comments[at[token.start[0]]] = token.string.lstrip("# ").rstrip()
    return comments


def fields_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Names that may stand directly below path; empty where the keys are free or there are none."""
    names: list[str] = []
    for annotation in annotations_at(model, path):
        for part in members(annotation):
            names += list(part.model_fields) if _is_model(part) else []
    return names


def annotations_at(model: type[BaseModel], path: KeyPath) -> list[Any]:
    """What the model says about the value at path: one annotation, or several where unions of sections meet."""
    here: list[Any] = [model]
    for part in path:
        here = [inner for annotation in here for inner in _below(annotation, part)]
    return here


def members(annotation: Any) -> Iterator[Any]:
    """The alternatives of an annotation, without its constraints."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from members(part)
    else:
        yield annotation


def accepts(annotation: Any) -> str:
    """`a whole number ≥ 1 or null`: what an annotation accepts."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return accepts(arguments[0]) + "".join(_limits(arguments[1:]))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(accepts(part) for part in arguments))
    if origin is Literal:
        return " | ".join("null" if choice is None else str(choice) for choice in arguments)
    if annotation is Schedule:
        return "a number or a schedule"
    if _is_model(annotation):
        return f"a mapping with {', '.join(annotation.model_fields)}"
    if _is_list(origin or annotation):
        inner = [part for part in arguments if part is not Ellipsis]
        same = len(inner) <= 1 or origin is not tuple or Ellipsis in arguments
        return "a list" + (
            f" of {_plural(inner[0])}" if inner and same else f" of {len(inner)} values" if inner else ""
        )
    if _is_mapping(origin or annotation):
        return "a mapping" + (
            f" of names to {_plural(arguments[1])}" if len(arguments) == 2 and arguments[1] is not Any else ""
        )
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def misread(annotation: Any, value: Any) -> bool:
    """Whether pydantic would silently take true for 1, or 1 or "yes" for true."""
    parts = [part for part in members(annotation) if part is not type(None)]
    if isinstance(value, bool):
        return all(
            part in (int, float, str) or (get_origin(part) is Literal and value not in _choices(part)) for part in parts
        )
    return value is not None and bool(parts) and all(part is bool for part in parts)


def _choices(literal: Any) -> list[Any]:
    return [choice for choice in get_args(literal) if isinstance(choice, bool)]


def _below(annotation: Any, part: str) -> Iterator[Any]:
    for member in members(annotation):
        origin, arguments = get_origin(member) or member, get_args(member)
        if _is_model(member):
            if part in member.model_fields:
                yield _full(member.model_fields[part])
        elif _is_mapping(origin):
            yield arguments[1] if len(arguments) == 2 else Any
        elif _is_list(origin) and part.isdigit():
            fixed = origin is tuple and Ellipsis not in arguments
            yield (arguments[int(part)] if fixed and int(part) < len(arguments) else arguments[0]) if arguments else Any


def _full(info: FieldInfo) -> Any:
    """The annotation of a field together with its constraints, which pydantic keeps apart."""
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def _limits(metadata: Sequence[Any]) -> Iterator[str]:
    signs = [text for item in metadata for text in _limit(item)]
    if signs:
        yield " " + " and ".join(signs)


def _limit(item: Any) -> Iterator[str]:
    if isinstance(item, FieldInfo):
        for inner in item.metadata:
            yield from _limit(inner)
        return
    for name, sign in _SIGNS.items():
        limit = getattr(item, name, None)
        if isinstance(limit, int | float):
            yield f"{sign} {limit:g}" if abs(limit) < 1e6 else f"{sign} {limit}"
    pattern = getattr(item, "pattern", None)
    if isinstance(pattern, str):
        yield f"matching {pattern.strip('^$')}"


def _default(info: FieldInfo) -> Any:
    if info.is_required():
        return REQUIRED
    return plain(info.get_default(call_default_factory=True))


def plain(value: Any) -> Any:
    """A default as it would stand in a file."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def _plural(annotation: Any) -> str:
    text = accepts(annotation)
    return {"a number": "numbers", "a whole number": "whole numbers", "text": "texts", "anything": "values"}.get(
        text, text
    )


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_list(origin: Any) -> bool:
    return (
        isinstance(origin, type)
        and issubclass(origin, list | tuple | set | frozenset | Sequence)
        and not issubclass(origin, str | bytes)
    )


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)
