"""The loss of Q-learning in one pass equals its definition, and its numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rookery.equations import td as module
from rookery.equations.td import known_slope, td_loss

Q = torch.tensor([[1.0, 5.0], [2.0, 0.5], [0.0, 3.0], [7.0, 7.0]])
ACTION = torch.tensor([0, 1, 1, 0])
Y = torch.tensor([1.5, 2.5, 0.0, 7.0])
WEIGHT = torch.tensor([1.0, 0.5, 0.25, 1.0])


def both(delta: float, *given: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """(loss, td, q, gradient by Q) in one pass, and as the operations of the definition."""
    found = []
    for wanted in (True, False):
        q = given[0].clone().requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_one_pass", lambda *_: wanted)  # noqa: B023
            loss, aux = td_loss(q, *given[1:], delta)
        loss.backward()
        assert q.grad is not None
        found.append((loss.detach(), aux["td"], aux["q"], q.grad))
    return found


@pytest.mark.parametrize(
    ("delta", "loss", "slopes"),
    [
        # td = ½, 2, −3, 0: huber ⅛, 1½, 2½, 0; weighted ⅛ + ¾ + ⅝ = 1½, a quarter of it; −w clip(td) / 4
        (1.0, 0.375, (-0.125, -0.125, 0.0625, 0.0)),
        # ½ td² = ⅛, 2, 4½, 0; weighted ⅛ + 1 + 1⅛ = 2¼; −w td / 4
        (math.inf, 0.5625, (-0.125, -0.25, 0.1875, 0.0)),
        # δ = 2: ⅛, 2, 2 (3 − 1) = 4, 0; weighted ⅛ + 1 + 1 = 2⅛
        (2.0, 0.53125, (-0.125, -0.25, 0.125, 0.0)),
    ],
)
def test_loss_and_slope_are_those_worked_out_by_hand(delta: float, loss: float, slopes: tuple[float, ...]) -> None:
    for found in both(delta, Q, ACTION, Y, WEIGHT):
        assert found[0].item() == loss
        assert found[1].tolist() == [0.5, 2.0, -3.0, 0.0]
        assert found[2].tolist() == [1.0, 0.5, 3.0, 7.0]
        wanted = torch.zeros(4, 2)
        wanted[torch.arange(4), ACTION] = torch.tensor(slopes)
        assert torch.equal(found[3], wanted)


@pytest.mark.parametrize("rows", [1, 3, 64, 100])
@pytest.mark.parametrize("delta", [1.0, 0.3, math.inf])
def test_one_pass_gives_the_bits_of_the_definition(rows: int, delta: float) -> None:
    g = torch.Generator().manual_seed(rows)
    q, y, weight = 3 * torch.randn(rows, 5, generator=g), torch.randn(rows, generator=g), torch.rand(rows, generator=g)
    one, many = both(delta, q, torch.randint(0, 5, (rows,), generator=g), y, weight)
    for a, b in zip(one[1:], many[1:]):
        torch.testing.assert_close(
            a, b, rtol=1e-6 if delta == 0.3 else 0.0, atol=0.0
        )  # a product of three: of any order
    assert one[0] == pytest.approx(many[0].item(), rel=1e-6)  # summed in another order


def test_a_scaled_loss_has_a_scaled_gradient() -> None:
    q = Q.clone().requires_grad_()
    (3 * td_loss(q, ACTION, Y, WEIGHT)[0]).backward()
    assert q.grad is not None
    assert q.grad[0, 0] == -0.375


def test_the_slope_is_known_without_the_tape_and_only_of_the_loss_itself() -> None:
    q = Q.clone().requires_grad_()
    loss, _ = td_loss(q, ACTION, Y, WEIGHT)
    slope = known_slope(loss, q)
    assert slope is not None
    assert slope.sum(1).tolist() == [-0.125, -0.125, 0.0625, 0.0]  # as worked out above
    for other in (loss * 2, loss + q.sum(), loss.detach()):
        assert known_slope(other, q) is None
    assert known_slope(loss, Q.clone().requires_grad_()) is None
    (tape,) = torch.autograd.grad(loss, q)
    assert torch.equal(tape, slope)


def test_nothing_flows_into_the_target() -> None:
    y = Y.clone().requires_grad_()
    for dtype in (torch.float32, torch.float64):  # one pass, and the definition
        loss, aux = td_loss(Q.clone().to(dtype).requires_grad_(), ACTION, y.to(dtype), WEIGHT.to(dtype))
        loss.backward()
        assert y.grad is None
        assert not aux["td"].requires_grad
        assert not aux["q"].requires_grad


def test_nan_and_infinity_reach_the_loss() -> None:
    for bad in (math.nan, math.inf):
        y = Y.clone()
        y[2] = bad
        for loss, *_ in both(1.0, Q, ACTION, y, WEIGHT):
            assert not torch.isfinite(loss)


def test_who_watches_operations_sees_them() -> None:
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        td_loss(Q.clone().requires_grad_(), ACTION, Y, WEIGHT)
    assert "aten.gather.default" in seen


def test_strided_and_stacked_inputs_are_computed_too() -> None:
    wide = Q.t().contiguous().t()  # not contiguous
    assert not wide.is_contiguous()
    assert td_loss(wide, ACTION, Y, WEIGHT)[0].item() == 0.375
    loss, aux = td_loss(Q.view(2, 2, 2), ACTION.view(2, 2), Y.view(2, 2), WEIGHT.view(2, 2))
    assert loss.item() == 0.375
    assert aux["td"].shape == (2, 2)


@pytest.mark.parametrize("action", [2, -1])
def test_an_action_that_does_not_exist_is_refused(action: int) -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        td_loss(Q, torch.tensor([0, 1, action, 0]), Y, WEIGHT)


def test_one_number_for_all_rows_is_broadcast() -> None:
    """td = ½, 2, −3, 0: mean huber (⅛ + 1½ + 2½) / 4, and with y = 1 for all: td = 0, ½, −2, −6: (⅛ + 1½ + 5½) / 4."""
    assert td_loss(Q, ACTION, Y, torch.ones(1))[0].item() == 1.03125
    loss, aux = td_loss(Q, ACTION, torch.ones(1), torch.ones(4))
    assert loss.item() == 1.78125
    assert aux["td"].tolist() == [0.0, 0.5, -2.0, -6.0]


def test_weights_that_learn_get_their_gradient() -> None:
    weight = WEIGHT.clone().requires_grad_()
    td_loss(Q, ACTION, Y, weight)[0].backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.125 / 4, 1.5 / 4, 2.5 / 4, 0.0]


def test_no_rows_have_no_mean() -> None:
    loss, _ = td_loss(Q[:0], ACTION[:0], Y[:0], WEIGHT[:0])
    assert math.isnan(loss.item())
