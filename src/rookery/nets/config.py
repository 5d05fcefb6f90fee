"""The `model` section: how networks are built from the spaces."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import PositiveInt, field_validator, model_validator

from rookery.core.section import Section

Activation = Literal["tanh", "relu", "elu", "gelu", "silu"]
Init = Literal["default", "orthogonal"]
Conv = tuple[PositiveInt, PositiveInt, PositiveInt]
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih 2015


class CoreConfig(Section):
    """Memory between encoder and heads."""

    kind: Literal["lstm", "gru"] = "lstm"  # of the cell
    size: PositiveInt = 64  # of the hidden state


class ModelConfig(Section):
    """Options of the encoder; the heads on top of it belong to the algorithm."""

    hidden: tuple[PositiveInt, ...] = (64, 64)  # units per hidden layer; []: the heads see the features directly
    activation: Activation = "relu"  # after every hidden and image layer
    normalise_obs: bool = False  # float observations to mean 0 and deviation 1, by running statistics, clipped at ±10
    init: Init = "default"  # of the weights; orthogonal: gain √2 in hidden layers, zero bias
    convs: tuple[Conv, ...] = NATURE  # image layers: [channels, kernel, stride]; []: the pixels as a vector
    core: CoreConfig | None = None  # memory after the encoder, for algorithms that learn from sequences
    encoder: str | None = None  # own encoder ("module:Class" or a registered name); hidden and convs are then unused
    kwargs: dict[str, Any] = {}  # passed to the own encoder: Class(obs_spec, **kwargs)

    @field_validator("kwargs")
    @classmethod
    def _finite(cls, value: dict[str, Any]) -> dict[str, Any]:
        if path := _not_finite(value):
            raise ValueError(f"NaN and infinity are not allowed (at {path})")
        return value

    @model_validator(mode="after")
    def _used(self) -> ModelConfig:
        if self.kwargs and self.encoder is None:
            raise ValueError(f"model.kwargs={self.kwargs} would be ignored: they go to model.encoder, which is not set")
        return self


def _not_finite(value: Any, path: str = "kwargs") -> str | None:
    """Where a tree of plain values holds NaN or infinity."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next((found for key, part in parts if (found := _not_finite(part, f"{path}.{key}"))), None)
