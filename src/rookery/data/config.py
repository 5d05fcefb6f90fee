"""Config sections of the stores (`store:` in a config)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rookery.core.config.section import Section
from rookery.core.errors import ConfigError
from rookery.core.schedule import Schedule
from rookery.data.shares import rows_of

Text = Annotated[str, Field(min_length=1)]


class HindsightConfig(Section):
    """`store.hindsight:` goals in hindsight for goal envs."""

    strategy: Literal["future", "final", "episode"] = "future"  # whose achieved goal: a later step's, the last, any
    k: Annotated[float, Field(gt=0)] = 4.0  # relabelled transitions per transition left as it was


class PriorityConfig(Section):
    """`store.priority` of an off-policy algorithm:
    a mapping, however short, turns prioritised sampling on; null: uniform.
    """

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.6  # P ∝ p^alpha; without any key of store.priority: uniform
    beta: Schedule = Schedule(kind="linear", start=0.4, end=1.0)  # importance weights (N P)^−beta; above 1 counts as 1
    epsilon: Annotated[float, Field(ge=1e-12, le=1)] = 1e-6  # added to every priority, so that nothing is never drawn
    initial: Literal["max", "actor"] = "max"  # of a new step: the largest so far, or the TD error that its actor saw

    @model_validator(mode="after")
    def _beta_in_range(self) -> PriorityConfig:
        beta = self.beta
        values = [value for _, value in beta.points] or [beta.start, *([] if beta.end is None else [beta.end])]
        if min(values) < 0:
            raise ValueError(f"store.priority.beta: expected values that are not negative, got {values}")
        return self


class AlarmConfig(Section):
    """When the store warns, once each time a number leaves its band."""

    max_reuse: Annotated[float, Field(gt=0)] | None = None  # mean draws per stored step; null: no alarm
    max_staleness: Annotated[float, Field(gt=0)] | None = None  # mean age of the steps in updates; null: no alarm


class ReplayConfig(Section):
    """`store:` of an off-policy algorithm."""

    capacity: Annotated[int, Field(ge=1)] = 100_000  # steps kept, over all env columns
    batch_size: Annotated[int, Field(ge=1)] = 64  # transitions per update
    min_fill: Annotated[int, Field(ge=1)] = 1000  # steps (holes not counted) inserted before the first update
    updates_per_step: Annotated[float, Field(gt=0)] = 1.0  # updates granted per inserted step after min_fill
    max_reuse: Annotated[int, Field(ge=1)] | None = None  # draws of one step at most; null: no limit
    max_staleness: Annotated[int, Field(ge=0)] | None = None  # updates; older steps are not drawn; null: no limit
    max_memory: Annotated[float, Field(gt=0, le=1)] | None = 0.8  # of the available memory; null: not checked
    hindsight: HindsightConfig | None = None  # relabel goals of a goal env when a batch is drawn; null: never
    priority: PriorityConfig | None = None  # prioritised sampling; null: uniform
    alarm: AlarmConfig = AlarmConfig()  # bands whose leaving is logged
    mmap: bool | Text = False  # keep large arrays in a scratch file: true: in the run's folder; or the folder for it
    demonstrations: Text | None = None  # file written by `Replay.save`, learnt from beside the run's own steps
    demonstration_share: Annotated[float, Field(gt=0, lt=1)] = 0.25  # of each batch, if there are demonstrations

    @model_validator(mode="after")
    def _fits(self) -> ReplayConfig:
        if self.batch_size > self.min_fill:
            raise ValueError(
                f"store.batch_size={self.batch_size} is larger than store.min_fill={self.min_fill}: the first sample "
                f"would repeat items. Raise min_fill to at least {self.batch_size} or lower batch_size."
            )
        if self.min_fill > self.capacity:
            raise ValueError(
                f"store.min_fill={self.min_fill} is larger than store.capacity={self.capacity}: learning would start "
                f"after the first steps were overwritten. Raise capacity to at least {self.min_fill} or lower min_fill."
            )
        if self.demonstrations is not None:
            try:
                rows_of(self.batch_size, self.demonstration_share, ("store.batch_size", "store.demonstration_share"))
            except ConfigError as error:
                raise ValueError(str(error).rstrip(".")) from error
        return self


class RolloutConfig(Section):
    """`store:` of an on-policy algorithm; the number of rows per batch belongs to the algorithm."""

    min_fill: ClassVar[None] = None  # what a replay has and rollouts have not
    priority: ClassVar[None] = None
    hindsight: ClassVar[None] = None
