"""Demonstrations: recorded steps that are learnt from beside the run's own, never overwritten and never expired.

The file is one that `Replay.save` wrote, with actions as the env takes them. It is read once, checked against the run's
spaces, and drawn from uniformly; n-step returns, discounts and true successors come out as those of the replay do. A
checkpoint holds the file's hash, not its steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rookery.core.chunk import Chunk
from rookery.core.errors import CheckpointError, ConfigError, UsageError
from rookery.core.spec import Leaf, describe
from rookery.core.tree import Tree, flatten, tree_map, unflatten
from rookery.data.aligned import aligned_zeros
from rookery.data.recorded import files
from rookery.data.replay.leaf import same_kind
from rookery.data.replay.reader import Reader
from rookery.data.replay.ring import Ring
from rookery.data.store import Store
from rookery.kernels import gather

EMPTY = "store.demonstrations={} holds no step. Record some with Replay.add and Replay.save."


class Demonstrations(Store):
    """A `Store` of a file's steps that is always ready. `rows` are drawn per batch."""

    def __init__(
        self,
        path: str | Path,
        fields: dict[str, Tree],
        rows: int,
        rng: np.random.Generator,
        *,
        n_step: int = 1,
        gamma: float = 1.0,
        stack: int = 1,
        from_env: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        """fields: what the run stores of a step (`stored_spec`).

        from_env: what it stores for an action that the env takes, if not the same.
        """
        self.path, self._rng, self._draws = str(path), rng, 0
        ring, self._sha256 = load_ring(Path(path).expanduser(), fields, from_env)
        listed = np.zeros(ring.size, np.int64)
        self._addresses = listed[: gather.eligible(ring.lanes, ring.meta, 0, listed)]
        if not len(self._addresses):
            raise ConfigError(EMPTY.format(path))
        self._reader = Reader(ring, rows, n_step, gamma, stack)
        self._batch = tree_map(torch.from_numpy, self._reader.arrays)
        self._batch["weight"] = torch.from_numpy(aligned_zeros((rows,), np.float32)).fill_(1.0)

    @property
    def size(self) -> int:
        return len(self._addresses)

    def add(self, chunk: Chunk) -> None:
        raise UsageError("demonstrations are only read: new steps belong to the first store of a mixture.")

    def ready(self) -> bool:
        return True

    def sample(self) -> tuple[dict[str, Tree], np.ndarray]:
        """One share of a batch; its tensors and keys are overwritten by the next call."""
        index = self._reader.index
        index[:] = self._addresses[self._rng.integers(len(self._addresses), size=len(index))]
        self._reader.read()
        self._draws += len(index)
        return dict(self._batch), index

    def feedback(self, keys: Any, outputs: dict[str, Any]) -> None:
        """Uniform sampling learns nothing from the update."""

    def metrics(self) -> dict[str, float]:
        """size [steps], reuse [draws per step]."""
        return {"size": float(self.size), "reuse": self._draws / self.size}

    def counts(self) -> dict[str, int]:
        """Nothing: the run's own updates say it."""
        return {}

    def state(self) -> dict[str, Any]:
        return {"sha256": self._sha256, "draws": self._draws}

    def restore(self, state: dict[str, Any]) -> None:
        if state["sha256"] != self._sha256:
            raise CheckpointError(
                f"store.demonstrations={self.path} is not the file that the run began with "
                f"(SHA-256 {self._sha256[:12]}… instead of {state['sha256'][:12]}…). Bring the old "
                "file back, or start a new run."
            )
        self._draws = int(state["draws"])


def load_ring(
    path: Path, fields: dict[str, Tree], from_env: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[Ring, str]:
    """(ring with the run's fields, SHA-256 of the file); what does not fit is a ConfigError."""
    try:
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        head, arrays = files.read(path)
    except (OSError, CheckpointError) as error:
        reason = f"{error.strerror}." if isinstance(error, OSError) else error
        raise ConfigError(f"store.demonstrations={path} cannot be read: {reason}") from error
    if head["ring"] is None:
        raise ConfigError(EMPTY.format(path))
    recorded = files.unpack(head["ring"], arrays)
    state = recorded.state(in_pieces=False)
    recorded_fields = flatten(state["fields"])
    fitted = {key: _fitted(key, leaf, recorded_fields, path) for key, leaf in flatten(fields).items()}
    _check_choices(fitted, fields["action"], (state["meta"][..., gather.FLAGS] & gather.VALID) != 0, path)
    if from_env is not None and "action" in fitted:
        fitted["action"] = from_env(fitted["action"]).astype(fitted["action"].dtype)
    ring = Ring(fields, recorded.columns, recorded.rows)
    ring.restore(state | {"fields": unflatten(fitted)})
    return ring, sha256


def _fitted(key: str, leaf: Leaf, recorded: dict[str, np.ndarray], path: Path) -> np.ndarray:
    """A recorded array as the run stores it."""
    array = recorded.get(key)
    if array is None:
        raise ConfigError(
            f"store.demonstrations={path} has no '{key}', which this run stores; it has {', '.join(recorded)}. "
            "Record steps of the same env, after the same wrappers."
        )
    if array.shape[2:] != leaf.shape or not same_kind(array.dtype, leaf.dtype):
        raise ConfigError(
            f"store.demonstrations={path}: '{key}' is {array.dtype} {array.shape[2:]}, but the env's is "
            f"{describe(leaf)}. Record steps of the same env, after the same wrappers."
        )
    is_choice = leaf.kind == "discrete" and key.partition("/")[0] == "action"
    return array.astype(leaf.dtype) - leaf.start if is_choice else array  # the run counts choices from 0


def _check_choices(fitted: dict[str, np.ndarray], action_spec: Tree, valid: np.ndarray, path: Path) -> None:
    """Networks would take any number for an index."""
    for key, leaf in flatten({"action": action_spec}).items():
        choices, sizes = fitted[key][valid], np.array(leaf.sizes).reshape(leaf.shape if leaf.sizes else (0,))
        if leaf.sizes and ((choices < 0) | (choices >= sizes)).any():
            raise ConfigError(
                f"store.demonstrations={path}: '{key}' has choices that the env's {describe(leaf)} has not. "
                "Record actions as the env takes them."
            )
