"""The words of an update, and their two meanings: `Eager` does them at once, `Traced` records them as pure tensor code.

    s.q(obs)                      read a network: evaluation mode, its parameters get no gradient (its inputs do)
    s.minimise("q", loss)         loss(q) → value or (value, aux), q in training mode; then gradient → limits →
                                  optimiser; returns aux, detached. The loss and the gradient's norm become metrics.
                                  by="other": with the moments of another optimiser of this network
    s.follow("q_target", "q", τ)  target ← (1 − τ) target + τ source
    s.normal(n, k), s.uniform(n)  random numbers: drawn here when eager, inputs of the artefact when compiled
    s.knob.clip                   a scheduled number: always an input, never baked into the artefact

A module anywhere inside a network may define `own_loss(batch) → (value, {name: number})`: it is added to the loss
whenever that network is minimised, and its numbers become metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rookery.core.plain import plain_method
from rookery.core.tree import tree_map
from rookery.equations.td import known_slope
from rookery.learning.flat import FlatNetwork, Loss
from rookery.learning.optim import Optimiser
from rookery.learning.short_path import Cut


class Rows(dict[str, Any]):
    """A batch inside an update: `b.obs` is `b["obs"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the batch has no field {name!r}; it has {', '.join(sorted(self))}") from None


class Shares(Protocol):
    """What an update that several learners share asks of their `Ring`."""

    def average(self, grad: Tensor) -> None: ...
    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def part(self, drawn: Tensor, shape: tuple[int, ...]) -> Tensor: ...


class Words:
    """What both executions share."""

    def __init__(
        self,
        nets: dict[str, FlatNetwork],
        optimisers: dict[str, Optimiser],
        tensors: dict[str, Tensor],
        knobs: Sequence[str],
    ):
        self._nets, self._optimisers, self._tensors = nets, optimisers, tensors
        self._metrics: dict[str, Tensor] = {}
        self._batch: Rows = Rows()
        self._minimised = False
        self.knob = SimpleNamespace(**dict(zip(knobs, tensors["knobs"].unbind())))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._nets:
            raise AttributeError(f"no network {name!r}; there are {', '.join(self._nets)}")
        return self._read(name)

    def minimise(self, name: str, loss: Loss, by: str | None = None) -> Any:
        """One step down the gradient of loss(network), of its own optimiser or of that called `by`;
        returns the detached aux.
        """
        self._minimised = True
        value, aux, grad = self._gradient(name, loss)
        by = by or name
        optimiser = self._optimisers[by]
        kept = [f"{by}.{slot}" for slot in optimiser.limit_slots]
        grad, norm, *moments = optimiser.limited(grad, tuple(self._tensors[key] for key in kept))
        self._keep(dict(zip(kept, moments)))
        self._apply(name, by, grad)
        self._metrics[f"{by}/loss"] = value.detach()
        self._metrics[f"{by}/grad_norm"] = norm
        return aux

    def _evaluate(self, name: str, loss: Loss, net: Any) -> tuple[Tensor, Any]:
        out = loss(net)
        value, aux = out if isinstance(out, tuple) else (out, None)
        own: dict[str, list[Tensor]] = {}
        for path in self._nets[name].own_losses:
            extra, numbers = net.get_submodule(path).own_loss(self._batch)
            value = value + extra
            for key, number in numbers.items():
                own.setdefault(key, []).append(number.detach())
        for key, values in own.items():  # the same module twice (twin critics): its mean
            self._metrics[f"{name}/{key}"] = values[0] if len(values) == 1 else torch.stack(values).mean()
        return value, None if aux is None else tree_map(lambda t: t.detach(), aux)

    def _read(self, name: str) -> Any:
        raise TypeError("Words is executed by Eager or Traced")

    def _gradient(self, name: str, loss: Loss) -> tuple[Tensor, Any, Tensor]:
        raise TypeError("Words is executed by Eager or Traced")

    def _apply(self, name: str, by: str, grad: Tensor) -> None:
        raise TypeError("Words is executed by Eager or Traced")

    def _keep(self, moments: dict[str, Tensor]) -> None:
        raise TypeError("Words is executed by Eager or Traced")


class Eager(Words):
    """Ordinary autograd into the flat gradient, then one fused kernel on the flat vector."""

    def __init__(self, *parts: Any, generator: torch.Generator):
        super().__init__(*parts)
        self._generator, self._device = generator, self._tensors["knobs"].device
        self._shares: Shares | None = None  # while an update is shared by several learners
        self._promises: dict[str, bool] = {}  # named update → whether it is plain (`core.plain`)
        self._plain = False  # whether the one that is executed is: its losses only call their networks
        noisy = any(net.noise for net in self._nets.values())
        self.quiet = Quiet(self._nets, self.knob) if noisy else self  # the reader of greedy acting

    def execute(self, algo: Any, name: str, batch: dict[str, Any]) -> Any:
        """What a named update of this batch returns; its metrics are kept here."""
        if name not in self._promises:
            self._promises[name] = plain_method(algo, name)
        self._metrics, self._batch, self._plain = {}, Rows(batch), self._promises[name]
        return getattr(algo, name)(self, self._batch)

    def _read(self, name: str) -> Any:
        return self._nets[name].reader

    def _gradient(self, name: str, loss: Loss) -> tuple[Tensor, Any, Tensor]:
        net = self._nets[name]
        net.grad.zero_()
        # any other loss may want more of its network than what it computes:
        # the gradient of a parameter, other parameters in its place
        cut = Cut(net.chain) if self._plain and net.chain is not None else None
        value, aux = self._evaluate(name, loss, cut or net.module)
        slope = None if cut is None or cut.leaf is None else known_slope(value, cut.leaf)
        if slope is None:
            value.backward()
        if cut is not None:
            cut.finish(slope)
        if self._shares is not None:
            self._shares.average(net.grad)
        return value, aux, net.grad

    def _apply(self, name: str, by: str, grad: Tensor) -> None:
        optimiser = self._optimisers[by]
        slots = tuple(self._tensors[f"{by}.{slot}"] for slot in optimiser.slots)
        optimiser.step_(self._nets[name].value, grad, slots, getattr(self.knob, optimiser.lr))

    def _keep(self, moments: dict[str, Tensor]) -> None:
        for key, moment in moments.items():
            self._tensors[key].copy_(moment)

    def follow(self, target: str, source: str, tau: float) -> None:
        self._nets[target].value.lerp_(self._nets[source].value, tau)
        self._nets[target].stats.copy_(self._nets[source].stats)

    def normal(self, *shape: int) -> Tensor:
        return self._draw(torch.randn, shape)

    def uniform(self, *shape: int) -> Tensor:
        return self._draw(torch.rand, shape)

    def _draw(self, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        if self._shares is None:
            return draw(shape, generator=self._generator, device="cpu").to(self._device)
        drawn = draw(self._shares.whole(shape), generator=self._generator, device="cpu")
        return self._shares.part(drawn, shape).to(self._device)


class Quiet:
    """Reads networks without the noise of their noisy layers: `s.q(obs)` and `s.knob`, nothing else."""

    def __init__(self, nets: dict[str, FlatNetwork], knob: SimpleNamespace):
        self._nets, self.knob = nets, knob

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._nets:
            raise AttributeError(f"no network {name!r}; there are {', '.join(self._nets)}")
        return self._nets[name].quiet


class Traced(Words):
    """Pure code on named tensors:
    nothing is written before `commit`, so the trace could be cut after every gradient.
    """

    def __init__(self, *parts: Any, noise: Sequence[Tensor] = ()):
        super().__init__(*parts)
        self._given, self._noise = dict(self._tensors), iter(noise)
        self._drawn: list[tuple[str, list[int]]] = []

    def _read(self, name: str) -> Any:
        net = self._nets[name]
        return net.bound(net.views(self._tensors[f"{name}.value"]), self._tensors[f"{name}.stats"], training=False)

    def _gradient(self, name: str, loss: Loss) -> tuple[Tensor, Any, Tensor]:
        net, t = self._nets[name], self._tensors
        parameters = [view.detach().requires_grad_() for view in net.views(t[f"{name}.value"])]
        if net.buffers:
            t[f"{name}.stats"] = t[f"{name}.stats"].clone()  # a learning module may write its statistics in place
        value, aux = self._evaluate(name, loss, net.bound(parameters, t[f"{name}.stats"], training=True))
        grads = torch.autograd.grad(value, parameters, materialize_grads=True)
        return value, aux, torch.cat([g.reshape(-1) for g in grads])

    def _apply(self, name: str, by: str, grad: Tensor) -> None:
        optimiser = self._optimisers[by]
        keys = [f"{name}.value", *(f"{by}.{slot}" for slot in optimiser.slots)]
        value, *slots = (self._tensors[k] for k in keys)
        self._tensors.update(zip(keys, optimiser.pure(value, grad, tuple(slots), getattr(self.knob, optimiser.lr))))

    def _keep(self, moments: dict[str, Tensor]) -> None:
        self._tensors.update(moments)

    def follow(self, target: str, source: str, tau: float) -> None:
        t = self._tensors
        t[f"{target}.value"] = torch.lerp(t[f"{target}.value"], t[f"{source}.value"], tau)
        t[f"{target}.stats"] = t[f"{source}.stats"]

    def normal(self, *shape: int) -> Tensor:
        return self._draw("normal", shape)

    def uniform(self, *shape: int) -> Tensor:
        return self._draw("uniform", shape)

    def _draw(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        self._drawn.append((kind, list(shape)))
        noise = next(self._noise, None)
        return torch.zeros(shape, device="cpu") if noise is None else noise

    def drawn(self) -> list[tuple[str, list[int]]]:
        """Kind and shape of the random numbers asked for, in order."""
        return self._drawn

    def commit(self) -> None:
        """Write what has changed back into the given tensors."""
        for key, before in self._given.items():
            if self._tensors[key] is not before:
                before.copy_(self._tensors[key])


@dataclass(slots=True)
class Outputs:
    """What one named update gave: arrays (priorities, …) and its numbers, with their names."""

    arrays: dict[str, Tensor]
    names: tuple[str, ...]
    numbers: np.ndarray  # float32 [len(names)]

    @property
    def metrics(self) -> dict[str, float]:
        return dict(zip(self.names, self.numbers.tolist()))


def split(metrics: dict[str, Tensor], returned: dict[str, Any] | None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(arrays, metrics): what an update returned, split by dimension, the metrics after those of `minimise`."""
    arrays: dict[str, Tensor] = {}
    numbers = dict(metrics)
    for key, tensor in _flat(returned or {}):
        (arrays if tensor.dim() else numbers)[key] = tensor.detach()
    return arrays, numbers


def _flat(returned: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for key, value in returned.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value
