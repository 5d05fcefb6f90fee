"""From a config to envs, whatever their API. A run asks for them at their table (`make_table`)."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv as GymnasiumVector

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs.builders.engines import several, vectorised
from rookery.envs.builders.groups import Group, in_processes
from rookery.envs.builders.single import Factory, Purpose, checked, name_of
from rookery.envs.config import EnvConfig
from rookery.envs.engines.gym_vector import FromVector
from rookery.envs.multi.env import MultiEnv
from rookery.envs.multi.one_agent import AsVector, at_table
from rookery.envs.vector import VectorEnv


def make_table(
    config: EnvConfig,
    *,
    count: int,
    purpose: Purpose,
    streams: Streams,
    worker: int = 0,
    factory: Factory | None = None,
    longest: int | None = None,
    central: tuple[str, ...] = (),
) -> MultiEnv:
    """`count` envs of one worker. Env i is reset for its episode e with `streams.seed_of(purpose, worker, i, e)`.

    `longest`: steps after which an episode is cut, whatever limit its env has; vector engines cannot do it.
    `central`: patterns of agents who see the world (`envs.multi.central`).
    """
    places: dict[str, Any] = {"count": count, "purpose": purpose, "streams": streams, "worker": worker}
    places |= {"factory": factory, "longest": longest}
    return at_table(make(config, **places) if config.agents == 1 else make_multi(config, **places, central=central))


def make(
    config: EnvConfig,
    *,
    count: int,
    purpose: Purpose,
    streams: Streams,
    worker: int = 0,
    factory: Factory | None = None,
    longest: int | None = None,
) -> VectorEnv:
    """`count` envs of one worker. Env i is reset for its episode e with `streams.seed_of(purpose, worker, i, e)`."""
    if config.agents != 1:
        raise ConfigError(f"env.api={config.api} has several agents: such envs are made by rookery.envs.make_multi")
    group = Group(config, purpose, streams, worker, count, factory, registry.imported(), longest=longest)
    if config.workers.mode != "inline":
        return AsVector(in_processes(group))
    if config.engine != "gymnasium":
        env = vectorised(group)
        if env is not None:
            return env
    first = group.one(0)
    if isinstance(first, GymnasiumVector):
        name = name_of(config, factory)
        made = FromVector(checked(first, count, config, purpose), group.seed_of, name=name, worker=worker)
        return made.watched(config.faults)
    engine = group.watched(first)
    assert isinstance(engine, VectorEnv)
    return engine


def make_multi(
    config: EnvConfig,
    *,
    count: int,
    purpose: Purpose,
    streams: Streams,
    worker: int = 0,
    factory: Factory | None = None,
    longest: int | None = None,
    central: tuple[str, ...] = (),
) -> MultiEnv:
    """`count` envs of one worker. Env i is reset for its episode e with `streams.seed_of(purpose, worker, i, e)`."""
    group = Group(config, purpose, streams, worker, count, factory, registry.imported(), True, longest, central)
    if config.workers.mode != "inline":
        return at_table(in_processes(group))
    return several(group) or at_table(group.watched())
