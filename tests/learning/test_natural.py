"""The natural gradient: numbers by hand, and a line search that never leaves the trust region."""

import math

import pytest
import torch
from torch import nn

from rookery.learning.flat import FlatNetwork
from rookery.learning.natural import TrustRegion, conjugate_gradient, natural_step

REGION = TrustRegion(radius=0.02, damping=0.0, iterations=10, backtracks=10, shrink=0.5)


class Numbers(nn.Module):
    """Two parameters, both zero."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(2, device="cpu"))

    def forward(self):
        return self.theta + 0.0


def test_conjugate_gradients_solve_a_system_of_two_in_two_steps():
    # (4 1; 1 3) x = (1, 2):  x = (1/11, 7/11)
    matrix, b = torch.tensor([[4.0, 1.0], [1.0, 3.0]]), torch.tensor([1.0, 2.0])
    found = conjugate_gradient(lambda v: matrix @ v, b, iterations=2)
    assert found.tolist() == pytest.approx([1 / 11, 7 / 11], abs=1e-6)
    one = conjugate_gradient(lambda v: matrix @ v, b, iterations=1)  # along b: (b·b / bᵀAb) b = 5/20 b
    assert one.tolist() == pytest.approx([0.25, 0.5])
    assert conjugate_gradient(lambda v: matrix @ v, torch.zeros(2), 5).tolist() == [0.0, 0.0]


def quadratic(net):
    """KL = ½ (4 θ₀² + θ₁²), so F = diag(4, 1)."""
    return 0.5 * (net().square() * torch.tensor([4.0, 1.0])).sum()


def slope(net):
    """L = 2 θ₀ + θ₁."""
    return (net() * torch.tensor([2.0, 1.0])).sum()


def test_a_step_within_a_quadratic_distance_by_hand():
    # g = (2, 1), x = F⁻¹ g = (½, 1), xᵀ F x = 1 + 1 = 2, length √(2 · 0.02 / 2) = √0.02
    # θ' = −√0.02 (½, 1); KL = ½ · 0.02 · 2 = 0.02; L falls by √0.02 · 2
    net = FlatNetwork("policy", Numbers())
    region = TrustRegion(0.0200001, 0.0, 10, 10, 0.5)  # the step ends exactly on the edge: not a rounding below it
    told = natural_step(net, slope, quadratic, region)
    root = math.sqrt(0.02)
    assert net.value.tolist() == pytest.approx([-0.5 * root, -root], rel=1e-4)
    assert told["kl"].item() == pytest.approx(0.02, rel=1e-4)
    assert told["improvement"].item() == pytest.approx(2 * root, rel=1e-4)
    assert told["step"].item() == 1.0
    assert told["grad_norm"].item() == pytest.approx(math.sqrt(5))


def test_damping_turns_the_step_towards_the_plain_gradient():
    # F + 100 is nearly a multiple of one: the step is along g = (2, 1)
    net = FlatNetwork("policy", Numbers())
    natural_step(net, slope, quadratic, TrustRegion(0.02, 100.0, 10, 10, 0.5))
    assert (net.value[0] / net.value[1]).item() == pytest.approx(2.0, rel=0.05)


def test_the_step_is_halved_until_it_is_near_enough():
    """The true distance is 16 times the quadratic one far out: a quarter of the full length is the first that fits."""

    def steep(net):
        near = quadratic(net)
        return near + 1e6 * torch.relu(near - 0.002).square()

    net = FlatNetwork("policy", Numbers())
    told = natural_step(net, slope, steep, REGION)
    # KL(full) = 0.02, half: 0.005 + 1e6 · 0.003² = 9; a quarter: 0.00125
    assert told["step"].item() == 0.25
    assert told["kl"].item() == pytest.approx(0.00125, rel=1e-3)


def test_a_step_that_makes_nothing_better_is_not_taken():
    def valley(net):
        """Its slope at 0 promises what the next hill takes back."""
        return -net()[0] + 1e9 * net()[0].square()

    net = FlatNetwork("policy", Numbers())
    told = natural_step(net, valley, quadratic, TrustRegion(0.02, 0.0, 10, 3, 0.9))
    assert told["step"].item() == 0.0
    assert net.value.tolist() == [0.0, 0.0]
