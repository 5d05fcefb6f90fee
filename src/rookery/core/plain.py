"""`plain = True`: what a class promises of its own methods, so that shorter ways may execute them.

    an algorithm   its `outputs` and updates are straight-line tensor code that only calls networks: no branch on data
                   or on a count of calls, nothing remembered, no gradient of a parameter taken in hand, no other
                   numbers put in a parameter's place
    a module       so are its `forward` and its other methods, while it does not train

Then the operations of one call tell what every other call computes, and a loss needs nothing of a network but its
result. Acting without torch (`acting.fast_forward`) and updates without modules (`learning.short_path`) rest on it;
where nobody promises, torch computes as written.

A class speaks for the methods in its own body alone: a subclass that writes one of them anew, or adds one, promises
nothing for it unless it declares `plain` as well. Where a class comes from is not asked, but for torch's own modules,
which cannot declare anything.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

_KINDS = types.FunctionType | property | staticmethod | classmethod | functools.cached_property
_CALLED_BY_PYTHON = ("__call__", "__getattr__", "__getattribute__")


def plain_method(owner: Any, name: str) -> bool:
    """Whether this method of an object, and every method of its class that its code names in turn,
    was promised to be plain.
    """
    kind, waiting, seen = type(owner), [name], {name}
    while waiting:
        method = waiting.pop()
        if method in vars(owner) or not _promised(kind, method):
            return False
        code = getattr(_function(_definition(kind, method)[1]), "__code__", None)
        named = {n for n in names_in(code) if isinstance(_definition(kind, n)[1], _KINDS)} if code else set()
        waiting += named - seen
        seen |= named
    return True


def plain_module(module: Any) -> bool:
    """Whether all methods of a torch module were promised to be plain; those of torch's own modules are."""
    kind: Any = type(module)
    return "forward" not in vars(module) and _plain_class(kind)


@functools.lru_cache(maxsize=1024)
def _plain_class(kind: type) -> bool:
    return all(_promised(kind, name) for name in set(_methods(kind)))


def _methods(kind: type) -> Iterator[str]:
    """Names of the methods that are not torch's; what Python calls by itself, such as `__init__`, computes nothing."""
    for cls in kind.__mro__:
        if cls is not object and not _torchs(cls):
            for name, value in vars(cls).items():
                if isinstance(value, _KINDS) and (not name.startswith("__") or name in _CALLED_BY_PYTHON):
                    yield name


def _promised(kind: type, name: str) -> bool:
    """Whether the class whose body has this method declares `plain`: a method put there later is not in its body."""
    cls, method = _definition(kind, name)
    if cls is None:
        return False
    function = _function(method)
    in_body = getattr(function, "__qualname__", "") == f"{cls.__qualname__}.{name}"
    return _torchs(cls) or (vars(cls).get("plain") is True and in_body and function.__module__ == cls.__module__)


def _definition(kind: type, name: str) -> tuple[type | None, Any]:
    """(the class that defines a name, what it defines)."""
    return next(((cls, vars(cls)[name]) for cls in kind.__mro__ if name in vars(cls)), (None, None))


def _function(method: Any) -> Any:
    """The function of a method, property, class method or static method."""
    for name in ("fget", "func", "__func__"):
        method = getattr(method, name, method)
    return method


def _torchs(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.")


def names_in(code: types.CodeType) -> set[str]:
    """Every name that a piece of code reads, and the functions inside it."""
    return set(code.co_names).union(*(names_in(c) for c in code.co_consts if isinstance(c, types.CodeType)))
