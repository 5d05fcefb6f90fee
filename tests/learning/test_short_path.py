"""A chain of layers computes the bits of its modules, forward and backward, and steps aside where somebody looks."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rookery.core.spec import Leaf
from rookery.equations.td import td_loss
from rookery.learning.flat import FlatNetwork
from rookery.learning.short_path import Cut, Read, chain_of
from rookery.learning.update_words import Eager
from rookery.nets import QNetwork
from rookery.nets.config import ModelConfig
from rookery.nets.encoders import Encoder

BOX = Leaf("box", (3,), np.dtype(np.float32))
X, OTHER = torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(0))


def network(activation: str = "relu", **options: Any) -> FlatNetwork:
    torch.manual_seed(0)
    config = ModelConfig(hidden=[16, 8], activation=activation)  # type: ignore[arg-type]
    return FlatNetwork("q", QNetwork(BOX, 4, config, **options))


def gradients(net: FlatNetwork, loss: Any) -> tuple[Tensor, Tensor]:
    """The flat gradient of loss(network), by the tape and by the chain."""
    found = []
    for cut in (None, Cut(net.chain)):  # type: ignore[arg-type]
        net.grad.zero_()
        loss(cut or net.module).backward()
        if cut is not None:
            cut.finish()
        found.append(net.grad.clone())
    return found[0], found[1]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_chain_computes_the_bits_of_its_modules(activation: str) -> None:
    net = network(activation)
    assert isinstance(net.reader, Read)
    assert torch.equal(net.reader(X), net.frozen(X))
    tape, chain = gradients(net, lambda q: (q(X) * X[:, :1]).sum())
    assert tape.abs().sum() > 0
    assert torch.equal(tape, chain)


def test_two_layers_by_hand() -> None:
    """h = relu(2 x − 1), q = 3 h + ½; L = q² at x = 2: h = 3, q = 9½, L' = 19 → W₂: 57, b₂: 19, W₁: 57 · 2, b₁: 57."""
    module = QNetwork(Leaf("box", (1,), np.dtype(np.float32)), 1, ModelConfig(hidden=[1]))
    net = FlatNetwork("q", module)
    net.value.copy_(torch.tensor([2.0, -1.0, 3.0, 0.5]))
    assert net.chain is not None
    cut = Cut(net.chain)
    (cut(torch.tensor([[2.0]])) ** 2).sum().backward()
    cut.finish()
    assert net.grad.tolist() == [114.0, 57.0, 57.0, 19.0]


def test_calls_add_up_and_unused_ones_do_not_count() -> None:
    def loss(q: Any) -> Tensor:
        q(OTHER)
        return q(X).square().mean() + q(OTHER).sum()

    tape, chain = gradients(network(), loss)
    torch.testing.assert_close(chain, tape, rtol=1e-6, atol=1e-6)  # three terms: summed in another order


def test_a_changed_weight_is_seen() -> None:
    net = network()
    before = net.reader(X)
    net.value.mul_(2.0)
    assert not torch.equal(net.reader(X), before)
    assert torch.equal(net.reader(X), net.frozen(X))


def test_inputs_that_want_a_gradient_get_it() -> None:
    net = network()
    x = X.clone().requires_grad_()
    net.reader(x).sum().backward()
    assert x.grad is not None
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(Cut(net.chain)(x).sum(), x, create_graph=True)  # type: ignore[arg-type]
    net.grad.zero_()
    slope.square().sum().backward()  # a gradient of a gradient
    assert net.grad.abs().sum() > 0


def test_further_leading_dimensions_and_other_types_are_computed() -> None:
    net = network()
    assert torch.equal(net.reader(X.view(2, 4, 3)), net.frozen(X.view(2, 4, 3)))
    assert torch.equal(net.reader(X.double()), net.frozen(X.double()))
    masked = {"observation": X, "action_mask": torch.ones(8, 4)}
    assert torch.equal(net.reader(masked), net.frozen(masked))


def test_hooks_and_whoever_watches_operations_see_the_modules() -> None:
    net, seen = network(), []
    handle = net.module.head.register_forward_hook(lambda *_: seen.append("hook"))  # type: ignore[union-attr]
    Cut(net.chain)(X)  # type: ignore[arg-type]
    handle.remove()
    assert seen == ["hook"]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        net.reader(X)
    assert "aten.relu.default" in seen  # the module's, not the chain's in place


def test_attributes_are_those_of_the_module() -> None:
    net = network()
    assert net.reader.head.out_features == 4
    assert Cut(net.chain).encoder is net.module.encoder  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"dueling": True}, {"noisy": True}])
def test_other_heads_are_no_chain(options: dict[str, bool]) -> None:
    net = network(**options)
    assert net.chain is None
    assert net.reader is net.frozen


def test_what_changes_the_features_is_no_chain() -> None:
    others = [
        (BOX, ModelConfig(normalise_obs=True)),
        (BOX, ModelConfig(layer_norm=True)),
        (BOX, ModelConfig(activation="silu")),
        (Leaf("box", (2, 2), np.dtype(np.float32)), ModelConfig()),
        (Leaf("discrete", (), np.dtype(np.int64), (5,)), ModelConfig()),
        ({"a": BOX, "b": BOX}, ModelConfig()),
    ]
    for spec, config in others:
        assert chain_of(QNetwork(spec, 2, config)) is None
    assert chain_of(nn.Sequential(nn.Linear(3, 2))) is None


class Doubled(QNetwork):
    def forward(self, obs: Any) -> Tensor:
        return 2.0 * super().forward(obs)


class Shifted(Encoder):
    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs) + 1.0


class Pooled(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).roll(1, -1)


def test_a_network_that_computes_something_else_with_the_same_layers_is_no_chain() -> None:
    config = ModelConfig(hidden=[16])
    other = [QNetwork(BOX, 4, config) for _ in range(4)]
    other[0].encoder = Shifted(BOX, config)
    other[1].encoder.hidden = Pooled(*other[1].encoder.hidden)  # type: ignore[arg-type]
    other[2].forward = lambda obs: torch.zeros(len(obs), 4)  # type: ignore[method-assign]
    other[3].encoder.hidden[1].forward = torch.zeros_like  # type: ignore[union-attr,operator,index]
    for module in (Doubled(BOX, 4, config), *other):
        assert chain_of(module) is None
        net = FlatNetwork("q", module)
        assert torch.equal(net.reader(X), net.frozen(X))


def test_only_one_activation_after_each_layer_is_a_chain() -> None:
    for layers in (
        [nn.Linear(3, 16), nn.ReLU(), nn.Tanh()],
        [nn.Tanh(), nn.Linear(3, 16)],
        [nn.Linear(3, 16, bias=False)],
        [nn.utils.parametrizations.weight_norm(nn.Linear(3, 16))],
        [nn.utils.spectral_norm(nn.Linear(3, 16))],
    ):
        module = QNetwork(BOX, 4, ModelConfig(hidden=[16]))
        module.encoder.hidden = nn.Sequential(*layers)
        assert chain_of(module) is None


def test_layers_that_shall_not_learn_get_no_gradient() -> None:
    net = network()
    net.module.encoder.requires_grad_(False)  # type: ignore[union-attr]
    tape, chain = gradients(net, lambda q: q(X).square().sum())
    assert tape[: 3 * 16 + 16 + 16 * 8 + 8].tolist() == [0.0] * (3 * 16 + 16 + 16 * 8 + 8)
    assert torch.equal(tape, chain)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # the inputs get no gradient
@pytest.mark.parametrize("where", ["", "encoder", "encoder.hidden", "encoder.hidden.0", "encoder.hidden.1", "head"])
@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_every_hook_sees_its_module(kind: str, where: str) -> None:
    net, seen = network(), []
    module = net.module.get_submodule(where)
    handle = getattr(module, f"register_{kind}")(lambda *_: seen.append(kind))
    cut = Cut(net.chain)  # type: ignore[arg-type]
    cut(X).sum().backward()
    assert seen == [kind]
    handle.remove()
    cut(X).sum().backward()
    assert seen == [kind]


def test_a_hook_of_all_modules_is_called() -> None:
    net, seen = network(), []
    handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
    try:
        net.reader(X)
    finally:
        handle.remove()
    assert seen


def test_a_reader_can_be_copied() -> None:
    net = network()
    assert torch.equal(copy.deepcopy(net.reader)(X), net.frozen(X))


def test_other_numbers_in_place_of_the_networks_are_used() -> None:
    net = network()
    doubled = {name: 2.0 * p.detach() for name, p in net.module.named_parameters()}
    wanted = torch.func.functional_call(net.module, doubled, (X,))
    assert torch.equal(torch.func.functional_call(net.reader, doubled, (X,)), wanted)


def test_a_weight_that_is_computed_from_others_later_is_seen() -> None:
    net = network()
    head: Any = net.module.head
    nn.utils.parametrize.register_parametrization(head, "weight", nn.ReLU())
    assert torch.equal(Cut(net.chain)(X), net.module(X))  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_update_takes_the_known_slope_of_a_td_loss_and_walks_the_tape_for_any_other(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []
    backward = Tensor.backward
    monkeypatch.setattr(Tensor, "backward", lambda self: walked.append(1) or backward(self))
    action, target, weight = torch.tensor([0, 1] * 4), torch.linspace(-1, 1, 8), torch.linspace(0.5, 1, 8)

    def loss(q: Any) -> Tensor:
        found, _ = td_loss(q(X), action, target, weight)
        return found if factor == 1.0 else found * factor

    net = network()
    words = Eager({"q": net}, {}, {"knobs": torch.zeros(0)}, (), generator=torch.Generator())
    words._plain = True  # the chain is taken
    *_, found = words._gradient("q", loss)
    assert len(walked) == (factor != 1.0)
    found = found.clone()
    net.grad.zero_()
    loss(net.module).backward()
    assert torch.equal(found, net.grad)
