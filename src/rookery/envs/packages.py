"""Packages that some envs need and that come with an extra: asked for here, so that all say alike how to get them."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType

from rookery.core.errors import ConfigError

_EXTRA = {  # module → (package, extra that brings it)
    "ale_py": ("ale-py", "atari"),
    "envpool": ("envpool", "envpool"),
    "pettingzoo": ("pettingzoo", "marl"),
    "mpe2": ("mpe2", "marl"),
    "lbforaging": ("lbforaging", "marl"),
    "rware": ("rware", "marl"),
    "sumo": ("eclipse-sumo", "traffic"),
    "sumo_rl": ("sumo-rl", "traffic"),
    "libsumo": ("libsumo", "traffic"),
    "jax": ("jax", "smax"),
    "jaxmarl": ("jaxmarl", "smax"),
}


def must_have(module: str, who: str) -> None:
    """Nothing, unless this is a module (or one inside it) of a package above that is not installed: `who` needs it."""
    top = module.partition(".")[0]
    if top in _EXTRA and importlib.util.find_spec(top) is None:
        package, extra = _EXTRA[top]
        raise ConfigError(f'{who} needs {package}, which is not installed: pip install "rookery[{extra}]"')


def import_package(module: str, who: str) -> ModuleType:
    """The module, imported."""
    must_have(module, who)
    return importlib.import_module(module)


def import_quietly(module: str, who: str) -> ModuleType:
    """The same without a word on standard output, which some packages take back to what the process began with."""
    begin = sys.__stdout__
    with redirect_stdout(io.StringIO()) as sink, redirect_stderr(sys.stderr):
        sys.__stdout__ = sink  # type: ignore[misc,assignment]
        try:
            return import_package(module, who)
        finally:
            sys.__stdout__ = begin  # type: ignore[misc]
