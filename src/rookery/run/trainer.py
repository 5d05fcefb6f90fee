"""Trainer: the one loop. `for progress in Trainer(config)` gives a turn per report.

    1  message (knobs, version)            4  store.add(chunks)
    2  pool.submit(message, T)             5  while store.ready(): batch → learn → feedback
    3  pool.gather()                       6  evaluation, report, checkpoint: whatever is due, by the count of steps

Steps 1 – 5 are one *round* (`rounds.py`). Between two rounds the state can be saved, also if not all is done that is
due there: the rest is `owed`, and a resumed run begins with it. Longer than 300 lines because the loop, its reports and
its state must be read together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rookery.core.errors import ConfigError, Interrupted, UsageError
from rookery.core.restoring import check_restored, restoring
from rookery.run.build import EnvFactory, Parts, add_player, build_parts
from rookery.run.callbacks.base import Callback, Callbacks
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.collect.seats import By, checked_weights
from rookery.run.config.config import Config, identity
from rookery.run.config.resolve import load_config, load_saved_config
from rookery.run.config.trust import remember
from rookery.run.evaluate import Evaluator, Look
from rookery.run.limits import GOAL, RunLimits, goal_reached
from rookery.run.machine import settings
from rookery.run.players import PlayerHandle
from rookery.run.pools.worker import check_streams
from rookery.run.report.clock import EVAL
from rookery.run.report.progress import Evaluation, Progress
from rookery.run.report.sinks.values import Record, record_from, record_state
from rookery.run.rounds import Rounds
from rookery.run.threads import threads_for

log = logging.getLogger("rookery.run")


class Trainer(Rounds):
    """Trains the players of a run, each with its own algorithm and store; everything stateful is in `state()`.

    Args:
        config: as `load_config` gives it.
        env: a class or function that makes one env, in place of `env.id`.
        seating: a function in place of `run.seating`, (agents, episode, env, worker, rng) → {agent: player}.
        callbacks: code at moments of the run.
        parts: what was built from the config already.
    """

    def __init__(
        self,
        config: Config,
        *,
        env: EnvFactory | None = None,
        seating: By | None = None,
        callbacks: Sequence[Callback] = (),
        parts: Parts | None = None,
    ):
        super().__init__(parts or build_parts(config, env=env, by=seating), Callbacks(callbacks))
        main = self.players.main
        self.algo, self.learner, self.store = main.algo, main.learner, main.store
        self.threads = threads_for(config, self.players.values())
        self._limits = RunLimits(config.train)
        self.callbacks.connect(self.pool)
        self.evaluation: Evaluation | None = None
        self.best: float | None = None
        self.reason: str | None = None  # why the run ends
        self.interrupted: Callable[[], str | None] = lambda: None  # a reason to stop without closing evaluation
        self.closed_at: int | None = None  # steps at which the closing evaluation and report took place
        self.after_round: Callable[[int], None] = lambda before: None  # checkpoints; told the steps before the round
        self.on_round: list[Callable[[int], None]] = []  # told the steps after every round: the live view
        self.on_pause: Callable[[bool], None] = lambda paused: None  # told when a pause begins and ends
        self.on_judging: Callable[[float], None] = lambda seconds: None  # told in an evaluation how long it has taken
        self.saving = False  # a callback asked for a checkpoint
        self.whole = False  # between two rounds of `run`: the state may be saved
        self.owed: list[str] = []  # what is due before the next round: names of the methods `_due_…`
        self._seen: set[str] = set()  # metrics of train.stop that were reported
        self._pending: dict[str, float] = {}  # evaluation metrics for the next report
        self._record: Record = {}  # a report that not everybody has heard of
        self._evaluator = Evaluator(self.parts)
        self._streams = self.parts.streams.names  # of everybody who is here from the beginning
        self.folder: Path | None = None  # of the run, if it has one
        self.trust = False  # whether a checkpoint may name foreign code
        self.added: dict[str, dict[str, Any]] = {}  # players that a callback added: their sections and seats

    # --- the loop ---

    def __iter__(self) -> Iterator[Progress]:
        return self.run()

    def run(self) -> Iterator[Progress]:
        """Train until a limit, a goal or a signal; one item per report, the last with `finished` set."""
        self.whole = True
        with settings(self.threads.count):
            self.callbacks.call("run_start", self.progress())
            yield from self._settle()
            while not (self._ended() or self.interrupted()):
                yield from self._turn()
            if self.reason is not None and not (self.closed or self.owed):
                self.owed = [*self._closing(), "measure", "report"]
                yield from self._settle()
                if self.saving:  # asked for in the closing report
                    self.after_round(self.ticks)
            for name in sorted(set(self.config.train.stop) - self._seen) if self.closed else ():
                log.warning("train.stop waits for %r, but no report had such a metric", name)
            self.callbacks.call("run_end", self.progress(finished=self.reason if self.closed else self.interrupted()))

    def _turn(self) -> Iterator[Progress]:
        """One round and what is due after it."""
        before = self.ticks
        self.whole = False
        self.round()
        self.whole = True
        if self.callbacks.wants_rounds:
            self.owed.append("round_end")
        if self.due(self.config.eval.every_steps, before):
            self.owed += ["play", "evaluation"]
        if self.due(self.config.log.every_steps, before):
            self.owed += ["measure", "report"]
        if self.owed:
            yield from self._settle()
        self.after_round(before)
        for tell in self.on_round:
            tell(self.ticks)

    # --- between two rounds ---

    def _settle(self) -> Iterator[Progress]:
        """What is owed, in order. If a signal or an error comes between, the rest stays owed."""
        while self.owed:
            try:
                progress = getattr(self, f"_due_{self.owed[0]}")()
            except Interrupted:
                return
            del self.owed[0]
            if progress is not None:
                yield progress

    def _closing(self) -> list[str]:
        """What closes a run before its last report."""
        evaluated = self.evaluation is not None and self.evaluation.steps == self.steps
        return [*(["play", "evaluation"] if self.config.eval.at_end and not evaluated else []), "close"]

    @property
    def closed(self) -> bool:
        """Whether the run has ended, with its closing evaluation."""
        return self.reason is not None and self.closed_at == self.steps

    def _due_round_end(self) -> None:
        self.callbacks.once("round_end", self.progress())

    def _due_play(self) -> None:
        self._play(lambda seconds: self.interrupted() or self.on_judging(seconds))

    def _due_evaluation(self) -> None:
        self.callbacks.once("evaluation", self.evaluation)
        self._check_goals(self._pending)

    def _due_close(self) -> None:
        self.closed_at = self.steps

    def _due_measure(self) -> None:
        if self._ended() and not self.closed:  # the closing report takes its place
            self.owed.remove("report")
            return
        self._measure()
        if self.reason is not None and not self.closed:  # a goal was reached by this very report: it closes the run
            self.owed[1:1] = self._closing()

    def _due_report(self) -> Progress:
        return self._told(self.callbacks.once)

    def _told(self, call: Callable[..., None]) -> Progress:
        self._record, self._pending = self._record | self._pending, {}
        progress = self.progress(self._record, self.reason if self._ended() and self.closed else None)
        call("report", progress)
        self._record = {}
        return progress

    # --- when to stop ---

    def due(self, every: int, before: int) -> bool:
        """Whether a multiple of `every` steps was reached since there were `before`; never if every is 0."""
        return every > 0 and self.ticks // every > before // every

    def _ended(self) -> bool:
        """Sets `reason` when a limit is reached; goals set it themselves."""
        if self.reason is None:
            self.reason = self._limits.reached(self)
        return self.reason is not None

    def stop(self, reason: str) -> None:
        """End after this round, with the closing evaluation."""
        self.reason = self.reason or reason

    def _check_goals(self, metrics: dict[str, Any]) -> None:
        self._seen.update(name for name in self.config.train.stop if name in metrics)
        if reason := goal_reached(self.config.train, metrics):
            self.stop(reason)

    # --- reports ---

    def evaluate(self) -> Evaluation:
        """Greedy episodes now; the result goes into the next report, and the best is remembered."""
        result = self._play()
        self.callbacks.call("evaluation", result)
        self._check_goals(self._pending)
        return result

    def _play(self, look: Look | None = None) -> Evaluation:
        self.check_weights()
        with self.meters.phases.phase(EVAL):
            result = self._evaluator(self.steps, look)
        if self.best is None or result.mean > self.best:
            self.best, result.best = result.mean, True
        self.evaluation = result
        self._pending = result.metrics() | {"eval/return_best": self.best}
        return result

    def progress(self, metrics: dict[str, Any] | None = None, finished: str | None = None) -> Progress:
        counts = self.steps, self.updates, self.episodes
        return Progress(*counts, metrics or {}, self.evaluation, finished, self)

    def report(self) -> Progress:
        """Close the windows of the meters; the line of metrics.jsonl."""
        self._measure()
        return self._told(self.callbacks.call)

    def _measure(self) -> None:
        self.check_weights()
        self.players.check()
        metrics: dict[str, Any] = {"steps": self.steps, "updates": self.updates, "episodes": self.episodes}
        metrics |= self.meters.report(self.steps, self.updates, **self.players.counts()) | self._pending
        metrics |= self.players.metrics() | self.pool.metrics() | self.lags.report()
        self._record, self._pending = metrics, {}
        self.sentinel.report(self._record)
        self._check_goals(self._record)

    def present(self) -> dict[str, Any]:
        """What the live view shows between two reports."""
        counts = {"steps": self.steps, "updates": self.updates, "episodes": self.episodes}
        return counts | self.meters.present()

    def check_weights(self) -> None:
        """An update with a finite loss can end in infinity: look, before weights are judged, reported or saved."""
        self.sentinel.check_weights(self.players.learned(), self.updates)

    # --- for users ---

    def policy(self, name: str | None = None) -> PlayerHandle:
        """The player as a callable policy, and its weights."""
        try:
            player = self.players.named(name)
        except UsageError as error:
            raise ConfigError(str(error)) from error
        return player.policy(player.knobs_now(self.ticks))

    def record(self, name: str, value: Any) -> None:
        """A number of the user's own, or a Histogram, Image, Video or Table, for the next report."""
        self.meters.record(name, value)

    def save_soon(self) -> None:
        """A checkpoint at the end of this round, if somebody keeps them (`Experiment`)."""
        self.saving = True

    def seat(self, agent: str, weights: Mapping[str, float]) -> None:
        """Who sits for an agent in the episodes that begin from now on."""
        self.seating = {**self.seating, agent: checked_weights(self.config.seats or {}, agent, weights)}

    def train(self, name: str, learns: bool) -> None:
        """Whether a player learns, from the next round on; what it does while it does not is not stored."""
        player = self.players.named(name)
        if player.store is None:
            raise UsageError(f"player {name!r} has train: false, so that it has nothing to learn with")
        player.rests = not learns

    def add_player(
        self, name: str, sections: Mapping[str, Any], seats: Mapping[str, float], *, mode: str | None = None
    ) -> None:
        """Another player from the next round on; `mode`: how its updates are executed in a run that is resumed."""
        tree = self.config.with_player(name, sections, seats, self.parts.spaces.agents)
        if mode is None:
            config = load_config(tree=tree)
            if self.folder is not None:
                remember(config)
        else:
            config = load_saved_config(tree, f"the player {name}", trust=self.trust, known=self.config)
        add_player(self.parts, config, name, mode, self.folder)
        self.config = self.parts.config = config
        self.added[name] = {"sections": dict(sections), "seats": dict(seats)}
        self._evaluator.close()
        self._evaluator = Evaluator(self.parts)
        self._set_rows()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time that counts for no limit and no rate."""
        self.on_pause(True)
        try:
            with self.meters.paused():
                yield
        finally:
            self.on_pause(False)

    def foreach_worker(self, fn: Callable[[Any], Any]) -> list[Any]:
        """fn(collector) for every worker's collector, in the process where it lives (`collector.index` numbers them);
        a lambda or closure too, whose answer can be pickled.
        """
        return self.pool.foreach_worker(fn)

    def foreach_env(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method (or read an attribute) of every training env, by its name; or `fn(env, …)` with every env, in
        the process where it lives, a lambda or closure too. What a function changes is not repeated by a resumed run,
        which is then approximate.
        """
        return self.pool.foreach_env(name, *args, **kwargs)

    def exact(self) -> bool | str:
        """True, or the reason why a resumed run would only be approximate."""
        return True if self.pool.exactness == "exact" else self.pool.exactness

    def save(self, folder: Path | str) -> Path:
        """Write a checkpoint into `folder`; `load` goes on from it bit for bit."""
        state = self.state()
        return Checkpoints(Path(folder)).save(self.ticks, state, {"exact": self.exact()} | identity(self.config))

    def load(self, folder: Path | str) -> None:
        """Go on from the newest checkpoint in `folder`."""
        state, _ = Checkpoints(Path(folder)).load("last")
        self.restore(state)

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def shut(self) -> None:
        """Close the envs, end the other learners."""
        self.pool.close()
        self._evaluator.close()
        for player in self.players.values():
            player.close()

    def _stateful(self) -> dict[str, Any]:
        later = {"streams": self.parts.streams, "callbacks": self.callbacks, "sentinel": self.sentinel}
        return {"players": self.players, "pool": self.pool, "meters": self.meters} | later

    def state(self) -> dict[str, Any]:
        run = {
            "steps": self.steps,
            "episodes": self.episodes,
            "worker_steps": list(self.worker_steps),
            "best": self.best,
            "evaluation": None if self.evaluation is None else self.evaluation.state(),
            "pending": self._pending,
            "owed": list(self.owed),
            "record": record_state(self._record),
            "closed_at": self.closed_at,
            "stop": dict(self.config.train.stop),
            "seen": sorted(self._seen),
            "reason": self.reason,
            "knobs": self.players.knob_values(),
            "mode": self.players.modes(),
            "seating": self.seating,
            "added": self.added,
            "rests": [name for name, player in self.players.items() if player.rests],
            "gaps": {name: sorted(player.gaps) for name, player in self.players.items()},
        }
        return {"run": run} | {name: thing.state() for name, thing in self._stateful().items()}

    def restore(self, state: dict[str, Any]) -> None:
        self.whole = False
        with restoring():
            self._restore_run(state)
            check_streams(self.config, self._streams, state)
        for name, thing in self._stateful().items():
            with restoring(name):
                thing.restore(state[name])

    def _restore_run(self, state: dict[str, Any]) -> None:
        run = state["run"]
        for name, player in run["added"].items():
            if name not in self.players:
                self.add_player(name, player["sections"], player["seats"], mode=run["mode"][name])
        self.steps, self.episodes = int(run["steps"]), int(run["episodes"])
        check_restored(run["worker_steps"], self.worker_steps, "run/worker_steps")
        self.worker_steps = list(run["worker_steps"])
        self.best = None if run["best"] is None else float(run["best"])
        self.evaluation = None if run["evaluation"] is None else Evaluation(**run["evaluation"])
        self._pending, self.closed_at = dict(run["pending"]), run["closed_at"]
        self.owed, self._record = run["owed"][:], record_from(run["record"])
        if not all(hasattr(self, f"_due_{name}") for name in self.owed):
            raise ValueError(f"run/owed is {self.owed}")
        self.seating = {agent: dict(weights) for agent, weights in run["seating"].items()}
        self._seen = set(run["seen"])
        if not (run["stop"] is None or isinstance(run["stop"], dict)) or not isinstance(run["seen"], list):
            raise TypeError(f"run/stop is {run['stop']!r}, run/seen {run['seen']!r}")
        if not isinstance(run["rests"], list) or not set(run["rests"]) <= set(self.players):
            raise TypeError(f"run/rests is {run['rests']!r}")
        for name, player in self.players.items():
            player.knob_values = dict(run["knobs"][name])
            player.rests = name in run["rests"]
            player.gaps = {int(w) for w in (*run["gaps"][name], *state["pool"].get("ahead", ()))}
        reason, closed = run["reason"] or "", self.closed_at == self.steps
        # not closed yet: whatever ended it still counts; closed: a goal stays reached, unless there are others now
        same = bool(self.config.train.stop) and run["stop"] in (None, self.config.train.stop)
        keep = GOAL in reason and same if closed else not reason.startswith("train.max_")
        self.reason = (reason or None) if keep else None
