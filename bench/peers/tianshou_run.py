"""One contender: Tianshou 2, with the same work. Runs in a venv of its own; prints one JSON line.

python tianshou_run.py WORK WARM STEPS [--seed N]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DQN, PPO, SAC
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, PrioritizedReplayBuffer, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from works import WORKS, answer, arguments, batch_of, since_start, updates_per_round

torch.set_num_threads(1)


def algorithm(s: dict[str, Any], name: str, env: gym.Env) -> Any:
    shape, space, adam = env.observation_space.shape, env.action_space, AdamOptimizerFactory(lr=s["lr"])
    spaces = {"action_space": space, "observation_space": env.observation_space}
    if name == "dqn":
        net = Net(state_shape=shape, action_shape=space.n, hidden_sizes=s["hidden"])
        policy = DiscreteQLearningPolicy(model=net, eps_training=s["epsilon"][1], **spaces)
        rest = {
            "gamma": s["gamma"],
            "target_update_freq": s["target_every"],
            "is_double": False,
            "huber_loss_delta": 1.0,
        }
        algo = DQN(policy=policy, optim=adam, **rest)
        algo.optim._max_grad_norm = s["max_grad_norm"]  # its optimiser can clip, but DQN has no option for it
        return algo
    if name == "ppo":
        nets = [Net(state_shape=shape, hidden_sizes=s["hidden"], activation=torch.nn.Tanh) for _ in range(2)]
        actor = DiscreteActor(preprocess_net=nets[0], action_shape=space.n, softmax_output=False)
        policy = ProbabilisticActorPolicy(
            actor=actor, dist_fn=_categorical, action_scaling=False, action_bound_method=None, **spaces
        )
        rest = {"eps_clip": s["clip"], "vf_coef": s["value_cost"], "ent_coef": 0.0, "max_grad_norm": s["max_grad_norm"]}
        rest |= {"gae_lambda": s["lam"], "gamma": s["gamma"], "max_batchsize": s["envs"] * s["rollout"]}
        return PPO(policy=policy, critic=DiscreteCritic(preprocess_net=nets[1]), optim=adam, **rest)
    width = space.shape
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=shape, hidden_sizes=s["hidden"]),
        action_shape=width,
        unbounded=True,
        conditioned_sigma=True,
    )
    critics = [
        ContinuousCritic(
            preprocess_net=Net(state_shape=shape, action_shape=width, hidden_sizes=s["hidden"], concat=True)
        )
        for _ in range(2)
    ]
    return SAC(
        policy=SACPolicy(actor=actor, **spaces),
        policy_optim=adam,
        critic=critics[0],
        critic_optim=adam,
        critic2=critics[1],
        critic2_optim=AdamOptimizerFactory(lr=s["lr"]),
        tau=s["tau"],
        gamma=s["gamma"],
        alpha=AutoAlpha(-float(np.prod(width)), 0.0, AdamOptimizerFactory(lr=s["lr"])),
    )


def _categorical(logits: torch.Tensor) -> torch.distributions.Categorical:
    return torch.distributions.Categorical(logits=logits)


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Tianshou's own trainer; a call of training_fn before every training step tells the time."""
    s, name = WORKS[args.work].settings, args.work.split("-")[0]
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 - Tianshou draws from the global generator
    envs = DummyVectorEnv([lambda: gym.make(s["env"]) for _ in range(s["envs"])])
    algo = algorithm(s, name, gym.make(s["env"]))
    rows = s["rollout"] if name == "ppo" else updates_per_round(s)[0]
    buffer = VectorReplayBuffer(s.get("capacity", rows * s["envs"]), s["envs"])
    collector = Collector(algo, envs, buffer, exploration_noise=True)
    collector.reset()
    counted, marks = _counted(algo), []
    filled = s.get("min_fill", 0)
    if filled:
        collector.collect(n_step=filled, random=True)

    def tell(epoch: int, steps: int) -> None:
        if steps + filled >= args.warm:
            marks[1:] = [(time.perf_counter(), steps + filled, counted["updates"])]

    total = args.warm + args.steps - filled
    common = {
        "training_collector": collector,
        "max_epochs": 1,
        "epoch_num_steps": total + rows * s["envs"],  # one more, so that the last mark comes after `total` steps
        "collection_step_num_env_steps": rows * s["envs"],
        "training_fn": tell,
        "verbose": False,
        "show_progress": False,
    }
    if name == "ppo":
        batch = batch_of(s)
        params = OnPolicyTrainerParams(batch_size=batch, update_step_num_repetitions=s["epochs"], **common)
    else:
        batch, share = s["batch"], s["updates_per_step"]
        params = OffPolicyTrainerParams(batch_size=batch, update_step_num_gradient_steps_per_sample=share, **common)
    algo.run_training(params)
    learned = [p for key, p in algo.named_parameters() if "old" not in key and "lagged" not in key]
    return answer(marks, (tuple(p.shape) for p in learned), batch)


def _counted(algo: Any) -> dict[str, int]:
    """Counts optimiser steps where they happen."""
    counter, optimiser = {"updates": 0}, algo.optim if hasattr(algo, "optim") else algo.policy_optim
    step = optimiser.step

    def counting(*args: Any, **kwargs: Any) -> Any:
        counter["updates"] += 1
        return step(*args, **kwargs)

    optimiser.step = counting
    return counter


def operation(args: argparse.Namespace) -> dict[str, Any]:
    s, prioritised = WORKS[args.work].settings, args.work == "replay-prioritised"
    rng = np.random.default_rng(args.seed)
    size, alpha, beta = s["capacity"], s["alpha"], s["beta"]
    buffer = PrioritizedReplayBuffer(size, alpha=alpha, beta=beta) if prioritised else ReplayBuffer(size)
    obs = rng.random((1_001, s["obs"]), np.float32)

    def add(count: int) -> None:
        for i in range(count):
            row = {"obs": obs[i % 1_000], "obs_next": obs[i % 1_000 + 1], "act": 1, "rew": 1.0}
            buffer.add(Batch(**row, terminated=False, truncated=False, info={}))

    add(s["capacity"])
    weight = rng.random(s["batch"])
    started = time.perf_counter()
    if args.work == "replay-add":
        add(args.steps)
    else:
        for _ in range(args.steps):
            _, index = buffer.sample(s["batch"])
            if prioritised:
                buffer.update_weight(index, weight)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "steps": args.steps, "updates": 0, "parameters": 0, "network": "", "batch": s["batch"]}


def process(args: argparse.Namespace) -> dict[str, Any]:
    return {"seconds": since_start(), "steps": 0}


def main() -> None:
    args = arguments()
    print(json.dumps({"train": train, "operation": operation, "process": process}[WORKS[args.work].kind](args)))


if __name__ == "__main__":
    main()
