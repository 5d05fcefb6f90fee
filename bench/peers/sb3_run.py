"""One contender: Stable-Baselines3, with the same work. Runs in a venv of its own; prints one JSON line.

python sb3_run.py WORK WARM STEPS
"""

from __future__ import annotations

import json
import sys
import time

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

torch.set_num_threads(1)


class Stopwatch(BaseCallback):
    def __init__(self, warm: int):
        super().__init__()
        self.warm, self.marks = warm, []

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.warm:
            mark = (time.perf_counter(), self.num_timesteps, self.model._n_updates)
            self.marks = [self.marks[0], mark] if self.marks else [mark]
        return True


def model(work: str):
    if work.startswith("dqn"):
        envs, share = int(work[4]), work.rsplit("-", 1)[1]
        every = 1 if share == "1/1" else 4
        steps_per_call = max(every // envs, 1)
        gradient_steps = max(envs // every, 1)
        policy = {"net_arch": [128, 128]}
        common = {
            "learning_starts": 1000,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_rate": 1e-3,
            "max_grad_norm": 10,
        }
        return DQN(
            "MlpPolicy",
            make_vec_env("CartPole-v1", envs),
            policy_kwargs=policy,
            train_freq=steps_per_call,
            gradient_steps=gradient_steps,
            target_update_interval=200,
            device="cpu",
            **common,
        )
    if work.startswith("ppo"):
        return PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=128, n_epochs=4, batch_size=256, device="cpu")
    return SAC("MlpPolicy", make_vec_env("Pendulum-v1", 1), learning_starts=300, batch_size=256, device="cpu")


def main() -> None:
    work, warm, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    watch, agent = Stopwatch(warm), model(work)
    agent.learn(warm + steps, callback=watch)
    (t0, s0, u0), (t1, s1, u1) = watch.marks[0], watch.marks[-1]
    parameters = sum(p.numel() for name, p in agent.policy.named_parameters() if "target" not in name)
    updates = (u1 - u0) * (4 if work.startswith("ppo") else 1)  # PPO counts epochs: four minibatches each
    print(
        json.dumps(
            {"seconds": t1 - t0, "steps": s1 - s0, "updates": updates, "parameters": parameters, "mode": "eager"}
        )
    )


if __name__ == "__main__":
    main()
