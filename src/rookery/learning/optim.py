"""Optimisers on one flat vector. `pure` is the equation, traced in compiled mode; `step_` is the same in place, fused.

    Adam      m ← β₁ m + (1−β₁) g    v ← β₂ v + (1−β₂) g²    p ← p − lr · (m / (1−β₁ᵗ)) / (√(v / (1−β₂ᵗ)) + ε)
    RMSprop   v ← α v + (1−α) g²                             p ← p − lr · g / (√v + ε)
    SGD       m ← μ m + g                                    p ← p − lr · m

Weight decay, where given, is decoupled: p ← p · (1 − lr · decay) before the step (AdamW). Gradients are first limited by
value (each element to ±clip_value), then by norm (the whole vector to length clip_norm).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


def once(number: Tensor) -> Tensor:
    """The same number, as something the compiler must write down: it would compute it again for every element it is used with.

    Two powers and three divisions per eight parameters took 40 % of a compiled DQN update.
    """
    return number.as_strided(number.shape, number.stride())


@dataclass(frozen=True)
class Optimiser:
    """What all optimisers share: the learning rate's knob and the limits of the gradient."""

    lr: str = "lr"  # name of the knob that holds the learning rate
    clip_norm: float | None = None  # largest norm of the whole gradient; None: unlimited
    clip_value: float | None = None  # largest absolute value of one element; None: unlimited
    decay: float = 0.0  # decoupled weight decay per unit of learning rate

    slots: ClassVar[tuple[str, ...]] = ()

    def init(self, value: Tensor) -> dict[str, Tensor]:
        """Fresh moments for a vector of parameters."""
        return {
            name: torch.zeros((), device=value.device) if name == "count" else torch.zeros_like(value)
            for name in self.slots
        }

    def limited(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """(the gradient within its limits, its norm before them)."""
        norm = torch.linalg.vector_norm(grad)
        if self.clip_value is not None:
            grad = grad.clamp(-self.clip_value, self.clip_value)
        if self.clip_norm is not None:
            length = norm if self.clip_value is None else torch.linalg.vector_norm(grad)
            grad = grad * once((self.clip_norm / (length + 1e-6)).clamp(max=1.0))
        return grad, norm

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
