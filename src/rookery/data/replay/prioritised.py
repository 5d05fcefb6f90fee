"""Prioritised: the steps of a ring drawn by priority. Keeps the priorities in step with what the ring may give away.

A step can be drawn while it is stored, valid, not too old (max_staleness) and not used up (max_reuse);
anything else has priority 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.errors import BatchError, ConfigError, UsageError
from rookery.core.schedule import Schedule
from rookery.data.config import PriorityConfig
from rookery.data.replay.priorities import Keys, Priorities
from rookery.data.replay.ring import Ring
from rookery.data.replay.sequences import Window
from rookery.kernels import places
from rookery.kernels.gather import COUNT, HEAD, LO, STALE, WIDTH
from rookery.kernels.sequence import errors


class Prioritised:
    """Draws `size` steps of a ring at a time; the last batch's arrays are overwritten by the next.

    β follows its schedule over env steps; `total_steps` is the run's length, for a schedule that lasts as long as the
    run. With `window` the beginnings of sequences are drawn; errors that come with single steps are kept until the
    sequences they belong to are complete.
    """

    def __init__(
        self, ring: Ring, size: int, config: PriorityConfig, total_steps: int | None, window: Window | None = None
    ):
        self.priorities = Priorities(ring.slots * ring.columns, config.alpha, config.epsilon)
        self.beta: Schedule = config.beta.resolved(total_steps)
        self._ring, self._window = ring, window
        known = window is not None and config.initial == "actor"
        # of single steps, by address; NaN: not known
        self._errors = np.full(ring.slots * ring.columns if known else 0, np.nan, np.float32)
        self._uniform, self._mass = np.zeros(size), np.zeros(size)
        self._spent, self._stamp = np.zeros(size, np.int64), np.zeros(size, np.int32)

    def check(self, chunk: Chunk) -> None:
        """Refuse a chunk whose priorities are no priorities, before anything is stored."""
        priority, valid = chunk.rows.get("priority"), chunk.rows.get("valid")
        if priority is None or not isinstance(valid, np.ndarray):
            return
        where = f"chunk of collector {chunk.collector}: rows.priority"
        if not isinstance(priority, np.ndarray) or priority.dtype != np.float32 or priority.shape != valid.shape:
            got = (
                f"{priority.dtype} {priority.shape}"
                if isinstance(priority, np.ndarray)
                else f"a {type(priority).__name__}"
            )
            raise BatchError(f"{where} must be float32 {valid.shape}, one number per step, but it is {got}.")
        self.priorities.check(priority[valid], where)

    def added(self, chunk: Chunk, starts: np.ndarray | None = None) -> None:
        """The ring has taken this chunk.

        `starts`: only these rows may be drawn, as the starts of windows that became complete.
        """
        ring, valid = self._ring, chunk.rows["valid"]
        rows = min(len(valid), ring.rows)  # of a longer chunk only the end is left
        steps, gone = np.empty(rows * ring.width, np.int64), np.empty((rows + 1) * ring.width, np.int64)
        n, m = places.newest(ring.lanes[chunk.collector], ring.meta, rows, steps, gone)
        self.priorities.remove(gone[:m])
        priority = chunk.rows.get("priority")
        if starts is not None:
            self.priorities.remove(steps[:n])
            if len(self._errors):
                self._remember(
                    chunk.collector, np.full(valid.shape, np.nan, np.float32) if priority is None else priority
                )
            self.complete(starts)
            return
        if n:
            last = slice(len(valid) - rows, None)
            self.priorities.insert(steps[:n], None if priority is None else priority[last][valid[last]])

    def complete(self, starts: np.ndarray) -> None:
        """These rows begin sequences that may be drawn from now on."""
        if not len(self._errors) or self._window is None:
            self.priorities.insert(starts)
            return
        ring, priority = self._ring, np.zeros(len(starts))
        errors(starts, self._window.length, self._window.eta, ring.lanes, ring.meta, self._errors, priority)
        known = np.isfinite(priority)
        self.priorities.insert(starts[known], priority[known])
        self.priorities.insert(starts[~known])

    def _remember(self, collector: int, priority: np.ndarray) -> None:
        """Keep the errors of the newest rows of a lane."""
        ring = self._ring
        lane, rows = ring.lanes[collector], len(priority)
        slots = (lane[HEAD] - rows + np.arange(rows)) % ring.slots
        columns = np.arange(lane[LO], lane[LO] + lane[WIDTH])
        self._errors[slots[:, None] * ring.columns + columns] = priority

    def expire(self, oldest_version: int) -> None:
        """Draw no more steps that were collected by weights older than this."""
        ring = self._ring
        before = ring.lanes[:, STALE].copy()
        ring.expire(oldest_version)
        for lane in np.flatnonzero(ring.lanes[:, STALE] > before):
            table = ring.lanes[lane]
            first = table[HEAD] - table[COUNT]
            slots = np.arange(first + before[lane], first + table[STALE]) % ring.slots
            columns = np.arange(lane * ring.width, (lane + 1) * ring.width)
            self.priorities.remove((slots[:, None] * ring.columns + columns).reshape(-1))

    def draw(self, rng: np.random.Generator, index: np.ndarray, weight: np.ndarray, steps: int) -> Keys:
        """Fill index (int64 [n]) and weight (float32 [n]); the env steps so far decide on β."""
        ring, priorities, mass = self._ring, self.priorities, self._mass
        filled, left = 0, len(index)
        while left:  # again only if a step was drawn more often in this batch than max_reuse still allows
            if priorities.tree[1] <= 0.0:
                raise UsageError(
                    f"sample() wants {len(index)} transitions, but of {ring.size} stored steps "
                    f"{ring.eligible} may be drawn (store.max_reuse={ring.max_reuse or None}, "
                    "store.max_staleness). Call it only when ready() is true."
                )
            uniform = self._uniform[:left]
            rng.random(out=uniform)
            priorities.draw(uniform, index[filled:], mass[filled:])
            filled, spent = places.take(index, mass, filled, ring.lanes, ring.meta, ring.max_reuse, self._spent)
            if spent:
                priorities.remove(self._spent[:spent])
            left = len(index) - filled
        priorities.weigh(mass, self.beta.at(steps), weight)
        priorities.stamps(index, self._stamp)
        return Keys(index, self._stamp)

    def feedback(self, keys: Keys, outputs: dict[str, Any]) -> None:
        """The update's `priority` [n] for what was drawn."""
        if "priority" not in outputs:
            raise ConfigError(
                "store.priority is set, but the update gives no `priority` (it gives: "
                f"{', '.join(outputs) or 'nothing'}). Return {{'priority': absolute TD errors}} from "
                "it, or set store.priority=null."
            )
        priority = outputs["priority"]
        self.priorities.update(keys, priority if isinstance(priority, np.ndarray) else priority.detach().cpu().numpy())

    def metrics(self, steps: int) -> dict[str, float]:
        return self.priorities.metrics() | {"beta": min(self.beta.at(steps), 1.0)}

    def state(self) -> dict[str, Any]:
        """The filled region; arrays are views."""
        used = (int(self._ring.lanes[:, COUNT].max()) + 1) * self._ring.columns
        known = {"errors": self._errors[:used]} if len(self._errors) else {}
        return self.priorities.state(used) | known

    def restore(self, state: dict[str, Any]) -> None:
        self.priorities.restore(state)
        known = state.get("errors", self._errors[:0])[: len(self._errors)]
        self._errors[: len(known)], self._errors[len(known) :] = known, np.nan
