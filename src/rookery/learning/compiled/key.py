"""The key of an artefact: everything its machine code depends on.

Source reached from the update (closures, callees any number of calls deep, users' modules), plain numbers, shapes,
versions, threads, compiler and CPU. Scheduled numbers are inputs and therefore no part of it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import sys
import types
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from rookery.core.plain import names_in
from rookery.core.schedule import Schedule
from rookery.core.system.portable import kernel_text

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), torch.dtype, torch.device, torch.Size, np.dtype)


def key_of(learner: Any, name: str, parts: list[Any]) -> str:
    """The key of one named update; `parts` is our own code that shapes the artefact."""
    digest = hashlib.sha256()

    def say(*words: Any) -> None:
        digest.update(repr(words).encode())

    seen: dict[int, Any] = {}
    say(sorted(circumstances().items()))
    say(name, [(k, tuple(s), str(d)) for k, s, d in learner.signatures[name]], learner.knob_names)
    describe(getattr(learner.algo, name), say, seen)
    for key, net in learner.nets.items():
        say(
            key,
            [(n, tuple(p.shape)) for n, p in net.params.items()],
            [(n, tuple(b.shape)) for n, b in net.buffers.items()],
        )
        describe(net.module, say, seen)
    describe(learner.optimisers, say, seen)
    describe(parts, say, seen)
    return digest.hexdigest()[:32]


@lru_cache(maxsize=1)
def cpu_flags() -> str:
    """Generated code uses every feature of the CPU it was built on:
    a cache shared by unlike machines must tell them apart.
    """
    info = kernel_text("/proc/cpuinfo")
    if not info:
        return platform.processor()
    return next((line for line in info.splitlines() if line.startswith("flags")), "")


def compiler() -> str | None:
    """The C++ compiler that inductor would use, or None."""
    return shutil.which(os.environ.get("CXX", "g++"))


def circumstances() -> dict[str, Any]:
    """What machine code depends on besides the update, as JSON."""
    path = compiler()
    # inductor sets TORCHINDUCTOR_CACHE_DIR itself while it builds: the key must not change with it
    skip = {"TORCHINDUCTOR_CACHE_DIR"}
    settings = sorted([k, v] for k, v in os.environ.items() if k.startswith("TORCHINDUCTOR") and k not in skip)
    return {
        "torch": str(torch.__version__),
        "python": sys.version,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "cpu": hashlib.sha256(cpu_flags().encode()).hexdigest()[:16],
        "capability": torch.backends.cpu.get_cpu_capability(),  # ATEN_CPU_CAPABILITY allows less than the CPU can do
        "compiler": path and [os.path.realpath(path), os.stat(path).st_size],
        "settings": settings,
    }


def describe(x: Any, say: Callable[..., None], seen: dict[int, Any]) -> None:
    """Describe a value by what it does:
    code by bytecode, constants, closure and the globals it names; data by value.
    """
    go = partial(describe, say=say, seen=seen)
    if isinstance(x, _PLAIN):
        return say(type(x).__name__, str(x) if isinstance(x, torch.dtype | torch.device | np.dtype) else x)
    if not isinstance(
        x, tuple | frozenset | types.CodeType
    ):  # whether equal constants are one object depends on loading
        if id(x) in seen:
            return say("again")
        seen[id(x)] = x  # keeps it alive: the id of a dead temporary is given to the next one
    if isinstance(x, functools.partial):
        return _each(["partial", x.func, x.args, x.keywords], go)
    if not isinstance(x, types.FunctionType) and hasattr(x, "__wrapped__"):
        return _each(["wrapped", x.__wrapped__], go)
    if isinstance(x, types.FunctionType | types.MethodType | types.CodeType | types.ModuleType):
        return _code(x, say, go)
    if isinstance(x, type):
        return _class(x, say, go)
    if isinstance(x, staticmethod | classmethod | property):
        return _each([getattr(x, "__func__", None), getattr(x, "fget", None)], go)
    return _data(x, say, go)


def _each(items: Any, go: Callable[[Any], None]) -> None:
    for item in items:
        go(item)


def _data(x: Any, say: Callable[..., None], go: Callable[[Any], None]) -> None:
    if isinstance(x, Tensor):
        return say("tensor", tuple(x.shape), str(x.dtype), x.detach().cpu().numpy().tobytes())
    if isinstance(x, np.ndarray):
        return say("array", x.shape, str(x.dtype), x.tobytes())
    if isinstance(x, list | tuple | set | frozenset):
        say(type(x).__name__, len(x))
        return _each(sorted(x, key=repr) if isinstance(x, set | frozenset) else x, go)
    if isinstance(x, dict):
        return _each([part for item in x.items() for part in item], go)
    if isinstance(x, BaseModel):
        values = {k: v for k, v in x if not isinstance(v, Schedule)}  # a schedule becomes a knob, which is an input
        say(type(x).__qualname__, sorted(x.__class__.model_fields))
        return go(values)
    go(type(x))
    if isinstance(x, nn.Module) or not is_library(type(x).__module__):
        skip = ("_parameters", "_buffers", "_flat_weights")
        slots = [s for cls in type(x).__mro__ for s in getattr(cls, "__slots__", ())]
        values = {s: getattr(x, s) for s in slots if hasattr(x, s)} | getattr(x, "__dict__", {})
        return go({k: v for k, v in sorted(values.items()) if k not in skip})
    text = repr(x)
    return say(text if " at 0x" not in text else getattr(x, "__name__", type(x).__name__))


def _code(x: Any, say: Callable[..., None], go: Callable[[Any], None]) -> None:
    if isinstance(x, types.CodeType):
        say(x.co_code, x.co_names, x.co_varnames, x.co_freevars)
        return go(x.co_consts)
    if isinstance(x, types.ModuleType):
        return _module(x, say, go)
    if isinstance(x, types.MethodType):
        return _each([x.__self__, x.__func__], go)
    if is_library(x.__module__):
        return say(x.__module__, x.__qualname__)
    _each([x.__code__, x.__defaults__, x.__kwdefaults__], go)
    go([cell.cell_contents for cell in x.__closure__ or () if not _empty(cell) and cell.cell_contents is not x])
    for name in sorted(names_in(x.__code__)):
        if name in x.__globals__:
            say(name)
            go(x.__globals__[name])


def _module(x: types.ModuleType, say: Callable[..., None], go: Callable[[Any], None]) -> None:
    """An installed module by its version; ours and the user's by its text and by what it takes from elsewhere."""
    root = sys.modules.get(x.__name__.split(".")[0])
    file = getattr(x, "__file__", None)
    if is_library(x.__name__) or not file:
        return say(x.__name__, str(getattr(root, "__version__", "")))
    say(x.__name__, Path(file).read_bytes())
    kinds = types.FunctionType | types.ModuleType | type
    for name, value in sorted(vars(x).items()):
        if isinstance(value, kinds) and getattr(value, "__module__", None) != x.__name__:
            say(name)
            go(value)


def _empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  reading it is the only way to know
    except ValueError:
        return True
    return False


def _class(x: type, say: Callable[..., None], go: Callable[[Any], None]) -> None:
    say(x.__module__, x.__qualname__)
    if is_library(x.__module__):
        return
    _each(x.__bases__, go)
    if issubclass(x, BaseModel):
        return say(sorted(x.model_fields))
    for key, value in sorted(vars(x).items()):
        if (not key.startswith("__") or callable(value)) and key not in ("__annotations__", "__dict__", "_abc_impl"):
            say(key)
            go(value)


@lru_cache(maxsize=4096)
def is_library(module: str | None) -> bool:
    """Installed code is known by its version (torch's is in the key); ours and the user's by its contents."""
    root = (module or "builtins").split(".")[0]
    if root == "__main__":
        return False
    if root in sys.stdlib_module_names or root == "builtins":
        return True
    if root == "rookery":
        return False
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
