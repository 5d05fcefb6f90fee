"""A callback: data of your own per episode, metrics of your own, and a reason to stop.

python examples/own_callback.py
"""

from __future__ import annotations

import json
from typing import Any

from rookery import Callback, Experiment
from rookery.run.report.progress import Episode, Progress, StepRecord


class Steadiness(Callback):
    """How far the pole leans on average; ends the run when episodes have become long enough."""

    def __init__(self, enough: float):
        self.enough = enough
        self.reports = 0

    def episode_start(self, episode: Episode) -> None:
        episode.data["lean"] = 0.0  # saved with a checkpoint: arrays and JSON values only

    def episode_step(self, episode: Episode, step: StepRecord) -> None:
        episode.data["lean"] += abs(float(step.obs[2]))

    def episode_end(self, episode: Episode) -> None:
        episode.metrics["lean"] = episode.data["lean"] / episode.length  # → lean_mean, lean_min, lean_max

    def report(self, progress: Progress) -> None:
        self.reports += 1
        progress.record("own/reports", self.reports)  # in the next report
        if progress.length_mean is not None and progress.length_mean > self.enough:
            progress.stop(f"the pole stands for {progress.length_mean:.0f} steps on average")

    def state(self) -> dict[str, Any]:
        return {"reports": self.reports}

    def restore(self, state: dict[str, Any]) -> None:
        self.reports = state["reports"]


def main() -> None:
    overrides = ["train.max_steps=8192", "algo.rollout=64", "log.every_steps=1024"]
    result = Experiment(algo="ppo", env="CartPole-v1", overrides=overrides, callbacks=[Steadiness(enough=40)]).train()
    print(f"{result.status}: {result.reason}")
    for line in (result.folder / "metrics.jsonl").read_text().splitlines():
        print(
            {key: value for key, value in json.loads(line).items() if key in ("steps", "lean_mean", "own/reports_mean")}
        )


if __name__ == "__main__":
    main()
