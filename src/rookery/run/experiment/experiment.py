"""Experiment: a run from start to end — folder, lock, signals, sinks, checkpoints, resume, summary.

    Experiment("cartpole-ppo", overrides=["train.max_steps=50000"]).train()
    Experiment(algo="dqn", env=lambda: MyEnv()).train()

Killed anywhere and resumed, the result is bit for bit that of the uninterrupted run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.core import registry
from rookery.core.config.overrides import Overrides
from rookery.core.errors import CheckpointError, Diverged, LearnerLost, RookeryError, UsageError
from rookery.core.restoring import restoring
from rookery.envs.watchdog import last_words
from rookery.run.build import EnvFactory, build_parts
from rookery.run.callbacks.base import Callback
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.manifest import Checkpoint
from rookery.run.checkpoints.statefile import Unencodable
from rookery.run.collect.seats import By
from rookery.run.config.config import Config, identity
from rookery.run.config.rules import remarks
from rookery.run.config.trust import remember
from rookery.run.experiment.folder import RunFolder, write_json_atomic
from rookery.run.experiment.live import LiveState
from rookery.run.experiment.logs import TextLog
from rookery.run.experiment.resume import check_same, factory_of, resolve_config, saved_modes, start_from
from rookery.run.experiment.signals import Preemption
from rookery.run.experiment.summary import ended_as, summary_of, what_is_repeated, write_config
from rookery.run.machine import difference, fingerprint, settings
from rookery.run.players import Players
from rookery.run.report.clock import CHECKPOINT
from rookery.run.report.progress import Evaluation, Progress
from rookery.run.report.sinks import Sink, Sinks
from rookery.run.report.sinks.base import checked, checked_class
from rookery.run.trainer import Trainer

log = logging.getLogger("rookery.run")
LONG = 5.0  # seconds of an evaluation after which a checkpoint is written in it
OURS = (Diverged, LearnerLost, CheckpointError)  # there is nothing good to save, or it was tried
SHARE = 20  # times what the last checkpoint took: so much longer an evaluation has to be


@dataclass(slots=True)
class Result:
    """How a run ended."""

    status: str  # finished | stopped | preempted | failed
    reason: str
    folder: Path
    summary: dict[str, Any]
    exit_code: int = 0
    evaluation: Evaluation | None = None
    metrics: dict[str, Any] = field(default_factory=dict)  # of the last report

    def __repr__(self) -> str:
        """One line; all of it is in `summary`."""
        judged = "" if self.evaluation is None else f", return {self.evaluation.mean:.4g}"
        return f"Result({self.status} after {self.summary.get('steps')} steps{judged}, {str(self.folder)!r})"


class Experiment:
    """One run in one folder."""

    def __init__(
        self,
        config: Config | str | Mapping[str, Any] | None = None,
        *,
        algo: str | type | None = None,
        env: str | EnvFactory | None = None,
        model: type | None = None,
        seed: int | None = None,
        overrides: Overrides = (),
        seating: By | None = None,
        callbacks: Sequence[Callback] = (),
        sinks: Sequence[Sink] | None = None,
        out: Path | str | None = None,
        resume: Path | str | None = None,
        on_exists: str | None = None,
        init_from: str | None = None,
        trust: bool = False,
    ):
        """What is trained, and where.

        config     a preset's name, a tree of plain values or a resolved `Config`
        algo       an algorithm's name or class          env   an id, a class, or a function that makes one env
        model      a class of encoders                   seed  `run.seed`
        seating    a function in place of `run.seating`: (agents, episode, env, worker, rng) → {agent: player}
        overrides  `["algo.lr=1e-3"]` or `{"algo.lr": 1e-3}`, above everything else
        callbacks, sinks   code in the loop, places for reports (None: those that `log.sinks` names)
        out        folder of the run (None: a new one under `run.out`); `on_exists`: fail, resume or new
        resume     folder of a run to go on with         init_from   `RUN[@best|last|STEP]`: begin with its weights
        trust      a run that somebody else began may import the code that its config names
        """
        self.env_factory, self.seating, self.resumed_from = factory_of(env), seating, list[int]()
        named = {"algo": algo, "env": env if isinstance(env, str) else None, "model": model, "seed": seed}
        self.config, self.trust = resolve_config(config, named, overrides, resume, trust), trust
        self.callbacks, self.own_sinks = list(callbacks), None if sinks is None else checked(sinks)
        self.out, self.resume = (None if p is None else Path(p) for p in (out, resume))
        self.on_exists, self.init_from = on_exists or self.config.run.on_exists, init_from
        if resume is not None and init_from is not None:
            raise UsageError(
                "--init-from starts a new run from another's weights, --resume goes on with a run: give one of them"
            )
        self.inexact: str | None = None
        self.rollbacks, self.begun = 0, False
        self.restarts = (-1, 0)  # step of the checkpoint that lost learners went back to, and how often in a row
        self.sinks = Sinks([])
        self.saved = (-1, 0.0)  # step of the last checkpoint of this process, and the seconds it took

    def train(self, *, raise_signals: bool = True) -> Result:
        """Train to the end (or to a signal); the summary is written whatever happens.

        A signal reaches the caller after the run was saved: as KeyboardInterrupt, as SystemExit(128 + n) or by the
        caller's own handler. With `raise_signals=False` only `Result.exit_code` tells of it.
        """
        level = self.config.log.level
        # one thread: networks begin with the same bits, however many threads learn
        with Preemption() as preemption, self._folder() as folder, TextLog(folder.log, level), settings(threads=1):
            result = self._train(folder, preemption)
        if raise_signals:
            preemption.deliver()
        return result

    def _folder(self) -> RunFolder:
        if self.resume is not None:
            return RunFolder.resume(self.resume)
        name = self.config.run.name or f"{self.config.learns}-{_short(self.config.env.id)}-s{self.config.run.seed}"
        return RunFolder.create(Path(self.config.run.out), name, self.on_exists, self.out)  # type: ignore[arg-type]

    def _train(self, folder: RunFolder, preemption: Preemption) -> Result:
        self.folder, self.live, self.thread = folder, LiveState(folder.state), threading.get_ident()
        self.checkpoints = Checkpoints(folder.checkpoints, self.config.checkpoint.keep)
        saved = self._previous(folder)
        modes = saved_modes(saved)
        try:
            parts = build_parts(self.config, env=self.env_factory, by=self.seating, modes=modes, folder=folder.path)
            if self.init_from is not None and saved is None:
                start_from(parts, self.init_from)
        except RookeryError:
            folder.discard()  # nothing has begun: leave nothing behind
            raise
        self.trainer = Trainer(self.config, callbacks=[*self.callbacks, _Best(self)], parts=parts)
        last_words.append(self._failed)
        try:
            with settings(self.trainer.threads.count):
                self.machine = fingerprint()
                return self._run(preemption, saved)
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            last_words.remove(self._failed)
            self.sinks.close()
            self.trainer.shut()

    def _run(self, preemption: Preemption, saved: dict[str, Any] | None) -> Result:
        trainer, folder = self.trainer, self.folder
        trainer.sentinel.folder, trainer.folder, trainer.trust = folder.offending, folder.path, self.trust
        trainer.interrupted = lambda: f"signal {preemption.requested}" if preemption.requested else None
        trainer.pool.interrupted = trainer.interrupted
        trainer.after_round, trainer.on_judging = self._after_round, self._judging
        write_json_atomic(folder.spaces, trainer.parts.spaces.to_json())
        trainer.on_pause = lambda paused: self._tell("paused" if paused else "running")
        log.info("learner threads: %d (%s)", trainer.threads.count, trainer.threads.reason)
        if saved is not None:
            with restoring():
                self._restore(saved)
        else:
            self.checkpoints.expect(trainer.players.saved_bytes)
        remember(self.config)  # before it is written: a run killed in between would not know its own config
        write_config(folder.config, self.config)  # also when resumed: a new limit must survive the next kill
        self.begun = True
        self.sinks = Sinks(sinks_of(self.config) if self.own_sinks is None else self.own_sinks)
        trainer.on_round = self.sinks.ticks()
        self.sinks.watch(trainer.present)
        self.sinks.open(folder.path, resume_step=trainer.ticks if saved is not None else None)
        if saved is not None:
            self.sinks.restore(saved["experiment"]["sinks"])
        for remark in (*remarks(self.config), *trainer.parts.remarks):
            log.warning("%s", remark)  # to the screen, too
        announce(trainer.players, self.sinks, preemption.cutting)
        last = self._loop()
        return self._finish(preemption, last)

    def _loop(self) -> Progress | None:
        """Train; on divergence go back to the last checkpoint, if the config says so, and if a learner is lost,
        exactly so."""
        last: Progress | None = None
        if self.config.learning.learners > 1 and self.checkpoints.latest() is None:
            self._save()  # lost learners go back to it
        while True:
            try:
                for progress in self.trainer.run():
                    last = progress
                    self.live.report(progress.metrics)
                    self.sinks.report(progress.metrics)
                return last
            except Diverged as error:
                self._roll_back(error)
            except LearnerLost as error:
                self._start_again(error)

    def _finish(self, preemption: Preemption, last: Progress | None) -> Result:
        trainer = self.trainer
        status, reason, code = ended_as(trainer, preemption.requested)
        if status == "preempted" or self.config.checkpoint.at_end:
            self._save(final=True)
        summary = self._summary(status, reason)
        self.folder.write_summary(summary)
        self._tell(status)
        return Result(status, reason, self.folder.path, summary, code, trainer.evaluation, last.metrics if last else {})

    def _failed(self, error: BaseException) -> None:
        reason = str(error) if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"
        log.info("the run failed", exc_info=error)  # log.txt keeps the traceback that the console does not show
        if not self.begun:
            return  # a run that could not be resumed is what it was before
        self._rescue(error)
        try:
            self.folder.write_summary(self._summary("failed", reason))
            self._tell("failed")
        except CheckpointError as problem:
            log.warning("%s", problem)

    def _rescue(self, error: BaseException) -> None:
        """Save what an error in somebody's code between two rounds would lose, and say what a resumed run repeats."""
        theirs = isinstance(error, Exception | SystemExit) and not isinstance(error, OURS)
        if theirs and self.trainer.whole and self.trainer.steps and threading.get_ident() == self.thread:
            try:
                self._write()
            except Exception as problem:  # noqa: BLE001  # whatever it is, the first error is the one to tell
                log.warning("the state could not be saved: %s", problem)
        log.warning("%s", what_is_repeated(self.trainer, self.folder.path, self.checkpoints.steps()))

    def _summary(self, status: str, reason: str) -> dict[str, Any]:
        return summary_of(self.trainer, status, reason, exact=self._exact(), resumed_from=self.resumed_from)

    def _exact(self) -> bool | str:
        return self.inexact or self.trainer.exact()

    def _roll_back(self, error: Diverged) -> None:
        """Return to the last good checkpoint and skip ahead in the samplers' streams, so that it does not repeat bit
        for bit."""
        checkpoint = self.checkpoints.latest() if self.config.sentinel.on_nan == "rollback" else None
        self.rollbacks += 1
        times, limit = self.rollbacks, self.config.sentinel.rollbacks
        if checkpoint is None or times > limit:
            raise error
        log.warning("%s Going back to step %d (%d of %d).", error, checkpoint.manifest.step, times, limit)
        self._load(checkpoint)
        for player in self.trainer.players.values():
            for name in ("store", "learn"):
                player.streams.numpy(name).random(1000 * times)
        self.inexact = f"went back to an earlier checkpoint after a divergence, {times} time(s)"

    def _start_again(self, error: LearnerLost) -> None:
        """All learners from the last checkpoint: as after a resume, bit for bit what an undisturbed run does."""
        checkpoint, limit = self.checkpoints.latest(), self.config.learning.restarts
        if checkpoint is None:
            raise error
        step, times = self.restarts
        self.restarts = (checkpoint.manifest.step, times + 1 if step == checkpoint.manifest.step else 1)
        if self.restarts[1] > limit:
            raise LearnerLost(
                f"{error} That was {self.restarts[1]} times in a row from step {checkpoint.manifest.step} "
                f"(learning.restarts={limit}). `rookery train --resume` goes on from there."
            ) from error
        log.warning("%s All learners start again from step %d.", error, checkpoint.manifest.step)
        self._load(checkpoint)

    def _load(self, checkpoint: Checkpoint) -> None:
        saved = checkpoint.load()
        self.trainer.restore(saved)
        self.sinks.restore(saved["experiment"]["sinks"])

    # --- checkpoints ---

    def _previous(self, folder: RunFolder) -> dict[str, Any] | None:
        """The state to go on from, if the folder holds a run with a checkpoint."""
        if not folder.resuming:
            return None
        self.checkpoints.clean_orphans()
        checkpoint = self.checkpoints.latest()
        self.inexact = check_same(self.config, folder.config, checkpoint, self.trust)
        if checkpoint is None:
            log.warning("%s holds no checkpoint: the run starts again from its beginning", folder.path)
            return None
        return checkpoint.load()

    def _restore(self, saved: dict[str, Any]) -> None:
        self.trainer.restore(saved)
        experiment = saved["experiment"]
        self.inexact, self.rollbacks = experiment["inexact"] or self.inexact, int(experiment["rollbacks"])
        self.resumed_from = [*experiment["resumed_from"], self.trainer.steps]
        self.saved = (self.trainer.ticks, 0.0)
        if changed := difference(experiment["machine"], self.machine):
            self.inexact = self.inexact or f"resumed with {changed}"
            log.warning("the run goes on, but not bit for bit: it was saved with %s", changed)
        log.info("resumed from step %d", self.trainer.steps)

    def _after_round(self, before: int) -> None:
        if self.trainer.saving or self.trainer.due(self.config.checkpoint.every_steps, before):
            self.trainer.saving = False
            self._save()
        if self.live.due():
            self._tell("running")

    def _tell(self, status: str) -> None:
        """Into state.json."""
        counts = {name: getattr(self.trainer, name) for name in ("ticks", "steps", "updates", "episodes")}
        self.live.tell(status, **counts)

    def _judging(self, seconds: float) -> None:
        """A checkpoint in an evaluation that takes long, which may be for ever: it is still owed there. Nobody is told
        of it, for when it comes is a matter of the clock."""
        step, took = self.saved
        if seconds > max(LONG, SHARE * took) and step != self.trainer.ticks:
            self._save(told=False)

    def _save(self, final: bool = False, told: bool = True) -> None:
        try:
            path = self._write()
        except CheckpointError as error:
            if final or isinstance(error, Unencodable):  # what cannot be written now never can
                raise
            log.warning("%s Training goes on; the checkpoint before it is untouched.", error)
            return
        if told:
            self.trainer.callbacks.call("checkpoint", path)

    def _write(self) -> Path:
        trainer, started = self.trainer, time.monotonic()
        self.saved = (trainer.ticks, self.saved[1])  # also if it is refused: in an evaluation once is enough
        self.inexact = self.inexact or trainer.players.hurried
        with trainer.meters.phases.phase(CHECKPOINT):
            trainer.check_weights()
            trainer.players.check(deep=True)
            state = trainer.state()
            state["experiment"] = {
                "sinks": self.sinks.state(),
                "inexact": self.inexact,
                "rollbacks": self.rollbacks,
                "resumed_from": list(self.resumed_from),
                "machine": self.machine,
            }
            path = self.checkpoints.save(trainer.ticks, state, self._meta())
        self.saved = (trainer.ticks, time.monotonic() - started)
        return path

    def save_best(self, evaluation: Evaluation) -> None:
        run = {"steps": self.trainer.steps, "return_mean": evaluation.mean, "knobs": self.trainer.players.knob_values()}
        state = self.trainer.players.weights() | {"run": run}
        try:
            self.checkpoints.save_best(self.trainer.ticks, state, self._meta())
        except CheckpointError as error:
            log.warning("the best policy could not be saved: %s", error)

    def _meta(self) -> dict[str, Any]:
        return {"exact": self._exact()} | identity(self.config)


class _Best(Callback):
    """Keeps the best policy, by evaluation."""

    priority = 90

    def __init__(self, experiment: Experiment):
        self.experiment = experiment

    def evaluation(self, evaluation: Evaluation) -> None:
        if evaluation.best:
            self.experiment.save_best(evaluation)


def sinks_of(config: Config) -> list[Sink]:
    """Those that `log.sinks` names."""
    return [make_sink(name, config) for name in config.log.sinks]


def make_sink(name: str, config: Config) -> Sink:
    """The sink that a name in `log.sinks` stands for."""
    return checked_class(registry.lookup("sink", name), name).from_config(config)


def _short(env_id: str | None) -> str:
    text = (env_id or "env").rpartition(":")[2].rpartition("/")[2]
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def announce(players: Players, sinks: Sinks, cutting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
    """One line per player that learns, in the log and wherever people look; builds are shown there too, and given up
    if a signal comes."""

    @contextmanager
    def busy(text: str) -> Iterator[Callable[[str], None]]:
        with sinks.busy(text) as say, cutting():
            yield say

    for player in players.values():
        if player.store is None:
            continue
        line = f"{player.prefix}updates: {player.learner.mode} ({player.mode_reason})"
        log.info("%s", line)
        sinks.note(line)
        player.learner.busy = busy
