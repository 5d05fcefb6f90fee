"""Cores: memory by hand and against torch's own cells."""

import math

import pytest
import torch
from torch import nn

from rookery.nets.config import CoreConfig
from rookery.nets.cores import Core, state_spec


def core(kind, n_in=3, size=4):
    torch.manual_seed(0)
    return Core(n_in, CoreConfig(kind=kind, size=size))


def zeros(it, *lead):
    return {
        name: torch.zeros(*lead, *leaf.shape)
        for name, leaf in state_spec(CoreConfig(kind=it.kind, size=it.size)).items()
    }


def test_a_gru_step_by_hand():
    it = core("gru", 1, 1)
    with torch.no_grad():
        it.from_input.weight[:] = torch.tensor([[1.0], [0.0], [2.0]])  # r, z, n
        it.from_input.bias[:] = torch.tensor([0.0, math.log(3.0), 0.0])
        it.from_state.weight[:] = torch.tensor([[0.0], [0.0], [1.0]])
        it.from_state.bias[:] = torch.tensor([0.0, 0.0, 0.5])
    y, state = it.step(torch.tensor([[0.0]]), {"h": torch.tensor([[0.2]])})
    # r = σ(0) = 0.5, z = σ(log 3) = 0.75, n = tanh(0 + 0.5 · (0.2 + 0.5)) = tanh 0.35; h' = 0.25 n + 0.75 · 0.2
    assert y.item() == pytest.approx(0.25 * math.tanh(0.35) + 0.15, abs=1e-6)
    assert state["h"].item() == y.item()


def test_an_lstm_step_by_hand():
    it = core("lstm", 1, 1)
    with torch.no_grad():
        it.from_input.weight[:] = torch.tensor([[0.0], [0.0], [1.0], [0.0]])  # i, f, g, o
        it.from_input.bias[:] = torch.tensor([0.0, math.log(3.0), 0.0, 0.0])
        it.from_state.weight.zero_()
        it.from_state.bias.zero_()
    y, state = it.step(torch.tensor([[0.5]]), {"h": torch.zeros(1, 1), "c": torch.tensor([[0.4]])})
    c = 0.75 * 0.4 + 0.5 * math.tanh(0.5)  # f = σ(log 3) = 0.75, i = 0.5
    assert state["c"].item() == pytest.approx(c, abs=1e-6)
    assert y.item() == pytest.approx(0.5 * math.tanh(c), abs=1e-6)


@pytest.mark.parametrize(("kind", "theirs"), [("gru", nn.GRUCell), ("lstm", nn.LSTMCell)])
def test_a_cell_equals_torchs(kind, theirs):
    it, other = core(kind), theirs(3, 4)
    with torch.no_grad():
        for mine, name in ((it.from_input, "ih"), (it.from_state, "hh")):
            getattr(other, f"weight_{name}").copy_(mine.weight)
            getattr(other, f"bias_{name}").copy_(mine.bias)
    x, h, c = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 4)
    mine = it.step(x, {"h": h, "c": c} if kind == "lstm" else {"h": h})[1]
    wanted = other(x, (h, c)) if kind == "lstm" else (other(x, h),)
    for part, name in zip(wanted, mine):
        assert torch.allclose(mine[name], part, atol=1e-6)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_unrolling_is_stepping_with_a_fresh_memory_at_each_start_and_none_in_holes(kind):
    it, x = core(kind), torch.randn(6, 2, 3)
    first, valid = torch.zeros(6, 2, dtype=torch.bool), torch.ones(6, 2, dtype=torch.bool)
    first[0, 0] = first[3, 1] = True
    valid[2, 0] = valid[5, 1] = False
    state = {name: torch.randn(2, 4) for name in zeros(it, 1)}
    y, after = it.unroll(x, state, first, valid)
    for b in range(2):
        now = {name: part[b] for name, part in state.items()}
        for t in range(6):
            if first[t, b]:
                now = zeros(it)
            if valid[t, b]:
                now = it.step(x[t, b], now)[1]
            for name in now:
                assert torch.allclose(after[name][t, b], now[name], atol=1e-6), (t, b)
    assert torch.equal(y, after["h"])


def test_gradients_reach_the_first_step():
    it, x = core("lstm"), torch.randn(5, 1, 3, requires_grad=True)
    y, _ = it.unroll(x, zeros(it, 1), torch.zeros(5, 1).bool(), torch.ones(5, 1).bool())
    y[-1].sum().backward()
    assert (x.grad[0] != 0).all()
