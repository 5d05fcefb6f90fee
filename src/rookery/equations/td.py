"""The loss of Q-learning as one step of the tape.

    td_i = y_i − Q(s_i, a_i)        L = mean_i w_i huber(td_i)        ∂L/∂Q(s_i, a_i) = −(w_i / N) clip(td_i, ±δ)

Written with the functions of `value` it is ten operations and as many backward, each of which costs more than its
arithmetic. They are what a trace records, what other devices and types compute, and what the kernel is tested
against, bit for bit in td and slope.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rookery.core.watching import watched
from rookery.equations.value import huber, pick, squared, weighted_mean
from rookery.kernels.td import huber_rows


def td_loss(
    q: Tensor, action: Tensor, target: Tensor, weight: Tensor, delta: float = 1.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """(L, {td [N], q = Q(s, a) [N]}) of Q values [N, A], actions [N],
    targets y [N] and importance weights [N]; δ = ∞: ½ td².

    Only L carries a gradient.
    """
    if _one_pass(q, action, target, weight):
        loss, td, q_sa = _OneStep.apply(q, action, target, weight, delta)
    else:
        q_sa = pick(q, action)
        td = target.detach() - q_sa
        loss = weighted_mean(squared(td) if math.isinf(delta) else huber(td, delta), weight)
    return loss, {"td": td.detach(), "q": q_sa.detach()}


def known_slope(loss: Tensor, q: Tensor) -> Tensor | None:
    """∂L/∂Q if this is the loss of `td_loss` itself, of these very Q values and nothing done to it since:
    no tape need be walked for it.
    """
    step = loss.grad_fn
    return getattr(step, "slope", None) if getattr(step, "q", None) is q else None


def _one_pass(q: Tensor, action: Tensor, target: Tensor, weight: Tensor) -> bool:
    """Whether these are arrays of the kernel, and nobody wants to see operations."""
    rows = q.shape[:1]
    return (
        q.dim() == 2
        and q.is_cpu
        and not watched()
        and action.dtype == torch.int64
        and action.shape == target.shape == weight.shape == rows  # the kernel neither broadcasts nor checks
        and rows[0] > 0
        and not weight.requires_grad
        and all(x.dtype == torch.float32 and x.is_contiguous() for x in (q, target, weight))
    )


class _OneStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, action: Tensor, target: Tensor, weight: Tensor, delta: float) -> Any:
        slope, td, chosen = torch.empty_like(q), torch.empty_like(target), torch.empty_like(target)
        loss = torch.empty((), dtype=torch.float32, device="cpu")
        rows = q.numpy(), action.numpy(), target.numpy(), weight.numpy()
        huber_rows(*rows, np.float32(delta), slope.numpy(), td.numpy(), chosen.numpy(), loss.numpy().reshape(1))
        ctx.q, ctx.slope = q, slope
        ctx.mark_non_differentiable(td, chosen)
        return loss, td, chosen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        return ctx.slope * grad, None, None, None, None
