"""Optimisers by name: our own, any class of torch.optim, or a user's that is one.

Ours are equations on one flat vector (`optim`). Those of torch see the parameters one by one, as a module has them,
since some depend on their shapes. What they remember is kept as named flat tensors like everything else of a learner,
so a checkpoint, several learners and a resumed run know no difference; torch's object is made anew for every step and
looks at these tensors. It reads its numbers in Python, so an update with one is not compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rookery.core.errors import CompileError, ConfigError
from rookery.core.registry import did_you_mean, load
from rookery.learning.optim import SGD, Adam, Optimiser, RMSprop

OURS: dict[str, type[Optimiser]] = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}
Shapes = tuple[torch.Size, ...]
Remembered = tuple[tuple[str, int, torch.Size, torch.dtype], ...]  # name, number of the parameter, shape and type


def torchs() -> dict[str, type[torch.optim.Optimizer]]:
    """lower-case name → class of torch.optim."""
    base, table = torch.optim.Optimizer, vars(torch.optim)
    return {
        name.lower(): kind
        for name, kind in sorted(table.items())
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    }


def named(name: str) -> type[Optimiser] | type[torch.optim.Optimizer]:
    """The class of a name: ours first, then torch's, in any case; or `module:Class`."""
    if ":" in name:
        kind = load(name)
        if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
            raise ConfigError(f"algo.optimiser={name} is no class of torch.optim.Optimizer, but {kind!r}")
        return kind
    known: dict[str, Any] = torchs() | OURS
    if name.lower() not in known:
        raise ConfigError(
            f"algo.optimiser={name} is no optimiser; expected {', '.join(sorted(known))} or module:Class."
            f"{did_you_mean(name, known)}"
        )
    return known[name.lower()]


def eager_by_choice(name: str | None) -> str | None:
    """Why an update with this optimiser is not compiled; None: it can be."""
    kind = None if name is None else named(name)
    if kind is None or issubclass(kind, Optimiser):
        return None
    return f"algo.optimiser={name} is {kind.__module__.partition('.')[0]}'s, which runs eagerly"


def chosen(own: Optimiser, name: str | None, options: Mapping[str, Any]) -> Optimiser:
    """The optimiser of this name in the place of `own`: with its rate and the limits of its gradient.

    What both know (ε of Adam and RMSprop) is taken over, too, unless the options say otherwise.
    """
    if own.fixed or (name is None and not options):
        return own
    kind = type(own) if name is None else named(name)
    shared = {part.name: getattr(own, part.name) for part in fields(own)}
    if not issubclass(kind, Optimiser):
        limits = {part.name: shared[part.name] for part in fields(Optimiser)}
        return TorchOptimiser(**limits, kind=kind, options=tuples(options))
    known = {part.name for part in fields(kind)}
    free = known - {part.name for part in fields(Optimiser)} | {"decay"}
    if unknown := [key for key in options if key not in free]:
        raise ConfigError(
            f"algo.optimiser_options: {kind.__name__.lower()} has no {unknown[0]!r}; it has {', '.join(sorted(free))}."
            f"{did_you_mean(unknown[0], free)} For those of torch's class set "
            f"algo.optimiser=torch.optim:{kind.__name__}"
        )
    for key, value in options.items():
        most = 1.0 if key in ("beta1", "beta2", "alpha", "momentum") else math.inf
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < most:
            wanted = "a number in [0, 1)" if most == 1.0 else "a number ≥ 0"
            raise ConfigError(f"algo.optimiser_options: expected {wanted} as {key}, got {value!r}")
    return kind(**{key: value for key, value in shared.items() if key in known} | dict(options))


def tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """A list of YAML is a tuple for torch: betas."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


@dataclass(frozen=True)
class TorchOptimiser(Optimiser):
    """A class of torch.optim; `fitted` to the parameters of a network before its first step."""

    kind: type[torch.optim.Optimizer] = torch.optim.Adam
    options: dict[str, Any] = field(default_factory=dict)  # for the class, besides the rate
    shapes: Shapes = ()  # of the parameters
    remembered: Remembered = ()  # what it keeps of each

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("count", *dict.fromkeys(f"state_{name}" for name, *_ in self.remembered))

    def fitted(self, shapes: Shapes) -> TorchOptimiser:
        """The same for parameters of these shapes: one step on zeros tells what it remembers."""
        trial = [torch.zeros(shape, device="cpu") for shape in shapes]
        where = f"algo.optimiser={self.kind.__name__} with algo.optimiser_options={self.options}"
        try:
            optimiser = self._made(trial, [torch.zeros_like(p) for p in trial], 1e-3)
            before = settings(optimiser)
            optimiser.step()
        except Exception as error:  # whatever somebody's class raises
            raise ConfigError(f"{where} cannot move these networks: {type(error).__name__}: {error}") from error
        if settings(optimiser) != before:
            raise ConfigError(
                f"{where} remembers more than its `state`, which a checkpoint would lose. Choose another."
            )
        kept = [(name, i, value) for i, p in enumerate(trial) for name, value in sorted(optimiser.state[p].items())]
        for name, _, value in kept:
            if value is not None and not isinstance(value, Tensor):
                raise ConfigError(f"{where} remembers {name!r} as {type(value).__name__}, expected a tensor.")
        remembered = sorted((n, i, v.shape, v.dtype) for n, i, v in kept if v is not None)
        return replace(self, shapes=shapes, remembered=tuple(remembered))

    def init(self, value: Tensor) -> dict[str, Tensor]:
        sizes: dict[str, int] = {}
        types: dict[str, torch.dtype] = {}
        for name, _, shape, dtype in self.remembered:
            sizes[name], types[name] = sizes.get(name, 0) + shape.numel(), dtype
        own = {f"state_{name}": torch.zeros(n, dtype=types[name], device=value.device) for name, n in sizes.items()}
        return {name: own.get(name, tensor) for name, tensor in super().init(value).items()}

    def step_(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> None:
        count, flat = slots[0], dict(zip(self.slots[1:], slots[1:]))
        if self.decay:
            p.copy_(self.decayed(p, lr))
        parameters = list(cut(p, self.shapes))
        optimiser = self._made(parameters, list(cut(g, self.shapes)), float(lr))
        views = self._views(flat)
        if count > 0:  # else it begins by itself, with other numbers than zeros perhaps
            for (name, i, *_), view in zip(self.remembered, views):
                optimiser.state[parameters[i]][name] = view
        optimiser.step()
        for (name, i, *_), view in zip(self.remembered, views):
            if (new := optimiser.state[parameters[i]][name]) is not view:
                view.copy_(new)
        count += 1

    def pure(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> tuple[Tensor, ...]:
        raise CompileError(f"torch.optim's {self.kind.__name__} reads its numbers in Python")

    def _made(self, parameters: list[Tensor], grads: list[Tensor], lr: float) -> torch.optim.Optimizer:
        for parameter, grad in zip(parameters, grads):
            parameter.grad = grad
        return self.kind(parameters, lr=lr, **self.options)  # type: ignore[call-arg]

    def _views(self, flat: dict[str, Tensor]) -> list[Tensor]:
        at = dict.fromkeys(flat, 0)
        views = []
        for name, _, shape, _ in self.remembered:
            start, end = at[f"state_{name}"], at[f"state_{name}"] + shape.numel()
            views.append(flat[f"state_{name}"][start:end].view(shape))
            at[f"state_{name}"] = end
        return views


def settings(optimiser: torch.optim.Optimizer) -> list[Any]:
    """What it was made with, and whatever else it has besides the state of its parameters."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimiser.param_groups]
    own = {key: value for key, value in vars(optimiser).items() if isinstance(value, int | float | str | list | tuple)}
    own = {key: value for key, value in own.items() if key != "param_groups"}
    return [groups, own, [key for key in optimiser.state if not isinstance(key, Tensor)]]


def cut(flat: Tensor, shapes: Shapes) -> Iterator[Tensor]:
    """The vector in pieces of these shapes."""
    sizes = [shape.numel() for shape in shapes]
    return (part.view(shape) for part, shape in zip(flat.detach().split(sizes), shapes))
