"""What inductor is told to write otherwise: thin matrix products and long norms.

Thin products are loops of their own: a library call costs more than the arithmetic of a product with a short side.

    C = A B,  A [m, k],  B [k, n]        k ≤ THIN:  C = Σᵢ A[:, i] ⊗ B[i, :]
                                    m or n ≤ THIN:  C[a, b] = Σᵢ A[a, i] B[i, b]

The first and the last layer of a small network and their gradients are such products. Written so, the compiler
joins them with the bias, the activation and the reduction beside them. A bias is always added apart: torch would
copy it into the result first.

The norm of a long vector, as that of a gradient, is summed over rows of ROW numbers, then over the row: as one row,
each addition would wait for the one before it to reach memory (9 of the 190 µs of a small update).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rookery.learning.compiled.internals import lacking, refusing
from rookery.learning.optim import once

THIN = 8  # shortest side up to which a product is a loop: one vector of the CPU
MOST = 1 << 18  # multiplications above which the library is better again
FLOATS = (torch.float32, torch.float64)  # sums of others have another type, or more digits than their parts
ROW = 512  # numbers side by side in the sum of a long norm


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for matrices, one of whose sides is short."""
    k, n = b.shape
    if k <= THIN:
        rows = b if b.is_contiguous() else once(b.contiguous())  # read along n: a strided read is one number at a time
        parts = [a[:, i, None] * rows[i] for i in range(k)]
        return sum(parts[1:], parts[0])
    if n <= THIN and a.is_contiguous():
        return (a[:, None, :] * b.t()[None]).sum(-1)
    if n <= THIN:  # a is a transposed matrix: read it along its rows
        return (a.t()[:, None, :] * b[:, :, None]).sum(0).t()
    return (a.t()[:, :, None] * b[:, None, :]).sum(0)


def is_thin(a: Tensor, b: Tensor) -> bool:
    (m, k), n = a.shape, b.shape[1]
    return a.dtype in FLOATS and 0 < min(m, k, n) <= THIN and m * k * n <= MOST


def long_norm(x: Tensor) -> Tensor:
    """√(Σ xᵢ²) of a vector."""
    whole = x.numel() // ROW * ROW
    return (x[:whole].view(-1, ROW).square().sum(0).sum() + x[whole:].square().sum()).sqrt()


def problem() -> str | None:
    """Why this torch cannot trace so, or None."""
    from torch.fx.experimental.proxy_tensor import make_fx

    lacks = lacking(torch.ops.aten, "mm", "addmm", "linalg_vector_norm")
    return lacks or refusing(make_fx, "decomposition_table")


def decompositions() -> dict[Any, Callable[..., Any]]:
    """For make_fx: matrix products, products with a bias, and norms."""
    aten = torch.ops.aten

    def mm(a: Tensor, b: Tensor) -> Any:
        return product(a, b) if is_thin(a, b) else NotImplemented

    def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
        if beta != 1 or alpha != 1:
            return NotImplemented
        return aten.mm(a, b) - (-bias)  # inductor would make one call of a sum again; both round alike

    def norm(x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        plain = order == 2 and dim is None and not keepdim and dtype is None and x.dtype in FLOATS
        return long_norm(x) if plain and x.dim() == 1 and x.numel() > ROW else NotImplemented

    return {aten.mm.default: mm, aten.addmm.default: addmm, aten.linalg_vector_norm.default: norm}
