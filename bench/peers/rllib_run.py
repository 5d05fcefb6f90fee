"""One contender: RLlib with its env runner and its learner in this process, with the same work. Runs in a venv of
its own; prints one JSON line.

python rllib_run.py WORK WARM STEPS [--seed N]
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn import dqn
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

from works import WORKS, answer, arguments, batch_of, updates_per_round

torch.set_num_threads(1)


class Clocked:
    """An algorithm that tells the time after every training step; RLlib's own `train` runs many of them per report."""

    marks: list[tuple[float, int, int]]
    warm: int
    end: int
    updates = 0

    def watch(self, args: argparse.Namespace) -> None:
        self.marks, self.warm, self.end = [], args.warm, args.warm + args.steps
        learner = self.learner_group._learner
        learner.get_optimizer(DEFAULT_MODULE_ID).register_step_post_hook(self.count)

    def count(self, *_: Any) -> None:
        self.updates += 1

    @property
    def steps(self) -> int:
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))

    @property
    def finished(self) -> bool:
        return self.steps >= self.end

    def training_step(self) -> None:
        measured = not self.finished  # afterwards `train` only goes on to its next report
        super().training_step()
        if measured and self.steps >= self.warm:
            self.marks[1:] = [(time.perf_counter(), self.steps, self.updates)]


class ClockedDQN(Clocked, dqn.DQN):
    def watch(self, args: argparse.Namespace) -> None:
        """Makes the number of updates follow the env steps.

        RLlib makes the same number of updates after every call of its env runner, but such a call may return
        nearly twice the steps that it was asked for: an env that is reset takes no step in that turn, so
        another turn of all envs follows.
        """
        super().watch(args)
        s = WORKS[args.work].settings

        def turns(config: dqn.DQNConfig) -> list[int]:
            coming = self.steps + config.rollout_fragment_length * s["envs"]
            due = round((coming - s["min_fill"]) * s["updates_per_step"]) - self.updates
            return [1, max(due, 1)]

        dqn.calculate_rr_weights = turns


class ClockedPPO(Clocked, PPO):
    def watch(self, args: argparse.Namespace) -> None:
        """Leaves out the minibatch that RLlib would add for its masked rows, one per episode."""
        super().watch(args)
        s, group = WORKS[args.work].settings, self.learner_group
        group.update = partial(group.update, num_total_minibatches=s["epochs"] * s["minibatches"])


def dqn_config(s: dict[str, Any]) -> dqn.DQNConfig:
    (start, end), calls = s["epsilon"], updates_per_round(s)[0]
    return (
        dqn.DQNConfig(ClockedDQN)
        .env_runners(rollout_fragment_length=calls)
        .training(
            train_batch_size_per_learner=s["batch"],
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": s["capacity"]},
            num_steps_sampled_before_learning_starts=s["min_fill"],
            target_network_update_freq=round(s["target_every"] / s["updates_per_step"]),  # in env steps
            epsilon=[(0, start), (s["epsilon_steps"], end)],
            double_q=False,
            dueling=False,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=s["hidden"], fcnet_activation="relu"))
    )


def ppo_config(s: dict[str, Any]) -> PPOConfig:
    return (
        PPOConfig(ClockedPPO)
        .env_runners(rollout_fragment_length=s["rollout"])
        .training(
            train_batch_size_per_learner=s["envs"] * s["rollout"],
            minibatch_size=batch_of(s),
            num_epochs=s["epochs"],
            lambda_=s["lam"],
            clip_param=s["clip"],
            vf_loss_coeff=s["value_cost"],
            vf_clip_param=float("inf"),
            entropy_coeff=0.0,
            use_kl_loss=False,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=s["hidden"], vf_share_layers=False))
    )


def train(args: argparse.Namespace) -> dict[str, Any]:
    s = WORKS[args.work].settings
    config = ppo_config(s) if args.work.startswith("ppo") else dqn_config(s)
    config = (
        config.environment(s["env"])
        .env_runners(num_env_runners=0, num_envs_per_env_runner=s["envs"])
        .learners(num_learners=0)
        .training(lr=s["lr"], gamma=s["gamma"], grad_clip=s["max_grad_norm"], grad_clip_by="global_norm")
        .debugging(
            log_level="ERROR"
        )  # without its seed, which makes torch deterministic and so slower than the others'
    )
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 - RLlib draws from the global generator
    algo = config.build_algo()
    algo.watch(args)
    while not algo.finished:
        algo.train()
    module = algo.learner_group._learner.module[DEFAULT_MODULE_ID]
    shutil.rmtree(algo.logdir)  # an empty folder among the user's results
    learned = [p for name, p in module.named_parameters() if "target" not in name]
    return answer(algo.marks, (tuple(p.shape) for p in learned), batch_of(s))


def main() -> None:
    logging.disable(logging.WARNING)
    ray.init(address="local", include_dashboard=False, num_cpus=1, log_to_driver=False, configure_logging=False)
    print(json.dumps(train(arguments())))


if __name__ == "__main__":
    main()
