"""ReplayStore: experience that is learnt from again and again, drawn uniformly or by priority.

    reward = Σ_{j<k} γ^j r_j        discount = γ^k (1 − terminated)        next_obs = the true successor of the k-th step

k ≤ n_step counts the steps really taken. It is smaller where an episode ends (a truncated one still bootstraps, from its final observation)
and at the write head, so that the newest rows can be drawn at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from rookery.core.chunk import Chunk
from rookery.core.errors import CheckpointError, UsageError
from rookery.core.tree import Tree, tree_map
from rookery.data.alarm import Alarm
from rookery.data.aligned import aligned_zeros
from rookery.data.config import ReplayConfig
from rookery.data.limiter import Limiter
from rookery.data.memory import available_bytes, check_replay_fits
from rookery.data.prioritised import Prioritised
from rookery.data.priority import Keys
from rookery.data.reader import Reader
from rookery.data.ring import Ring
from rookery.data.stored import stored_spec
from rookery.kernels import gather

ATTEMPTS = (
    8  # rounds of rejection before the eligible rows are listed: with half the rows holes, one sample in 1e3 gets there
)


class ReplayStore:
    """A `Store` over a ring. `columns` counts the env columns of all collectors, who have equally many.

    total_steps: length of the run, for a β (store.priority) that is annealed over the whole run.
    """

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
        total_steps: int | None = None,
    ):
        fields = stored_spec(obs_spec, action_spec)
        if config.max_memory is not None:
            check_replay_fits(
                config.capacity,
                columns,
                obs_spec,
                fields["action"],
                config.max_memory,
                available_bytes(),
                config.priority is not None,
            )
        self.config = config
        self._max_reuse = config.max_reuse or 0
        self._ring = Ring(fields, columns, math.ceil(config.capacity / columns), collectors, self._max_reuse)
        self._reader = Reader(self._ring, config.batch_size, n_step, gamma, stack)
        self._limiter = Limiter(config.updates_per_step, config.min_fill)
        self._limited = config.max_reuse is not None or config.max_staleness is not None
        self._rng = rng
        self._uniform = np.zeros(config.batch_size)
        self._batch = tree_map(torch.from_numpy, self._reader.arrays)
        self._weight = aligned_zeros((config.batch_size,), np.float32)
        self._batch["weight"] = torch.from_numpy(self._weight).fill_(1.0)
        self._prioritised = (
            None
            if config.priority is None
            else Prioritised(self._ring, config.batch_size, config.priority, total_steps)
        )
        self._alarm = Alarm(config.alarm)

    @property
    def size(self) -> int:
        return self._ring.size

    def add(self, chunk: Chunk) -> None:
        if self._prioritised is not None:
            self._prioritised.check(chunk)
        self._limiter.insert(self._ring.add(chunk))
        if self._prioritised is not None:
            self._prioritised.added(chunk)
        if self.config.max_staleness is not None:
            (self._prioritised or self._ring).expire(self._ring.version - self.config.max_staleness)

    def ready(self) -> bool:
        return self._limiter.credit > 0 and (not self._limited or self._ring.eligible >= self.config.batch_size)

    def sample(self, copy: bool = False) -> tuple[dict[str, Tree], np.ndarray | Keys]:
        """One batch for one update; its tensors and keys are overwritten by the next call, unless copied."""
        keys: np.ndarray | Keys = self._reader.index
        if self._prioritised is None:
            self._draw()
        else:
            keys = self._prioritised.draw(self._rng, self._reader.index, self._weight, self._limiter.inserted)
        self._reader.read()
        self._limiter.spend()
        if copy:
            return tree_map(torch.clone, self._batch), keys.copy()
        return dict(self._batch), keys

    def _draw(self) -> None:
        ring, index = self._ring, self._reader.index
        filled = 0
        for _ in range(ATTEMPTS):
            self._rng.random(out=self._uniform)
            filled = gather.draw(self._uniform, filled, index, ring.lanes, ring.meta, self._max_reuse)
            if filled == len(index):
                return
        self._draw_from_list(filled)

    def _draw_from_list(self, filled: int) -> None:
        """Eligible rows are rare: choose from all of them."""
        ring, index = self._ring, self._reader.index
        listed = np.zeros(ring.eligible, np.int64)
        count = gather.eligible(ring.lanes, ring.meta, self._max_reuse, listed)
        assert count == len(listed), "the counters of the lanes disagree with the rows"
        self._rng.random(out=self._uniform)
        if gather.draw_listed(self._uniform, filled, index, listed, ring.lanes, ring.meta, self._max_reuse) < len(
            index
        ):
            raise UsageError(
                f"sample() wants {len(index)} transitions, but of {self.size} stored steps {count} may be drawn "
                f"(store.max_reuse={self.config.max_reuse}, store.max_staleness={self.config.max_staleness}). Call it only when ready() is true."
            )

    def feedback(self, keys: Any, outputs: dict[str, Any]) -> None:
        """Takes outputs["priority"] [N] if sampling is prioritised; uniform sampling learns nothing from the update."""
        if self._prioritised is not None:
            self._prioritised.feedback(keys, outputs)

    def counts(self) -> dict[str, int]:
        """Steps inserted and transitions drawn, ever."""
        return {"inserts": self._limiter.inserted, "samples": self._limiter.updates * self.config.batch_size}

    def metrics(self) -> dict[str, float]:
        """size [steps], fill [fraction of the rows], reuse [draws per stored step], staleness [updates, mean over the rows]."""
        ring = self._ring
        found = {
            "size": float(self.size),
            "fill": float(ring.lanes[:, gather.COUNT].mean() / ring.rows),
            "reuse": ring.draws / max(1, self.size),
            "staleness": ring.staleness(),
        }
        self._alarm.look(found)
        if self._prioritised is not None:
            found |= self._prioritised.metrics(self._limiter.inserted)
        return found

    def state(self) -> dict[str, Any]:
        """The random generator is not part of it (`Streams` owns it). Large arrays are views: write or copy them before the next `add`."""
        state = {"ring": self._ring.state(), "limiter": self._limiter.state(), "alarm": self._alarm.state()}
        return state if self._prioritised is None else state | {"priority": self._prioritised.state()}

    def restore(self, state: dict[str, Any]) -> None:
        if self._prioritised is not None and "priority" not in state:
            raise CheckpointError(
                "the saved replay has no priorities. Resume with store.priority=null, as it was saved."
            )
        self._ring.restore(state["ring"])
        self._limiter.restore(state["limiter"])
        if "alarm" in state:  # older checkpoints have none
            self._alarm.restore(state["alarm"])
        if self._prioritised is not None:
            self._prioritised.restore(state["priority"])
