"""Groups: all envs of one worker, or some of them. A `Group` can travel to another process, which makes the envs
there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymnasium.vector import VectorEnv as GymnasiumVector

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.core.system.cpus import cpu_quota
from rookery.envs.builders.multi import ENGINES, alone, around_agents, spoken, together
from rookery.envs.builders.single import Factory, Purpose, name_of, single
from rookery.envs.config import EnvConfig
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.multi.apis import OnlyAgent
from rookery.envs.multi.engine import Agents
from rookery.envs.multi.env import MultiEnv
from rookery.envs.multi.one_agent import at_table
from rookery.envs.watchdog import Watchdog, end_process


@dataclass(frozen=True, slots=True)
class Group:
    """What the envs of one worker are made from. Env i is reset for its episode e with `streams.seed_of(purpose,
    worker, i, e)`."""

    config: EnvConfig
    purpose: Purpose
    streams: Streams
    worker: int
    count: int
    factory: Factory | None
    modules: tuple[str, ...] = ()  # of the user, which may register names
    several: bool = False  # agents
    longest: int | None = None  # steps after which an episode is cut, whatever limit its env has
    central: tuple[str, ...] = ()  # patterns of agents who see the world

    def seed_of(self, i: int, episode: Any) -> int:
        return self.streams.seed_of(self.purpose, self.worker, i, episode)

    def one(self, i: int) -> Any:
        """Env i."""
        make: Any = together if self.several else single
        places = {"purpose": self.purpose, "worker": self.worker, "index": i, "count": self.count}
        env = make(self.config, factory=self.factory, **places)
        if self.several and not self.config.teams and spoken(env, self.config.api) == "dict" and OnlyAgent.fits(env):
            return alone(env, self.config, self.purpose)
        return env

    def __call__(self, start: int, stop: int, first: Any = None) -> InProcess | Agents:
        """Envs `start` to `stop` − 1 in this process; `first`: the first of them, if it is there already."""
        registry.import_again(self.modules)
        engine = self._engine(start, stop, first)
        if self.longest is not None:
            engine.cut_after(self.longest)
        return engine

    def _engine(self, start: int, stop: int, first: Any) -> InProcess | Agents:
        envs = [self.one(start) if first is None else first, *(self.one(i) for i in range(start + 1, stop))]
        config, name = self.config, name_of(self.config, self.factory)
        own: dict[str, Any] = {"name": name, "worker": self.worker, "on_bad": config.on_bad, "first": start}
        only = getattr(envs[0], "unwrapped", None)
        if not self.several or isinstance(only, OnlyAgent):
            engine = InProcess(envs, self.seed_of, **own, faults=config.faults, remake=self.one)
            engine.agent = only.agent if isinstance(only, OnlyAgent) else engine.agent
            return engine
        own |= {"max_episode_steps": config.max_episode_steps, "wrappers": around_agents(config, self.purpose)}
        own |= {"teams": config.teams, "world": config.world, "central": self.central, "ids": config.ids}
        return ENGINES[spoken(envs[0], config.api)](envs, self.seed_of, **own)

    def watched(self, first: Any = None) -> InProcess | Agents:
        """All of them in this process, with a watchdog that ends the process if one hangs."""
        first = self.one(0) if first is None else first
        if lonely(first) and (self.purpose == "train" or self.count > 1):  # an evaluation comes while training runs
            raise ConfigError(
                f"{name_of(self.config, self.factory)} can run only once in a process: set env.workers=subprocess, "
                "which gives each env one"
            )
        engine = self(0, self.count, first)
        engine.on_close = Watchdog(engine, self.config.faults, end_process).stop
        return engine


def lonely(env: Any) -> bool:
    """Whether a process has room for only one such env: it says so as `one_per_process`."""
    return bool(getattr(getattr(env, "unwrapped", env), "one_per_process", False))


def in_processes(group: Group) -> MultiEnv:
    """The envs in worker processes, as `env.workers` says. Evaluation waits for every env, also with `async`."""
    from rookery.envs.workers.asynchronous import AsyncWorkers
    from rookery.envs.workers.parent import Workers

    config, wanted = group.config, group.config.workers
    if config.engine in ("native", "envpool") or (group.several and wanted.mode == "async"):
        raise ConfigError(refusal(config))
    first = group.one(0)
    if isinstance(first, GymnasiumVector):
        first.close()
        raise ConfigError(
            f"env.workers={wanted.mode} steps single envs in processes, but {name_of(config, group.factory)} is a "
            f"gymnasium VectorEnv, "
            "which has ways of its own. Set env.workers=inline"
        )
    processes = group.count if lonely(first) else min(wanted.processes or cpu_quota(), group.count)
    model = at_table(group(0, 1, first))
    model.close()
    own: dict[str, Any] = {"processes": processes, "start": wanted.start}
    own["faults"] = config.faults
    if wanted.mode == "async" and group.purpose == "train":
        ready = wanted.ready if wanted.ready >= 1 else wanted.ready * group.count
        return AsyncWorkers(group, model, group.count, ready=int(-(-ready // 1)), **own)
    return Workers(group, model, group.count, give_up=group.purpose == "train", **own)


def refusal(config: EnvConfig) -> str:
    """Why such envs cannot be put into worker processes."""
    mode = config.workers.mode
    if config.engine not in ("native", "envpool"):
        return (
            f"env.workers={mode} is for envs with one agent, but env.api={config.api} has several, who may wait for "
            f"one another. "
            "Set env.workers=subprocess, which steps the envs at once too"
        )
    return (
        f"env.workers={mode} steps single envs in processes, but env.engine={config.engine} steps all of "
        f"them in one call. "
        "Set env.workers=inline, or env.engine=gymnasium"
    )
