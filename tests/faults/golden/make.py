"""Make the golden run of this version: `python tests/faults/golden/make.py`. Once per release; those of older
versions are never made again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from rookery import Experiment, __version__, evaluate_run

HERE = Path(__file__).parent
WORDS = {
    "model.hidden": "[4]",
    "algo.lr": "0.01",
    "algo.epsilon": "0.2",
    "algo.target_every": "20",
    "store.capacity": "64",
    "store.min_fill": "32",
    "store.batch_size": "16",
    "train.max_steps": "300",
    "eval.every_steps": "0",
    "eval.episodes": "12",
    "eval.num": "2",
    "log.every_steps": "300",
    "log.window": "8",
    "log.sinks": "[jsonl]",
    "checkpoint.every_steps": "0",
    "learning.mode": "eager",
    "run.seed": "7",
}


def main() -> None:
    """Train, keep what a resume needs, and record what an evaluation gives."""
    folder = HERE / __version__
    shutil.rmtree(folder, ignore_errors=True)
    overrides = [f"{key}={value}" for key, value in WORDS.items()]
    Experiment(algo="dqn", env="rookery/ProbeNested-v0", overrides=overrides, out=folder).train()
    found = {which: evaluate_run(folder, checkpoint=which) for which in ("last", "best")}
    for name in (".lock", "log.txt", "state.json"):
        (folder / name).unlink()
    (folder / "summary.json").write_text(json.dumps(_portable(folder), indent=1) + "\n")
    (folder / "expected.json").write_text(json.dumps({which: e["returns"] for which, e in found.items()}) + "\n")
    sys.stdout.write(f"{folder}: {found['last']['returns']}\n")


def _portable(folder: Path) -> dict[str, object]:
    """The summary without what belongs to the machine."""
    summary = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in summary.items() if key not in ("workers", "time", "threads")}


if __name__ == "__main__":
    main()
