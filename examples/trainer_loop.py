"""The trainer as an iterator: one turn per report, your code in between, no run folder.

python examples/trainer_loop.py
"""

from __future__ import annotations

from rookery import Trainer, load_config


def main() -> None:
    config = load_config(
        "cartpole-ppo", overrides=["train.max_steps=4096", "log.every_steps=1024", "eval.every_steps=0"]
    )
    trainer = Trainer(config)
    for progress in trainer:
        print(f"{progress.steps:>6} steps  {progress.updates:>5} updates  return {progress.return_mean}")
        if progress.return_mean is not None and progress.return_mean > 400:
            progress.stop("good enough")
    weights = trainer.policy("main").weights()  # tensors by name, and the layout they belong to
    print(f"{progress.finished}; greedy return {progress.evaluation.mean:.1f}; {', '.join(weights['tensors'])}")
    trainer.shut()


if __name__ == "__main__":
    main()
