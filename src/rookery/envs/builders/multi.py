"""From a config to envs with several agents: `env.id` names a class, a factory or a PettingZoo module, `env.api` how
it speaks."""

from __future__ import annotations

import pkgutil
import warnings
from types import ModuleType
from typing import Any

import gymnasium

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.envs.adapters import api_of, makers_of
from rookery.envs.builders import single
from rookery.envs.builders.single import Factory, Purpose, arguments, called, inner_module, registered, wrappers_for
from rookery.envs.config import SEVERAL, EnvConfig, Wrappers
from rookery.envs.multi.apis import OnlyAgent
from rookery.envs.multi.engine import Agents, DictAgents, ParallelAgents, TupleAgents, TurnAgents
from rookery.envs.multi.wrapped import sorted_out
from rookery.envs.packages import must_have
from rookery.envs.wrappers import wrap

ENGINES: dict[str, type[Agents]] = {
    "parallel": ParallelAgents,
    "turns": TurnAgents,
    "dict": DictAgents,
    "tuple": TupleAgents,
}


def together(
    config: EnvConfig,
    *,
    purpose: Purpose = "eval",
    worker: int = 0,
    index: int = 0,
    count: int = 1,
    factory: Factory | None = None,
) -> Any:
    """One env with several agents, in those of its wrappers that are put around the env itself."""
    if (config.id is None) == (factory is None):
        both = "both env.id and a factory are given" if factory else "env.id is missing and no factory is given"
        raise ConfigError(f"{both}: give one of them, for example env.id=pettingzoo.classic:tictactoe_v3")
    if config.engine in ("native", "envpool"):
        who = config.id or "a factory"
        raise ConfigError(
            f"env.engine={config.engine} cannot be used with env.api={config.api} and {who}: only the matrix games and "
            "simple_spread have an engine of their own, with env.engine=native and env.api=parallel. Use "
            "env.engine=gymnasium"
        )
    chosen, _ = sorted_out(wrappers_for(config, purpose), config.api)
    target = factory if factory is not None else target_of(str(config.id), config.api)
    places = {"worker": worker, "index": index, "num_envs": count}
    if isinstance(target, str):
        env = registered(target, config, arguments(config, places), index)
    else:
        env = called(target, config.id or repr(target), arguments(config, places), places)
    spoken(env, config.api)
    return wrap(env, chosen)


def alone(env: Any, config: EnvConfig, purpose: Purpose) -> gymnasium.Env:
    """A dict env with one agent as an ordinary env, in what else would be put around its agent."""
    only: gymnasium.Env = OnlyAgent(env)
    if config.max_episode_steps is not None:
        only = gymnasium.wrappers.TimeLimit(only, config.max_episode_steps)
    return wrap(only, around_agents(config, purpose))


def around_agents(config: EnvConfig, purpose: Purpose) -> Wrappers:
    """The built-in wrappers, which are put around every agent."""
    return sorted_out(wrappers_for(config, purpose), config.api)[1]


def target_of(env_id: str, api: str) -> Any:
    """The class or factory that an id names; of a PettingZoo module the factory for this API; a gymnasium id (a string)
    for the API that such envs have."""
    if api == "tuple":
        return single.target_of(env_id)
    target = named(env_id)
    if not isinstance(target, ModuleType):
        return target
    makers = makers_of(target)
    chosen = makers.get(api if api in SEVERAL else next(iter(makers), ""))
    if chosen is None:
        offer = f"it offers {', '.join(f'env.api={key}' for key in makers)}" if makers else "it makes no envs"
        raise ConfigError(f"{env_id} cannot be used with env.api={api}: {offer}")
    return chosen


def named(env_id: str) -> Any:
    """The class, the factory or the module that an id names."""
    if env_id in registry.names("env"):
        return registry.lookup("env", env_id)
    module_name, colon, name = env_id.partition(":")
    if not colon:
        example = "pettingzoo.classic:tictactoe_v3 or my_envs:Class"
        raise ConfigError(f"env.id={env_id!r} has several agents: expected module:name, for example {example}")
    must_have(module_name, env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo prefers its registry of ids, which is younger
        return _found(registry.import_module(module_name), name)


def _found(module: Any, name: str) -> Any:
    inside = vars(module).get(name)
    if inside is None and (inner := inner_module(module, name)) is not None:
        return inner
    if not callable(inside) and not isinstance(inside, ModuleType):
        own = [key for key, value in vars(module).items() if isinstance(value, type)]
        own += [part.name for part in pkgutil.iter_modules(getattr(module, "__path__", ()))]
        hint = registry.did_you_mean(name, own)
        raise ConfigError(f"module {module.__name__!r} defines no env {name!r}.{hint}")
    return inside


def spoken(env: Any, api: str) -> str:
    """The API to use: what the config says, unless PettingZoo's own class says something else."""
    known = api_of(env)
    if api not in SEVERAL:
        if known is None:
            raise ConfigError(f"how does {type(env).__name__} speak? Set env.api to one of {', '.join(SEVERAL)}")
        return known
    if known is not None and known != api:
        raise ConfigError(
            f"env.api={api}, but {type(env).__name__} is one of PettingZoo's {known} envs: set env.api={known}"
        )
    return api
