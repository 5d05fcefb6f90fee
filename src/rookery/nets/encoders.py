"""Encoders: any observation → features [..., n], whatever the leading dimensions ([N] or [T, B]).

    float or integer box      flattened; a box of bytes 0 … 255 is divided by 255
    image (uint8, rank 3)     / 255, convolutions; [H, W, C] or [C, H, W]: the channels are the smaller of the two ends
    discrete, multi-discrete  one-hot, concatenated; values count from 0, as the env boundary delivers them
    multi-binary              as 0.0 and 1.0
    dict, tuple               the parts, concatenated in the order of the space

and then the hidden layers. Functions without parameters are plain callables, and encoders one flat module:
a module call costs microseconds, and there is one per layer and env step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, describe
from rookery.core.system.memory import check_networks
from rookery.core.tree import Tree, flatten, walk
from rookery.nets.blocks import Embedding
from rookery.nets.config import ModelConfig, fitted
from rookery.nets.layers import build_layers, embedding_size, feature_layers, image_layers, image_shape
from rookery.nets.modules import ACTIVATIONS, HIDDEN_GAIN, mlp, orthogonal_
from rookery.nets.normalise import normaliser_of, observation_of


@dataclass(frozen=True, slots=True)
class Flat:
    """[..., *shape] → floats [..., n], times `scale`."""

    rank: int
    scale: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        x = x.float()
        if self.rank != 1:
            x = x.flatten(x.dim() - self.rank) if self.rank else x.unsqueeze(-1)
        return x if self.scale == 1.0 else x * self.scale


@dataclass(frozen=True, slots=True)
class OneHot:
    """Integers [...] → [..., size]. Not F.one_hot, which looks at the data and cannot be traced."""

    size: int

    def __call__(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(-1) == torch.arange(self.size, device=x.device)).float()


@dataclass(frozen=True, slots=True)
class OneHots:
    """Integers [..., k] → [..., Σ sizes]."""

    sizes: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        if len(set(self.sizes)) == 1:
            return OneHot(self.sizes[0])(x).flatten(-2)
        return torch.cat([OneHot(size)(part) for size, part in zip(self.sizes, x.unbind(-1))], -1)


@dataclass(frozen=True, slots=True)
class Embedded:
    """Stands for the learned vectors of a discrete leaf."""

    at: int  # number of its embedding


class Pixels(nn.Module):
    """Bytes of an image → convolutions → [..., out_features]."""

    plain = True  # core.plain

    def __init__(self, leaf: Leaf, config: ModelConfig, name: str):
        super().__init__()
        self.shape = leaf.shape
        self.channels_first = leaf.shape[0] < leaf.shape[2]
        channels, *sides = image_shape(leaf)
        if config.layers is not None:
            self.layers, shape = build_layers(image_layers(config), (channels, *sides), config, name)
            self.out_features = math.prod(shape)
            return
        layers: list[nn.Module] = []
        convs = fitted(config.convs, tuple(sides))
        for n_out, kernel, stride in convs:
            sides = [(side - kernel) // stride + 1 for side in sides]
            if min(sides) < 1:
                raise ConfigError(
                    f"model.convs={_lists(convs)} is too much for {name} of shape {leaf.shape}: nothing is left "
                    f"of the image after the layer {[n_out, kernel, stride]}. Use smaller kernels and strides, "
                    "model.convs=auto, which fits them to the image, or [] to see the pixels as a vector."
                )
            layers.append(nn.Conv2d(channels, n_out, kernel, stride, device="cpu"))
            layers += [nn.LayerNorm((n_out, *sides), device="cpu")] if config.layer_norm else []
            layers.append(ACTIVATIONS[config.activation]())
            channels = n_out
        self.layers = nn.Sequential(*layers)
        self.out_features = channels * math.prod(sides)
        if config.init == "orthogonal":
            orthogonal_(self.layers, HIDDEN_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        lead = x.shape[:-3]
        x = x.reshape(math.prod(lead), *self.shape)  # not -1: there may be no rows at all
        # channels last in memory: on a CPU the gradient of the first convolution then takes a third of the time
        x = x.contiguous(memory_format=torch.channels_last) if self.channels_first else x.permute(0, 3, 1, 2)
        return self.layers(x.float() / 255.0).reshape(*lead, self.out_features)


def _lists(convs: tuple[tuple[int, int, int], ...]) -> list[list[int]]:
    return [list(conv) for conv in convs]


def transform_of(leaf: Leaf) -> tuple[Callable[[Tensor], Tensor], int]:
    """(what turns an array of this leaf into features, their number), for leaves that need no parameters."""
    width = math.prod(leaf.shape)
    if leaf.kind == "discrete":
        return OneHot(leaf.sizes[0]), leaf.sizes[0]
    if leaf.kind == "multi_discrete":
        return OneHots(leaf.sizes), sum(leaf.sizes)
    if leaf.dtype == np.uint8 and leaf.high is not None and np.size(leaf.high) and np.min(leaf.high) == 255:
        return Flat(len(leaf.shape), 1 / 255), width
    return Flat(len(leaf.shape)), width


@dataclass(frozen=True, slots=True)
class Parts:
    """The features of every part of a tree, side by side."""

    plan: tuple[tuple[str, Callable[[Tensor], Tensor]], ...]

    def __call__(self, tree: Tree) -> Tensor:
        arrays = flatten(tree)
        return torch.cat([transform(arrays[path]) for path, transform in self.plan], -1)


def action_transform(spec: Tree) -> tuple[Callable[[Tree], Tensor], int]:
    """(what turns an action into features, their number), for a leaf or a tree of them."""
    if isinstance(spec, Leaf):
        return transform_of(spec)
    parts = {path: transform_of(leaf) for path, leaf in walk(spec)}
    plan = tuple((path, transform) for path, (transform, _) in parts.items())
    return Parts(plan), sum(width for _, width in parts.values())


def paths_of(spec: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    """Leaves with their keys as a tuple: a key may contain the slash of written paths."""
    if isinstance(spec, Leaf):
        yield above, spec
        return
    for key, part in spec.items():
        yield from paths_of(part, (*above, key))


def _top(width: int, config: ModelConfig) -> tuple[nn.Sequential, int]:
    """(the layers on the features of the whole observation, the width of what they give)."""
    check_networks(4 * sum(n * m for n, m in pairwise((width, *config.widths))))
    if config.layers is not None:
        layers, shape = build_layers(feature_layers(config), (width,), config, "the features")
        return layers, shape[0]
    layers = mlp(
        (width, *config.hidden),
        config.activation,
        activate_last=True,
        init=config.init,
        layer_norm=config.layer_norm,
    )
    return layers, config.hidden[-1] if config.hidden else width


class Encoder(nn.Module):
    """Mask off → normaliser → features of all leaves, concatenated → hidden layers.

    Built from the spec without action mask.
    """

    plain = True  # core.plain

    def __init__(self, obs_spec: Tree, config: ModelConfig):
        super().__init__()
        self.normaliser = normaliser_of(obs_spec) if config.normalise_obs else None
        self.images, self.embeddings = nn.ModuleList(), nn.ModuleList()
        plan: list[tuple[tuple[str, ...], Callable[[Tensor], Tensor] | int | Embedded]] = []
        width, convolves, embedded = 0, bool(config.convs or image_layers(config)), embedding_size(config)
        for path, leaf in paths_of(obs_spec):
            transform: Callable[[Tensor], Tensor] | int | Embedded
            if leaf.is_image and convolves:
                image = Pixels(leaf, config, f"the image {'/'.join(path)!r}" if path else "the image")
                transform, size = len(self.images), image.out_features
                self.images.append(image)
            elif embedded is not None and leaf.kind in ("discrete", "multi_discrete"):
                vectors = Embedding(leaf, embedded)
                transform, size = Embedded(len(self.embeddings)), vectors.out_features
                self.embeddings.append(vectors)
            else:
                transform, size = transform_of(leaf)
            plan.append((path, transform))
            width += size
        if width == 0:
            raise ConfigError(
                f"the observation {describe(obs_spec)} has nothing for a network to see. "
                "Check the env's observation space."
            )
        self.plan = tuple(plan)  # per leaf: its path and its callable, or the number of its image network or embedding
        self.hidden, self.out_features = _top(width, config)
        for missing, kind, name in (
            (image_layers(config) and not self.images, "image (uint8, three dimensions)", "convolutions"),
            (embedded is not None and not self.embeddings, "Discrete or MultiDiscrete part", "an embedding"),
        ):
            if missing:
                raise ConfigError(
                    f"model.layers has {name}, but the observation {describe(obs_spec)} has no {kind}. Remove it."
                )

    def forward(self, obs: Tree) -> Tensor:
        obs = observation_of(obs)
        if self.normaliser is not None:
            obs = self.normaliser(obs)
        parts = []
        for path, transform in self.plan:
            x = obs
            for key in path:
                x = x[key]
            if isinstance(transform, int):
                parts.append(self.images[transform](x))
            else:
                parts.append(self.embeddings[transform.at](x) if isinstance(transform, Embedded) else transform(x))
        return self.hidden(parts[0] if len(parts) == 1 else torch.cat(parts, -1))

    def plain_layers(self) -> list[nn.Module] | None:
        """The hidden layers, if a flat box of floats goes into them as it is."""
        whole = len(self.plan) == 1 and self.plan[0] == ((), Flat(1)) and self.normaliser is None
        return list(self.hidden) if whole else None
