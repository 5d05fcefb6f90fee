"""AlgoConfig: the options that every algorithm has, and the kinds of number that most of them use."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from rookery.core.config.section import Section
from rookery.core.errors import ConfigError
from rookery.core.schedule import Schedule
from rookery.learning.torch_optim import named

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class AlgoConfig(Section):
    """What every algorithm's config has."""

    name: str  # of the algorithm, as in `rookery list algos`
    gamma: float = 0.99  # discount per env step
    optimiser: str | None = None  # adam, rmsprop, sgd, any of torch.optim or module:Class; null: the algorithm's own
    optimiser_options: dict[str, Any] = {}  # options of the optimiser, besides the learning rate
    normalise_reward: bool = False  # learn from rewards divided by the running deviation of the return, within ±10

    shares: ClassVar[tuple[str, ...]] = ()  # schedules whose values must lie in [0, 1]; all others must not be negative
    # what the loop reads where an algorithm has no such option
    absent: ClassVar[dict[str, Any]] = {
        "n_step": 1,
        "rollout": 1,
        "epochs": 1,
        "minibatches": None,
        "sequence": None,
        "rescale": None,
    }

    def __getattr__(self, name: str) -> Any:
        if name in AlgoConfig.absent:
            return AlgoConfig.absent[name]
        if name.startswith("_"):  # pydantic keeps private attributes elsewhere
            return super().__getattr__(name)  # type: ignore[misc]
        raise AttributeError(f"{type(self).__name__} has no option {name!r}")

    @field_validator("optimiser")
    @classmethod
    def _known_optimiser(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                named(value)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _schedules_in_range(self) -> Self:
        for name, schedule in self:
            if isinstance(schedule, Schedule):
                high = 1.0 if name in self.shares else math.inf
                if not all(0.0 <= value <= high for value in schedule.values):
                    wanted = "between 0 and 1" if name in self.shares else "not negative"
                    raise ValueError(f"algo.{name}: expected values that are {wanted}, got {schedule.values}")
        return self
