"""One contender: DI-engine's DQN, with the same work. Runs in a venv of its own; prints one JSON line.

python diengine_run.py WORK WARM STEPS [--seed N]

Its DQN policy is a double DQN with squared errors and cannot be told otherwise, so an update has one
forward pass more than the others'.
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
import torch
from ding.data import DequeBuffer
from ding.envs import BaseEnvManagerV2, DingEnvWrapper
from ding.framework import OnlineRLContext, task
from ding.framework.middleware import OffPolicyLearner, StepCollector, data_pusher, eps_greedy_handler
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.torch_utils import Adam
from ding.utils import deep_merge_dicts, set_pkg_seed
from easydict import EasyDict

from works import WORKS, answer, arguments, updates_per_round

torch.set_num_threads(1)


def config(s: dict[str, Any], seed: int) -> EasyDict:
    calls, updates = updates_per_round(s)
    start, end = s["epsilon"]
    policy = {
        "discount_factor": s["gamma"],
        "learn": {
            "update_per_collect": updates,
            "batch_size": s["batch"],
            "learning_rate": s["lr"],
            "target_update_freq": s["target_every"],
        },
        "collect": {"n_sample": calls * s["envs"]},
        "other": {"eps": {"type": "linear", "start": start, "end": end, "decay": s["epsilon_steps"]}},
    }
    return EasyDict(
        seed=seed,
        policy=deep_merge_dicts(DQNPolicy.default_config(), EasyDict(policy)),
        manager=BaseEnvManagerV2.default_config(),
    )


def policy_of(s: dict[str, Any], cfg: EasyDict, env: gym.Env) -> Any:
    """The last hidden layer belongs to DI-engine's head, the others to its encoder."""
    shapes = {"obs_shape": env.observation_space.shape[0], "action_shape": int(env.action_space.n)}
    net = DQN(**shapes, encoder_hidden_size_list=s["hidden"][:-1], dueling=False, head_layer_num=1)
    policy = DQNPolicy(cfg.policy, model=net)
    clip = {"grad_clip_type": "clip_norm", "clip_value": s["max_grad_norm"]}
    policy._optimizer = Adam(
        net.parameters(), lr=s["lr"], **clip
    )  # its optimiser can clip, but DQN has no option for it
    return policy


def train(args: argparse.Namespace) -> dict[str, Any]:
    """DI-engine's own pipeline of middleware; one more at its end tells the time."""
    s, total = WORKS[args.work].settings, args.warm + args.steps
    cfg, marks = config(s, args.seed), []
    envs = BaseEnvManagerV2([lambda: DingEnvWrapper(gym.make(s["env"]))] * s["envs"], cfg.manager)
    set_pkg_seed(args.seed, use_cuda=False)
    policy, replay = policy_of(s, cfg, gym.make(s["env"])), DequeBuffer(size=s["capacity"])
    parameters = list(policy._model.parameters())

    def tell(ctx: OnlineRLContext) -> None:
        if ctx.env_step >= args.warm:
            updates = int(policy._optimizer.state[parameters[0]]["step"])
            marks[1:] = [(time.perf_counter(), ctx.env_step, updates)]
        task.finish = ctx.env_step >= total

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, envs))
        task.use(data_pusher(cfg, replay))
        learner = OffPolicyLearner(cfg, policy.learn_mode, replay)
        task.use(lambda ctx: learner(ctx) if ctx.env_step > s["min_fill"] else None)
        task.use(tell)
        task.run()
    return answer(marks, (tuple(p.shape) for p in parameters), s["batch"])


if __name__ == "__main__":
    print(json.dumps(train(arguments())))
