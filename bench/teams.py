"""Collecting with several agents, measured: CPU µs per agent and step beside the same number of single-agent columns.

    python bench/teams.py [--envs 16] [--steps 400] [--rounds 9] [--spread]

    single        2 B envs with one agent
    two players   B envs with two agents, a player each
    shared        B envs with two agents, one player for both
    team          B envs with a team of two

Every agent has a walk of its own, so envs do the same work per agent: `still` (nothing at all: what remains is ours),
or `cart` (CartPole's equations). Actors: `none` decides nothing, `net` is an MLP of 64 × 64 in torch, evaluated once
per player. Rounds are interleaved; the table has the medians of CPU seconds, and of the ratios within a round.

--spread: simple_spread (extra `marl`) stepped by mpe2 and by the numba engine.

Never a pass/fail test: the target is 1.3 × of `single`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make, make_multi
from rookery.run.collect.collector import Collector
from rookery.run.collect.rows import Rows
from rookery.run.collect.seats import Seats

LENGTH = 100  # steps of an episode
OBS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
AGENTS = ["a", "b"]
CASES = ["single", "two players", "shared", "team"]


class Walk:
    """What one agent does."""

    def __init__(self, cart: bool):
        self._cart = CartPoleEnv() if cart else None
        self._obs = np.zeros(4, np.float32)

    def reset(self, seed: int | None) -> np.ndarray:
        if self._cart is not None:
            self._obs, _ = self._cart.reset(seed=seed)
        return self._obs

    def step(self, action: int) -> tuple[np.ndarray, float]:
        if self._cart is None:
            return self._obs, 1.0
        self._cart.steps_beyond_terminated = None
        obs, reward, *_ = self._cart.step(action)
        return obs, reward


class One(gymnasium.Env):
    observation_space, action_space = OBS, spaces.Discrete(2)

    def __init__(self, cart: bool = False):
        self._walk = Walk(cart)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._t = 0
        return self._walk.reset(seed), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        obs, reward = self._walk.step(action)
        return obs, reward, False, self._t >= LENGTH, {}


class Two:
    """PettingZoo's ParallelEnv."""

    metadata: dict[str, Any] = {"name": "two"}
    possible_agents = AGENTS

    def __init__(self, cart: bool = False):
        self._walks = {agent: Walk(cart) for agent in AGENTS}

    def observation_space(self, agent: str) -> spaces.Space:
        return OBS

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self._t, self.agents = 0, list(AGENTS)
        return {agent: walk.reset(seed) for agent, walk in self._walks.items()}, {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self._t += 1
        obs, reward = {}, {}
        for agent, walk in self._walks.items():
            obs[agent], reward[agent] = walk.step(actions[agent])
        over = self._t >= LENGTH
        if over:
            self.agents = []
        return obs, reward, {"a": False, "b": False}, {"a": over, "b": over}, {"a": {}, "b": {}}

    def close(self) -> None:
        pass


class Rule:
    to_env = staticmethod(lambda action: action)


class Decides:
    """An actor: zeros, or what an MLP likes best."""

    stack, judge, version, rule = 1, None, 0, Rule

    def __init__(self, net: bool):
        layers = [torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
        self._net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 2)) if net else None
        self._zeros: np.ndarray | None = None

    def act(self, obs: Any, rng: Any, first: np.ndarray, *, greedy: bool) -> dict[str, Any]:
        seen = obs["agents"] if isinstance(obs, dict) else obs
        if self._net is not None:
            with torch.no_grad():
                return {"action": self._net(torch.from_numpy(seen)).argmax(-1).numpy()}
        if self._zeros is None:
            self._zeros = np.zeros(seen.shape[:-1], np.int64)
        return {"action": self._zeros}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass

    def undo(self, columns: np.ndarray, before: Any) -> None:
        pass


def collector(case: str, num: int, cart: bool, net: bool) -> Collector:
    streams = Streams(0)
    places: dict[str, Any] = {"purpose": "train", "streams": streams}
    if case == "single":
        env: Any = make(EnvConfig(), count=2 * num, factory=lambda: One(cart), **places)
        return Collector(env, Decides(net), streams.numpy("act"))  # type: ignore[arg-type]
    teams: Any = {"team": AGENTS} if case == "team" else {}
    config = EnvConfig(api="parallel", teams=teams)
    env = make_multi(config, count=num, factory=lambda: Two(cart), **places)
    if case != "two players":
        return Collector(env, Decides(net), streams.numpy("act"))  # type: ignore[arg-type]
    seats = Seats({agent: {agent: 1.0} for agent in AGENTS}, num, None)
    actors: dict[str, Any] = {agent: Decides(net) for agent in AGENTS}
    rows = {agent: Rows(actor, streams.numpy(agent), env, [agent]) for agent, actor in actors.items()}
    return Collector(env, rows, seats=seats)


def seconds(it: Collector, rows: int) -> float:
    begun = time.process_time()
    for _ in range(rows // 50):
        it.collect(50)
    return time.process_time() - begun


def measure(num: int, rows: int, rounds: int, cart: bool, net: bool) -> None:
    made = {case: collector(case, num, cart, net) for case in CASES}
    for it in made.values():
        seconds(it, 100)
    taken: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case, it in made.items():
            taken[case].append(1e6 * seconds(it, rows) / (2 * num * rows))
    for case in CASES:
        ratio = statistics.median(mine / base for mine, base in zip(taken[case], taken["single"]))
        work = f"{'cart' if cart else 'still'}, {'net' if net else 'none'}"
        print(f"{work:12} {case:12} {statistics.median(taken[case]):7.2f} µs   {ratio:5.2f} ×", flush=True)


def spread(num: int, rows: int, rounds: int) -> None:
    """Steps of envs per CPU second."""
    made, rng = {}, np.random.default_rng(0)
    for engine in ("gymnasium", "native"):
        settings: Any = {"engine": engine, "teams": {"team": ["agent_*"]}}
        config = EnvConfig(id="mpe2:simple_spread_v3", api="parallel", **settings)
        made[engine] = make_multi(config, count=num, purpose="train", streams=Streams(0))
        made[engine].reset()
    actions = rng.integers(0, 5, (64, num, 3))
    taken: dict[str, list[float]] = {engine: [] for engine in made}
    for _ in range(rounds):
        for engine, env in made.items():
            steps = rows if engine == "native" else max(rows // 50, 1)
            begun = time.process_time()
            for t in range(steps):
                env.step({"team": actions[t % 64]})
            taken[engine].append(num * steps / (time.process_time() - begun))
    for engine, rates in taken.items():
        ratio = statistics.median(mine / base for mine, base in zip(rates, taken["gymnasium"]))
        rate = f"{statistics.median(rates):12,.0f} steps per CPU second"
        print(f"simple_spread, {num} envs, {engine:10} {rate} {ratio:7.1f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--spread", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.spread:
        spread(options.envs, options.steps * 10, options.rounds)
        return
    for cart in (False, True):
        for net in (False, True):
            measure(options.envs, options.steps, options.rounds, cart, net)


if __name__ == "__main__":
    main()
