"""Networks from a list of layers (`model.layers`): input sizes are inferred, and what does not fit is said.

The layers up to `flatten`, if there are convolutions, are applied to every image of the observation.
All others see the features of the whole observation, as `hidden` layers do.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, without_mask
from rookery.core.tree import Tree, leaves
from rookery.nets.blocks import Residual, Transformer
from rookery.nets.config import (
    OF_IMAGES,
    BatchRenormLayer,
    ConvLayer,
    EmbeddingLayer,
    FlattenLayer,
    Layer,
    LinearLayer,
    ModelConfig,
    NoisyLayer,
    PoolLayer,
    ResidualLayer,
    TransformerLayer,
    fitted,
)
from rookery.nets.modules import ACTIVATIONS, HIDDEN_GAIN, linear, orthogonal_
from rookery.nets.noisy import noisy
from rookery.nets.renorm import BatchRenorm

Numbered = Sequence[tuple[int, Layer]]  # layers with their places in model.layers


def image_layers(config: ModelConfig) -> Numbered:
    """Those that are applied to each image; none if there is no convolution."""
    layers = _of_numbers(config)
    if not any(layer.type in OF_IMAGES for _, layer in layers):
        return []
    return layers[: next(k for k, (_, layer) in enumerate(layers) if layer.type == "flatten")]


def feature_layers(config: ModelConfig) -> Numbered:
    """Those that are applied to the features of the whole observation."""
    layers = _of_numbers(config)[len(image_layers(config)) :]
    return [(i, layer) for i, layer in layers if layer.type != "flatten"]


def embedding_size(config: ModelConfig) -> int | None:
    """Of the vectors of discrete observations; None: they are one-hot."""
    return next((layer.size for layer in config.layers or () if isinstance(layer, EmbeddingLayer)), None)


def _of_numbers(config: ModelConfig) -> Numbered:
    """All but the embedding, which sees no numbers."""
    return [(i, layer) for i, layer in enumerate(config.layers or ()) if layer.type != "embedding"]


def image_shape(leaf: Leaf) -> tuple[int, ...]:
    """(channels, height, width) of an image, whichever end of its shape the channels are at: they are the fewer."""
    return leaf.shape if leaf.shape[0] < leaf.shape[2] else (leaf.shape[2], *leaf.shape[:2])


def build_layers(
    layers: Numbered, shape: tuple[int, ...], config: ModelConfig, seen: str
) -> tuple[nn.Sequential, tuple[int, ...]]:
    """(the modules, the shape they give) for an input of `shape` without leading dimensions;
    `seen` names it in errors.
    """
    modules: list[nn.Module] = []
    for i, layer in layers:
        made, following = _build(layer, shape, config, f"model.layers.{i}")
        if isinstance(layer, ConvLayer | PoolLayer) and min(following) < 1:
            raise ConfigError(
                f"model.layers.{i}: nothing is left of {seen} after kernel={layer.kernel}, "
                f"stride={layer.stride or layer.kernel} on {shape[1]} × {shape[2]}. "
                "Use a smaller kernel or stride, or padding."
            )
        modules.append(made)
        activation = layer.activation or config.activation  # type: ignore[union-attr]
        if activation != "identity" and not isinstance(layer, ResidualLayer | TransformerLayer):  # theirs is inside
            modules.append(ACTIVATIONS[activation]())
        shape = following
    return nn.Sequential(*modules), shape


def _build(layer: Layer, shape: tuple[int, ...], config: ModelConfig, where: str) -> tuple[nn.Module, tuple[int, ...]]:
    if isinstance(layer, LinearLayer):
        return linear(shape[0], layer.size, config.init, HIDDEN_GAIN), (layer.size,)
    if isinstance(layer, NoisyLayer):
        return noisy(shape[0], layer.size, config.init, HIDDEN_GAIN, layer.sigma), (layer.size,)
    if isinstance(layer, ConvLayer):
        sides = [(side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in shape[1:]]
        conv = nn.Conv2d(shape[0], layer.channels, layer.kernel, layer.stride, layer.padding, device="cpu")
        if config.init == "orthogonal":
            orthogonal_(conv, HIDDEN_GAIN)
        return conv, (layer.channels, *sides)
    if isinstance(layer, PoolLayer):
        stride = layer.stride or layer.kernel
        sides = [(side + 2 * layer.padding - layer.kernel) // stride + 1 for side in shape[1:]]
        if 2 * layer.padding > layer.kernel:
            raise ConfigError(f"{where}: padding={layer.padding} is more than half of kernel={layer.kernel}.")
        pool = nn.MaxPool2d if layer.how == "max" else nn.AvgPool2d
        return pool(layer.kernel, stride, layer.padding), (shape[0], *sides)
    if isinstance(layer, ResidualLayer):
        return Residual(shape, layer.inner or shape[0], layer.activation or config.activation, config.init), shape
    if isinstance(layer, TransformerLayer):
        return _transformer(layer, shape, config, where), shape
    if isinstance(layer, BatchRenormLayer):
        return BatchRenorm(shape[0], layer.momentum, layer.warmup), shape
    return nn.LayerNorm(shape, device="cpu"), shape


def _transformer(layer: TransformerLayer, shape: tuple[int, ...], config: ModelConfig, where: str) -> Transformer:
    images = len(shape) == 3
    if images and layer.tokens is not None:
        raise ConfigError(f"{where}: tokens={layer.tokens} would be ignored: an image has one per place.")
    if not images and (layer.tokens is None or shape[0] % layer.tokens):
        raise ConfigError(
            f"{where}: tokens={layer.tokens} must cut the {shape[0]} features into equal parts. Set tokens."
        )
    tokens = shape[1] * shape[2] if images else int(layer.tokens or 1)
    width = shape[0] if images else shape[0] // tokens
    if width % layer.heads:
        raise ConfigError(f"{where}: heads={layer.heads} must divide the {width} numbers of each part. Change heads.")
    return Transformer(tokens, width, layer.heads, layer.activation or config.activation, images=images)


def with_renorm(config: ModelConfig, obs_spec: Tree, norm: BatchRenormLayer) -> ModelConfig:
    """The same model with `norm` on the features of the observation and after every hidden layer.

    A model that is given as `layers` or as an own encoder says itself where it normalises, and stays as it is.
    """
    if config.layers is not None or config.encoder is not None:
        return config
    images = [image_shape(leaf) for leaf in leaves(without_mask(obs_spec)) if leaf.is_image and config.convs]
    convs = fitted(config.convs, tuple(map(min, zip(*(sides for _, *sides in images))))) if images else ()
    convolved = [ConvLayer(type="conv", channels=c, kernel=k, stride=s) for c, k, s in convs]
    hidden = [layer for size in config.hidden for layer in (LinearLayer(type="linear", size=size), norm)]
    layers = (*convolved, *([FlattenLayer(type="flatten")] if images else []), norm, *hidden)
    return config.model_copy(update={"layers": layers, "hidden": (), "convs": ()})
