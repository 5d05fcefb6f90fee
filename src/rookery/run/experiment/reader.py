"""RunReader: the folder of a run for scripts, studies and dashboards, without torch: reading a hundred runs takes no
second.

    run = RunReader("runs/ppo-CartPole-v1-s0")
    run.status, run.config["algo"]["name"], run.metrics()[-1]["episode/return_mean"]

A run may be written while it is read: every file is replaced as a whole, and of metrics.jsonl only whole lines count.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from rookery.core.config.yaml import read_file
from rookery.core.errors import CheckpointError, UsageError
from rookery.core.system.portable import is_alive
from rookery.run.checkpoints.durable import json_lines, parse_json
from rookery.run.checkpoints.durable import read_file as read_plain
from rookery.run.experiment.folder import RunFolder

MOST_BYTES = 1 << 26  # of a JSON file


class RunReader:
    """One run. Files that are not there yet read as empty."""

    def __init__(self, path: Path | str):
        self.folder = RunFolder.read(Path(path))
        self.path = self.folder.path

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml as plain values."""
        return read_file(self.folder.config)[0] if self.folder.config.exists() else {}

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json: how the run ended; empty while it runs for the first time."""
        return _json(self.folder.summary)

    @property
    def state(self) -> dict[str, Any]:
        """state.json: what it was doing when it was last heard of."""
        return _json(self.folder.state)

    @property
    def spaces(self) -> dict[str, Any]:
        """spaces.json: what its agents see and do."""
        return _json(self.folder.spaces)

    @property
    def status(self) -> str:
        """running, paused, finished, stopped, preempted, failed; `killed` if it says running and its process is
        gone."""
        state = self.state
        status = str(state.get("status") or self.summary.get("status") or "unknown")
        return "killed" if status in ("running", "paused") and not _lives(state) else status

    def metrics(self, after: int = 0) -> list[dict[str, Any]]:
        """The reports with more than `after` steps, oldest first."""
        if not self.folder.metrics.exists():
            return []
        return [report for report in json_lines(self.folder.metrics) if report.get("steps", 0) > after]

    def checkpoints(self) -> dict[str, dict[str, Any]]:
        """name → manifest of every committed checkpoint: step, kind, exact, versions, created."""
        committed = sorted(self.folder.checkpoints.glob("*/COMMIT")) if self.folder.checkpoints.is_dir() else []
        real = [mark.parent for mark in committed if not mark.parent.is_symlink()]
        return {folder.name: _json(folder / "manifest.json") for folder in real}


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(parse_json(read_plain(path, MOST_BYTES), path)) if path.exists() else {}
    except (CheckpointError, TypeError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _lives(state: dict[str, Any]) -> bool:
    """Whether its process is there; of another host nobody knows, so it is believed."""
    if state.get("host") != socket.gethostname():
        return True
    pid = state.get("pid")
    return isinstance(pid, int) and 0 < pid < 1 << 31 and is_alive(pid)
