"""ReplayStore: experience that is learnt from again and again, drawn uniformly.

    reward = Σ_{j<k} γ^j r_j        discount = γ^k (1 − terminated)        next_obs = the true successor of the k-th step

k ≤ n_step counts the steps really taken. It is smaller where an episode ends (a truncated one still bootstraps, from its final observation)
and at the write head, so that the newest rows can be drawn at once.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rookery.core.chunk import Chunk
from rookery.core.errors import UsageError
from rookery.core.tree import Tree, tree_map
from rookery.data.aligned import aligned_zeros
from rookery.data.config import ReplayConfig
from rookery.data.limiter import Limiter
from rookery.data.memory import available_bytes, check_replay_fits
from rookery.data.reader import Reader
from rookery.data.ring import Ring
from rookery.data.scratch import check_disk, on_disk, scratch_bytes, scratch_folder
from rookery.data.stored import stored_spec
from rookery.kernels import gather

ATTEMPTS = (
    8  # rounds of rejection before the eligible rows are listed: with half the rows holes, one sample in 1e3 gets there
)


class ReplayStore:
    """A `Store` over a ring. `columns` counts the env columns of all collectors, who have equally many.

    scratch: the run's folder, for `store.mmap`.
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
        scratch: Path | None = None,
    ):
        fields = stored_spec(obs_spec, action_spec)
        folder = scratch_folder(config.mmap, scratch)
        if folder is not None:
            check_disk(scratch_bytes(config.capacity, columns, fields), folder)
        if config.max_memory is not None:
            in_memory: tuple[Tree, Tree] = (obs_spec, fields["action"]) if folder is None else ({}, {})
            check_replay_fits(config.capacity, columns, *in_memory, config.max_memory, available_bytes())
        self.config = config
        self._max_reuse = config.max_reuse or 0
        zeros = np.zeros if folder is None else on_disk(folder)
        self._ring = Ring(fields, columns, math.ceil(config.capacity / columns), collectors, self._max_reuse, zeros)
        self._reader = Reader(self._ring, config.batch_size, n_step, gamma, stack)
        self._limiter = Limiter(config.updates_per_step, config.min_fill)
        self._limited = config.max_reuse is not None or config.max_staleness is not None
        self._rng = rng
        self._uniform = np.zeros(config.batch_size)
        self._batch = tree_map(torch.from_numpy, self._reader.arrays)
        self._batch["weight"] = torch.from_numpy(aligned_zeros((config.batch_size,), np.float32)).fill_(1.0)

    @property
    def size(self) -> int:
        return self._ring.size

    def add(self, chunk: Chunk) -> None:
        self._limiter.insert(self._ring.add(chunk))
        if self.config.max_staleness is not None:
            self._ring.expire(self._ring.version - self.config.max_staleness)

    def ready(self) -> bool:
        return self._limiter.credit > 0 and (not self._limited or self._ring.eligible >= self.config.batch_size)

    def sample(self, copy: bool = False) -> tuple[dict[str, Tree], np.ndarray]:
        """One batch for one update; its tensors and keys are overwritten by the next call, unless copied."""
        self._draw()
        self._reader.read()
        self._limiter.spend()
        if copy:
            return tree_map(torch.clone, self._batch), self._reader.index.copy()
        return dict(self._batch), self._reader.index

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
        """Uniform sampling learns nothing from the update."""

    def metrics(self) -> dict[str, float]:
        """size [steps], fill [fraction of the rows], reuse [draws per stored step], staleness [updates, mean over the rows]."""
        ring = self._ring
        return {
            "size": float(self.size),
            "fill": float(ring.lanes[:, gather.COUNT].mean() / ring.rows),
            "reuse": ring.draws / max(1, self.size),
            "staleness": ring.staleness(),
        }

    def state(self) -> dict[str, Any]:
        """The random generator is not part of it (`Streams` owns it). Large arrays are views: write or copy them before the next `add`."""
        return {"ring": self._ring.state(), "limiter": self._limiter.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._ring.restore(state["ring"])
        self._limiter.restore(state["limiter"])
