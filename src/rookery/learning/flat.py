"""Flat parameters: a network's numbers live in one vector, its parameters and gradients are views of it.

One vector makes a target copy, a checkpoint and an optimiser step a single operation, and lets readers elsewhere see
live weights. A target is another vector for the same module: `bind(module, numbers)` is a twin of the module tree that
looks its tensors up elsewhere, so nobody deep-copies a network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rookery.core.errors import BrokenView, ConfigError
from rookery.learning.short_path import Read, chain_of
from rookery.nets.modules import modules_with_own_loss
from rookery.nets.noisy import noise_of


def bind(module: nn.Module, table: dict[int, Tensor], training: bool) -> Any:
    """The same module with other numbers: tensors are looked up in `table` by identity, so tied weights stay tied."""
    for name, value in module.__dict__.items():
        if name not in _TORCHS_OWN and any(isinstance(part, nn.Module) or id(part) in table for part in _parts(value)):
            raise BrokenView(
                f"{type(module).__name__}.{name} keeps modules or parameters in a plain list or dict: a target would "
                "silently compute with the original's numbers. Use nn.ModuleList, nn.ModuleDict or nn.ParameterList."
            )
        if isinstance(getattr(value, "__self__", None), nn.Module):
            raise BrokenView(
                f"{type(module).__name__}.{name} is a bound method kept as an attribute: a target or a "
                "compiled twin of the module would silently compute with the original's numbers. Call "
                "the method instead of storing it."
            )
    twin = object.__new__(type(module))
    twin.__dict__.update(module.__dict__, training=training)
    twin.__dict__["_parameters"] = {k: None if p is None else table[id(p)] for k, p in module._parameters.items()}
    twin.__dict__["_buffers"] = {k: None if b is None else table.get(id(b), b) for k, b in module._buffers.items()}
    twin.__dict__["_modules"] = {k: None if m is None else bind(m, table, training) for k, m in module._modules.items()}
    if names := module.__dict__.get("_flat_weights_names"):  # nn.LSTM and nn.GRU keep a second list of their weights
        twin.__dict__["_flat_weights"] = [getattr(twin, name) for name in names]
    return twin


_TORCHS_OWN = ("_parameters", "_buffers", "_modules", "_flat_weights")


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list | tuple | set) else (value,)


class FlatNetwork:
    """A module whose parameters, gradients and buffers are views of flat vectors. A target shares the module only."""

    def __init__(self, name: str, module: nn.Module, target_of: FlatNetwork | None = None):
        self.name, self.module, self.is_target = name, module, target_of is not None
        self.params: dict[str, Tensor] = dict(module.named_parameters())
        self.buffers: dict[str, Tensor] = dict(module.named_buffers())
        self._check_kinds()
        if target_of is not None:
            self.value: Tensor = target_of.value.clone()
            self.stats: Tensor = target_of.stats.clone()
            self.grad = torch.empty(0, device=self.value.device)
        else:
            self.value, self.stats = _pack(self.params), _pack(self.buffers)
            self.grad = torch.zeros_like(self.value)
            for p, view, grad in zip(self.params.values(), self.views(self.value), self.views(self.grad)):
                p.data, p.grad = view, grad
            for b, view in zip(self.buffers.values(), self.stat_views(self.stats)):
                b.data = view
        self.frozen = self.bound(self.views(self.value), self.stats, training=False)
        self.chain = None if target_of else chain_of(module)
        frozen = chain_of(self.frozen)
        self.reader = self.frozen if frozen is None else Read(frozen)  # the same, faster where it can be
        self.noise = list(noise_of(self.frozen))  # views of `stats`
        self.quiet = self._without_noise() if self.noise else self.frozen  # what greedy acting reads
        self.own_losses = [] if target_of else [path for path, _ in modules_with_own_loss(module)]

    def _check_kinds(self) -> None:
        for kind, tensors in (("parameter", self.params), ("buffer", self.buffers)):
            for name, tensor in tensors.items():
                if tensor.dtype != torch.float32:
                    raise ConfigError(
                        f"network {self.name!r}: {kind} {name!r} is {tensor.dtype}, expected "
                        "torch.float32: all numbers of a network live in one float vector. Make it "
                        "float32, or keep it as a plain Python value."
                    )

    def views(self, flat: Tensor) -> list[Tensor]:
        """The flat vector cut into the shapes of the parameters."""
        return _cut(flat, self.params)

    def parameter(self, name: str) -> Tensor:
        """One of them, live."""
        return dict(zip(self.params, self.views(self.value)))[name]

    def stat_views(self, flat: Tensor) -> list[Tensor]:
        """The flat vector cut into the shapes of the buffers."""
        return _cut(flat, self.buffers)

    def bound(self, params: list[Tensor], stats: Tensor, training: bool) -> Any:
        """The module with these numbers."""
        originals = [*self.params.values(), *self.buffers.values()]
        table = {id(t): view for t, view in zip(originals, [*params, *self.stat_views(stats)])}
        return bind(self.module, table, training)

    def _without_noise(self) -> Any:
        """The frozen module, live in all its numbers but for the noise of noisy layers, which is zero."""
        originals = [*self.params.values(), *self.buffers.values()]
        live = [*self.views(self.value), *self.stat_views(self.stats)]
        table = {id(t): view for t, view in zip(originals, live)}
        return bind(self.module, table | {id(t): torch.zeros_like(t) for t in noise_of(self.module)}, training=False)

    def alone(self) -> nn.Module:
        """An ordinary module with a copy of these numbers and without noise: nothing of it is shared or flat."""
        twin = copy.deepcopy(self.module).eval()
        numbers = [*self.views(self.value), *self.stat_views(self.stats)]
        for own, number in zip([*twin.parameters(), *twin.buffers()], numbers):
            own.data, own.grad = number.detach().clone(), None
        for noise in noise_of(twin):
            noise.zero_()
        return twin

    def check(self) -> None:
        """Every parameter and gradient still lies in its vector; once per report."""
        if self.is_target:
            return
        at, named = 0, dict(self.module.named_parameters())
        if list(named) != list(self.params):
            raise BrokenView(f"network {self.name!r}: parameters were added or removed after the start: {list(named)}")
        for name, p in named.items():
            for what, t, flat in (("parameter", p, self.value), ("the gradient of", p.grad, self.grad)):
                if t is None or t.dtype != flat.dtype or t.data_ptr() != flat.data_ptr() + flat.element_size() * at:
                    raise BrokenView(
                        f"network {self.name!r}: {what} {name!r} left its flat vector and would "
                        "silently stop learning. Did the module call zero_grad(), .to(), .half() or "
                        "deepcopy on itself? Remove that call."
                    )
            at += p.numel()


def _pack(tensors: dict[str, Tensor]) -> Tensor:
    if not tensors:
        return torch.zeros(0, device="cpu")
    return torch.cat([t.detach().reshape(-1) for t in tensors.values()])


def _cut(flat: Tensor, like: dict[str, Tensor]) -> list[Tensor]:
    return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in like.values()]), like.values())]


Loss = Callable[[Any], Any]
