"""A network of your own: an encoder with a loss term and metrics of its own.

The encoder also learns to predict how the observation changes. `own_loss` is added to the loss of the network that
contains it; what it returns beside the loss appears in the metrics as `q/prediction_error`.

python examples/own_network.py
rookery train --algo dqn --env CartPole-v1 model.encoder=own_network:Predicting train.max_steps=3000   in this folder
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rookery import Experiment


class Predicting(nn.Module):
    """Two layers; a third one predicts obs' − obs from the features and the action."""

    def __init__(self, obs_spec: Any, actions: int, width: int = 64, weight: float = 0.1):
        super().__init__()
        size = obs_spec.shape[0]  # obs_spec: the leaf of a Box, a dict of leaves for a Dict space
        self.out_features = width  # the heads of the algorithm are built on this
        self.body = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.model = nn.Linear(width + actions, size)
        self.actions, self.weight = actions, weight

    def forward(self, obs: Tensor) -> Tensor:
        return self.body(obs)  # [N, size] → [N, out_features]

    def own_loss(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        chosen = (batch.action.unsqueeze(-1) == torch.arange(self.actions, device=batch.action.device)).float()
        change = self.model(torch.cat([self.body(batch.obs), chosen], -1))
        error = (batch.next_obs - batch.obs - change).square().mean()
        return self.weight * error, {"prediction_error": error}


def main() -> None:
    overrides = ["model.encoder=own_network:Predicting", "model.kwargs={actions: 2, width: 32}"]
    overrides += ["train.max_steps=2000", "store.min_fill=500", "log.every_steps=500"]
    result = Experiment(algo="dqn", env="CartPole-v1", overrides=overrides).train()
    lines = (result.folder / "metrics.jsonl").read_text().splitlines()
    print(f"greedy return {result.summary['eval']['mean']:.1f}")
    print("lines with q/prediction_error:", sum("q/prediction_error" in line for line in lines), "of", len(lines))


if __name__ == "__main__":
    main()
