"""Reader: turns addresses of a ring into a batch of N transitions, in arrays that it allocates once.

Frames are stacked here, at read time, on a new axis after the batch axis: [N, stack, *frame], oldest first (of members
of a team [N, G, stack, *frame]); the first frame of an episode (or the oldest in the ring) is repeated where there is
none before it. The action mask belongs to one step and is not stacked.

With `paid`, the name of a part of the observation that tells what each member of a team was paid for the row before
(`core.team`), `reward` is [N, G]: the sums of each member.
"""

from __future__ import annotations

import numpy as np

from rookery.core.spec import frame_axis
from rookery.core.tree import Tree, unflatten
from rookery.data.aligned import aligned_zeros
from rookery.data.replay.leaf import Stored, words
from rookery.data.replay.ring import Ring
from rookery.kernels import gather

Job = tuple[Stored, np.ndarray, np.ndarray]  # leaf, addresses, words of the array to fill


class Reader:
    """`arrays` holds obs, next_obs, reward, discount and the ring's other fields; the next `read` overwrites them."""

    def __init__(
        self, ring: Ring, size: int, n_step: int = 1, gamma: float = 1.0, stack: int = 1, paid: str | None = None
    ):
        self._ring, self._n_step, self._gamma = ring, n_step, gamma
        self.index = np.zeros(size, np.int64)
        self._obs_at = np.zeros((size, stack), np.int64)
        self._next_at = np.zeros((size, stack), np.int64)
        self._next_last = np.zeros(size, np.int64)
        self._reward, self._discount = aligned_zeros((size,), np.float32), aligned_zeros((size,), np.float32)
        flat: dict[str, np.ndarray] = {}
        self._jobs: list[Job] = []
        self._member_jobs: list[Job] = []  # stacks of members
        for leaf in ring.leaves:
            path, is_obs = leaf.key, leaf.name == "obs"
            axes = frame_axis(ring.fields["obs"], path.partition("/")[2]) if is_obs and stack > 1 else None
            if axes:
                for key, frames in ((path, self._obs_at), ("next_" + path, self._next_at)):
                    flat[key] = aligned_zeros((size, leaf.shape[0], stack, *leaf.shape[1:]), leaf.dtype)
                    self._member_jobs.append((leaf, frames, words(flat[key], 3)))
                continue
            stacked = axes is not None
            lead = (size, stack) if stacked else (size,)
            flat[path] = aligned_zeros((*lead, *leaf.shape), leaf.dtype)
            self._jobs.append(
                (leaf, self._obs_at.reshape(-1) if len(lead) == 2 else self.index, words(flat[path], len(lead)))
            )
            if is_obs:
                flat["next_" + path] = aligned_zeros(flat[path].shape, flat[path].dtype)
                at = self._next_at.reshape(-1) if stacked or stack == 1 else self._next_last
                self._jobs.append((leaf, at, words(flat["next_" + path], len(lead))))
        self._one_frame_mask = any(at is self._next_last for _, at, _ in self._jobs)
        self.arrays: dict[str, Tree] = {**unflatten(flat), "reward": self._reward, "discount": self._discount}
        self._paid = next((leaf for leaf in ring.obs_leaves if leaf.rest == (paid,)), None)
        if self._paid is not None:
            self.arrays["reward"] = self._each = aligned_zeros((size, *self._paid.shape), np.float32)

    def read(self) -> None:
        """Fill `arrays` with the transitions at `index`."""
        ring = self._ring
        gather.follow(
            self.index,
            self._n_step,
            self._gamma,
            ring.lanes,
            ring.meta,
            ring.reward,
            self._obs_at,
            self._next_at,
            self._reward,
            self._discount,
        )
        if self._paid is not None:
            rows, finals = self._paid.data.reshape(-1, *self._paid.shape), self._paid.finals
            gather.follow_each(self.index, self._n_step, self._gamma, ring.lanes, ring.meta, rows, finals, self._each)
        if self._one_frame_mask:
            self._next_last[:] = self._next_at[:, -1]
        for leaf, at, out in self._jobs:
            gather.copy_rows(leaf.words, leaf.final_words, at, out)
        for leaf, at, out in self._member_jobs:
            gather.copy_members(words(leaf.data, 3), words(leaf.finals, 2), at, leaf.shape[0], out)
