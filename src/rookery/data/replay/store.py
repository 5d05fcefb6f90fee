"""ReplayStore: experience that is learnt from again and again, drawn uniformly or by priority.

    reward = Σ_{j<k} γ^j r_j        discount = γ^k (1 − terminated)       next_obs = the true successor of the k-th step

k ≤ n_step counts the steps really taken. It is smaller where an episode ends (a truncated one still bootstraps, from
its final observation) and at the write head, so that the newest rows can be drawn at once.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rookery.core.chunk import Chunk
from rookery.core.errors import CheckpointError, UsageError
from rookery.core.spec import stacked_spec
from rookery.core.system.memory import available_bytes
from rookery.core.tree import Tree, tree_map
from rookery.data.aligned import aligned_zeros
from rookery.data.config import ReplayConfig
from rookery.data.limiter import Limiter
from rookery.data.pieces import piece
from rookery.data.replay.alarm import Alarm
from rookery.data.replay.hindsight import GoalFunctions, Hindsight
from rookery.data.replay.leaf import stored_spec
from rookery.data.replay.memory_check import check_replay_fits
from rookery.data.replay.priorities import Keys
from rookery.data.replay.prioritised import Prioritised
from rookery.data.replay.reader import Reader
from rookery.data.replay.ring import Ring
from rookery.data.replay.scratch import check_disk, on_disk, scratch_bytes, scratch_folder
from rookery.data.replay.sequences import Window, WindowReader, Windows
from rookery.data.store import Store
from rookery.kernels import gather
from rookery.kernels.sequence import READY

ATTEMPTS = (
    8  # rounds of rejection before the eligible rows are listed: with half the rows holes, one sample in 1e3 gets there
)


class ReplayStore(Store):
    """A `Store` over a ring.

    Args:
        config: section `store`.
        obs_spec, action_spec: of one observation and action (`core.spec.spec_of(space)`).
        columns: envs of all collectors, who have equally many.
        gamma, n_step: of the summed rewards in `b.reward`, and of `b.discount`.
        rng: of the draws.
        collectors: who deliver chunks.
        stack: frames per observation; the chunks hold single ones.
        paid: the part of an observation that tells what each member of a team was paid; None: `b.reward` is the team's.
        window: sequences instead of single steps.
        extras: specs of what else a row has, by name.
        goals: functions of a goal env, for `store.hindsight`.
        total_steps: length of the run, for a β (store.priority) that is annealed over the whole run.
        scratch: the run's folder, for `store.mmap`.
    """

    _clock: int | None = None  # env steps of the run, which β follows; None: the steps inserted

    def __init__(
        self,
        config: ReplayConfig,
        obs_spec: Tree,
        action_spec: Tree,
        columns: int,
        gamma: float,
        n_step: int,
        rng: np.random.Generator,
        collectors: int = 1,
        stack: int = 1,
        window: Window | None = None,
        extras: dict[str, Tree] | None = None,
        goals: GoalFunctions | None = None,
        paid: str | None = None,
        total_steps: int | None = None,
        scratch: Path | None = None,
    ):
        fields = stored_spec(obs_spec, action_spec, extras)
        folder = scratch_folder(config.mmap, scratch)
        if folder is not None:
            check_disk(scratch_bytes(config.capacity, columns, fields), folder)
        if config.max_memory is not None:
            kept = {name: spec for name, spec in fields.items() if name != "obs"}
            in_memory: tuple[Tree, Tree] = (obs_spec, kept) if folder is None else ({}, {})
            available, prioritised = available_bytes(), config.priority is not None
            check_replay_fits(config.capacity, columns, *in_memory, config.max_memory, available, prioritised)
        self.config = config
        self._max_reuse = config.max_reuse or 0
        zeros = np.zeros if folder is None else on_disk(folder)
        self._ring = Ring(fields, columns, math.ceil(config.capacity / columns), collectors, self._max_reuse, zeros)
        self._windows = None if window is None else Windows(self._ring, window)
        self._reader: Reader | WindowReader = (
            Reader(self._ring, config.batch_size, n_step, gamma, stack, paid)
            if window is None
            else WindowReader(self._ring, config.batch_size, window)
        )
        self._wanted = gather.VALID if window is None else READY  # flag of the rows that may be drawn
        self._attempts = ATTEMPTS * (1 if window is None else window.stride)
        self._hindsight: Hindsight | None = None
        if config.hindsight is not None:
            goals = goals or GoalFunctions(None)
            self._hindsight = Hindsight(config.hindsight, self._ring, self._reader.arrays, gamma, goals)
        self._limiter = Limiter(config.updates_per_step, config.min_fill)
        self._limited = config.max_reuse is not None or config.max_staleness is not None
        self._rng = rng
        self._uniform = np.zeros(config.batch_size)
        self._complete = 0  # windows that became complete, ever
        arrays = dict(self._reader.arrays)
        for key in ("obs", "next_obs") if stack > 1 else ():  # frames as the networks see them: views
            spec = stacked_spec(obs_spec, stack)
            arrays[key] = tree_map(lambda x, leaf: x.reshape(len(x), *leaf.shape), arrays[key], spec)
        self._batch = tree_map(torch.from_numpy, arrays)
        self._weight = aligned_zeros((config.batch_size,), np.float32)
        self._batch["weight"] = torch.from_numpy(self._weight).fill_(1.0)
        self._prioritised = (
            None
            if config.priority is None
            else Prioritised(self._ring, config.batch_size, config.priority, total_steps, window)
        )
        self._alarm = Alarm(config.alarm)

    @property
    def size(self) -> int:
        return self._ring.size

    @property
    def saved_bytes(self) -> int:
        return self._ring.meta.nbytes + sum(leaf.data.nbytes for leaf in self._ring.leaves)

    def add(self, chunk: Chunk) -> None:
        if self._prioritised is not None:
            self._prioritised.check(chunk)
        if self._windows is not None:
            self._add_windows(chunk, self._windows)
        else:
            self._limiter.insert(self._ring.add(chunk))
            if self._prioritised is not None:
                self._prioritised.added(chunk)
        if self.config.max_staleness is not None:
            (self._prioritised or self._ring).expire(self._ring.version - self.config.max_staleness)

    def _add_windows(self, chunk: Chunk, windows: Windows) -> None:
        rows, most = len(chunk.rows["valid"]), self._ring.rows
        for a in range(0, rows, most):
            part = chunk if rows <= most else piece(chunk, a, min(a + most, rows))
            lost = windows.before(part.collector, part.rows["first"][0])
            if self._prioritised is not None and len(lost):
                self._prioritised.complete(lost)
            self._limiter.insert(self._ring.add(part))
            complete = windows.after(part.collector, len(part.rows["valid"]))
            if self._prioritised is not None:
                self._prioritised.added(part, complete)
            self._complete += len(lost) + len(complete)

    def ready(self) -> bool:
        if self._windows is not None and (
            self._complete == 0 or (self._prioritised and not self._prioritised.priorities.total)
        ):
            return False
        return self._limiter.credit > 0 and (not self._limited or self._ring.eligible >= self.config.batch_size)

    @property
    def owed(self) -> float:
        return max(0, self._limiter.credit) / self.config.updates_per_step

    def clock(self, steps: int) -> None:
        self._clock = steps

    def sample(self, copy: bool = False) -> tuple[dict[str, Tree], np.ndarray | Keys]:
        """One batch for one update; its tensors and keys are overwritten by the next call, unless copied."""
        keys: np.ndarray | Keys = self._reader.index
        if self._prioritised is None:
            self._draw()
        else:
            keys = self._prioritised.draw(self._rng, self._reader.index, self._weight, self._annealed)
        self._reader.read()
        if self._hindsight is not None:
            self._hindsight.relabel(self._reader.index, self._rng)
        self._limiter.spend()
        if copy:
            return tree_map(torch.clone, self._batch), keys.copy()
        return dict(self._batch), keys

    @property
    def _annealed(self) -> int:
        """The steps that β follows."""
        return self._limiter.inserted if self._clock is None else self._clock

    def _draw(self) -> None:
        ring, index = self._ring, self._reader.index
        filled = 0
        for _ in range(self._attempts):
            self._rng.random(out=self._uniform)
            filled = gather.draw(self._uniform, filled, index, ring.lanes, ring.meta, self._max_reuse, self._wanted)
            if filled == len(index):
                return
        self._draw_from_list(filled)

    def _draw_from_list(self, filled: int) -> None:
        """Eligible rows are rare: choose from all of them."""
        ring, index = self._ring, self._reader.index
        listed = np.zeros(ring.eligible, np.int64)
        count = gather.eligible(ring.lanes, ring.meta, self._max_reuse, listed, self._wanted)
        assert count == len(listed) or self._windows, "the counters of the lanes disagree with the rows"
        listed = listed[:count]
        self._rng.random(out=self._uniform)
        if gather.draw_listed(self._uniform, filled, index, listed, ring.lanes, ring.meta, self._max_reuse) < len(
            index
        ):
            raise UsageError(
                f"sample() wants {len(index)} transitions, but of {self.size} stored steps {count} may be drawn "
                f"(store.max_reuse={self.config.max_reuse}, store.max_staleness={self.config.max_staleness}). "
                "Call it only when ready() is true."
            )

    def feedback(self, keys: Any, outputs: dict[str, Any]) -> None:
        """Takes outputs["priority"] [N] if sampling is prioritised; uniform sampling learns nothing from the update."""
        if self._prioritised is not None:
            self._prioritised.feedback(keys, outputs)

    def counts(self) -> dict[str, int]:
        """Steps inserted and transitions drawn, ever."""
        return {"inserts": self._limiter.inserted, "samples": self._limiter.updates * self.config.batch_size}

    def metrics(self) -> dict[str, float]:
        """size [steps], fill [fraction of the rows], reuse [draws per stored step],
        staleness [updates, mean over the rows].
        """
        ring = self._ring
        metrics = {
            "size": float(self.size),
            "fill": float(ring.lanes[:, gather.COUNT].mean() / ring.rows),
            "reuse": ring.draws / max(1, self.size),
            "staleness": ring.staleness(),
        }
        self._alarm.look(metrics)
        if self._prioritised is not None:
            metrics |= self._prioritised.metrics(self._annealed)
        return metrics

    def state(self) -> dict[str, Any]:
        """The random generator is not part of it (`Streams` owns it).

        Large arrays are views: write or copy them before the next `add`.
        """
        state = {"ring": self._ring.state(), "limiter": self._limiter.state(), "alarm": self._alarm.state()}
        state |= {} if self._windows is None else {"windows": self._windows.state() | {"complete": self._complete}}
        return state if self._prioritised is None else state | {"priority": self._prioritised.state()}

    def restore(self, state: dict[str, Any]) -> None:
        if self._prioritised is not None and "priority" not in state:
            raise CheckpointError(
                "the saved replay has no priorities. Resume with store.priority=null, as it was saved."
            )
        self._ring.restore(state["ring"])
        self._limiter.restore(state["limiter"])
        if self._windows is not None:
            self._windows.restore(state["windows"])
            self._complete = int(state["windows"]["complete"])
        self._alarm.restore(state["alarm"])
        if self._prioritised is not None:
            self._prioritised.restore(state["priority"])
