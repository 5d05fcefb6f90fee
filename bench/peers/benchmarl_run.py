"""One contender: BenchMARL's QMIX and MAPPO, on TorchRL. Runs in a venv of its own; prints one JSON line.

Both are its own but for their networks: TorchRL's mixer makes its weights by one layer, BenchMARL's central critic has
one value for all agents. Here the mixer has hidden layers, and the critic sees an agent and the world, as elsewhere.

python benchmarl_run.py WORK WARM STEPS [--seed N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from benchmarl.algorithms import Mappo, MappoConfig, Qmix, QmixConfig
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from gymnasium import spaces
from pettingzoo import ParallelEnv
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Composite, Unbounded
from torchrl.envs import PettingZooWrapper

from team_envs import Foraging, make_spread
from works import WORKS, Mark, answer, arguments, batch_of, mark

torch.set_num_threads(1)
ROUND = 1_600  # env steps that QMIX collects at once before their updates; BenchMARL is made for long rounds
GROUP = "agent"
MADE = itertools.count()  # envs so far


class Parallel(ParallelEnv):
    """Agents who are told who they are, and a state, in PettingZoo's parallel API."""

    metadata = {"name": "team"}
    render_mode = None

    def __init__(self, s: dict[str, Any]):
        self.env = Foraging(s) if "episode" in s else make_spread(s)
        self.possible_agents = [f"{GROUP}_{i}" for i in range(self.env.agents)]
        self.agents = list(self.possible_agents)
        self.who = np.eye(self.env.agents, dtype=np.float32)
        lead = self.env.inputs + self.env.agents
        self.observation_spaces = {name: self._box(lead) for name in self.agents}
        self.action_spaces = {name: spaces.Discrete(self.env.actions) for name in self.agents}
        self.state_space = self._box(self.env.world_size)

    @staticmethod
    def _box(size: int) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def observation_space(self, agent: str) -> spaces.Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.agents = list(self.possible_agents)
        return self._shown(self.env.reset(seed)), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        names = self.possible_agents
        obs, reward, terminated, truncated = self.env.step([int(actions[name]) for name in names])
        if terminated or truncated:
            self.agents = []
        each = (dict.fromkeys(names, value) for value in (reward, terminated, truncated))
        return self._shown(obs), *each, {name: {} for name in names}

    def state(self) -> np.ndarray:
        return self.env.world()

    def _shown(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(self.possible_agents, np.concatenate([obs, self.who], 1)))


class TeamTask(TaskClass):
    """One of the two works."""

    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Callable:
        options = {"return_state": True, "categorical_actions": True, "device": device, "use_mask": False}
        # all envs get the same seed from BenchMARL, and would play the same episodes
        return lambda: PettingZooWrapper(Parallel(self.config), seed=1_000 * (seed or 0) + next(MADE), **options)

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def has_render(self, env: Any) -> bool:
        return False

    def max_steps(self, env: Any) -> int:
        return 50

    def group_map(self, env: Any) -> dict[str, list[str]]:
        return env.group_map

    def state_spec(self, env: Any) -> Composite:
        return Composite({"state": env.observation_spec["state"].clone()})

    def action_mask_spec(self, env: Any) -> None:
        return None

    def observation_spec(self, env: Any) -> Composite:
        observation = env.observation_spec[GROUP, "observation"].clone()
        return Composite({GROUP: Composite({"observation": observation}, shape=observation.shape[:1])})

    def info_spec(self, env: Any) -> None:
        return None

    def action_spec(self, env: Any) -> Composite:
        return env.full_action_spec

    @staticmethod
    def env_name() -> str:
        return "team"


class HiddenQmix(Qmix):
    """The mixer's weights are made by networks with a hidden layer, as in the paper's code."""

    def get_mixer(self, group: str) -> TensorDictModule:
        found, hidden = super().get_mixer(group), self.experiment.task.config["hyper"]
        mixer = found.module
        for name in ("hyper_w_1", "hyper_w_final"):
            plain = getattr(mixer, name)
            first, last = nn.Linear(plain.in_features, hidden), nn.Linear(hidden, plain.out_features)
            setattr(mixer, name, nn.Sequential(first, nn.ReLU(), last))
        return found


class HiddenQmixConfig(QmixConfig):
    """Of it."""

    @staticmethod
    def associated_class() -> type:
        return HiddenQmix


class EachMappo(Mappo):
    """The critic sees the agent and the world, and tells each its own value."""

    def get_critic(self, group: str) -> TensorDictSequential:
        agents, state = len(self.group_map[group]), self.state_spec["state"]
        world = (group, "world")
        widen = TensorDictModule(
            lambda x: x.unsqueeze(-2).expand(*x.shape[:-1], agents, x.shape[-1]), in_keys=["state"], out_keys=[world]
        )
        seen = {"observation": self.observation_spec[group, "observation"].clone()}
        seen["world"] = Unbounded(shape=(agents, *state.shape))
        value = self.critic_model_config.get_model(
            input_spec=Composite({group: Composite(seen, shape=(agents,))}),
            output_spec=Composite({group: Composite({"state_value": Unbounded(shape=(agents, 1))}, shape=(agents,))}),
            n_agents=agents,
            centralised=False,
            input_has_agent_dim=True,
            agent_group=group,
            share_params=True,
            device=self.device,
            action_spec=self.action_spec,
        )
        return TensorDictSequential(widen, value)


class EachMappoConfig(MappoConfig):
    """Of it."""

    @staticmethod
    def associated_class() -> type:
        return EachMappo


class Watch(Callback):
    """Counts updates, and remembers where the loop was at the end of the warm-up and at the end."""

    def __init__(self, warm: int):
        super().__init__()
        self.warm, self.updates, self.marks = warm, 0, list[Mark]()

    def on_train_step(self, batch: Any, group: str) -> None:
        self.updates += 1

    def on_train_end(self, training_td: Any, group: str) -> None:
        if self.experiment.total_frames >= self.warm:
            self.marks[1:] = [mark(self.experiment.total_frames, self.updates)]


def config_of(s: dict[str, Any], total: int, folder: str) -> ExperimentConfig:
    config = ExperimentConfig.get_from_yaml()
    told: dict[str, Any] = {"prefer_continuous_actions": False, "gamma": s["gamma"], "lr": s["lr"], "adam_eps": 1e-8}
    told |= {"clip_grad_val": s["max_grad_norm"], "max_n_frames": total, "save_folder": folder}
    told |= {"evaluation": False, "render": False, "loggers": ["csv"], "create_json": False}
    if "batch" in s:
        start, end = s["epsilon"]
        told |= {"polyak_tau": s["tau"], "exploration_eps_init": start, "exploration_eps_end": end}
        told |= {"exploration_anneal_frames": s["epsilon_steps"], "off_policy_collected_frames_per_batch": ROUND}
        told |= {"off_policy_n_envs_per_worker": s["envs"], "off_policy_train_batch_size": s["batch"]}
        told |= {"off_policy_n_optimizer_steps": round(ROUND * s["updates_per_step"])}
        told |= {"off_policy_memory_size": s["capacity"]}
    else:
        rows = s["envs"] * s["rollout"]
        told |= {"on_policy_collected_frames_per_batch": rows, "on_policy_n_envs_per_worker": s["envs"]}
        told |= {"on_policy_n_minibatch_iters": s["epochs"], "on_policy_minibatch_size": rows // s["minibatches"]}
    for name, value in told.items():
        assert hasattr(config, name), name
        setattr(config, name, value)
    return config


def algorithm_of(s: dict[str, Any]) -> Any:
    if "batch" in s:
        return HiddenQmixConfig(mixing_embed_dim=s["mixer"], delay_value=True, loss_function="l2")
    return EachMappoConfig(
        share_param_critic=True,
        clip_epsilon=s["clip"],
        entropy_coef=s["entropy_bonus"],
        critic_coef=s["value_cost"],
        loss_critic_type="l2",
        lmbda=s["lam"],
        scale_mapping="biased_softplus_1",
        use_tanh_normal=True,
        minibatch_advantage=False,
    )


def train(args: argparse.Namespace) -> dict[str, Any]:
    s, watch = WORKS[args.work].settings, Watch(args.warm)
    activation = nn.ReLU if "batch" in s else nn.Tanh
    model, critic = (
        MlpConfig(num_cells=s["hidden"], activation_class=activation, layer_class=nn.Linear) for _ in range(2)
    )
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(
            task=TeamTask(name="TEAM", config=s),
            algorithm_config=algorithm_of(s),
            model_config=model,
            critic_model_config=critic,
            seed=args.seed,
            config=config_of(s, args.warm + args.steps, folder),
            callbacks=[watch],
        )
        experiment.run()
        learned = [p for found in experiment.algorithm.get_parameters(GROUP).values() for p in found]
    return answer(watch.marks, (tuple(p.shape) for p in learned), batch_of(s))


if __name__ == "__main__":
    print(json.dumps(train(arguments())))
