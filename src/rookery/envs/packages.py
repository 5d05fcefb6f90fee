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

_REGISTERS = {  # how ids begin → module that registers them when it is imported, which gymnasium does not do by itself
    "dm_control/": "shimmy",
    "popgym-": "popgym",
    "Foraging-": "lbforaging",
    "rware-": "rware",
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "Fetch": "gymnasium_robotics",
    "HandManipulate": "gymnasium_robotics",
    "PointMaze": "gymnasium_robotics",
    "AntMaze": "gymnasium_robotics",
    "AdroitHand": "gymnasium_robotics",
    "FrankaKitchen": "gymnasium_robotics",
    "Panda": "panda_gym",
    "highway-": "highway_env",
    "merge-": "highway_env",
    "roundabout-": "highway_env",
    "parking-": "highway_env",
    "intersection-": "highway_env",
    "racetrack-": "highway_env",
    "bsuite/": "shimmy",
    "mo-": "mo_gymnasium",
    "procgen": "procgen",
}


def registering(env_id: str) -> str | None:
    """The module that registers an id which begins like this, if it is a well-known one."""
    return next((module for begin, module in _REGISTERS.items() if env_id.startswith(begin)), None)


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
