"""Remote pools: collectors in processes of their own, here or on other machines. What they share; how a worker is
reached is a `WorkerLink`.

Asynchronous (`pool.mode=async`): a worker gets its next request, with the newest weights, as soon as its chunk is
here, between two updates if need be; chunks are handed on as they come. Then it depends on timing which weights
collected what.

Longer than 300 links because rounds, asynchronous request and the renewal of workers share the same few lists.

A round: the weights are published once, every worker gets its request, and the chunks come back in the order of the
workers, so that what is learnt is bit for bit what one process would have learnt. A worker that dies or hangs is
replaced and given the same request again: what it had collected in that round was never counted. Its episodes and
random streams are new ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rookery.acting.actor import Message
from rookery.core import registry
from rookery.core.chunk import Collected
from rookery.core.errors import EnvError, RookeryError
from rookery.core.rng import Streams
from rookery.core.system.functions import Sent
from rookery.core.system.process import WorkerLost
from rookery.envs.faults import Patience
from rookery.envs.told_calls import CALLED, plain
from rookery.learning.learner import Learner
from rookery.learning.published import Weights, published
from rookery.run.collect.chunks import copied
from rookery.run.config.config import Config
from rookery.run.pools.local import reason_of, told_before
from rookery.run.pools.protocol import Abandoned, WorkerLink
from rookery.run.pools.worker import CollectRequest, CollectResult, WorkerSpec, generators_of

log = logging.getLogger(__name__)
NAP = 0.0005  # seconds between looks at workers of whom none is done
PARTING = 3.0  # seconds for all workers together to close their envs


class RemotePool:
    """`workers` links. Subclasses say how a worker is started (`_link`) and how weights are published."""

    kind = "remote"
    collectors: Sequence[Any] = ()  # none of them is here

    def __init__(
        self, config: Config, learners: dict[str, Learner], streams: Streams, make_spec: Callable[..., WorkerSpec]
    ):
        self.config, self.learners, self.streams, self._make_spec = config, learners, streams, make_spec
        self.asynchronous = config.pool.mode == "async"
        self._links: list[WorkerLink] = []
        self._patience = [Patience(config.env.faults) for _ in range(config.pool.workers)]
        self._since = [0] * config.pool.workers  # env steps since the last failure
        self._renewed = [0] * config.pool.workers
        self._conditions: list[dict[str, Any]] = [{} for _ in range(config.pool.workers)]
        self._requests: dict[int, CollectRequest] = {}  # given and not yet answered
        self._done: list[tuple[int, Collected]] = []
        self._told: dict[str, tuple[Any, ...]] = {}  # what envs were told, by method: told again to new ones
        self._times = (0, 0)
        self._behind = False  # whether the workers do not have the states of a resumed run's random generators yet
        self._reason = "exact"
        self._saved: dict[str, Any] | None = None
        self._missed: set[int] = set()  # workers of whom a chunk was dropped, for the run is ending
        self._gone: set[int] = set()  # workers that are lost and not replaced, for the run is ending
        self.interrupted: Callable[[], Any] = lambda: None  # says whether the run has been told to end
        self.spare: Any = None  # an env that was made here to know its spaces; closed with the pool

    @property
    def waiting(self) -> int:
        """Chunks that came while others were learnt from."""
        return len(self._done)

    def __len__(self) -> int:
        return self.config.pool.workers

    # --- what a subclass says ---

    def _link(self, spec: WorkerSpec) -> WorkerLink:
        raise TypeError(f"{type(self).__name__} does not say how a worker is started")

    def _publish(self, weights: Weights, workers: Sequence[int]) -> None:
        """For these workers' next request; the others may be reading what they got."""
        raise TypeError(f"{type(self).__name__} does not say how weights are published")

    # --- rounds ---

    def submit(
        self, messages: dict[str, Message], rows: int, *, steps: int | None = None, episodes: int | None = None
    ) -> None:
        """Every worker: take over the weights, collect `rows` rows. With limits, one worker after the other."""
        try:
            self._submit(messages, rows, steps, episodes)
        except Abandoned:
            self._drop()

    def _submit(self, messages: dict[str, Message], rows: int, steps: int | None, episodes: int | None) -> None:
        self._start()
        if self.asynchronous:
            self._submit_idle(messages, rows, steps)
            return
        self._publish(published(self.learners), range(len(self)))
        in_turn = steps is not None or episodes is not None
        for w in range(len(self)):
            self._give(
                w, CollectRequest(messages, rows, steps, episodes, self._generators(w) if self._behind else None)
            )
            if in_turn:
                chunks = self._fetch(w)
                self._done.append((w, chunks))
                steps = None if steps is None else steps - chunks.steps
                episodes = None if episodes is None else episodes - len(chunks.episodes)
        self._behind = False

    def _submit_idle(self, messages: dict[str, Message], rows: int, left: int | None) -> None:
        """CollectRequest for those who have none. `left`: steps that the run still needs; no more than those are ever
        asked for."""
        idle = [w for w in range(len(self)) if w not in self._requests]
        if not idle:
            return
        self._publish(published(self.learners), idle)
        room = rows * self.config.env.num
        underway = sum(room if request.steps is None else request.steps for request in self._requests.values())
        underway += sum(chunks.steps for _, chunks in self._done)
        for w in idle:
            free = room if left is None else min(left - underway, room)
            if free > 0:
                generators = self._generators(w) if self._behind else None
                self._give(w, CollectRequest(messages, rows, None if free == room else free, None, generators))
                underway += free
        self._behind = False

    def refill(
        self, messages: Callable[[], dict[str, Message]], rows: int, left: int | None, hold: bool = False
    ) -> int:
        """Between two updates: whoever is done goes on, unless on hold. Returns how many chunks wait."""
        try:
            if self._bring() and not hold:
                self._submit_idle(messages(), rows, left)
        except Abandoned:
            self._drop()
        return len(self._done)

    def _bring(self) -> bool:
        """Take the chunks that are here; their arrays are copied, since the workers go on."""
        ready = []
        for w in sorted(self._requests):
            try:
                ready += [w] if self._links[w].ready() else []
            except WorkerLost as error:
                self._renew(w, str(error))
        for w in ready:
            chunks = self._fetch(w)
            for name, chunk in chunks.items():
                chunks[name] = copied(chunk)
            self._done.append((w, chunks))
        return bool(ready)

    def gather(self, wait: bool = True) -> list[tuple[int, Collected]]:
        """(worker, chunk per player), ordered by worker; asynchronously, as they come, one."""
        try:
            if self.asynchronous:
                while not self._bring() and not self._done and wait and self._requests:
                    time.sleep(NAP)
                return [self._done.pop(0)] if self._done else []
            for w in sorted(self._requests):
                self._done.append((w, self._fetch(w)))
        except Abandoned:
            self._drop()
        done, self._done = self._done, []
        return done

    def _drop(self) -> None:
        """Of a round that cannot be completed nothing is counted."""
        self._missed |= {*self._requests, *(w for w, _ in self._done)}
        for w in set(self._requests) - self._gone:
            with suppress(WorkerLost, RookeryError):
                self._links[w].answer("collect")
        self._requests, self._done = {}, []

    def _give(self, w: int, request: CollectRequest) -> None:
        self._requests[w] = request
        try:
            self._links[w].collect(request)
        except WorkerLost as error:
            self._renew(w, str(error))

    def _fetch(self, w: int) -> Collected:
        while True:
            try:
                result: CollectResult = self._links[w].answer("collect")
                break
            except WorkerLost as error:
                self._renew(w, str(error))
        del self._requests[w]
        self._conditions[w] = result.condition
        self._times = self._times[0] + result.time_env // len(self), self._times[1] + result.time_act // len(self)
        self._since[w] += result.chunks.steps
        return result.chunks

    # --- workers ---

    def _start(self) -> None:
        new = range(len(self._links), len(self))
        for w in new:
            self._links.append(self._link(self._spec(w)))
        try:
            for w in new:  # they have all been started: now wait for them
                try:
                    self._links[w].answer("start")
                except WorkerLost as error:
                    self._renew(w, str(error))
        except Abandoned:
            self._gone = set(range(len(self)))
            raise
        if self._saved is not None:
            saved, self._saved = self._saved, None
            for w in range(len(self)):
                if saved[str(w)] is not None:
                    self._conditions[w] = self._asked(w, "restore", saved[str(w)])
                    continue
                for call in self._told.values():
                    self._asked(w, "call", *call)

    def _spec(self, w: int) -> WorkerSpec:
        return self._make_spec(worker=w, imports=registry.imported(), renewal=self._renewed[w])

    def _renew(self, w: int, why: str) -> None:
        """Another worker in place of one that is lost; the same request again, if it had any."""
        while True:
            problem = f"pool worker {w} (pid {self._links[w].pid}) {why}"
            patience, borne = self._patience[w], self._patience[w].bears(self._since[w])
            self._since[w] = 0
            self._links[w].end(0.0)
            if not borne:
                raise EnvError(
                    f"{problem}, {patience.failures} times in a row "
                    f"(env.faults.renewals={self.config.env.faults.renewals}). "
                    "Nothing was learnt from its last round."
                )
            self._renewed[w] += 1
            if self._reason == "exact":
                self._reason = f"{problem.partition(chr(10))[0]}; its unfinished episodes were dropped"
            if self.interrupted():
                self._gone.add(w)
                raise Abandoned(problem)
            log.warning("%s: another one takes its place in %.1f s", problem, patience.pause)
            time.sleep(patience.pause)
            self._links[w] = self._link(self._spec(w))
            try:
                self._links[w].answer("start")
                for call in self._told.values():
                    self._links[w].ask("call", *call)
                    self._links[w].answer("call")
                if w in self._requests:
                    self._requests[w].generators = None
                    self._links[w].collect(self._requests[w])
                return
            except WorkerLost as error:
                why = str(error)

    def _asked(self, w: int, name: str, *args: Any) -> Any:
        """Ask and wait; a worker that is lost on the way is replaced and asked again."""
        while True:
            try:
                self._links[w].ask(name, *args)
                return self._links[w].answer(name)
            except WorkerLost as error:
                self._renew(w, str(error))

    def _generators(self, w: int) -> dict[str, Any]:
        names = generators_of(self.config, w)
        return {name: self.streams.numpy(name).bit_generator.state for name in names}

    def add_player(
        self,
        config: Config,
        name: str,
        learner: Learner,
        make_spec: Callable[..., WorkerSpec],
        extend: Callable[..., None],
    ) -> None:
        """Another player, in every worker that is there and in all that come."""
        while self._requests and self.asynchronous:
            if not self._bring():
                time.sleep(NAP)
        self.config, self._make_spec = config, make_spec
        self.learners[name] = learner
        for w in sorted(set(range(len(self._links))) - self._gone):
            self._asked(w, "add", extend, config, name)

    @property
    def known_env(self) -> Any:
        """One that can be asked for its methods."""
        return self.spare

    # --- what everybody asks of a pool ---

    def foreach_worker(self, fn: Callable[[Any], Any]) -> list[Any]:
        """fn(collector) in every worker, where it lives; a lambda or closure, too."""
        return self._each("apply", Sent(fn))

    def foreach_env(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every env of every worker, or a function with every env."""
        what = name if isinstance(name, str) else Sent(name)
        answers = [value for values in self._each("call", what, args, kwargs) for value in values]
        if isinstance(name, str) and (args or kwargs):  # not before: what failed is told to nobody again
            self._told[name] = (name, args, kwargs)
        elif not isinstance(name, str) and self._reason == "exact":
            self._reason = CALLED.format(name=self.config.env.id)
        return answers

    def _each(self, name: str, *args: Any) -> list[Any]:
        """The answers of all workers, while the run ends of those that are there."""
        answers = []
        with suppress(Abandoned):
            self._start()
        for w in sorted(set(range(len(self))) - self._gone):
            with suppress(Abandoned):
                answers.append(self._asked(w, name, *args))
        return answers

    def times(self) -> tuple[int, int]:
        """Nanoseconds that a worker has spent in envs and in acting so far, on average."""
        return self._times

    @property
    def exactness(self) -> str:
        timing = "pool.mode=async: which weights collected what depends on timing" if self.asynchronous else "exact"
        reasons = [self._reason, timing, *(c.get("exactness", "exact") for c in self._conditions)]
        return next((reason for reason in reasons if reason != "exact"), "exact")

    def metrics(self) -> dict[str, float]:
        counts = {
            "env/renewals": sum(c.get("renewals", 0) for c in self._conditions),
            "env/given_up": sum(c.get("given_up", 0) for c in self._conditions),
            "pool/renewals": sum(self._renewed),
        }
        return {name: float(count) for name, count in counts.items() if count}

    def pids(self) -> list[list[int]]:
        """Per worker its own process, then those of its envs."""
        processes = [list(c.get("pids", [])) for c in self._conditions]
        return [pids or [link.pid] for pids, link in zip(processes, self._links)]

    def state(self) -> dict[str, Any]:
        """As every pool saves it: a run may go on in another one. The generators' states go back to the streams.

        Asynchronously, chunks that wait are not part of it: a resumed run goes on without those steps, and never
        counts them.
        """
        if self._saved is not None:
            return self._saved  # nobody has gone on from it yet
        saved: dict[str, Any] = {"renewed": list(self._renewed)} if any(self._renewed) else {}
        with suppress(Abandoned):
            self._start()
            while self._requests and self.asynchronous:
                if not self._bring():
                    time.sleep(NAP)
        for w in range(len(self)):
            saved[str(w)] = None  # a worker that is lost: its successor begins new episodes
            with suppress(Abandoned):
                answer = {} if w in self._gone else self._asked(w, "state")
                saved[str(w)] = answer.get("collector")
                for name, state in answer.get("generators", {}).items():
                    self.streams.numpy(name).bit_generator.state = state
        if None in saved.values():
            with suppress(TypeError):  # it cannot be saved, as the envs have said
                saved["told"] = [plain(list(call)) for call in self._told.values()]
        if ahead := sorted(self._missed.union(w for w, _ in self._done)):
            saved["ahead"] = ahead  # their envs have gone on, but nobody will have learnt from it
        return saved | reason_of(self._reason)

    def restore(self, state: dict[str, Any]) -> None:
        """Workers take over when they are needed next: by then the streams are restored, too."""
        for w in list(self._requests):
            with suppress(Abandoned):
                self._fetch(w)  # what was collected before a divergence is not the restored run's
        self._requests = {}
        self._done, self._saved, self._behind, self._missed = [], state, True, set()
        self._told = dict(told_before(state))
        self._reason = state.get("reason", "exact") if self._reason == "exact" else self._reason
        # those that are here already keep their streams, and their successors never get the same again
        before = state.get("renewed", self._renewed)
        self._renewed = [max(int(n), now) for n, now in zip(before, self._renewed)]

    def close(self) -> None:
        links, self._links = self._links, []
        for link in links:
            link.part()
        until = time.monotonic() + PARTING
        for link in links:
            link.end(max(until - time.monotonic(), 0.0))
        if self.spare is not None:
            self.spare.close()
