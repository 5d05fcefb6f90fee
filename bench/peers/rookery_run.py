"""One contender: Rookery. Trains, times the part after the warm-up, prints one JSON line.

python rookery_run.py WORK MODE WARM STEPS
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import rookery
from rookery.run.experiment import Experiment

WORKS = {
    "dqn-1env-1/1": [
        "algo.name=dqn",
        "env.id=CartPole-v1",
        "model.hidden=[128,128]",
        "algo.double=false",
        "store.updates_per_step=1",
        "env.num=1",
    ],
    "dqn-1env-1/4": [
        "algo.name=dqn",
        "env.id=CartPole-v1",
        "model.hidden=[128,128]",
        "algo.double=false",
        "store.updates_per_step=0.25",
        "env.num=1",
        "algo.rollout=4",
    ],
    "dqn-8env-1/1": [
        "algo.name=dqn",
        "env.id=CartPole-v1",
        "model.hidden=[128,128]",
        "algo.double=false",
        "store.updates_per_step=1",
        "env.num=8",
    ],
    "dqn-8env-1/4": [
        "algo.name=dqn",
        "env.id=CartPole-v1",
        "model.hidden=[128,128]",
        "algo.double=false",
        "store.updates_per_step=0.25",
        "env.num=8",
    ],
    "ppo-8x128": [
        "algo.name=ppo",
        "env.id=CartPole-v1",
        "env.num=8",
        "algo.rollout=128",
        "algo.epochs=4",
        "algo.minibatches=4",
    ],
    "sac-256": ["algo.name=sac", "env.id=Pendulum-v1", "store.batch_size=256", "algo.warmup=100", "store.min_fill=300"],
}


class Stopwatch(rookery.Callback):
    """Remembers time, steps and updates at the first report after the warm-up, and at the last."""

    def __init__(self, warm: int):
        self.warm, self.marks = warm, []

    def report(self, progress):
        if progress.steps >= self.warm:
            self.marks.append((time.perf_counter(), progress.steps, progress.updates))


def main() -> None:
    work, mode, warm, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    watch, total = Stopwatch(warm), warm + steps
    every = max(total // 12, 1) if not work.startswith("ppo") else 1024
    overrides = [
        *WORKS[work],
        f"learning.mode={mode}",
        f"train.max_steps={total}",
        "eval.every_steps=0",
        "eval.at_end=false",
    ]
    overrides += [
        f"log.every_steps={every}",
        "checkpoint.every_steps=0",
        "checkpoint.at_end=false",
        "log.sinks=[jsonl,tensorboard]",
    ]
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(overrides=overrides, callbacks=[watch], out=Path(folder) / "run")
        result = experiment.train()
        parameters = sum(len(net.value) for name, net in experiment.trainer.learner.nets.items() if not net.is_target)
    (t0, s0, u0), (t1, s1, u1) = watch.marks[0], watch.marks[-1]
    numbers = {"seconds": t1 - t0, "steps": s1 - s0, "updates": u1 - u0, "parameters": parameters}
    print(json.dumps(numbers | {"mode": result.summary["learning_mode"]}))


if __name__ == "__main__":
    main()
