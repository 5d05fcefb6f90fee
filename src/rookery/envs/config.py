"""EnvConfig: which task, how many copies of it, and what is wrapped around them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rookery.core.config.section import Section
from rookery.core.system.cpus import cpu_quota
from rookery.envs.faults import FaultConfig


class WrapperConfig(Section):
    """One wrapper with its arguments."""

    name: str  # registered name (`rookery list wrappers`) or `package.module:Class`
    kwargs: dict[str, Any] = {}  # keyword arguments of the wrapper

    @field_validator("kwargs")
    @classmethod
    def _finite(cls, value: dict[str, Any]) -> dict[str, Any]:
        return finite(value)


Wrappers = tuple[str | WrapperConfig, ...]
Limit = Annotated[int, Field(ge=1)]
Api = Literal["auto", "gymnasium", "four", "parallel", "turns", "dict", "tuple"]
Engine = Literal["auto", "gymnasium", "native", "envpool"]
SEVERAL = ("parallel", "turns", "dict", "tuple")  # values of env.api for envs with several agents


class WorkersConfig(Section):
    """`env.workers`: where envs are stepped. `env.workers=subprocess` is short for `env.workers.mode=subprocess`."""

    mode: Literal["inline", "subprocess", "async"] = (
        "inline"  # in this process, in others with the same data, or in others without waiting for all
    )
    processes: Limit | None = (
        None  # worker processes of each collector; None: its share of the CPUs that may be used, at most env.num
    )
    start: Literal["auto", "forkserver", "spawn", "fork"] = (
        "auto"  # how a worker process is started; auto: forkserver on Linux, spawn elsewhere
    )
    ready: Annotated[float, Field(gt=0)] = 0.5  # async: envs to wait for; below 1 a share of them, from 1 on a number

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"mode": data} if isinstance(data, str) else data


class TeamConfig(Section):
    """One of `env.teams`: agents that are learned as one body. `env.teams.red=[a, b]` is short for its members."""

    members: Annotated[tuple[str, ...], Field(min_length=1)]  # agents, or agent_*: all that begin so
    reward: Literal["sum", "mean", "own"] = (
        "sum"  # of what the members receive; own: the sum, and each learns from its own (maddpg)
    )
    body: Literal["auto", "one", "each"] = (
        "auto"  # one: members are one agent; each: they only share a player; auto: one if its algorithm is for teams
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        data = {"members": data} if isinstance(data, str | list | tuple) else data
        lone = isinstance(data, dict) and isinstance(data.get("members"), str)
        return data | {"members": (data["members"],)} if lone else data


class EnvConfig(Section):
    """The task. A Python factory may stand in for `id`."""

    id: str | None = None  # gymnasium id, `package.module:EnvId`, `package.module:Class`; None: a factory in Python
    num: Annotated[int, Field(ge=1, le=100_000)] = 1  # training envs per worker
    kwargs: dict[str, Any] = {}  # keyword arguments of the env's constructor
    per_env: tuple[dict[str, Any], ...] = ()  # overrides of kwargs, dealt out in turn over the envs of all workers
    wrappers: Wrappers = ()  # wrappers of every env, innermost first
    train_wrappers: Wrappers = ()  # further wrappers of training envs only, e.g. reward_clip
    eval_wrappers: Wrappers = ()  # further wrappers of evaluation envs only
    stack: Annotated[int, Field(ge=1, le=10_000)] = (
        1  # frames that the networks see at once, the last k; stored once, repeated at an episode's start
    )
    max_episode_steps: Limit | None = None  # env steps until truncation; None: what the id was registered with
    api: Api = (
        "auto"  # four: the old API, step() -> obs, reward, done, info; parallel, turns, dict, tuple: several agents
    )
    teams: dict[str, TeamConfig] = {}  # name → agents that are learned as one body; algorithms for teams need one
    world: Literal["auto", "state", "joined", "none"] = (
        "auto"  # what a mixer or central critic sees: the env's state(), or all observations; auto: state if it has one
    )
    ids: bool = False  # every agent sees who of them it is, one-hot, for a network that several share
    engine: Engine = "auto"  # native: our numba engine or the id's own; auto: ours if it gives the same, else gymnasium
    on_bad: Literal["raise", "drop"] = "raise"  # NaN or infinity from an env: stop the run, or drop the running episode
    workers: WorkersConfig = WorkersConfig()  # inline, subprocess or async, and how
    faults: FaultConfig = FaultConfig()  # deadlines of envs, and failures that are borne

    @property
    def agents(self) -> int | None:
        """1, or None where only the env itself knows how many agents it has."""
        return None if self.api in SEVERAL else 1

    def inline(self) -> EnvConfig:
        """The same, stepped in this process."""
        return self.model_copy(update={"workers": WorkersConfig()})

    def shared_by(self, collectors: int) -> EnvConfig:
        """The same for one of so many collectors that step at once: by default each has an equal share of the CPUs."""
        if self.workers.processes is not None or self.workers.mode == "inline":
            return self
        each = self.workers.model_copy(update={"processes": max(1, cpu_quota() // collectors)})
        return self.model_copy(update={"workers": each})

    @field_validator("kwargs", "per_env")
    @classmethod
    def _finite(cls, value: Any) -> Any:
        return finite(value)


def finite(value: Any) -> Any:
    """The value itself; free dicts are otherwise unchecked, and NaN or infinity in them could not be saved as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected finite numbers, got {value}")
    if isinstance(value, dict):
        for part in value.values():
            finite(part)
    elif isinstance(value, list | tuple):
        for part in value:
            finite(part)
    return value
