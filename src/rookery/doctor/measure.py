"""Trial: a config trained for a few seconds, to see what its time goes into. Leaves nothing behind.

    cost of an env step = env + act + transport + store + update + other    in whole rounds that end with an update
                        + eval / eval.every_steps + …                        what happens seldom: timed once, shared out

The phases are the trainer's own clock (`rookery.run.report.clock`). What comes before the first updates (building,
compiling, filling the replay) is not counted. Limits, goals and a long `store.min_fill` of the config are lifted; its
batches and networks are as they are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rookery.core.errors import CompileError
from rookery.doctor.machine_notes import idle_seconds
from rookery.run.build import EnvFactory, build_parts, choose_mode
from rookery.run.config.config import Config
from rookery.run.config.resolve import load_config
from rookery.run.experiment.experiment import make_sink
from rookery.run.machine import settings
from rookery.run.report.clock import PHASES
from rookery.run.report.sinks import Sinks
from rookery.run.threads import work_of
from rookery.run.trainer import Trainer

SHARES = ("env", "act", "transport", "store", "update", "eval", "checkpoint", "log", "other")
FILL = 256  # steps in the replay before the first update of a trial, at most; where sequences are drawn, FILL_SEQUENCES
FILL_SEQUENCES = 1_000
UPDATES = 5  # before measuring begins: the first ones compile, allocate and load
EVALUATIONS = 6  # timed at most
FOREVER = 10**12  # steps
FILES = ("jsonl", "tensorboard")  # sinks that a trial writes to, in its own folder
_OF_PHASE = {"sample": "store"} | {name: name for name in ("env", "act", "transport", "update", "other")}


class Trial:
    """One trainer of a config (as the user gave it) that can be run in slices."""

    def __init__(self, config: Config, folder: Path, env: EnvFactory | None = None, modes: Any = None):
        self.config, self.folder, started = config, folder, time.monotonic()
        unlimited = _unlimited(config)
        parts = build_parts(unlimited, env=env, modes=modes or planned_modes(config), folder=folder)
        self.trainer = Trainer(unlimited, parts=parts)
        self.seldom = dict.fromkeys(("eval", "checkpoint", "log"), 0.0)  # nanoseconds per env step
        self.saved: tuple[int, float] | None = None  # (bytes, seconds) of the checkpoint that was tried
        self.slices: list[float] = []  # nanoseconds per env step
        self.over = 0.0  # seconds that a slice took longer than was asked for: rollouts are measured to their end
        self.idle: float | None = None  # CPUs that had nothing to do during the last slice, other work included
        try:
            self._warm_up()
        except BaseException:
            self.close()
            raise
        self.setup_seconds = time.monotonic() - started
        self._start = self._now()

    def _warm_up(self) -> None:
        with settings(self.trainer.threads.count):
            while self.trainer.updates < UPDATES:
                self.trainer.round()

    def run(self, seconds: float) -> None:
        """One slice: rounds until the time is over and the last one has learnt."""
        trainer = self.trainer
        with settings(trainer.threads.count):
            steps, idle, started = trainer.steps, idle_seconds(), time.perf_counter_ns()
            learnt, end = False, started + int(seconds * 1e9)
            while not (learnt and time.perf_counter_ns() >= end):
                before = trainer.updates
                trainer.round()
                learnt = trainer.updates > before
            took = time.perf_counter_ns() - started
            self.slices.append(took / (trainer.steps - steps))
            now = idle_seconds()
            self.idle = None if idle is None or now is None else (now - idle) * 1e9 / took
            self.over = max(self.over, took * 1e-9 - seconds)

    def costs(self) -> dict[str, float]:
        """share → nanoseconds per env step; call `time_seldom` before, else what happens seldom costs nothing."""
        now, steps = self._now(), max(self.trainer.steps - self._start["steps"], 1)
        costs = dict.fromkeys(SHARES, 0.0) | self.seldom
        for phase in PHASES:
            if phase in _OF_PHASE:
                costs[_OF_PHASE[phase]] += 1e9 * (now[phase] - self._start[phase]) / steps
        return costs

    def per_step(self) -> float:
        """Nanoseconds of an env step, everything included."""
        return statistics.median(self.slices) + sum(self.seldom.values())

    def updates_per_step(self) -> float:
        updates = self.trainer.updates - self._start["updates"]
        return updates / max(self.trainer.steps - self._start["steps"], 1)

    def time_seldom(self, patience: float) -> None:
        """Time one evaluation, checkpoint and report;
        an evaluation that would take longer than `patience` seconds is estimated.
        """
        before = self._now()
        self.seldom = {"eval": self._eval(patience), "checkpoint": self._checkpoint(), "log": self._log()}
        self._start = {name: self._start[name] + now - before[name] for name, now in self._now().items()}

    def _eval(self, patience: float) -> float:
        every, costs, trainer = self.config.eval.every_steps, self.costs(), self.trainer
        if not every:
            return 0.0
        lengths = trainer.meters.episodes.lengths
        longest = trainer.steps / (
            self.config.env.num * self.config.pool.workers
        )  # no episode has ended: at least so long
        expected = (
            self.config.eval.episodes * (lengths.mean if len(lengths) else longest) * (costs["env"] + costs["act"])
        )
        if not len(lengths) or expected > patience * 1e9:
            return expected / every
        times = [_seconds(trainer.evaluate)]
        while len(times) < EVALUATIONS and sum(times) < patience / 2:
            times.append(_seconds(trainer.evaluate))
        return statistics.median(times[1:] or times) * 1e9 / every  # the first one has made the envs

    def _checkpoint(self) -> float:
        place = self.folder / "checkpoint"
        seconds = _seconds(lambda: self.trainer.save(place))
        self.saved = sum(file.stat().st_size for file in place.rglob("*") if file.is_file()), seconds
        every = self.config.checkpoint.every_steps
        return seconds * 1e9 / every if every else 0.0

    def _log(self) -> float:
        names = [name for name in self.config.log.sinks if name in FILES]
        sinks = Sinks([make_sink(name, self.config) for name in names])
        sinks.open(self.folder, resume_step=None)
        try:
            seconds = [_seconds(lambda: sinks.report(self.trainer.report().metrics)) for _ in range(2)]
        finally:
            sinks.close()
        return min(seconds) * 1e9 / self.config.log.every_steps

    def work(self) -> int:
        """Multiply-adds of the largest update."""
        players = self.trainer.players.values()
        return max(work_of(player) for player in players if player.store is not None)

    def _now(self) -> dict[str, float]:
        counts = {"steps": self.trainer.steps, "updates": self.trainer.updates}
        return self.trainer.meters.phases.seconds() | counts

    def close(self) -> None:
        self.trainer.shut()


def open_trial(config: Config, folder: Path, env: EnvFactory | None = None) -> Trial:
    """A warm trial, in the mode that a run would have; what cannot be compiled runs eagerly if the run would do so."""
    try:
        return Trial(config, folder, env)
    except CompileError:
        if config.learning.mode != "auto":
            raise
        return Trial(config, folder, env, dict.fromkeys(config.players, "eager"))


def planned_modes(config: Config) -> Any:
    """The mode of a whole run of the config, which is not the mode of a run of a few seconds."""
    return {name: choose_mode(view)[0] for name, view in config.views.items()}


def changed(config: Config, overrides: tuple[str, ...]) -> Config:
    """The config with these `key=value` texts."""
    return load_config(tree=config.dump(), overrides=overrides)


def _unlimited(config: Config) -> Config:
    tree = config.dump()
    tree["train"] = {"max_steps": FOREVER, "stop": {}}
    fill = config.store.min_fill
    if fill is not None and config.env.agents == 1:
        least = FILL if config.model.core is None else FILL_SEQUENCES
        tree["store"]["min_fill"] = min(fill, max(least, config.store.batch_size))
    return load_config(tree=tree)


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
