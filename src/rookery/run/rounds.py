"""One round: collect, store, learn. It may be a single env step, so only O(1) work happens in it.

It stands alone so that the loop around it (`trainer.py`: what is due when, reports, state) can be read without it.
"""

from __future__ import annotations

import math
from time import perf_counter_ns
from typing import Any

from rookery.acting.actor import Messages
from rookery.core.chunk import Chunk, Collected
from rookery.learning.learner import Outputs
from rookery.run.build import Parts
from rookery.run.callbacks.base import Callbacks
from rookery.run.limits import Lags
from rookery.run.players import Player
from rookery.run.report.clock import ACT, ENV, OTHER, SAMPLE, TRANSPORT, UPDATE
from rookery.run.report.meters import Meters
from rookery.run.report.sentinel import Sentinel


class Rounds:
    """The players of a run, their pool, and what is counted while they play and learn."""

    def __init__(self, parts: Parts, callbacks: Callbacks):
        self.parts, self.config, self.callbacks = parts, parts.config, callbacks
        self.pool, self.players = parts.pool, parts.players
        self.meters = Meters(self.config.log.window, self.config.log.update_window)
        self.sentinel = Sentinel(self.config.sentinel)
        self.lags, self._asynchronous = Lags(self.config.pool), self.config.pool.mode == "async"
        self.steps = self.episodes = 0
        self.worker_steps = [0] * self.config.pool.workers
        self.seating: dict[str, dict[str, float]] = {}  # agent → player → weight, where a callback changed it
        self._times = (0, 0)
        self._set_rows()

    def _set_rows(self) -> None:
        """Whoever learns does so at its own pace: a rollout is complete after a whole number of rounds."""
        self._observing = any(player.config.model.normalise_obs for player in self.players.values())
        self.rows = math.gcd(*(player.rows for player in self.players.values() if player.store is not None))
        self._room = self.rows * self.config.env.num * self.config.pool.workers  # steps of a full round

    def round(self) -> None:
        """One turn: collect, store, learn."""
        phases, train = self.meters.phases, self.config.train
        messages = self._messages()
        left = None if train.max_steps is None else train.max_steps - self.steps
        finished = None if train.max_episodes is None else train.max_episodes - self.episodes
        phases.switch(TRANSPORT)
        if self._asynchronous:
            gathered = self._gather_async(messages, left)
        else:
            steps = left if left is not None and left < self._room else None
            episodes = finished if finished is not None and finished < self._room else None
            self.pool.submit(messages, self.rows, steps=steps, episodes=episodes)
            gathered = self.pool.gather()
            self._count_times()
        phases.switch(SAMPLE)
        for collector, chunks in gathered:
            self._store(collector, chunks)
        for player in self.players.values():
            self._learn(player)
            player.share()
        self._observe(gathered)

    def _gather_async(self, messages: Messages, left: int | None) -> list[tuple[int, Collected]]:
        """Whatever has come, chunk by chunk; while updates are done, the workers go on."""
        if not self._ahead():
            self.pool.submit(messages, self.rows, steps=left)
        stores = [player.learning for player in self.players.values()]
        wait = not any(store is not None and store.ready() for store in stores)
        started = perf_counter_ns()
        gathered = self.pool.gather(wait)
        self._count_times(perf_counter_ns() - started)
        return gathered

    def _ahead(self) -> bool:
        """Whether the workers are so far ahead of the learner that they wait (pool.ahead)."""
        chunks = (self.config.pool.ahead or math.inf) * self.config.pool.workers
        stores = [store for player in self.players.values() if (store := player.learning) is not None]
        owed = max((store.owed for store in stores if store.ready()), default=0.0)  # else it waits for steps itself
        return owed / (self.rows * self.config.env.num) + self.pool.waiting > chunks

    def _go_on(self) -> bool:
        """Let workers that are done go on; true if so many chunks wait that they should be stored first."""
        before, limit = self.meters.phases.switch(TRANSPORT), self.config.train.max_steps
        left = None if limit is None else limit - self.steps
        waiting = self.pool.refill(self._messages, self.rows, left, hold=self._ahead())  # type: ignore[union-attr]
        self.meters.phases.switch(before)
        return waiting >= self.config.pool.workers

    def _messages(self) -> Messages:
        ticks = self.ticks
        messages = Messages({name: player.message(ticks) for name, player in self.players.items()})
        messages.seating = self.seating or None
        return messages

    def _observe(self, gathered: list[tuple[int, Collected]]) -> None:
        """Normalisers learn, too."""
        if self._observing:
            self.meters.phases.switch(UPDATE)
            for _, chunks in gathered:
                for name, chunk in chunks.items():
                    self.players[name].observe(chunk)
        self.meters.phases.switch(OTHER)

    def _learn(self, player: Player) -> None:
        phases, limit, store = self.meters.phases, self.config.train.max_updates, player.learning
        if store is None:
            return
        store.clock(self.steps)
        while store.ready() and (limit is None or self.updates < limit):
            phases.switch(SAMPLE)
            batch, keys = store.sample()
            if not player.decided(batch):
                continue
            phases.switch(UPDATE)
            for outputs in player.algo.learn(player.learner, player.learnt_from(batch), player.rng):
                self._note(player, outputs, batch)
                if keys is not None:
                    phases.switch(SAMPLE)
                    store.feedback(keys, outputs[0].arrays)
                    phases.switch(UPDATE)
                if limit is not None and self.updates >= limit:
                    break
            if self._asynchronous and self._go_on():
                break

    def _note(self, player: Player, outputs: list[Outputs], batch: Any) -> None:
        for out in outputs:
            if out.names:
                names = player.names(out.names)
                self.sentinel.check(names, out.numbers, update=player.learner.updates, batch=batch)
                self.meters.updates.add(names, out.numbers)

    def _store(self, collector: int, chunks: Collected) -> None:
        for name, chunk in chunks.items():
            player = self.players[name]
            if not player.rests and (not self._asynchronous or self._admits(player, chunk)):
                player.store_chunk(chunk)
            else:
                player.gaps.add(collector)
        self.steps += chunks.steps
        self.worker_steps[collector] += chunks.steps
        self.episodes += len(chunks.episodes)
        if chunks.episodes and self.callbacks.wants_ended:
            self.callbacks.call("episodes", chunks.episodes)
        for end in chunks.episodes:
            self.meters.episodes.add(end)

    def _admits(self, player: Player, chunk: Chunk) -> bool:
        newer = self.pool.waiting if player.store is not None and player.store.once else 0
        return self.lags.admits(player.learner.updates - chunk.version, chunk, newer)

    @property
    def ticks(self) -> int:
        """What `due`, schedules, limits and the names of checkpoints count: env steps, as long as there is an env."""
        return self.steps

    @property
    def updates(self) -> int:
        """Optimiser steps of all players."""
        return self.players.updates

    @property
    def seconds(self) -> float:
        """Since the run began, without pauses."""
        return self.meters.rates.seconds()

    def _count_times(self, waited: int | None = None) -> None:
        """`waited` ns for workers: asynchronously they were at it during updates, too, which is not counted twice."""
        before, self._times = self._times, self.pool.times()
        env, act = self._times[0] - before[0], self._times[1] - before[1]
        part = 1.0 if waited is None else min(1.0, waited / max(env + act, 1))
        self.meters.phases.add(ENV, int(env * part))
        self.meters.phases.add(ACT, int(act * part))
