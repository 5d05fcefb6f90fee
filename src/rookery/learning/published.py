"""Weights on their way to actors elsewhere: flat vectors by name, "player/network.value" and "….stats"."""

from __future__ import annotations

import numpy as np
import torch

from rookery.learning.learner import Learner

Weights = dict[str, np.ndarray]


def published(learners: dict[str, Learner]) -> Weights:
    """What acting needs, as live arrays: parameters and statistics of the networks that are no targets."""
    weights: Weights = {}
    for player, learner in learners.items():
        own = [name for name, net in learner.nets.items() if not net.is_target]
        keys = [f"{name}.{part}" for name in own for part in ("value", "stats")]
        weights |= {f"{player}/{key}": learner.tensors[key].detach().cpu().numpy() for key in keys}
    return weights


def take(learners: dict[str, Learner], weights: Weights) -> None:
    """Act with what other learners have published."""
    for key, array in weights.items():
        player, _, name = key.rpartition("/")
        learners[player].tensors[name].copy_(torch.from_numpy(array))
