"""Progress: what callbacks and `for progress in trainer` see. Typed records, never the trainer's locals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class Evaluation:
    """Greedy episodes in envs of their own, on raw rewards."""

    steps: int  # env steps of training when it took place
    returns: list[float]
    lengths: list[int]
    mean: float
    std: float
    best: bool = False  # better than all before
    success: float | None = None  # share of the episodes whose last info said `is_success`; None: none of them said it
    players: dict[str, float] | None = None  # mean return of each of several players, over its seats

    def metrics(self) -> dict[str, float]:
        length = sum(self.lengths) / max(len(self.lengths), 1)
        success = {} if self.success is None else {"eval/success_mean": self.success}
        players = {f"eval/player/{name}/return_mean": mean for name, mean in (self.players or {}).items()}
        return (
            success
            | {
                "eval/return_mean": self.mean,
                "eval/return_std": self.std,
                "eval/return_min": min(self.returns),
                "eval/return_max": max(self.returns),
                "eval/length_mean": length,
                "eval/steps": self.steps,
            }
            | players
        )

    def summary(self) -> dict[str, Any]:
        success = {} if self.success is None else {"success": self.success}
        players = {} if self.players is None else {"players": self.players}
        return {"mean": self.mean, "std": self.std, "returns": self.returns, "steps": self.steps} | success | players

    def state(self) -> dict[str, Any]:
        """The fields; `players` only where there are several."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields if self.players is not None else {k: v for k, v in fields.items() if k != "players"}


class Controls(Protocol):
    """What a run lets callbacks do."""

    def stop(self, reason: str) -> None: ...
    def foreach_env(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]: ...
    def record(self, name: str, value: Any) -> None: ...
    def save_soon(self) -> None: ...
    def evaluate(self) -> Evaluation: ...
    def seat(self, agent: str, weights: Mapping[str, float]) -> None: ...
    def train(self, name: str, learns: bool) -> None: ...
    def add_player(self, name: str, sections: Mapping[str, Any], seats: Mapping[str, float]) -> None: ...
    def pause(self) -> AbstractContextManager[None]: ...


@dataclass(slots=True)
class Progress:
    """The state of a run at a report. `metrics` is the whole line of metrics.jsonl."""

    steps: int
    updates: int
    episodes: int
    metrics: dict[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None  # the latest
    finished: str | None = None  # the reason, in the last report
    _run: Controls | None = field(default=None, repr=False)

    @property
    def return_mean(self) -> float | None:
        """Mean return of the last episodes; None before the first has ended."""
        return self.metrics.get("episode/return_mean")

    @property
    def return_min(self) -> float | None:
        return self.metrics.get("episode/return_min")

    @property
    def return_max(self) -> float | None:
        return self.metrics.get("episode/return_max")

    @property
    def length_mean(self) -> float | None:
        return self.metrics.get("episode/length_mean")

    @property
    def time(self) -> dict[str, float]:
        """Clock-dependent numbers: seconds, rates, shares of the phases."""
        return {key.removeprefix("time/"): value for key, value in self.metrics.items() if key.startswith("time/")}

    def stop(self, reason: str) -> None:
        """Ask the run to end after this round."""
        if self._run is not None:
            self._run.stop(reason)

    def foreach_env(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method (or read an attribute) of every training env, or a function with it (`Trainer.foreach_env`)."""
        return [] if self._run is None else self._run.foreach_env(name, *args, **kwargs)

    def record(self, name: str, value: Any) -> None:
        """A number of your own: its mean, min and max appear in the next report. Or a Histogram, Image, Video or
        Table."""
        if self._run is not None:
            self._run.record(name, value)

    def save(self) -> None:
        """Ask for a checkpoint at the end of this round, whatever checkpoint.every_steps says."""
        if self._run is not None:
            self._run.save_soon()

    def evaluate(self) -> Evaluation | None:
        """Greedy episodes now; the result is also part of the next report."""
        return None if self._run is None else self._run.evaluate()

    def seat(self, agent: str, weights: Mapping[str, float]) -> None:
        """Who sits for an agent in the episodes that begin from now on: player → weight, of those that its `seats:`
        names."""
        if self._run is not None:
            self._run.seat(agent, weights)

    def train(self, player: str, learns: bool = True) -> None:
        """Whether a player learns, from the next round on; what it does while it does not is not stored."""
        if self._run is not None:
            self._run.train(player, learns)

    def add_player(self, name: str, sections: Mapping[str, Any], seats: Mapping[str, float]) -> None:
        """Another player from the next round on: its sections as under `players:`, and agent → weight of its seats."""
        if self._run is not None:
            self._run.add_player(name, sections, seats)

    def pause(self) -> AbstractContextManager[None]:
        """`with progress.pause(): …`: time that counts for no limit and no rate, such as that of a question to
        somebody."""
        return nullcontext() if self._run is None else self._run.pause()


@dataclass(slots=True)
class Episode:
    """A running episode, for callbacks: `data` is yours, `metrics` are averaged in the next report."""

    worker: int
    env: int
    number: int
    length: int = 0
    total: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class StepRecord:
    """One env step, for callbacks that ask for every step."""

    obs: Any  # the observation acted on next
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
