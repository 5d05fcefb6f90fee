"""Plain loops for several agents as people write them in a single file, with torch and numpy alone: QMIX and MAPPO.

Called by single_run.py. Written for this comparison: no tricks, no waste. Envs are stepped one after the other, members
share a network and are told who they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional as F

from perceptron import mlp
from team_envs import Foraging, make_spread
from works import updates_per_round

Clock = Callable[[int, int], None]


class Envs:
    """Several envs one after the other; who ends begins anew, and `final` is what was seen last."""

    def __init__(self, make: Callable[[], Any], count: int, seed: int):
        self.envs = [make() for _ in range(count)]
        one = self.envs[0]
        self.agents, self.inputs, self.actions, self.world_size = one.agents, one.inputs, one.actions, one.world_size
        self.who = np.broadcast_to(np.eye(self.agents, dtype=np.float32), (count, self.agents, self.agents))
        self.obs = self._told(np.stack([env.reset(seed + i) for i, env in enumerate(self.envs)]))
        self.world = np.stack([env.world() for env in self.envs])

    def _told(self, obs: np.ndarray) -> np.ndarray:
        return np.concatenate([obs, self.who], -1)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """(reward, terminated, truncated, final obs, final world)"""
        parts = [env.step(chosen) for env, chosen in zip(self.envs, actions.tolist())]
        obs, reward, terminated, truncated = (np.stack(column) for column in zip(*parts))
        world = np.stack([env.world() for env in self.envs])
        final, final_world = self._told(obs), world
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            obs, world = obs.copy(), world.copy()
            for i in done:
                obs[i] = self.envs[i].reset()
                world[i] = self.envs[i].world()
        self.obs, self.world = self._told(obs) if len(done) else final, world
        return reward.astype(np.float32), terminated, truncated, final, final_world


class Mixer(nn.Module):
    """Q_tot grows with every Q_i: the weights are made from the world and not negative."""

    def __init__(self, agents: int, world: int, width: int, hidden: int):
        super().__init__()
        self.agents, self.width = agents, width
        self.weight_1, self.weight_2 = (mlp([world, hidden, n], nn.ReLU) for n in (agents * width, width))
        self.bias_1, self.bias_2 = nn.Linear(world, width), mlp([world, width, 1], nn.ReLU)

    def forward(self, q: Tensor, world: Tensor) -> Tensor:
        weight_1 = self.weight_1(world).abs().view(-1, self.agents, self.width)
        hidden = F.elu(torch.bmm(q.unsqueeze(1), weight_1).squeeze(1) + self.bias_1(world))
        return (hidden * self.weight_2(world).abs()).sum(1) + self.bias_2(world).squeeze(1)


class Replay:
    """A ring of steps of the whole team in numpy."""

    def __init__(self, capacity: int, **shapes: tuple[int, ...]):
        kinds = {"action": np.int64}
        self.kept = {name: np.zeros((capacity, *shape), kinds.get(name, np.float32)) for name, shape in shapes.items()}
        self.capacity, self.at, self.size = capacity, 0, 0

    def add(self, **rows: np.ndarray) -> None:
        count = len(rows["reward"])
        at = np.arange(self.at, self.at + count) % self.capacity
        for name, values in rows.items():
            self.kept[name][at] = values
        self.at, self.size = (self.at + count) % self.capacity, min(self.size + count, self.capacity)

    def sample(self, rng: np.random.Generator, count: int) -> dict[str, Tensor]:
        at = rng.integers(self.size, size=count)
        return {name: torch.from_numpy(values[at]) for name, values in self.kept.items()}


def qmix(s: dict[str, Any], total: int, seed: int, clock: Clock) -> list[nn.Module]:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = Envs(lambda: Foraging(s), s["envs"], seed)
    sizes = [envs.inputs + envs.agents, *s["hidden"], envs.actions]
    q, target_q = (mlp(sizes, nn.ReLU) for _ in range(2))
    mixer, target_mixer = (Mixer(envs.agents, envs.world_size, s["mixer"], s["hyper"]) for _ in range(2))
    target_q.load_state_dict(q.state_dict())
    target_mixer.load_state_dict(mixer.state_dict())
    learned = [*q.parameters(), *mixer.parameters()]
    followers = [*target_q.parameters(), *target_mixer.parameters()]
    adam = torch.optim.Adam(learned, lr=s["lr"])
    seen, world = envs.obs.shape[1:], (envs.world_size,)
    replay = Replay(
        s["capacity"],
        obs=seen,
        world=world,
        action=(envs.agents,),
        reward=(),
        terminated=(),
        next_obs=seen,
        next_world=world,
    )
    calls, per_round = updates_per_round(s)
    (start, end), steps, updates = s["epsilon"], 0, 0
    while steps < total:
        for _ in range(calls):
            epsilon = max(end, start + (end - start) * steps / s["epsilon_steps"])
            with torch.no_grad():
                greedy = q(torch.from_numpy(envs.obs)).argmax(-1).numpy()
            drawn = rng.integers(envs.actions, size=greedy.shape)
            action = np.where(rng.random(greedy.shape) < epsilon, drawn, greedy)
            before = {"obs": envs.obs, "world": envs.world}
            reward, terminated, _, final, final_world = envs.step(action)
            after = {"reward": reward, "terminated": terminated, "next_obs": final, "next_world": final_world}
            replay.add(**before, action=action, **after)
            steps += s["envs"]
        clock(steps, updates)
        if steps <= s["min_fill"]:
            continue
        for _ in range(per_round):
            b = replay.sample(rng, s["batch"])
            with torch.no_grad():
                best = target_mixer(target_q(b["next_obs"]).max(-1).values, b["next_world"])
                y = b["reward"] + s["gamma"] * (1 - b["terminated"]) * best
            chosen = q(b["obs"]).gather(-1, b["action"].unsqueeze(-1)).squeeze(-1)
            loss = 0.5 * (mixer(chosen, b["world"]) - y).pow(2).mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(learned, s["max_grad_norm"])
            adam.step()
            with torch.no_grad():
                for p, follower in zip(learned, followers):
                    follower.lerp_(p, s["tau"])
            updates += 1
    return [q, mixer]


class Returns:
    """Running mean and deviation of returns, in which the value network speaks."""

    def __init__(self, decay: float = 0.99):
        self.decay, self.mean, self.square, self.weight = decay, 0.0, 0.0, 0.0

    def update(self, values: Tensor) -> None:
        share = 1 - self.decay
        self.mean = self.decay * self.mean + share * float(values.mean())
        self.square = self.decay * self.square + share * float(values.pow(2).mean())
        self.weight = self.decay * self.weight + share

    @property
    def scale(self) -> tuple[float, float]:
        if self.weight == 0:
            return 0.0, 1.0
        mean = self.mean / self.weight
        return mean, max(self.square / self.weight - mean**2, 1e-4) ** 0.5


def mappo(s: dict[str, Any], total: int, seed: int, clock: Clock) -> list[nn.Module]:
    torch.manual_seed(seed)
    envs = Envs(lambda: make_spread(s), s["envs"], seed)
    rows, agents = s["rollout"], envs.agents
    inputs, known = envs.inputs + agents, envs.inputs + agents + envs.world_size
    policy, value = mlp([inputs, *s["hidden"], envs.actions], nn.Tanh), mlp([known, *s["hidden"], 1], nn.Tanh)
    for net, gain in ((policy, 0.01), (value, 1.0)):
        linear = [layer for layer in net if isinstance(layer, nn.Linear)]
        for layer in linear:
            nn.init.orthogonal_(layer.weight, gain if layer is linear[-1] else 2**0.5)
            nn.init.zeros_(layer.bias)
    learned, returns = [*policy.parameters(), *value.parameters()], Returns()
    adam = torch.optim.Adam(learned, lr=s["lr"], eps=1e-5)

    def all_known(obs: np.ndarray, world: np.ndarray) -> Tensor:
        wide = np.broadcast_to(world[:, None], (len(world), agents, world.shape[1]))
        return torch.from_numpy(np.concatenate([obs, wide], -1))

    def judged(seen: Tensor) -> Tensor:
        mean, deviation = returns.scale
        return value(seen).squeeze(-1) * deviation + mean

    shape, steps, updates = (rows, s["envs"], agents), 0, 0
    kept = {key: torch.zeros(shape) for key in ("logp", "reward", "terminated", "done", "value", "next_value")}
    kept |= {"obs": torch.zeros(*shape, inputs), "known": torch.zeros(*shape, known)}
    kept["action"] = torch.zeros(shape, dtype=torch.int64)
    size = rows * s["envs"] * agents // s["minibatches"]
    while steps < total:
        for t in range(rows):
            obs, seen = torch.from_numpy(envs.obs), all_known(envs.obs, envs.world)
            with torch.no_grad():
                choice = Categorical(logits=policy(obs))
                action = choice.sample()
                kept["logp"][t], kept["value"][t] = choice.log_prob(action), judged(seen)
            reward, terminated, truncated, final, final_world = envs.step(action.numpy())
            done = terminated | truncated
            kept["obs"][t], kept["known"][t], kept["action"][t] = obs, seen, action
            for key, values in (("reward", reward), ("terminated", terminated), ("done", done)):
                kept[key][t] = torch.from_numpy(values).unsqueeze(1)
            if t:
                ended = kept["done"][t - 1] > 0
                kept["next_value"][t - 1] = torch.where(ended, kept["next_value"][t - 1], kept["value"][t])
            if done.any():
                with torch.no_grad():
                    kept["next_value"][t] = judged(all_known(final, final_world))
            steps += s["envs"]
        with torch.no_grad():
            last = judged(all_known(envs.obs, envs.world))
        kept["next_value"][-1] = torch.where(kept["done"][-1] > 0, kept["next_value"][-1], last)
        clock(steps, updates)
        advantage, running = torch.zeros(shape), torch.zeros(shape[1:])
        for t in reversed(range(rows)):
            alive = 1 - kept["terminated"][t]
            delta = kept["reward"][t] + s["gamma"] * alive * kept["next_value"][t] - kept["value"][t]
            running = delta + s["gamma"] * s["lam"] * (1 - kept["done"][t]) * running
            advantage[t] = running
        target = advantage + kept["value"]
        returns.update(target)
        mean, deviation = returns.scale
        flat = {key: kept[key].flatten(0, 2) for key in ("obs", "known", "action", "logp")}
        flat["target"] = ((target - mean) / deviation).flatten()
        flat["advantage"] = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).flatten()
        for _ in range(s["epochs"]):
            for part in torch.randperm(rows * s["envs"] * agents).split(size):
                choice = Categorical(logits=policy(flat["obs"][part]))
                ratio = (choice.log_prob(flat["action"][part]) - flat["logp"][part]).exp()
                a = flat["advantage"][part]
                surrogate = torch.min(ratio * a, ratio.clamp(1 - s["clip"], 1 + s["clip"]) * a).mean()
                error = 0.5 * (value(flat["known"][part]).squeeze(-1) - flat["target"][part]).pow(2).mean()
                loss = s["value_cost"] * error - surrogate - s["entropy_bonus"] * choice.entropy().mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(learned, s["max_grad_norm"])
                adam.step()
                updates += 1
    return [policy, value]


LOOPS = {"qmix": qmix, "mappo": mappo}
