"""Callbacks: subclass `Callback`, override what you need. Hooks run in the order of `priority`, lowest first.

Hooks per episode and per step cost time in every step and are connected only if some callback overrides them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import ConfigError
from rookery.core.tree import tree_take
from rookery.envs.vector import Step
from rookery.run.collect.collector import Collector
from rookery.run.report.progress import Episode, Evaluation, Progress, StepRecord


class Callback:
    """Every hook does nothing by default. An exception in a hook ends the run: it is your code, and you want to
    know."""

    priority: int = 50

    def run_start(self, progress: Progress) -> None:
        """Before the first round of this process."""

    def round_end(self, progress: Progress) -> None:
        """After every turn of the loop; keep it short. `progress.metrics` is empty here."""

    def report(self, progress: Progress) -> None:
        """Every log.every_steps, and at the end."""

    def episodes(self, ended: list[EpisodeEnd]) -> None:
        """The episodes that ended in a round, in every pool; numbers put into their `metrics` are averaged in the next
        report."""

    def episode_start(self, episode: Episode) -> None:
        """Before an episode's first step."""

    def episode_step(self, episode: Episode, step: StepRecord) -> None:
        """After every env step."""

    def episode_end(self, episode: Episode) -> None:
        """After an episode's last step; numbers put into `episode.metrics` are averaged in the next report."""

    def evaluation(self, evaluation: Evaluation) -> None:
        """After every evaluation."""

    def checkpoint(self, path: Path) -> None:
        """After every committed checkpoint, but those that an evaluation of more than seconds is interrupted for."""

    def run_end(self, progress: Progress) -> None:
        """After the last round of this process: finished, stopped or preempted, but not after an error."""

    def state(self) -> dict[str, Any]:
        """What must survive a resume: arrays and JSON values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""


class Callbacks:
    """All callbacks of a run, in order."""

    def __init__(self, callbacks: Sequence[Callback]):
        self.all = sorted(callbacks, key=lambda callback: callback.priority)
        self.wants_rounds = self._wants("round_end")
        self.wants_episodes = self._wants("episode_start") or self._wants("episode_end") or self._wants("episode_step")
        self.wants_steps = self._wants("episode_step")
        self.wants_ended = self._wants("episodes")
        self._running: dict[tuple[int, int], Episode] = {}
        self._names = list(self._named())
        self._heard: dict[str, list[str]] = {}  # hook that somebody broke → those who had heard of it before

    def _wants(self, hook: str) -> bool:
        return any(getattr(type(callback), hook) is not getattr(Callback, hook) for callback in self.all)

    def call(self, hook: str, *args: Any) -> None:
        for callback in self.all:
            getattr(callback, hook)(*args)

    def once(self, hook: str, *args: Any) -> None:
        """The same for a hook that is owed: if one raises, only the rest is called in the resumed run."""
        heard = self._heard.setdefault(hook, [])
        for name, callback in zip(self._names, self.all):
            if name not in heard:
                getattr(callback, hook)(*args)
                heard.append(name)
        del self._heard[hook]

    def connect(self, pool: Any) -> None:
        """Hear of every step, if any callback asks for it."""
        if self.wants_episodes:
            if pool.kind != "local":
                names = ", ".join(type(c).__name__ for c in self.all if Callbacks([c]).wants_episodes)
                raise ConfigError(
                    f"{names} wants to hear of every episode, but with pool.kind={pool.kind} the steps are taken in "
                    f"other processes. "
                    "Set pool.kind=local, or use the hooks episodes, report and round_end."
                )
            for collector in pool.collectors:
                collector.on_begin, collector.on_step = self._begin, self._step
                collector.env.wants_infos = self.wants_steps

    def _begin(self, collector: Collector) -> None:
        for i in range(collector.env.num):
            if (collector.index, i) not in self._running:
                self._start((collector.index, i), 0)

    def _step(self, collector: Collector, step: Step) -> None:
        for i in np.flatnonzero(step.valid):
            episode = self._running[collector.index, int(i)]
            episode.length += 1
            episode.total += float(step.reward[i])
            if self.wants_steps:
                info = (step.infos[i] if step.infos else None) or {}
                ended = bool(step.terminated[i]), bool(step.truncated[i])
                record = StepRecord(tree_take(step.obs, i), float(step.reward[i]), *ended, info)
                self.call("episode_step", episode, record)
        for column in step.cut:  # a dropped episode: what follows is another one
            key = (collector.index, int(column))
            self._start(key, self._running[key].number + 1)
        for end in step.ended:
            key = (collector.index, end.env)
            episode = self._running[key]
            self.call("episode_end", episode)
            end.metrics.update(episode.metrics)
            self._start(key, end.episode + 1)

    def _start(self, key: tuple[int, int], number: int) -> None:
        self._running[key] = Episode(*key, number)
        self.call("episode_start", self._running[key])

    def state(self) -> dict[str, Any]:
        running = {
            f"{worker}.{env}": {
                "number": e.number,
                "length": e.length,
                "total": e.total,
                "data": e.data,
                "metrics": e.metrics,
            }
            for (worker, env), e in self._running.items()
        }
        heard = {hook: list(names) for hook, names in self._heard.items()}
        own = {name: callback.state() for name, callback in zip(self._names, self.all)}
        return {"episodes": running, "own": own, "heard": heard}

    def _named(self) -> Iterator[str]:
        """Callbacks by class and number, so that another one beside them takes nobody's state."""
        seen: dict[str, int] = {}
        for callback in self.all:
            name = type(callback).__qualname__
            seen[name] = seen.get(name, -1) + 1
            yield f"{name}#{seen[name]}"

    def restore(self, state: dict[str, Any]) -> None:
        self._running, own = {}, dict(state["own"])
        self._heard = {hook: list(names) for hook, names in state["heard"].items()}
        for key, e in state["episodes"].items():
            worker, env = (int(part) for part in key.split("."))
            self._running[worker, env] = Episode(
                worker, env, e["number"], e["length"], e["total"], e["data"], e["metrics"]
            )
        for name, callback in zip(self._names, self.all):
            if name in own:
                callback.restore(own[name])
