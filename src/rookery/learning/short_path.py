"""A network that is nothing but linear layers and activations, computed without modules and without a tape.

    h_0 = x        h_i = σ_i(h_{i−1} W_iᵀ + b_i)                                                σ: ReLU, tanh or nothing
    δ_i = ∂L/∂h_i ⊙ σ_i'        ∂L/∂W_i += δ_iᵀ h_{i−1}        ∂L/∂b_i += Σ δ_i        ∂L/∂h_{i−1} = δ_i W_i

In a small network most of the time goes into module calls, dispatch and the tape, not into these products. Eager
updates take this way where a network says that it is such a chain (`plain_layers`), and get the same bits, for the
operations are those of autograd. Whoever watches operations (tracing, quick acting) or modules (hooks) sees the
modules, and so does a loss of an update that its algorithm does not declare to be `plain` (`core.plain`): it may ask
for more than what a network computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module

from rookery.core.plain import plain_module
from rookery.core.watching import watched

_relu_back = torch.ops.aten.threshold_backward.default
_tanh_back = torch.ops.aten.tanh_backward.default
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (nn.Linear, nn.ReLU, nn.Tanh)


class Layer(NamedTuple):
    """Views of one layer's numbers and of their gradients, and the activation behind it."""

    weight: Tensor
    turned: Tensor  # the weight, transposed
    bias: Tensor
    weight_grad: Tensor | None
    bias_grad: Tensor | None
    shape: type[nn.Module] | None


class Chain:
    """The layers of a module with their present memory: they must stay where they are, as those of a FlatNetwork do."""

    def __init__(self, module: nn.Module, layers: list[nn.Module]):
        self.module, self.layers = module, []
        self._numbers: list[tuple[dict[str, Any], str, Tensor]] = []  # where the module keeps them, name, number
        for layer, following in zip(layers, [*layers[1:], None]):
            if isinstance(layer, nn.Linear):
                shape = None if following is None or isinstance(following, nn.Linear) else _computed_by(following)
                weight, bias = layer.weight, layer.bias
                numbers = weight.detach(), weight.detach().t(), bias.detach(), weight.grad, bias.grad
                self.layers.append(Layer(*numbers, shape))
                self._numbers += [(layer._parameters, "weight", weight), (layer._parameters, "bias", bias)]
        # the dicts that torch keeps hooks in; they stay the same, full or empty
        self._hooks = [getattr(part, name) for part in module.modules() for name in _HOOKS]
        self._hooks += [getattr(every_module, "_global" + name) for name in _HOOKS]

    def fits(self, x: Any) -> bool:
        """Whether these inputs can go this way."""
        return (
            type(x) is Tensor
            and x.dim() == 2
            and x.dtype == torch.float32
            and not x.requires_grad
            and not watched()
            and not any(self._hooks)
            and self._stands()
        )

    def _stands(self) -> bool:
        """Whether the module still computes with these numbers:
        torch.func.functional_call and parametrisations put others in their place.
        """
        return all(table.get(name) is number for table, name, number in self._numbers)

    def learns(self) -> bool:
        """Whether all its numbers shall get a gradient."""
        return torch.is_grad_enabled() and all(number.requires_grad for *_, number in self._numbers)

    def forward(self, x: Tensor) -> list[Tensor]:
        """h_0, h_1, …"""
        kept = [x]
        for layer in self.layers:
            x = torch.addmm(layer.bias, x, layer.turned)
            if layer.shape is not None:
                x = x.relu_() if layer.shape is nn.ReLU else x.tanh_()
            kept.append(x)
        return kept

    def backward(self, kept: list[Tensor], grad: Tensor) -> None:
        """Add to the gradient of each number, from that of the last h."""
        for i in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[i]
            if layer.shape is not None:
                grad = _relu_back(grad, kept[i + 1], 0) if layer.shape is nn.ReLU else _tanh_back(grad, kept[i + 1])
            layer.weight_grad.addmm_(grad.t(), kept[i])  # type: ignore[union-attr]
            layer.bias_grad.add_(grad.sum(0))  # type: ignore[union-attr]
            if i:
                grad = torch.mm(grad, layer.weight)


class Read:
    """A network that is only read: the chain where it fits, else its module."""

    def __init__(self, chain: Chain):
        self._chain = chain

    def __call__(self, obs: Any) -> Tensor:
        chain = self._chain
        return chain.forward(obs)[-1] if chain.fits(obs) else chain.module(obs)

    def __getattr__(self, name: str) -> Any:
        if name == "_chain":  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._chain.module, name)


class Cut(Read):
    """A network inside its loss: what it computes is a leaf of the tape; `finish` takes the gradient on from there,
    after backward or from the leaf's gradient if that is known without a tape.
    """

    def __init__(self, chain: Chain):
        super().__init__(chain)
        self._calls: list[list[Tensor]] = []

    def __call__(self, obs: Any) -> Tensor:
        chain = self._chain
        if not chain.learns() or not chain.fits(obs):
            return chain.module(obs)
        kept = chain.forward(obs)
        self._calls.append(kept)
        return kept[-1].requires_grad_()

    @property
    def leaf(self) -> Tensor | None:
        """What it computed, if that was done once."""
        return self._calls[0][-1] if len(self._calls) == 1 else None

    def finish(self, known: Tensor | None = None) -> None:
        """known: gradient of the leaf."""
        for kept in self._calls:
            if (grad := kept[-1].grad if known is None else known) is not None:
                self._chain.backward(kept, grad)


def chain_of(module: nn.Module) -> Chain | None:
    """The chain that a module says it is, if it says so and has what that takes."""
    tells: Callable[[], list[nn.Module] | None] | None = getattr(module, "plain_layers", None)
    layers = None if tells is None else tells()
    if not layers or any(p.device.type != "cpu" for p in module.parameters()):
        return None
    return Chain(module, layers) if all(map(_as_told, module.modules())) and _alternate(layers) else None


def _as_told(module: nn.Module) -> bool:
    """Whether it computes what it seems to:
    a subclass or an instance may have a `forward` that `plain_layers` does not know of.
    """
    computes = _computed_by(module)
    if "forward" in vars(module) or computes is None:
        return False
    if computes in (*_PLAIN, nn.Sequential) or (computes is nn.Module and isinstance(module, nn.ModuleList)):
        return plain_module(module)  # of a class of torch, or of one that changes no method of it
    return next((cls for cls in type(module).__mro__ if "plain_layers" in vars(cls)), None) is computes


def _computed_by(module: nn.Module) -> type[nn.Module] | None:
    """The class whose `forward` it has."""
    return next((cls for cls in type(module).__mro__ if "forward" in vars(cls)), None)


def _alternate(layers: list[nn.Module]) -> bool:
    """Linear layers with numbers of their own, at most one activation behind each."""
    for before, layer in zip([None, *layers], layers):
        if _computed_by(layer) not in _PLAIN or not (isinstance(layer, nn.Linear) or isinstance(before, nn.Linear)):
            return False
        if isinstance(layer, nn.Linear) and [k for k, p in layer._parameters.items() if p is not None] != [
            "weight",
            "bias",
        ]:
            return False  # without a bias, or with a weight that is computed from others
    return True
