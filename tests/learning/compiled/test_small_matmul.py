"""Thin products: equal to torch's, and only the thin ones are taken from it."""

import pytest
import torch

from learning.toys import Toy, learner, toy_batch
from rookery.learning.compiled.build import trace
from rookery.learning.compiled.small_matmul import MOST, ROW, THIN, decompositions, is_thin, long_norm, product


def test_a_product_worked_out_by_hand():
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]])
    assert product(a, b).tolist() == [[21.0, 24.0, 27.0], [47.0, 54.0, 61.0]]  # 1·5 + 2·8 = 21, …, 3·7 + 4·10 = 61


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(64, 4, 128), (64, 1, 128), (64, 128, 2), (128, 64, 4), (2, 64, 128), (1, 1, 1), (9, 8, 9), (8, 9, 10)],
)
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_every_thin_shape_and_layout_is_the_product_of_torch(m, k, n, a_turned, b_turned):
    g = torch.Generator().manual_seed(m * k * n)
    a = torch.randn(k, m, generator=g).t() if a_turned else torch.randn(m, k, generator=g)
    b = torch.randn(n, k, generator=g).t() if b_turned else torch.randn(k, n, generator=g)
    assert is_thin(a, b)
    made, wanted = product(a, b), (a.double() @ b.double())
    assert made.shape == (m, n)
    assert (made - wanted).norm() / wanted.norm() < 1e-6


@pytest.mark.parametrize(("m", "k", "n"), [(64, 128, 128), (9, 9, 9), (0, 4, 4), (4, MOST // 16, 5)])
def test_other_products_are_left_to_the_library(m, k, n):
    assert not is_thin(torch.zeros(m, k), torch.zeros(k, n))


def test_a_trace_has_no_thin_product_and_no_product_with_a_bias():
    graph, _, _ = trace(learner(Toy()), "update", toy_batch())
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.addmm.default not in targets
    shapes = [
        [tuple(arg.meta["val"].shape) for arg in node.args]
        for node in graph.graph.nodes
        if node.target is torch.ops.aten.mm.default
    ]
    assert all(min(m, k, n) > THIN for (m, k), (_, n) in shapes)


def test_a_scaled_sum_with_a_product_is_left_alone():
    addmm = decompositions()[torch.ops.aten.addmm.default]
    assert addmm(torch.ones(2), torch.ones(2, 2), torch.ones(2, 2), beta=2) is NotImplemented


def test_a_long_norm_worked_out_by_hand():
    x = torch.zeros(2 * ROW + 3)
    x[[0, ROW + 5, 2 * ROW + 2]] = torch.tensor([2.0, 3.0, 6.0])  # in the first row, in the second, in what is left
    assert long_norm(x).item() == 7.0  # √(4 + 9 + 36)


@pytest.mark.parametrize("size", [ROW + 1, 2 * ROW, 17_410, 100_003])
def test_a_long_norm_is_that_of_torch(size):
    x = torch.randn(size, generator=torch.Generator().manual_seed(size))
    assert long_norm(x).item() == pytest.approx(x.double().norm().item(), rel=1e-6)


def test_only_plain_long_norms_are_written_otherwise():
    norm, x = decompositions()[torch.ops.aten.linalg_vector_norm.default], torch.ones(2 * ROW)
    assert norm(x).item() == pytest.approx((2 * ROW) ** 0.5)
    for args, named in (
        ((x, 1.0), {}),
        ((x, 2, [0]), {}),
        ((x[:ROW],), {}),
        ((x.view(2, ROW),), {}),
        ((x,), {"dtype": torch.float64}),
    ):
        assert norm(*args, **named) is NotImplemented


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.complex64])
def test_only_floats_of_full_width_are_taken_from_torch(dtype):
    """A sum of int32 is int64, one of float16 rounds at every step, a complex norm is not the root of the squares."""
    ones = torch.ones(3, 2, dtype=dtype)
    table = decompositions()
    assert table[torch.ops.aten.mm.default](ones, ones.t()) is NotImplemented
    assert table[torch.ops.aten.linalg_vector_norm.default](torch.ones(2 * ROW, dtype=dtype)) is NotImplemented
