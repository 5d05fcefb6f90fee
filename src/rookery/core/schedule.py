"""Schedules: numbers that depend on the count of env steps (learning rate, ε, clip range).

    constant     v
    linear       a + (b − a) · min(t / n, 1)
    exponential  b + (a − b) · decay^(t / n)
    cosine       b + (a − b) · (1 + cos(π · min(t / n, 1))) / 2
    piecewise    linear between the points (t_i, v_i), constant outside

In a config a schedule is a number, or `{kind: linear, start: 1.0, end: 0.05, steps: 5000}`. `steps: null` means the
whole run.
"""

from __future__ import annotations

import bisect
import math
from itertools import pairwise
from numbers import Real
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_serializer, model_validator

from rookery.core.errors import ConfigError, UsageError

_USES = {  # kind → the fields it has; `steps` and `decay` may be left out
    "constant": {"start"},
    "linear": {"start", "end", "steps"},
    "exponential": {"start", "end", "steps", "decay"},
    "cosine": {"start", "end", "steps"},
    "piecewise": {"points"},
}


class Schedule(BaseModel):
    """A number that may change with the count of env steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["constant", "linear", "exponential", "cosine", "piecewise"] = "constant"
    start: float = 0.0  # value at step 0 (the value of a constant)
    end: float | None = None  # value reached at `steps`, or approached
    steps: Annotated[int, Field(ge=1)] | None = None  # length in env steps; None: the whole run
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.5  # exponential: factor per `steps`
    points: tuple[tuple[float, float], ...] = ()  # piecewise: (step, value), steps increasing

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, dict | cls):
            return value
        try:
            if isinstance(value, bool) or not isinstance(value, Real | str):
                raise ValueError
            return {"kind": "constant", "start": float(value)}  # PyYAML reads 1e-3 as a string
        except (ValueError, OverflowError):
            text = repr(value)
            shown = text if len(text) <= 60 else f"{text[:60]}…"
            example = "{kind: linear, start: 1, end: 0.1, steps: 1000}"
            raise ValueError(f"expected a number or a schedule such as {example}, got {shown}") from None

    @model_validator(mode="after")
    def _whole(self) -> Schedule:
        uses, fields = _USES[self.kind], self.model_fields_set - {"kind"}
        if unused := sorted(fields - uses):
            raise ValueError(
                f"a {self.kind} schedule has no {_names(unused)}, it has {_names(sorted(uses))}. Is `kind` right?"
            )
        if missing := sorted(uses - fields - {"steps", "decay"}) or (
            ["end"] if "end" in uses and self.end is None else []
        ):
            raise ValueError(f"a {self.kind} schedule needs {_names(missing)}")
        if self.kind == "piecewise":
            at = [step for step, _ in self.points]
            if len(at) < 2 or any(b <= a for a, b in pairwise(at)):
                raise ValueError("a piecewise schedule needs at least two points (step, value) with increasing steps")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "number"}, handler.resolve_ref_schema(handler(core_schema))], "title": "Schedule"}

    @model_serializer(mode="plain")
    def _short(self) -> Any:
        """A constant is dumped as its number, anything else with just the fields that its kind uses."""
        if self.kind == "constant":
            return self.start
        if self.kind == "piecewise":
            return {"kind": self.kind, "points": [list(point) for point in self.points]}
        decay = {"decay": self.decay} if self.kind == "exponential" else {}
        return {"kind": self.kind, "start": self.start, "end": self.end, "steps": self.steps} | decay

    def resolved(self, total_steps: int | None) -> Schedule:
        """The same schedule with `steps: null` replaced by the length of the run."""
        if self.steps is not None or "steps" not in _USES[self.kind]:
            return self
        if total_steps is None:
            raise ConfigError(
                f"a {self.kind} schedule with `steps: null` lasts for the whole run, but the run has no length. "
                "Set the schedule's `steps`, or train.max_steps."
            )
        return self.model_copy(update={"steps": max(int(total_steps), 1)})

    @property
    def values(self) -> list[float]:
        """At its turning points, in order."""
        return [value for _, value in self.points] or [v for v in (self.start, self.end) if v is not None]

    @property
    def rises(self) -> bool:
        """Whether it is anywhere higher than it was before."""
        return any(later > earlier for earlier, later in pairwise(self.values))

    def __str__(self) -> str:
        return f"{self.kind}, {' → '.join(f'{value:g}' for value in self.values)}"

    def at(self, step: float) -> float:
        """The value after `step` env steps."""
        if self.kind == "constant":
            return self.start
        if self.kind == "piecewise":
            return _between(self.points, step)
        if self.steps is None or self.end is None:
            raise UsageError(
                f"this {self.kind} schedule lasts for the whole run: ask `.resolved(total_steps)` before `.at(step)`"
            )
        x = step / self.steps
        if x <= 0:
            return self.start
        if self.kind == "exponential":
            return self.end + (self.start - self.end) * self.decay**x
        if x >= 1:
            return self.end  # and not start + (end − start), which is 0.05000000000000004 for 1 → 0.05
        if self.kind == "linear":
            return self.start + (self.end - self.start) * x
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * x)) / 2


def until(step: float) -> Schedule:
    """1 before `step`, 0 from there on: what is done only at the start, such as uniform actions."""
    return Schedule(kind="piecewise", points=((step - 0.5, 1.0), (step, 0.0)))


def _names(fields: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in fields)


def _between(points: tuple[tuple[float, float], ...], step: float) -> float:
    steps = [at for at, _ in points]
    i = bisect.bisect_right(steps, step)
    if i == 0:
        return points[0][1]
    if i == len(points):
        return points[-1][1]
    (a, va), (b, vb) = points[i - 1], points[i]
    return va + (vb - va) * (step - a) / (b - a)
