"""One contender: plain loops as people write them in a single file, with torch and
gymnasium alone. Prints one JSON line.

Written for this comparison: no tricks, no waste. Three algorithms, one function each; those of several agents are
in single_teams.py. Also the bare SyncVectorEnv of gymnasium, to which engines are compared.

python single_run.py WORK WARM STEPS [--seed N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from perceptron import mlp
from works import EPISODES, LOOK, SOLVED, WORKS, answer, arguments, batch_of, mark, since_start, updates_per_round

torch.set_num_threads(1)
Policy = Callable[[Tensor], np.ndarray]


class Solved(Exception):
    """The policy is good enough: the loop ends here."""


class Clock:
    """Time and counters at the end of the warm-up and at the end."""

    def __init__(self, warm: int, judge: Callable[[Policy], None] | None = None):
        self.warm, self.marks, self.judge, self.looked = warm, [], judge, 0

    def __call__(self, steps: int, updates: int, policy: Policy | None = None) -> None:
        if self.judge is not None and policy is not None and steps // LOOK > self.looked:
            self.looked = steps // LOOK
            self.judge(policy)
        if steps >= self.warm:
            self.marks[1:] = [mark(steps, updates)]


def make_envs(s: dict[str, Any], seed: int) -> tuple[gym.vector.SyncVectorEnv, np.ndarray]:
    """Envs that reset within the step that ends an episode, and their first observation."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(s["env"]) for _ in range(s["envs"])], autoreset_mode=mode)
    return envs, envs.reset(seed=seed)[0]


def successors(obs: np.ndarray, done: np.ndarray, info: dict[str, Any]) -> np.ndarray:
    """The true next observations, also where an episode ended."""
    if not done.any():
        return obs
    real = obs.copy()
    for i in np.flatnonzero(done):
        real[i] = info["final_obs"][i]
    return real


class Replay:
    """A ring of transitions in numpy."""

    def __init__(self, capacity: int, obs_size: int, action: tuple[int, ...], action_type: Any):
        self.obs, self.next_obs = np.zeros((capacity, obs_size), np.float32), np.zeros((capacity, obs_size), np.float32)
        self.action, self.reward = np.zeros((capacity, *action), action_type), np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.capacity, self.at, self.size = capacity, 0, 0

    def add(self, obs, action, reward, next_obs, terminated) -> None:
        for i in range(len(obs)):
            at = self.at
            self.obs[at], self.action[at], self.reward[at] = obs[i], action[i], reward[i]
            self.next_obs[at], self.terminated[at] = next_obs[i], terminated[i]
            self.at, self.size = (at + 1) % self.capacity, min(self.size + 1, self.capacity)

    def sample(self, rng: np.random.Generator, count: int) -> list[Tensor]:
        at = rng.integers(self.size, size=count)
        found = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        return [torch.from_numpy(array[at]) for array in found]


def dqn(s: dict[str, Any], total: int, seed: int, clock: Clock) -> tuple[list[nn.Module], Policy]:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs, obs = make_envs(s, seed)
    inputs, actions = obs.shape[1], int(envs.single_action_space.n)
    q, target = (mlp([inputs, *s["hidden"], actions], nn.ReLU) for _ in range(2))
    target.load_state_dict(q.state_dict())
    adam = torch.optim.Adam(q.parameters(), lr=s["lr"])
    replay = Replay(s["capacity"], inputs, (), np.int64)
    calls, per_round = updates_per_round(s)
    (start, end), steps, updates = s["epsilon"], 0, 0
    while steps < total:
        for _ in range(calls):
            epsilon = max(end, start + (end - start) * steps / s["epsilon_steps"])
            with torch.no_grad():
                greedy = q(torch.from_numpy(obs)).argmax(1).numpy()
            action = np.where(rng.random(len(obs)) < epsilon, rng.integers(actions, size=len(obs)), greedy)
            after, reward, terminated, truncated, info = envs.step(action)
            replay.add(obs, action, reward, successors(after, terminated | truncated, info), terminated)
            obs, steps = after, steps + len(obs)
        clock(steps, updates, lambda x: q(x).argmax(1).numpy())
        if steps <= s["min_fill"]:
            continue
        if "burst" in s:
            target.load_state_dict(q.state_dict())
        for _ in range(per_round):
            b_obs, b_action, b_reward, b_next, b_terminated = replay.sample(rng, s["batch"])
            with torch.no_grad():
                y = b_reward + s["gamma"] * (1 - b_terminated) * target(b_next).max(1).values
            chosen = q(b_obs).gather(1, b_action[:, None]).squeeze(1)
            loss = F.smooth_l1_loss(chosen, y)
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(q.parameters(), s["max_grad_norm"])
            adam.step()
            updates += 1
            if "burst" not in s and updates % s["target_every"] == 0:
                target.load_state_dict(q.state_dict())
    return [q], lambda x: q(x).argmax(1).numpy()


def ppo(s: dict[str, Any], total: int, seed: int, clock: Clock) -> tuple[list[nn.Module], Policy]:
    torch.manual_seed(seed)
    envs, first = make_envs(s, seed)
    obs, rows = torch.from_numpy(first), s["rollout"]
    inputs, actions = first.shape[1], int(envs.single_action_space.n)
    policy, value = mlp([inputs, *s["hidden"], actions], nn.Tanh), mlp([inputs, *s["hidden"], 1], nn.Tanh)
    for net, gain in ((policy, 0.01), (value, 1.0)):
        linear = [layer for layer in net if isinstance(layer, nn.Linear)]
        for layer in linear:
            nn.init.orthogonal_(layer.weight, gain if layer is linear[-1] else 2**0.5)
            nn.init.zeros_(layer.bias)
    learned = [*policy.parameters(), *value.parameters()]
    adam = torch.optim.Adam(learned, lr=s["lr"], eps=1e-5)
    shape, steps, updates = (rows, s["envs"]), 0, 0
    kept = {key: torch.zeros(shape) for key in ("logp", "reward", "terminated", "done", "value", "next_value")}
    kept |= {"obs": torch.zeros(*shape, inputs), "action": torch.zeros(shape, dtype=torch.int64)}
    size = rows * s["envs"] // s["minibatches"]
    while steps < total:
        left = 1 - steps / total if s["anneal"] else 1.0
        adam.param_groups[0]["lr"], clip = s["lr"] * left, s["clip"] * left
        for t in range(rows):
            with torch.no_grad():
                choice = Categorical(logits=policy(obs))
                action = choice.sample()
                kept["logp"][t], kept["value"][t] = choice.log_prob(action), value(obs).squeeze(1)
            after, reward, terminated, truncated, info = envs.step(action.numpy())
            done = terminated | truncated
            kept["obs"][t], kept["action"][t], kept["reward"][t] = obs, action, torch.from_numpy(reward)
            kept["terminated"][t], kept["done"][t] = torch.from_numpy(terminated), torch.from_numpy(done)
            if t:
                kept["next_value"][t - 1] = torch.where(
                    kept["done"][t - 1] > 0, kept["next_value"][t - 1], kept["value"][t]
                )
            if done.any():
                with torch.no_grad():
                    kept["next_value"][t] = value(torch.from_numpy(successors(after, done, info))).squeeze(1)
            obs, steps = torch.from_numpy(after), steps + s["envs"]
        with torch.no_grad():
            last = value(obs).squeeze(1)
        kept["next_value"][-1] = torch.where(kept["done"][-1] > 0, kept["next_value"][-1], last)
        clock(steps, updates, lambda x: policy(x).argmax(1).numpy())
        advantage, running = torch.zeros(shape), torch.zeros(s["envs"])
        for t in reversed(range(rows)):
            alive = 1 - kept["terminated"][t]
            delta = kept["reward"][t] + s["gamma"] * alive * kept["next_value"][t] - kept["value"][t]
            running = delta + s["gamma"] * s["lam"] * (1 - kept["done"][t]) * running
            advantage[t] = running
        flat = {key: kept[key].flatten(0, 1) for key in ("obs", "action", "logp")}
        flat |= {"advantage": advantage.flatten(), "target": (advantage + kept["value"]).flatten()}
        for _ in range(s["epochs"]):
            for part in torch.randperm(rows * s["envs"]).split(size):
                choice = Categorical(logits=policy(flat["obs"][part]))
                ratio = (choice.log_prob(flat["action"][part]) - flat["logp"][part]).exp()
                a = flat["advantage"][part]
                a = (a - a.mean()) / (a.std() + 1e-8)
                surrogate = torch.min(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a).mean()
                error = 0.5 * (value(flat["obs"][part]).squeeze(1) - flat["target"][part]).pow(2).mean()
                loss = s["value_cost"] * error - surrogate
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(learned, s["max_grad_norm"])
                adam.step()
                updates += 1
    return [policy, value], lambda x: policy(x).argmax(1).numpy()


def sac(s: dict[str, Any], total: int, seed: int, clock: Clock) -> tuple[list[nn.Module], Policy]:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs, obs = make_envs(s, seed)
    space = envs.single_action_space
    inputs, width, high = obs.shape[1], space.shape[0], torch.as_tensor(space.high)
    actor = mlp([inputs, *s["hidden"], 2 * width], nn.ReLU)
    critics, targets = ([mlp([inputs + width, *s["hidden"], 1], nn.ReLU) for _ in range(2)] for _ in range(2))
    for critic, target in zip(critics, targets):
        target.load_state_dict(critic.state_dict())
    of_critics = [p for critic in critics for p in critic.parameters()]
    log_alpha = torch.zeros((), requires_grad=True)
    actor_adam, critic_adam = torch.optim.Adam(actor.parameters(), lr=s["lr"]), torch.optim.Adam(of_critics, lr=s["lr"])
    alpha_adam = torch.optim.Adam([log_alpha], lr=s["lr"])
    replay = Replay(s["capacity"], inputs, (width,), np.float32)

    def act(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = actor(x).chunk(2, -1)
        choice = Normal(mean, log_std.clamp(-20, 2).exp())
        raw = choice.rsample()
        squashed = raw.tanh()
        logp = choice.log_prob(raw) - torch.log(1 - squashed.pow(2) + 1e-6)
        return squashed, logp.sum(-1)

    def judged(nets: list[nn.Sequential], x: Tensor, action: Tensor) -> list[Tensor]:
        both = torch.cat([x, action], -1)
        return [net(both).squeeze(-1) for net in nets]

    steps = updates = 0
    while steps < total:
        if steps < s["min_fill"]:
            action = rng.uniform(-1, 1, (s["envs"], width)).astype(np.float32)
        else:
            with torch.no_grad():
                action = act(torch.from_numpy(obs))[0].numpy()
        after, reward, terminated, truncated, info = envs.step(action * high.numpy())
        replay.add(obs, action, reward, successors(after, terminated | truncated, info), terminated)
        obs, steps = after, steps + s["envs"]
        clock(steps, updates, lambda x: actor(x)[..., :width].tanh().numpy())
        if steps <= s["min_fill"]:
            continue
        b_obs, b_action, b_reward, b_next, b_terminated = replay.sample(rng, s["batch"])
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_logp = act(b_next)
            least = torch.min(*judged(targets, b_next, next_action)) - alpha * next_logp
            y = b_reward + s["gamma"] * (1 - b_terminated) * least
        critic_loss = sum(F.mse_loss(value, y) for value in judged(critics, b_obs, b_action))
        critic_adam.zero_grad()
        critic_loss.backward()
        critic_adam.step()
        new, logp = act(b_obs)
        actor_loss = (alpha * logp - torch.min(*judged(critics, b_obs, new))).mean()
        actor_adam.zero_grad()
        actor_loss.backward()
        actor_adam.step()
        alpha_loss = -(log_alpha * (logp.detach() - width)).mean()
        alpha_adam.zero_grad()
        alpha_loss.backward()
        alpha_adam.step()
        with torch.no_grad():
            for critic, target in zip(critics, targets):
                for p, follower in zip(critic.parameters(), target.parameters()):
                    follower.lerp_(p, s["tau"])
        updates += 1
    return [actor, *critics], lambda x: actor(x)[..., :width].tanh().numpy()


LOOPS = {"dqn": dqn, "ppo": ppo, "sac": sac}


def train(args: argparse.Namespace) -> dict[str, Any]:
    s, clock = WORKS[args.work].settings, Clock(args.warm)
    algo = args.work.split("-")[0]
    if algo in LOOPS:
        nets, _ = LOOPS[algo](s, args.warm + args.steps, args.seed, clock)
    else:
        import single_teams

        nets = single_teams.LOOPS[algo](s, args.warm + args.steps, args.seed, clock)
    return answer(clock.marks, (tuple(p.shape) for net in nets for p in net.parameters()), batch_of(s))


def solve(args: argparse.Namespace) -> dict[str, Any]:
    s, imported = WORKS[args.work].settings, since_start()
    last = {"return": -math.inf}

    def judge(policy: Policy) -> None:
        envs, obs = make_envs(s | {"envs": EPISODES}, 1_000 + args.seed)
        total, alive = np.zeros(EPISODES), np.ones(EPISODES, bool)
        while alive.any():
            with torch.no_grad():
                obs, reward, terminated, truncated, _ = envs.step(policy(torch.from_numpy(obs)))
            total += reward * alive
            alive &= ~(terminated | truncated)
        last.update({"return": float(total.mean()), "seconds": since_start()})
        if total.mean() >= SOLVED:
            raise Solved

    clock = Clock(0, judge)
    with contextlib.suppress(Solved):
        _, policy = LOOPS[args.work.split("-")[1]](s, args.steps, args.seed, clock)
        judge(policy)
    return {"steps": clock.marks[-1][1], "updates": clock.marks[-1][2], "imported": imported} | last


def engine(args: argparse.Namespace) -> dict[str, Any]:
    """gymnasium's own vector env with actions that were drawn before."""
    s = WORKS[args.work].settings
    envs, _ = make_envs(s, args.seed)
    actions = np.random.default_rng(args.seed).integers(2, size=(1_000, s["envs"]))
    for i in range(args.warm // s["envs"]):
        envs.step(actions[i % 1_000])
    started = time.perf_counter()
    for i in range(args.steps // s["envs"]):
        envs.step(actions[i % 1_000])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "steps": args.steps, "updates": 0, "parameters": 0, "network": "", "batch": s["envs"]}


def main() -> None:
    args = arguments()
    print(json.dumps({"train": train, "solve": solve, "engine": engine}[WORKS[args.work].kind](args)))


if __name__ == "__main__":
    main()
