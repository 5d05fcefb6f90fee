"""The `model` section: how networks are built from the spaces, with the kinds of layers of `model.layers`."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator, model_validator

from rookery.core.config.section import Section
from rookery.core.registry import did_you_mean

Activation = Literal["tanh", "relu", "elu", "gelu", "silu"]
Init = Literal["default", "orthogonal"]
Conv = tuple[PositiveInt, PositiveInt, PositiveInt]
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih 2015


class CoreConfig(Section):
    """Memory between encoder and heads."""

    kind: str = "lstm"  # lstm, gru, gtrxl (a transformer with memory), or one's own: module:Class
    size: PositiveInt = 64  # of the hidden state
    layers: PositiveInt = 2  # of gtrxl
    heads: PositiveInt = 4  # of attention, in gtrxl; they divide the size
    memory: PositiveInt = 16  # steps that gtrxl looks back at
    kwargs: dict[str, Any] = {}  # passed to the own core: Class(in_features, **kwargs)

    used: ClassVar[dict[str, tuple[str, ...]]] = {
        "lstm": ("size",),
        "gru": ("size",),
        "gtrxl": ("size", "layers", "heads", "memory"),
    }

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _known(self) -> CoreConfig:
        if ":" not in self.kind and self.kind not in self.used:
            raise ValueError(
                f"model.core.kind={self.kind} is no core; expected {', '.join(self.used)} or module:Class."
                f"{did_you_mean(self.kind, self.used)}"
            )
        for name in ("size", "layers", "heads", "memory", "kwargs"):
            value = getattr(self, name)
            if name not in self.used.get(self.kind, ("kwargs",)) and value != type(self).model_fields[name].default:
                raise ValueError(
                    f"model.core.{name}={value} would be ignored: model.core.kind={self.kind} has no such option"
                )
        if self.kind == "gtrxl" and self.size % self.heads:
            raise ValueError(f"model.core.heads={self.heads} must divide model.core.size={self.size}")
        return self


class LinearLayer(Section):
    """A fully connected layer."""

    type: Literal["linear"]  # kind of layer
    size: PositiveInt  # units
    activation: Activation | Literal["identity"] | None = None  # after it; null: model.activation


class NoisyLayer(Section):
    """A fully connected layer with learned noise on its weights."""

    type: Literal["noisy"]  # kind of layer
    size: PositiveInt  # units
    activation: Activation | Literal["identity"] | None = None  # after it; null: model.activation
    sigma: NonNegativeFloat = 0.5  # σ₀: initial scale of the noise


class ConvLayer(Section):
    """A convolution, applied to every image of the observation."""

    type: Literal["conv"]  # kind of layer
    channels: PositiveInt  # of its output
    kernel: PositiveInt  # side of the window, in pixels
    stride: PositiveInt = 1  # pixels from window to window
    padding: NonNegativeInt = 0  # zeros around the image, in pixels
    activation: Activation | Literal["identity"] | None = None  # after it; null: model.activation


class PoolLayer(Section):
    """The largest or mean value of each window, applied to every image of the observation."""

    type: Literal["pool"]  # kind of layer
    kernel: PositiveInt  # side of the window, in pixels
    stride: PositiveInt | None = None  # pixels from window to window; null: windows side by side
    padding: NonNegativeInt = 0  # pixels around the image, at most half a window
    how: Literal["max", "mean"] = "max"  # what is left of a window
    activation: Activation | Literal["identity"] = "identity"  # after it


class ResidualLayer(Section):
    """Two layers whose result is added to what they see: of features, or 3 × 3 of images (He 2016)."""

    type: Literal["residual"]  # kind of layer
    inner: PositiveInt | None = None  # units (or channels) between the two; null: as many as it sees
    activation: Activation | None = None  # before each of the two; null: model.activation


class TransformerLayer(Section):
    """Parts that attend to one another: the places of an image, or equal parts of the features (Vaswani 2017)."""

    type: Literal["transformer"]  # kind of layer
    heads: PositiveInt = 4  # of attention; they divide the numbers of a part
    tokens: PositiveInt | None = None  # parts into which features are cut; images have one per place
    activation: Activation | None = None  # of its perceptron; null: model.activation


class EmbeddingLayer(Section):
    """A learned vector for every value of the discrete observations, in place of one-hot; the first of all layers."""

    type: Literal["embedding"]  # kind of layer
    size: PositiveInt  # of each vector


class LayerNormLayer(Section):
    """Normalisation over the features of one sample (Ba 2016)."""

    type: Literal["layer_norm"]  # kind of layer
    activation: Activation | Literal["identity"] = "identity"  # after it


class BatchRenormLayer(Section):
    """Normalisation of each feature over the batch, with running statistics (Ioffe 2017)."""

    type: Literal["batch_renorm"]  # kind of layer
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.01  # weight of a batch in the running statistics
    warmup: NonNegativeInt = 100_000  # updates of plain batch normalisation before it is corrected towards them
    activation: Activation | Literal["identity"] = "identity"  # after it


class FlattenLayer(Section):
    """From images to features; everything after it sees the features of the whole observation."""

    type: Literal["flatten"]  # kind of layer


Layer = Annotated[
    LinearLayer
    | NoisyLayer
    | ConvLayer
    | PoolLayer
    | ResidualLayer
    | TransformerLayer
    | EmbeddingLayer
    | LayerNormLayer
    | BatchRenormLayer
    | FlattenLayer,
    Field(discriminator="type"),
]
LAYERS = (
    *("linear", "noisy", "conv", "pool", "residual", "transformer", "embedding"),
    *("layer_norm", "batch_renorm", "flatten"),
)
OF_IMAGES = ("conv", "pool")


class ModelConfig(Section):
    """Options of the encoder; the heads on top of it belong to the algorithm."""

    hidden: tuple[PositiveInt, ...] = (64, 64)  # units per hidden layer; []: the heads see the features directly
    activation: Activation = "relu"  # after every hidden and image layer
    normalise_obs: bool = False  # float observations to mean 0 and deviation 1, by running statistics, clipped at ±10
    layer_norm: bool = False  # normalise the features of every hidden and image layer before its activation (Ba 2016)
    init: Init = "default"  # of the weights; orthogonal: gain √2 in hidden layers, zero bias
    convs: Literal["auto"] | tuple[Conv, ...] = (
        "auto"  # image layers: [channels, kernel, stride]; auto: they fit the image; []: the pixels as a vector
    )
    core: CoreConfig | None = None  # memory after the encoder, for algorithms that learn from sequences
    layers: tuple[Layer, ...] | None = (
        None  # in place of hidden and convs: [{type: linear, size: 64}, …]; see networks.md
    )
    ties: dict[str, str] = {}  # part of the networks → the player with whom it is shared, e.g. {encoder: a}
    encoder: str | None = None  # own encoder ("module:Class" or a registered name); hidden and convs are then unused
    kwargs: dict[str, Any] = {}  # passed to the own encoder: Class(obs_spec, **kwargs)

    @field_validator("kwargs")
    @classmethod
    def _finite(cls, value: dict[str, Any]) -> dict[str, Any]:
        if path := _not_finite(value):
            raise ValueError(f"NaN and infinity are not allowed (at {path})")
        return value

    @model_validator(mode="before")
    @classmethod
    def _only_layers(cls, data: Any) -> Any:
        """With `layers`, hidden and convs are empty unless somebody asks for them, which is an error."""
        has_layers = isinstance(data, dict) and data.get("layers") is not None
        return {"hidden": (), "convs": ()} | data if has_layers else data

    @field_validator("layers", mode="before")
    @classmethod
    def _known_types(cls, value: Any) -> Any:
        for i, layer in enumerate(value if isinstance(value, list | tuple) else ()):
            kind = layer.get("type") if isinstance(layer, dict) else getattr(layer, "type", None)
            if kind not in LAYERS:
                hint = did_you_mean(kind, LAYERS)
                problem = "without a type" if kind is None else f"of unknown type {kind!r}"
                raise ValueError(f"layer {i} is {problem}; known types: {', '.join(LAYERS)}.{hint}")
        return value

    @field_validator("layers")
    @classmethod
    def _in_order(cls, value: tuple[Layer, ...] | None) -> tuple[Layer, ...] | None:
        kinds = [layer.type for layer in value or ()]
        if "embedding" in kinds[1:]:
            where = 1 + kinds[1:].index("embedding")
            raise ValueError(f"layer {where} is an embedding, which sees the observation itself: put it first, once")
        if not set(OF_IMAGES) & set(kinds):
            return value
        end = kinds.index("flatten") if "flatten" in kinds else len(kinds)
        for i, kind in enumerate(kinds):
            if kind in OF_IMAGES and i > end:
                raise ValueError(f"layer {i} is a {kind} after the flatten at {end}: it needs images, so put it before")
            if kind in ("linear", "noisy", "batch_renorm") and i < end:
                raise ValueError(f"layer {i} is {kind}, but sees images: put {{type: flatten}} after the last conv")
        if end == len(kinds):
            raise ValueError("there are convs without a flatten: put {type: flatten} after the last one")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> ModelConfig:
        if self.layers is None:
            return self
        for name, value in (("hidden", self.hidden), ("convs", self.convs), ("encoder", self.encoder)):
            if value:
                raise ValueError(
                    f"model.layers and model.{name} are both set, and each says what the network is: remove one of "
                    f"them (model.layers=null, or model.{name}={'null' if name == 'encoder' else '[]'})"
                )
        return self

    @model_validator(mode="after")
    def _own_norms(self) -> ModelConfig:
        for name, value in (("layers", self.layers), ("encoder", self.encoder)):
            if self.layer_norm and value is not None:
                raise ValueError(
                    f"model.layer_norm belongs to hidden and convs, but model.{name} says what the network is: put the "
                    "normalisation there and set model.layer_norm=false"
                )
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of the fully connected layers."""
        if self.layers is None:
            return self.hidden
        return tuple(layer.size for layer in self.layers if isinstance(layer, LinearLayer | NoisyLayer))

    @model_validator(mode="after")
    def _used(self) -> ModelConfig:
        if self.kwargs and self.encoder is None:
            raise ValueError(f"model.kwargs={self.kwargs} would be ignored: they go to model.encoder, which is not set")
        return self


def fitted(convs: Literal["auto"] | tuple[Conv, ...], sides: tuple[int, ...]) -> tuple[Conv, ...]:
    """Image layers as they are given; for "auto" those of Mnih 2015 if something is left of an image with these sides,
    else up to three of 3 × 3 with stride 2 that leave at least 3 × 3, else one of stride 1.
    """
    if convs != "auto":
        return convs
    if min(left(NATURE, sides)) > 0:
        return NATURE
    halving = [((32, 3, 2), (64, 3, 2), (64, 3, 2))[:count] for count in (3, 2, 1)]
    return next((few for few in halving if min(left(few, sides)) >= 3), ((32, min(3, *sides), 1),))


def left(convs: tuple[Conv, ...], sides: tuple[int, ...]) -> tuple[int, ...]:
    """Sides of what these layers leave of an image; 0 or less: nothing."""
    for _, kernel, stride in convs:
        sides = tuple((side - kernel) // stride + 1 for side in sides)
    return sides


def _not_finite(value: Any, path: str = "kwargs") -> str | None:
    """Where a tree of plain values holds NaN or infinity."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next((where for key, part in parts if (where := _not_finite(part, f"{path}.{key}"))), None)
