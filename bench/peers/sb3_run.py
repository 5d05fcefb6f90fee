"""One contender: Stable-Baselines3, with the same work. Runs in a venv of its own; prints one JSON line.

python sb3_run.py WORK WARM STEPS [--seed N]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecFrameStack

from works import EPISODES, LOOK, SOLVED, WORKS, answer, arguments, since_start, updates_per_round

torch.set_num_threads(1)


class Stopwatch(BaseCallback):
    """Time, steps and updates at the first step after the warm-up, and at the last."""

    def __init__(self, warm: int):
        super().__init__()
        self.warm, self.marks = warm, []

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.warm:
            mark = (time.perf_counter(), self.num_timesteps, self.model._n_updates)
            self.marks = [self.marks[0], mark] if self.marks else [mark]
        return True


def model(s: dict[str, Any], algo: str, total: int, seed: int) -> Any:
    common = {"learning_rate": s["lr"], "gamma": s["gamma"], "device": "cpu", "seed": seed}
    common |= {"policy_kwargs": {"net_arch": s["hidden"]}}
    pixels = s["env"].startswith("ALE/")
    if pixels:
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        bare = {
            "frameskip": 1,
            "repeat_action_probability": 0.0,
        }  # SB3's wrapper skips frames; no sticky actions, as ours
        games = make_atari_env(s["env"], s["envs"], seed=seed, env_kwargs=bare)
        envs, policy = VecFrameStack(games, 4), "CnnPolicy"
        common["policy_kwargs"] = {"net_arch": []}  # SB3's convolutional encoder ends with 512 units of its own
    else:
        envs, policy = make_vec_env(s["env"], s["envs"], seed=seed), "MlpPolicy"
    if algo == "ppo":
        common |= {"n_steps": s["rollout"], "n_epochs": s["epochs"], "gae_lambda": s["lam"], "vf_coef": s["value_cost"]}
        common |= {"batch_size": s["envs"] * s["rollout"] // s["minibatches"], "max_grad_norm": s["max_grad_norm"]}
        if s["anneal"]:
            return PPO(
                policy,
                envs,
                **common | {"learning_rate": lambda left: s["lr"] * left, "clip_range": lambda left: s["clip"] * left},
            )
        return PPO(policy, envs, clip_range=s["clip"], **common)
    calls, updates = updates_per_round(s)
    common |= {"learning_starts": s["min_fill"], "batch_size": s["batch"], "buffer_size": s["capacity"]}
    common |= {"train_freq": calls, "gradient_steps": updates}
    if algo == "sac":
        return SAC(policy, envs, tau=s["tau"], **common)
    start, end = s["epsilon"]
    every = round(s["target_every"] / s["updates_per_step"]) if "burst" not in s else s["target_every"]  # in env steps
    return DQN(
        policy,
        envs,
        target_update_interval=every,
        max_grad_norm=s["max_grad_norm"],
        exploration_initial_eps=start,
        exploration_final_eps=end,
        exploration_fraction=min(s["epsilon_steps"] / total, 1.0),
        **common,
    )


def algo_of(work: str) -> str:
    return next(name for name in ("dqn", "ppo", "sac") if name in work)


def train(args: argparse.Namespace) -> dict[str, Any]:
    s, algo, total = WORKS[args.work].settings, algo_of(args.work), args.warm + args.steps
    watch, agent = Stopwatch(args.warm), model(s, algo, total, args.seed)
    agent.learn(total, callback=watch)
    each = s["minibatches"] if algo == "ppo" else 1  # PPO counts epochs
    marks = [(seconds, steps, updates * each) for seconds, steps, updates in watch.marks]
    learned = [p for name, p in agent.policy.named_parameters() if "target" not in name]
    return answer(marks, (tuple(p.shape) for p in learned), agent.batch_size)


def solve(args: argparse.Namespace) -> dict[str, Any]:
    s, algo = WORKS[args.work].settings, algo_of(args.work)
    imported = since_start()
    judge = make_vec_env(s["env"], EPISODES, seed=1_000 + args.seed)
    enough = StopTrainingOnRewardThreshold(SOLVED)
    look = EvalCallback(
        judge, callback_on_new_best=enough, n_eval_episodes=EPISODES, eval_freq=LOOK // s["envs"], verbose=0
    )
    agent = model(s, algo, args.steps, args.seed).learn(args.steps, callback=look)
    mean, seconds = look.last_mean_reward, since_start()
    if mean < SOLVED:
        mean, seconds = evaluate_policy(agent, judge, EPISODES)[0], since_start()
    counts = {"steps": agent.num_timesteps, "updates": agent._n_updates, "imported": imported}
    return counts | {"seconds": seconds, "return": float(mean)}


def operation(args: argparse.Namespace) -> dict[str, Any]:
    """Calls of ReplayBuffer.add and ReplayBuffer.sample as `learn` makes them."""
    import gymnasium as gym
    import numpy as np

    s = WORKS[args.work].settings
    box, choices = gym.spaces.Box(-1, 1, (s["obs"],)), gym.spaces.Discrete(s["actions"])
    buffer, rng = ReplayBuffer(s["capacity"], box, choices, "cpu"), np.random.default_rng(args.seed)
    obs = rng.random((1_001, 1, s["obs"]), np.float32)
    action, reward, done = np.array([[1]]), np.ones(1, np.float32), np.zeros(1, bool)

    def add(count: int) -> None:
        for i in range(count):
            buffer.add(obs[i % 1_000], obs[i % 1_000 + 1], action, reward, done, [{}])

    add(s["capacity"])
    started = time.perf_counter()
    if args.work == "replay-add":
        add(args.steps)
    else:
        for _ in range(args.steps):
            buffer.sample(s["batch"])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "steps": args.steps, "updates": 0, "parameters": 0, "network": "", "batch": s["batch"]}


def process(args: argparse.Namespace) -> dict[str, Any]:
    if args.work == "start-first-update":
        s = WORKS[
            "solve-ppo"
        ].settings  # that of our preset cartpole-ppo but for one epoch: an update is a fraction of it
        model(s | {"epochs": 1}, "ppo", 256, args.seed).learn(256)
    return {"seconds": since_start(), "steps": 0}


def main() -> None:
    args = arguments()
    kinds = {"train": train, "solve": solve, "operation": operation, "process": process}
    print(json.dumps(kinds[WORKS[args.work].kind](args)))


if __name__ == "__main__":
    main()
