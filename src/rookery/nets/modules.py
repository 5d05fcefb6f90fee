"""Building blocks: perceptrons, initialisation, a learned number, and how a network's own loss terms are found.

All are straight-line tensor code that make_fx can trace: no `.item()`, no branch on data, no integer buffer, nothing
modified in place, and no parameter is handed out itself (it would change under its reader at the next update).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from rookery.nets.config import Activation, Init

HIDDEN_GAIN = math.sqrt(2)
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def orthogonal_(module: nn.Module, gain: float = HIDDEN_GAIN) -> nn.Module:
    """Orthogonal weights and zero biases for every linear and convolutional layer inside, in place (Saxe 2014)."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


def linear(in_features: int, out_features: int, init: Init = "default", gain: float = 1.0) -> nn.Linear:
    """One layer, as heads are; the gain counts for orthogonal initialisation only."""
    layer = nn.Linear(in_features, out_features, device="cpu")
    if init == "orthogonal":
        orthogonal_(layer, gain)
    return layer


def mlp(
    sizes: Sequence[int],
    activation: Activation = "relu",
    *,
    activate_last: bool = False,
    init: Init = "default",
    layer_norm: bool = False,
) -> nn.Sequential:
    """Linear layers sizes[0] → … → sizes[-1] with the activation between them, and after the last one if asked.

    With `layer_norm` every activation sees normalised features.
    """
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        layers.append(linear(n_in, n_out, init, HIDDEN_GAIN))
        if activate_last or i < len(sizes) - 2:
            layers += [nn.LayerNorm(n_out, device="cpu")] if layer_norm else []
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


class Scalar(nn.Module):
    """One learned number, such as log α of SAC."""

    plain = True  # core.plain

    def __init__(self, value: float = 0.0):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value, dtype=torch.float32, device="cpu"))

    def forward(self) -> Tensor:
        return self.value + 0.0  # a new tensor: the parameter itself changes at the next update


def modules_with_own_loss(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """(path, part) of all parts that define `own_loss(self, batch) -> (0-d tensor, {name: 0-d tensor})`.

    The learner adds the first to the loss of the network that contains the part, and reports the numbers as metrics.
    """
    return [(path, part) for path, part in module.named_modules() if callable(getattr(type(part), "own_loss", None))]
