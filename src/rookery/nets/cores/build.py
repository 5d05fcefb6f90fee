"""The core of a model, from `model.core`.

A user's core (`model.core=module:Class`) is a class whose objects are modules:
`Class(in_features, **model.core.kwargs)`, with `out_features: int`, `state_shapes: dict[str, tuple[int, ...]]` (which
must not depend on in_features) and `forward(x, state) -> (y, state)` on rows: x [N, in_features],
y [N, out_features], each entry of the state [N, *shape]. An episode begins with a state of zeros.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rookery.core.errors import ConfigError
from rookery.core.registry import load
from rookery.core.rng import seeded
from rookery.core.spec import Leaf
from rookery.nets.config import CoreConfig
from rookery.nets.cores.cells import ENTRIES, Core
from rookery.nets.cores.gtrxl import GTrXL
from rookery.nets.cores.stepwise import State, Stepwise


def build_core(in_features: int, config: CoreConfig) -> Core | Stepwise:
    """A fresh core on the CPU."""
    if config.kind in ENTRIES:
        return Core(in_features, config)
    return GTrXL(in_features, config) if config.kind == "gtrxl" else OwnCore(in_features, config)


def state_spec(config: CoreConfig) -> dict[str, Leaf]:
    """What one seat remembers."""
    if config.kind in ENTRIES:
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(ENTRIES[config.kind], (config.size,))
    else:
        with seeded(0):  # what is drawn for weights that nobody uses is nobody's business
            shapes = build_core(1, config).shapes  # type: ignore[assignment]
    return {name: Leaf("box", shape, np.dtype(np.float32)) for name, shape in shapes.items()}


class OwnCore(Stepwise):
    """A user's core, which need not know of time and of several leading dimensions."""

    plain = True  # core.plain

    def __init__(self, in_features: int, config: CoreConfig):
        super().__init__()
        self.module = _user_module(in_features, config)
        self.size = int(self.module.out_features)
        self.shapes = {name: tuple(shape) for name, shape in self.module.state_shapes.items()}
        _try_out(self, in_features, config)

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.module(x, state)


def _user_module(in_features: int, config: CoreConfig) -> Any:
    cls, where = load(config.kind), f"model.core={config.kind}"
    try:
        inspect.signature(cls).bind(in_features, **config.kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{where} is called as Class(in_features, **model.core.kwargs) with kwargs={config.kwargs}: {error}"
        ) from None
    module = cls(in_features, **config.kwargs)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{where} made a {type(module).__name__}, expected a torch.nn.Module")
    width, shapes = getattr(module, "out_features", None), getattr(module, "state_shapes", None)
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise ConfigError(f"{where} needs an attribute `out_features: int`, the size of its output, got {width!r}.")
    if not isinstance(shapes, dict) or not shapes:
        raise ConfigError(
            f"{where} needs an attribute `state_shapes`, a dict of what it remembers and its shape, such as "
            f"{{'h': (64,)}}, got {shapes!r}."
        )
    return module


def _try_out(core: OwnCore, in_features: int, config: CoreConfig) -> None:
    """Two rows of zeros must give y and a state of the promised shapes."""
    where, training = f"model.core={config.kind}", core.training
    state = {name: torch.zeros(2, *shape, device="cpu") for name, shape in core.shapes.items()}
    core.eval()
    try:
        with torch.no_grad():
            y, after = core.cell(torch.zeros(2, in_features, device="cpu"), state)
        got = {"y": tuple(y.shape)} | {name: tuple(part.shape) for name, part in after.items()}
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ConfigError(f"{where} failed on two rows of zeros: {type(error).__name__}: {error}") from error
    finally:
        core.train(training)
    wanted = {"y": (2, core.size)} | {name: (2, *shape) for name, shape in core.shapes.items()}
    if got != wanted:
        raise ConfigError(f"{where} gave {got} for two rows, expected {wanted}")
