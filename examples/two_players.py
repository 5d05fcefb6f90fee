"""DQN and PPO learn side by side in one env with two agents; then the DQN player is frozen
and PPO starts anew beside it.

python examples/two_players.py
"""

from __future__ import annotations

from pathlib import Path

from rookery import Trainer, load_config

FILE = Path(__file__).parent / "two_players.yaml"


def main() -> None:
    with Trainer(load_config(file=FILE)) as trainer:
        for progress in trainer:
            returns = {name: progress.metrics[f"player/{name}/return_mean"] for name in trainer.players}
            print(f"{progress.steps:>5} steps  " + "  ".join(f"{name} {value:.2f}" for name, value in returns.items()))
        print(f"greedy, both together: {progress.evaluation.mean}")
        learnt = trainer.policy("thinker").weights()

    with Trainer(load_config(file=FILE, overrides=["players.thinker.train=false", "run.seed=1"])) as trainer:
        trainer.policy("thinker").set_weights(learnt)
        *_, progress = trainer
        print(f"beside a frozen thinker: {progress.evaluation.players}")


if __name__ == "__main__":
    main()
