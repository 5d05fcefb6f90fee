"""How and where updates are executed: mode, device, cache of compiled artefacts. Pure functions of config and
machine."""

from __future__ import annotations

from pathlib import Path

import torch

from rookery.core.errors import ConfigError
from rookery.learning.compiled.cache import Cache, default_folder
from rookery.learning.learner import Mode
from rookery.run.config.config import Config


def choose_mode(config: Config) -> tuple[Mode, str]:
    """(mode, why): a pure function of config and machine."""
    wanted, algorithm = config.learning.mode, config.algorithm
    if wanted == "eager":
        return "eager", "learning.mode=eager"
    from rookery.learning.compiled.artefact import unavailable
    from rookery.learning.compiled.internals import untested
    from rookery.learning.compiled.key import compiler

    problem = algorithm.not_compiled(config) or unavailable()
    if config.learning.learners > 1:
        problem = f"learning.learners={config.learning.learners} exchange gradients in the middle of an update"
    if problem is None and device_of(config) != "cpu":
        problem = f"compiled updates run on the CPU, run.device is {config.run.device}"
    note = f"; {untested()}" if untested() else ""
    if wanted == "compiled":
        if problem:
            raise ConfigError(f"learning.mode=compiled is not possible: {problem}. Set learning.mode=auto or eager.")
        return "compiled", f"learning.mode=compiled{note}"
    if problem:
        return "eager", problem
    planned, least = algorithm.planned_updates(config), config.learning.compile_after
    if planned < least:
        return "eager", f"{planned} updates planned < learning.compile_after={least}"
    reason = f"{Path(compiler() or '').name} found, {planned} updates planned ≥ learning.compile_after={least}"
    return "compiled", reason + note


def cache_of(config: Config) -> Cache:
    """Where compiled artefacts live, and the bounds of that folder."""
    path = config.learning.cache
    folder = Path(path).expanduser().absolute() if path else default_folder()
    return Cache(folder, config.learning.cache_bytes, config.learning.cache_days)


def device_of(config: Config) -> str:
    """The learner's device; a device that is not there is an error before anything starts."""
    wanted = config.run.device
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = wanted.partition(":")[0]
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"run.device={wanted}, but torch finds no CUDA device here. Set run.device=cpu or auto.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("run.device=mps, but torch finds no Metal device here. Set run.device=cpu or auto.")
    return wanted
