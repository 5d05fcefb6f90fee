"""Engines that step all envs in one call: our own numba ones, ale-py's, an id's `vector_entry_point`, EnvPool.

`env.engine=native` takes our own for an id that has one (it is exact), else what the id was registered with. None of
them can wrap single envs: what they lack is an error that names the key. `auto` takes our own where nothing is
lacking, since it gives the same numbers and is as exact, and never another. Of several agents there are only our own.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import gymnasium

from rookery.core.errors import ConfigError
from rookery.envs.builders import multi
from rookery.envs.builders.groups import Group
from rookery.envs.builders.single import (
    Factory,
    Purpose,
    build,
    checked,
    find_spec,
    name_of,
    single,
    target_of,
    wrappers_for,
)
from rookery.envs.config import EnvConfig
from rookery.envs.engines.gym_vector import FromVector
from rookery.envs.multi.env import MultiEnv
from rookery.envs.multi.layers import Layers
from rookery.envs.vector import SeedOf, VectorEnv

log = logging.getLogger(__name__)


def vectorised(group: Group) -> VectorEnv | None:
    """The envs of env.engine=native or envpool; None: auto, and they are better stepped one by one."""
    config, factory, seed_of = group.config, group.factory, group.seed_of
    count, purpose, worker = group.count, group.purpose, group.worker
    name, task = name_of(config, factory), own_task(config, factory) if config.engine != "envpool" else None
    if config.engine == "auto" and (task is None or _lacking(config, purpose) or not _serves(*task, config)):
        return None
    if config.engine == "envpool":
        env: VectorEnv = _envpool(config, seed_of, count, purpose, worker, factory)
    elif task is not None:
        env = _own(*task, group)
    elif factory is None and str(config.id).startswith("ALE/"):
        env = FromVector(_atari(config, count, purpose), seed_of, name=name, worker=worker)
    else:
        env = FromVector(_registered(config, count, factory, purpose), seed_of, name=name, worker=worker)
    if isinstance(env, FromVector):
        env.watched(config.faults)
    if purpose == "train" and worker == 0:
        resuming = "a resumed run is exact" if env.exactness == "exact" else f"not exact: {env.exactness}"
        log.info("env.engine=%s: %s is stepped by %s; %s", config.engine, name, type(env).__name__, resuming)
    return env


def own_task(config: EnvConfig, factory: Factory | None = None) -> tuple[ModuleType, Any] | None:
    """(task, gymnasium's entry) if there is a numba engine for the id, else None."""
    if factory is not None or config.id is None:
        return None
    target = target_of(config.id)
    if not isinstance(target, str):
        return None
    from rookery.envs.engines.native import TASKS  # compiled code is loaded only when it is asked for

    spec = find_spec(target)
    task = TASKS.get(spec.entry_point) if isinstance(spec.entry_point, str) else None
    return None if task is None or spec.additional_wrappers else (task, spec)


def _own(task: ModuleType, spec: Any, group: Group) -> VectorEnv:
    from rookery.envs.engines.native import Native

    config = group.config
    _refuse(config, group.purpose)
    kwargs = {**spec.kwargs, **config.kwargs}
    if kwargs.pop("render_mode", None) is not None:
        raise ConfigError("env.kwargs.render_mode: the native engine shows no pictures. Use env.engine=gymnasium")
    model = build(lambda: gymnasium.make(spec, disable_env_checker=True, **kwargs), spec.id, kwargs, 0)
    limits = [limit for limit in (config.max_episode_steps or spec.max_episode_steps, group.longest) if limit]
    own = {"parameters": task.parameters(**kwargs), "limit": min(limits, default=None), "worker": group.worker}
    return Native(task, model, group.count, group.seed_of, name=str(config.id), **own)


def _serves(task: ModuleType, spec: Any, config: EnvConfig) -> bool:
    """Whether the numba engine knows all arguments of the env."""
    try:
        task.parameters(**{**spec.kwargs, **config.kwargs})
    except (ConfigError, TypeError):
        return False
    return True


def several(group: Group) -> MultiEnv | None:
    """Our numba engine of an env with several agents; None: there is none, or auto asks for what it lacks."""
    config = group.config
    task = _several_task(group) if config.engine in ("auto", "native") else None
    if task is None:
        return None
    try:
        return _own_several(task, group)
    except ConfigError as error:
        if config.engine == "native":
            raise
        log.debug("env.engine=auto: %s is stepped in Python: %s", config.id, error)
    return None


def _several_task(group: Group) -> ModuleType | None:
    config = group.config
    if group.factory is not None or config.id is None or config.api != "parallel":
        return None
    target = multi.target_of(config.id, config.api)
    from rookery.envs.engines.native_multi import TASKS

    return next((task for task in TASKS if task.made_by(target)), None)


def _own_several(kernel: ModuleType, group: Group) -> MultiEnv:
    from rookery.envs.engines.native_multi import NativeMulti, Task, agrees

    config, name = group.config, str(group.config.id)
    _refuse(config, group.purpose)
    if own := [team for team, one in config.teams.items() if one.reward == "own"]:
        raise ConfigError(
            f"env.teams.{own[0]}.reward=own cannot be used with env.engine=native. Use env.engine=gymnasium"
        )
    if config.kwargs.get("render_mode") is not None:
        raise ConfigError("env.kwargs.render_mode: the native engine shows no pictures. Use env.engine=gymnasium")
    plain = config.model_copy(update={"engine": "gymnasium"})
    model = multi.together(plain, purpose=group.purpose, worker=group.worker, count=group.count)
    task = Task(kernel, model, kernel.parameters(model, **config.kwargs))
    if not agrees(task):
        model.close()
        raise ConfigError(
            f"env.engine=native: the installed {name} gives other numbers than our kernel. Use env.engine=gymnasium"
        )
    limits = [limit for limit in (config.max_episode_steps, group.longest) if limit]
    layers = Layers(teams=config.teams, world=config.world, central=group.central, ids=config.ids)
    places: dict[str, Any] = {"name": name, "worker": group.worker, "limit": min(limits, default=None)}
    env = NativeMulti(task, group.count, group.seed_of, layers=layers, **places)
    if group.purpose == "train" and group.worker == 0:
        log.info("env.engine=%s: %s is stepped by NativeMulti; a resumed run is exact", config.engine, name)
    return env


def _atari(config: EnvConfig, count: int, purpose: Purpose) -> Any:
    from rookery.envs.engines.atari_vector import atari_vector

    game = find_spec(str(config.id)).kwargs["game"]
    return build(lambda: atari_vector(config, game, count, purpose), str(config.id), config.kwargs, 0)


def _registered(config: EnvConfig, count: int, factory: Factory | None, purpose: Purpose) -> Any:
    """The gymnasium vector env that the id, class or factory gives."""
    target = None if factory is not None or config.id is None else target_of(config.id)
    if not isinstance(target, str):
        return checked(single(config, purpose=purpose, count=count, factory=factory), count, config, purpose)
    if find_spec(target).vector_entry_point is None:
        raise ConfigError(f"env.engine=native: {target} has no vectorised engine of its own. Use env.engine=gymnasium")
    limit = {} if config.max_episode_steps is None else {"max_episode_steps": config.max_episode_steps}
    kwargs = {**config.kwargs, **limit}
    mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
    built = build(lambda: gymnasium.make_vec(target, count, vectorization_mode=mode, **kwargs), target, kwargs, 0)
    return checked(built, count, config, purpose)


def _envpool(
    config: EnvConfig, seed_of: SeedOf, count: int, purpose: Purpose, worker: int, factory: Factory | None
) -> VectorEnv:
    from rookery.envs.engines.envpool import Pool

    if factory is not None or config.id is None:
        raise ConfigError(
            "env.engine=envpool needs env.id, one of EnvPool's ids; a factory is built with env.engine=auto"
        )
    _refuse(config, purpose)
    env_id, seed = config.id, seed_of(0, 0) or 0
    built = build(
        lambda: Pool(env_id, count, seed=seed, limit=config.max_episode_steps, kwargs=config.kwargs),
        env_id,
        config.kwargs,
        0,
    )
    return FromVector(built, seed_of, name=env_id, worker=worker)


def _lacking(config: EnvConfig, purpose: Purpose) -> list[str]:
    """Keys of the config that engines without single envs cannot serve."""
    clashes: dict[str, Any] = {"wrappers": wrappers_for(config, purpose), "per_env": config.per_env}
    clashes |= {"on_bad=drop": config.on_bad == "drop", "api=four": config.api == "four"}
    return [f"env.{name}" for name, value in clashes.items() if value]


def _refuse(config: EnvConfig, purpose: Purpose) -> None:
    if lacking := _lacking(config, purpose):
        raise ConfigError(
            f"{', '.join(lacking)} cannot be used with env.engine={config.engine}, whose single envs are out of reach. "
            "Use env.engine=gymnasium"
        )
