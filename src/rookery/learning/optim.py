"""Optimisers on one flat vector. `pure` is the equation, traced in compiled mode; `step_` is the same in place, fused.

    Adam      m ← β₁ m + (1−β₁) g    v ← β₂ v + (1−β₂) g²    p ← p − lr · (m / (1−β₁ᵗ)) / (√(v / (1−β₂ᵗ)) + ε)
    RMSprop   v ← α v + (1−α) g²                             p ← p − lr · g / (√v + ε)
    SGD       m ← μ m + g                                    p ← p − lr · m

Weight decay, where given, is decoupled: p ← p · (1 − lr · decay) before the step (AdamW). Gradients are first limited
by value (each element to ±clip_value), then by norm (the whole vector to length clip_norm). Before both comes the limit
of `limit`, whose kind says what happens to a gradient that goes too far, and what is compared with what:

    clip_value           ignore_value            |gᵢ|  with  c
    clip_norm            ignore_norm             ‖g‖   with  c
    clip_momentum        ignore_momentum         |gᵢ|  with  c √v̂ᵢ     v ← β v + (1−β) g²,   v̂ = v / (1−βᵗ)
    clip_momentum_norm   ignore_momentum_norm    ‖g‖   with  c √v̂      v ← β v + (1−β) ‖g‖²

*clip* cuts each element, or the length of the vector, to its limit; *ignore* replaces the whole gradient by zero, and
the optimiser still takes its step. The moments are those of the gradient as it came, the present one included: so with
c ≥ 1 the first gradient is never too large, and a limit that is reached again and again gives way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from rookery.core.config.section import Section
from rookery.core.errors import ConfigError
from rookery.core.watching import watched

LimitKind = Literal[
    "clip_value",
    "clip_norm",
    "clip_momentum",
    "clip_momentum_norm",
    "ignore_value",
    "ignore_norm",
    "ignore_momentum",
    "ignore_momentum_norm",
]
Number = Any  # a float or a tensor; torch's stubs of clamp know only one of the two at a time


def once(number: Tensor) -> Tensor:
    """The same number, as something the compiler must write down:
    it would compute it again for every element it is used with.

    Two powers and three divisions per eight parameters took 40 % of a compiled DQN update.
    """
    return number.as_strided(number.shape, number.stride())


def limit(kind: LimitKind, grad: Tensor, most: Number) -> Tensor:
    """The gradient within `most`: a limit of each element (one number, or one per element), or of the length."""
    action, what = kind.split("_", 1)
    per_element = what in ("value", "momentum")
    if action == "ignore":
        kept = (grad.abs() <= most).all() if per_element else torch.linalg.vector_norm(grad) <= most
        return torch.where(once(kept), grad, 0.0)  # not a product: 0 · ∞ is NaN
    if per_element:
        return grad.clamp(-most, most)
    return shortened(grad, torch.linalg.vector_norm(grad), most)


def shortened(grad: Tensor, length: Tensor, most: Number) -> Tensor:
    """The gradient of this length, at most so long: g · min(1, most / (‖g‖ + 1e-6))."""
    if isinstance(most, Tensor) or length.dtype != torch.float32 or not length.is_cpu or watched():
        return grad * once((most / (length + 1e-6)).clamp(max=1.0))
    # the same bits on plain numbers: four operations on tensors cost as much as the whole of Adam
    factor = np.float32(1.0) / (length.numpy() + np.float32(1e-6)) * np.float32(most)
    return grad if factor >= 1.0 else grad * float(factor)


@dataclass(frozen=True)
class Optimiser:
    """What all optimisers share: the learning rate's knob and the limits of the gradient."""

    lr: str = "lr"  # name of the knob that holds the learning rate
    clip_norm: float | None = None  # largest norm of the whole gradient; None: unlimited
    clip_value: float | None = None  # largest absolute value of one element; None: unlimited
    decay: float = 0.0  # decoupled weight decay per unit of learning rate
    limit: LimitKind | None = None  # further limit of the gradient, before the others; None: none
    limit_at: float = 10.0  # c: its threshold, or its factor of a running moment
    limit_beta: float = 0.999  # β: memory of that moment
    of: str | None = None  # the network it moves; None: that of its own name
    fixed: bool = False  # whether it stays what it is, whatever algo.optimiser says

    slots: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit not in get_args(LimitKind):
            raise ConfigError(f"limit={self.limit!r} is no limit of gradients; known: {', '.join(get_args(LimitKind))}")
        if not self.limit_at > 0 or not 0 <= self.limit_beta < 1:
            raise ConfigError(
                f"expected limit_at > 0 and 0 <= limit_beta < 1, got limit_at={self.limit_at}, "
                f"limit_beta={self.limit_beta}"
            )

    @property
    def limit_slots(self) -> tuple[str, ...]:
        """Names of what the limit remembers; empty for limits that compare with a fixed number."""
        remembers = self.limit is not None and self.limit.endswith(("momentum", "momentum_norm"))
        return ("limit_v", "limit_count") if remembers else ()

    def fitted(self, shapes: tuple[torch.Size, ...]) -> Optimiser:
        """The optimiser of parameters with these shapes."""
        return self

    def init(self, value: Tensor) -> dict[str, Tensor]:
        """Fresh moments for a vector of parameters, those of the limit last."""
        numbers = (
            "count",
            "limit_count",
            *(["limit_v"] if self.limit and self.limit.endswith("momentum_norm") else []),
        )
        return {
            name: torch.zeros((), device=value.device) if name in numbers else torch.zeros_like(value)
            for name in (*self.slots, *self.limit_slots)
        }

    def limited(self, grad: Tensor, remembered: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
        """(the gradient within its limits, its norm before them, *new values of `limit_slots`)."""
        norm = torch.linalg.vector_norm(grad)
        if self.limit is not None:
            most, remembered = self._most(grad, norm, remembered)
            grad = limit(self.limit, grad, most)
        if self.clip_value is not None:
            grad = grad.clamp(-self.clip_value, self.clip_value)
        if self.clip_norm is not None:
            untouched = self.clip_value is None and self.limit is None
            length = norm if untouched else torch.linalg.vector_norm(grad)
            grad = shortened(grad, length, self.clip_norm)
        return grad, norm, *remembered

    def _most(self, grad: Tensor, norm: Tensor, remembered: tuple[Tensor, ...]) -> tuple[Number, tuple[Tensor, ...]]:
        """(what the gradient is compared with, the new moments)."""
        if not remembered:
            return self.limit_at, ()
        v, count = remembered
        size = grad if v.dim() else norm
        v, count = torch.lerp(v, size * size, 1 - self.limit_beta), count + 1
        scale = self.limit_at * (1 - self.limit_beta ** count.double()).rsqrt()  # in double: see Adam
        return v.sqrt() * once(scale.to(v.dtype)), (v, count)

    def pure(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> tuple[Tensor, ...]:
        """(new parameters, *new slots) without writing anything."""
        raise TypeError(
            f"{type(self).__name__} defines no step: use Adam, RMSprop or SGD, or subclass and write `pure`"
        )

    def step_(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> None:
        """The same step in place."""
        for old, new in zip((p, *slots), self.pure(p, g, slots, lr)):
            old.copy_(new)

    def decayed(self, p: Tensor, lr: Tensor) -> Tensor:
        return p if self.decay == 0.0 else p * (1 - lr * self.decay)


@dataclass(frozen=True)
class Adam(Optimiser):
    """Kingma 2015; with `decay`, AdamW (Loshchilov 2019)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    slots: ClassVar[tuple[str, ...]] = ("m", "v", "count")

    def pure(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> tuple[Tensor, ...]:
        m, v, count = slots
        count, m = count + 1, torch.lerp(m, g, 1 - self.beta1)
        v = v * self.beta2 + (1 - self.beta2) * g * g
        # in float32, 1 - 0.999^t is off by 6e-5 at t = 1; the fused kernel computes these scalars in double too
        unbias1, unbias2 = (1 - beta ** count.double() for beta in (self.beta1, self.beta2))
        rate, scale = once((lr / unbias1).to(p.dtype)), once(unbias2.rsqrt().to(p.dtype))
        p = self.decayed(p, lr) - rate * m / (v.sqrt() * scale + self.eps)
        return p, m, v, count

    def step_(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> None:
        m, v, count = slots
        count += 1
        if self.decay:
            p.copy_(self.decayed(p, lr))
        options = {"weight_decay": 0.0, "amsgrad": False, "maximize": False}
        torch._fused_adam_(
            [p], [g], [m], [v], [], [count], lr=lr, beta1=self.beta1, beta2=self.beta2, eps=self.eps, **options
        )  # type: ignore[call-overload]


@dataclass(frozen=True)
class RMSprop(Optimiser):
    """Tieleman 2012."""

    alpha: float = 0.99
    eps: float = 1e-8

    slots: ClassVar[tuple[str, ...]] = ("v",)

    def pure(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> tuple[Tensor, ...]:
        v = slots[0] * self.alpha + (1 - self.alpha) * g * g
        return self.decayed(p, lr) - lr * g / (v.sqrt() + self.eps), v


@dataclass(frozen=True)
class SGD(Optimiser):
    """Gradient descent, with momentum if wanted."""

    momentum: float = 0.0

    slots: ClassVar[tuple[str, ...]] = ("m",)

    def pure(self, p: Tensor, g: Tensor, slots: tuple[Tensor, ...], lr: Tensor) -> tuple[Tensor, ...]:
        m = slots[0] * self.momentum + g
        return self.decayed(p, lr) - lr * m, m


class GradConfig(Section):
    """`algo.grad`: a limit of gradients besides `algo.max_grad_norm`, and before it."""

    kind: LimitKind | None = None  # what is done to a gradient that goes too far, and when; null: no such limit
    at: Annotated[float, Field(gt=0)] = 10.0  # the limit; of the kinds with momentum a factor of the usual size
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.999  # memory of the usual size, for the kinds with momentum

    @model_validator(mode="after")
    def _used(self) -> Self:
        kind = self.kind or ""
        for name, used in (("at", bool(kind)), ("beta", "momentum" in kind)):
            value = getattr(self, name)
            if not used and value != type(self).model_fields[name].default:
                wanted = "a kind with momentum" if kind else "algo.grad.kind"
                reason = f", {kind} compares with a fixed number" if kind else ""
                raise ValueError(f"algo.grad.{name}={value:g} would be ignored: set {wanted}{reason}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """For an `Optimiser`."""
        return {"limit": self.kind, "limit_at": self.at, "limit_beta": self.beta}
