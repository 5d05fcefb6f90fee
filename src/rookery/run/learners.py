"""The learner of a player: one, or the first of several that share its updates (`learning.learners`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rookery.algos.base import Algorithm
from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.core.tree import Tree
from rookery.learning.group.follower import GroupSpec
from rookery.learning.group.leader import Leader
from rookery.learning.learner import Learner
from rookery.run.config.resolve import Config


@dataclass(frozen=True, slots=True)
class Same:
    """The run's algorithm once more, in another process."""

    config: Config  # as the player sees it
    obs_spec: Tree
    action_spec: Tree
    imports: tuple[str, ...]  # modules of users, which register names

    def __call__(self) -> Algorithm:
        registry.import_again(self.imports)
        config = self.config
        return config.algorithm(config.algo, self.obs_spec, self.action_spec, config.model)


def build_learner(config: Config, algo: Algorithm, streams: Streams, settings: dict[str, Any]) -> Learner:
    """`settings`: how a single learner executes updates; several always do it eagerly."""
    learning, device = config.learning, str(settings["device"])
    if learning.learners == 1:
        return Learner(algo, streams, **settings)
    if device.startswith("cuda") and torch.cuda.device_count() < learning.learners:
        raise ConfigError(
            f"learning.learners={learning.learners} need a GPU each, but torch finds {torch.cuda.device_count()} here. "
            "Lower learning.learners, or set run.device=cpu."
        )
    make = Same(config, algo.obs_spec, algo.action_spec, registry.imported())
    axis = 0 if algo.window() is None and algo.memory() is None else 1  # rows [N], or sequences [T, N]
    return Leader(algo, streams, GroupSpec(make, learning.learners, axis, device, learning.deadline, config.pool.start))
