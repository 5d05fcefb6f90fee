"""The encoder of a model, from the observation's spec and the `model` section: mask off → normaliser → encoder.

A user's encoder (`model.encoder`) is a class whose objects are modules: `Class(obs_spec, **model.kwargs)`, with
`out_features: int` and `forward(obs) -> [N, out_features]`. It sees the spec and the observations without action mask,
normalised if asked for, and always one leading dimension N: [T, B] is folded before it and unfolded after it.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn

from rookery.core.errors import ConfigError
from rookery.core.spec import describe, without_mask, zeros
from rookery.core.tree import Tree, leaves, tree_map
from rookery.nets.config import ModelConfig
from rookery.nets.encoders import Encoder, paths_of
from rookery.nets.normalise import normaliser_of, observation_of


class OwnEncoder(nn.Module):
    """A user's encoder, which need not know of masks, normalisers and time."""

    plain = True  # core.plain

    def __init__(self, module: Any, obs_spec: Tree, config: ModelConfig):
        super().__init__()
        self.normaliser = normaliser_of(obs_spec) if config.normalise_obs else None
        self.module = module
        self.out_features = int(module.out_features)
        self.shapes = tree_map(lambda leaf: leaf.shape, obs_spec)
        path, leaf = next(paths_of(obs_spec))
        self.path, self.rank = path, len(leaf.shape)  # of the leaf whose leading dimensions are read

    def forward(self, obs: Tree) -> Tensor:
        obs = observation_of(obs)
        if self.normaliser is not None:
            obs = self.normaliser(obs)
        some = obs
        for key in self.path:
            some = some[key]
        lead = some.shape[: some.dim() - self.rank]
        if len(lead) == 1:
            return self.module(obs)
        rows = math.prod(lead)  # not -1: there may be no rows at all
        features = self.module(tree_map(lambda shape, x: x.reshape(rows, *shape), self.shapes, obs))
        return features.reshape(*lead, self.out_features)


def build_encoder(obs_spec: Tree, config: ModelConfig) -> Encoder | OwnEncoder:
    """A fresh encoder on the CPU; `forward(obs)` takes the whole observation with any leading dimensions."""
    spec = without_mask(obs_spec)
    if not leaves(spec):
        raise ConfigError(f"the observation {describe(obs_spec)} has nothing for a network to see but its action mask.")
    if config.encoder is None:
        return Encoder(spec, config)
    encoder = OwnEncoder(_user_module(spec, config), spec, config)
    _try_out(encoder, spec, config)
    return encoder


def _user_module(spec: Tree, config: ModelConfig) -> Any:
    cls, where = _find(str(config.encoder)), f"model.encoder={config.encoder}"
    if not callable(cls):
        raise ConfigError(f"{where} is a {type(cls).__name__}, expected a class of torch.nn.Module")
    try:
        inspect.signature(cls).bind(spec, **config.kwargs)
    except TypeError as error:
        call = f"{getattr(cls, '__name__', cls)}{inspect.signature(cls)}"
        raise ConfigError(
            f"{where} is called as Class(obs_spec, **model.kwargs) with kwargs={config.kwargs}, "
            f"but it is {call}: {error}"
        ) from None
    module = cls(spec, **config.kwargs)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{where} made a {type(module).__name__}, expected a torch.nn.Module")
    width = getattr(module, "out_features", None)
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise ConfigError(
            f"{where} needs an attribute `out_features: int`, the size of its output's last dimension, got {width!r}. "
            "Set self.out_features in its __init__."
        )
    return module


def _find(name: str) -> Any:
    from rookery.core.registry import load, lookup

    return load(name) if ":" in name else lookup("encoder", name)


def _try_out(encoder: OwnEncoder, spec: Tree, config: ModelConfig) -> None:
    """Two rows of zeros must give [2, out_features] floats: better said here than in the middle of a matrix product."""
    obs = tree_map(lambda array: torch.as_tensor(array, device="cpu"), zeros(spec, 2))
    training = encoder.training
    encoder.eval()  # running statistics must not see the zeros
    try:
        with torch.no_grad():
            out = encoder(obs)
    except (RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ConfigError(
            f"model.encoder={config.encoder} failed on two rows of zeros of the observation {describe(spec)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    finally:
        encoder.train(training)
    wanted = (2, encoder.out_features)
    if not isinstance(out, Tensor) or tuple(out.shape) != wanted or out.dtype != torch.float32:
        got = f"{out.dtype} {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"model.encoder={config.encoder} gave {got} for two observations, expected torch.float32 {wanted}"
        )
