"""A network that is nothing but linear layers and activations, computed without modules and without a tape.

    h_0 = x        h_i = σ_i(h_{i−1} W_iᵀ + b_i)                                                    σ: ReLU, tanh or nothing
    δ_i = ∂L/∂h_i ⊙ σ_i'        ∂L/∂W_i += δ_iᵀ h_{i−1}        ∂L/∂b_i += Σ δ_i        ∂L/∂h_{i−1} = δ_i W_i

In a small network most of the time goes into module calls, dispatch and the tape, not into these products. Eager updates take this way where a
network says that it is such a chain (`plain_layers`), and get the same bits, for the operations are those of autograd. Whoever watches
operations (tracing, quick acting) or layers (hooks) sees the modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rookery.core.watching import watched

_relu_back = torch.ops.aten.threshold_backward.default
_tanh_back = torch.ops.aten.tanh_backward.default


class Layer(NamedTuple):
    """Views of one layer's numbers and of their gradients, and the activation behind it."""

    module: nn.Module
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
        for i, layer in enumerate(layers):
            if isinstance(layer, nn.Linear):
                shape = (
                    type(layers[i + 1]) if i + 1 < len(layers) and not isinstance(layers[i + 1], nn.Linear) else None
                )
                weight, bias = layer.weight, layer.bias
                numbers = weight.detach(), weight.detach().t(), bias.detach(), weight.grad, bias.grad
                self.layers.append(Layer(layer, *numbers, shape))

    def fits(self, x: Any) -> bool:
        """Whether these inputs can go this way."""
        return (
            type(x) is Tensor
            and x.dim() == 2
            and x.dtype == torch.float32
            and not x.requires_grad
            and not watched()
            and not any(layer.module._forward_hooks for layer in self.layers)
        )

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
        return getattr(self._chain.module, name)


class Cut(Read):
    """A network inside its loss: what it computes is a leaf of the tape; `finish`, after backward, takes the gradient on from there."""

    def __init__(self, chain: Chain):
        super().__init__(chain)
        self._calls: list[list[Tensor]] = []

    def __call__(self, obs: Any) -> Tensor:
        chain = self._chain
        if not chain.fits(obs) or not torch.is_grad_enabled():
            return chain.module(obs)
        kept = chain.forward(obs)
        self._calls.append(kept)
        return kept[-1].requires_grad_()

    def finish(self) -> None:
        for kept in self._calls:
            if (grad := kept[-1].grad) is not None:
                self._chain.backward(kept, grad)


def chain_of(module: nn.Module) -> Chain | None:
    """The chain that a module says it is, if it says so and has what that takes."""
    tells: Callable[[], list[nn.Module] | None] | None = getattr(module, "plain_layers", None)
    layers = None if tells is None else tells()
    if not layers or any(p.device.type != "cpu" for p in module.parameters()):
        return None
    return Chain(module, layers) if all(type(layer) in (nn.Linear, nn.ReLU, nn.Tanh) for layer in layers) else None
