"""One contender: TorchRL's DQN, with the same work. Runs in a venv of its own; prints one JSON line.

python torchrl_run.py WORK WARM STEPS [--seed N]
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
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate

from works import WORKS, answer, arguments, updates_per_round

torch.set_num_threads(1)


def make_env(s: dict[str, Any]) -> Any:
    def one() -> Any:
        return GymEnv(s["env"], categorical_action_encoding=True)

    envs = one() if s["envs"] == 1 else SerialEnv(s["envs"], one)
    return TransformedEnv(envs, RewardSum()).append_transform(StepCounter())


def train(args: argparse.Namespace) -> dict[str, Any]:
    s, total = WORKS[args.work].settings, args.warm + args.steps
    torch.manual_seed(args.seed)
    env = make_env(s)
    spec = env.action_spec_unbatched if hasattr(env, "action_spec_unbatched") else env.action_spec
    inputs, actions = env.observation_spec["observation"].shape[-1], int(spec.space.n)
    net = MLP(in_features=inputs, out_features=actions, num_cells=s["hidden"], activation_class=nn.ReLU)
    actor = QValueActor(net, in_keys=["observation"], spec=spec)
    (start, end), steps = s["epsilon"], s["epsilon_steps"]
    explore = EGreedyModule(spec=spec, eps_init=start, eps_end=end, annealing_num_steps=steps)
    calls, per_round = updates_per_round(s)
    collector = Collector(
        env, TensorDictSequential(actor, explore), frames_per_batch=calls * s["envs"], total_frames=total, device="cpu"
    )
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(s["capacity"]), batch_size=s["batch"])
    loss_module = DQNLoss(actor, loss_function="smooth_l1", delay_value=True, action_space="categorical")
    loss_module.make_value_estimator(gamma=s["gamma"])
    follow = HardUpdate(loss_module, value_network_update_interval=s["target_every"])
    adam = torch.optim.Adam(loss_module.parameters(), lr=s["lr"])
    marks, collected, updates = [], 0, 0
    for batch in collector:
        batch = batch.reshape(-1)
        explore.step(batch.numel())
        replay.extend(batch)
        collected += batch.numel()
        if collected >= args.warm:
            marks[1:] = [(time.perf_counter(), collected, updates)]
        if collected <= s["min_fill"]:
            continue
        for _ in range(per_round):
            loss = loss_module(replay.sample())["loss"]
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(loss_module.parameters(), s["max_grad_norm"])
            adam.step()
            follow.step()
            updates += 1
    return answer(marks, (tuple(p.shape) for p in net.parameters()), s["batch"])


if __name__ == "__main__":
    print(json.dumps(train(arguments())))
