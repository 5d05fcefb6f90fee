"""The options that DQN and its cousins share (C51, QR-DQN, IQN, FQF, Munchausen DQN),
and a rule about their priorities.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from rookery.algos.base import AlgoConfig, Positive, Share
from rookery.core.schedule import Schedule
from rookery.learning.optim import GradConfig


class QLearningConfig(AlgoConfig):
    """Options of Q-learning with replay, target network and ε-greedy or noisy acting."""

    gamma: Share = 0.99  # discount per env step
    lr: Schedule = Schedule(start=1e-3)  # learning rate of Adam
    n_step: Positive = 1  # rewards summed before the bootstrap
    dueling: bool = False  # a head for the value and one for the advantages, whose mean over the actions is taken off
    noisy: bool = False  # noisy linear head (Fortunato 2018); ε is then 0 unless given
    target_every: Positive = 200  # updates between moves of the target network
    tau: Annotated[float, Field(gt=0, le=1)] = 1.0  # how far the target moves: 1 is a copy
    epsilon: Schedule = Schedule(kind="linear", start=1.0, end=0.05, steps=10_000)  # share of random actions
    epsilon_spread: Annotated[float, Field(ge=0)] = 0.0  # ε of column i is ε^(1 + spread · i/(N−1)); Ape-X uses 7
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 10.0  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most

    shares = ("epsilon",)

    @model_validator(mode="before")
    @classmethod
    def _noise_explores(cls, data: Any) -> Any:
        noisy = isinstance(data, dict) and data.get("noisy", cls.model_fields["noisy"].default) is True
        return {"epsilon": 0.0} | data if noisy else data


def one_kind_of_priority(config: Any) -> list[str]:
    """The rule of algorithms whose priorities are losses: actors know TD errors only, and the two must not be mixed."""
    priority = config.store.priority
    if priority is None or priority.initial == "max":
        return []
    return [
        f"store.priority.initial={priority.initial} gives new steps their TD error, but algo.name={config.algo.name} "
        "learns with the loss of a distribution as priority. Set store.priority.initial=max."
    ]
