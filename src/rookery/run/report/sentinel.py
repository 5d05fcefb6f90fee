"""Sentinel: notices when learning breaks (after every update) or withers (at every report).

After an update one number is computed, Σ xᵢ² over its metrics: NaN and infinity poison it, and while it is below
max_loss² no loss can have exploded. Only when it is not is each metric looked at.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.core.errors import CheckpointError, Diverged
from rookery.core.system.files import check_folder
from rookery.core.system.portable import fsync_folder
from rookery.core.tree import Tree
from rookery.run.checkpoints.statefile import write_state
from rookery.run.config.sections import SentinelConfig
from rookery.run.experiment.folder import write_json_atomic

COLLAPSED = 1e-3  # entropy relative to the highest seen
ENTROPY_PATIENCE = 3  # reports in a row
DEAD_VARIANCE = 1e-3  # explained variance
DEAD_SPREAD = 1e-8  # spread of the Q values
CRITIC_PATIENCE = 10  # reports in a row; a critic needs a while to begin with

_vdot = np.vdot  # unlike np.dot it does not warn when float32 overflows
_log = logging.getLogger(__name__)


def _can_explode(name: str) -> bool:
    return name.rsplit("/", 1)[-1].endswith(("loss", "grad_norm"))


class Sentinel:
    """`check` after every update, `report` at every report."""

    def __init__(self, config: SentinelConfig, folder: Path | None = None):
        self.config = config
        self.folder = folder  # where the offending batch goes; None: nowhere
        self._limit = config.max_loss**2 if config.max_loss < 1e150 else math.inf
        self._count: dict[str, int] = {}  # metric → reports in a row with trouble
        self._peak: dict[str, float] = {}  # entropy → highest seen; −inf once it was negative

    def check(self, names: tuple[str, ...], numbers: np.ndarray, update: int = -1, batch: Tree | None = None) -> None:
        """Raise Diverged if a number is not finite or a loss or gradient norm is above max_loss; numbers: float [n]."""
        if _vdot(numbers, numbers) < self._limit:
            return
        bad = self._bad(names, numbers)
        if bad:
            self._diverged(bad, dict(zip(names, numbers.tolist())), update, batch)

    def _bad(self, names: tuple[str, ...], numbers: np.ndarray) -> list[str]:
        bad = []
        for name, value in zip(names, numbers.tolist()):
            if not math.isfinite(value):
                bad.append(f"{name} = {value}")
            elif abs(value) > self.config.max_loss and _can_explode(name):
                bad.append(f"{name} = {value:.4g} (above sentinel.max_loss = {self.config.max_loss:g})")
        return bad

    def _diverged(self, bad: list[str], numbers: dict[str, float], update: int, batch: Tree | None) -> None:
        where = f"update {update}" if update >= 0 else "an update"
        saved = "The batch was not saved."
        if batch is not None and self.folder is not None and self.config.save_batch:
            try:
                saved = f"The batch is in {save_batch(self.folder, batch, numbers, update)}."
            except (OSError, CheckpointError) as error:
                saved = f"The batch could not be saved: {error}"
        raise Diverged(
            f"learning diverged in {where}: {', '.join(bad)}. {saved} Lower the learning rate, clip gradients "
            "(algo.max_grad_norm) or look at the scale of rewards and observations."
        )

    def check_weights(self, tensors: Iterable[tuple[str, Tensor]], update: int) -> None:
        """Raise Diverged if a learned number is not finite; for now and then, not for every update."""
        bad = [name for name, tensor in tensors if not bool(torch.isfinite(tensor).all())]
        if bad:
            raise Diverged(
                f"learning diverged by update {update}: {', '.join(bad)} hold numbers that are not finite. Lower the "
                f"learning rate, "
                "clip gradients (algo.max_grad_norm) or look at the scale of rewards and observations."
            )

    def report(self, record: dict[str, Any]) -> list[str]:
        """Warn (once per spell of trouble) of a collapsed entropy and a dead critic; returns what was logged."""
        warnings = []
        for name, value in record.items():
            if isinstance(value, float) and math.isfinite(value) and (warning := self._look(name, value)):
                _log.warning("%s", warning)
                warnings.append(warning)
        return warnings

    def _look(self, name: str, value: float) -> str | None:
        word = name.rsplit("/", 1)[-1]
        if word == "entropy" and self.config.warn_entropy:
            advice = "the policy no longer explores. Raise the entropy bonus or lower the learning rate."
            return self._once(
                name, self._collapsed(name, value), ENTROPY_PATIENCE, f"{name} has collapsed to {value:.3g}: {advice}"
            )
        if word == "explained_variance" and self.config.warn_critic:
            advice = "the critic explains nothing of the returns. Look at the scale of rewards and the value loss."
            return self._once(name, value < DEAD_VARIANCE, CRITIC_PATIENCE, f"{name} stays at {value:.3g}: {advice}")
        if word in ("q_spread", "q_std") and self.config.warn_critic:
            advice = (
                "the critic gives every input the same value. Look for dead units and at the scale of observations."
            )
            return self._once(name, value < DEAD_SPREAD, CRITIC_PATIENCE, f"{name} stays at {value:.3g}: {advice}")
        return None

    def _once(self, name: str, trouble: bool, patience: int, warning: str) -> str | None:
        self._count[name] = self._count.get(name, 0) + 1 if trouble else 0
        return warning if self._count[name] == patience else None

    def _collapsed(self, name: str, value: float) -> bool:
        """Entropies of densities have no zero to collapse to: one that was ever negative is left alone."""
        peak = -math.inf if value < 0 else self._peak.get(name, value)
        self._peak[name] = peak = max(peak, value) if peak >= 0 else -math.inf
        return peak >= 0 and value <= COLLAPSED * peak

    def state(self) -> dict[str, Any]:
        return {"count": dict(self._count), "peak": dict(self._peak)}

    def restore(self, state: dict[str, Any]) -> None:
        self._count = {name: int(n) for name, n in state["count"].items()}
        self._peak = {name: float(value) for name, value in state["peak"].items()}


def save_batch(folder: Path, batch: Tree, numbers: dict[str, float], update: int) -> Path:
    """A folder with the batch as safetensors (read it with `rookery.run.checkpoints.statefile.read_state`) and its
    metrics as JSON."""
    check_folder(folder)
    number = 0
    while (
        path := folder / f"update-{update}{f'-{number}' if number else ''}"
    ).exists():  # the same one, after a rollback
        number += 1
    path.mkdir(parents=True)
    write_state(path, {"batch": batch})
    values = {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}
    write_json_atomic(path / "metrics.json", {"update": update, "metrics": values})
    fsync_folder(folder)
    return path
