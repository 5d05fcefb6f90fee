"""From a config to envs: ids, classes and factories, the API adapter, time limit and wrappers."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import gymnasium
from gymnasium.vector import VectorEnv as GymnasiumVector

from rookery.core import registry
from rookery.core.errors import ConfigError, EnvError, RookeryError
from rookery.envs.adapters import adapted, makers_of, wanted_api
from rookery.envs.config import EnvConfig, Wrappers
from rookery.envs.faults import ERRORS, place
from rookery.envs.packages import import_package, must_have, registering
from rookery.envs.tasks import chain, goals, no_velocity, probes
from rookery.envs.wrappers import wrap

Purpose = Literal["train", "eval"]
Factory = Callable[..., Any]
_EXTRAS = {  # what an entry point is found in → (module it needs, how to get it)
    "ale_py": ("ale_py", 'pip install "rookery[atari]"'),
    "gymnasium.envs.mujoco": ("mujoco", 'pip install "rookery[mujoco]"'),
    "gymnasium.envs.box2d": ("Box2D", 'pip install "rookery[box2d]"'),
}

_OLD_ATARI = re.compile(r"(\w+?)(?:NoFrameskip|Deterministic)-v\d")  # as old gym called the games


def single(
    config: EnvConfig,
    *,
    purpose: Purpose = "eval",
    worker: int = 0,
    index: int = 0,
    count: int = 1,
    factory: Factory | None = None,
) -> Any:
    """One env with its adapter, time limit and wrappers (a gymnasium vector env comes back as it is)."""
    places = {"worker": worker, "index": index, "num_envs": count}
    env, limited = _base(config, arguments(config, places), places, factory)
    if isinstance(env, GymnasiumVector):
        return env
    env = adapted(env, config.api)
    if config.max_episode_steps is not None and not limited:
        env = gymnasium.wrappers.TimeLimit(env, config.max_episode_steps)
    return wrap(env, wrappers_for(config, purpose))


def wrappers_for(config: EnvConfig, purpose: Purpose) -> Wrappers:
    """The wrappers of an env for training or evaluation, innermost first."""
    return (*config.wrappers, *(config.train_wrappers if purpose == "train" else config.eval_wrappers))


def name_of(config: EnvConfig, factory: Factory | None) -> str:
    """What messages call the env."""
    return config.id or getattr(factory, "__qualname__", None) or type(factory).__name__


def arguments(config: EnvConfig, places: dict[str, int]) -> dict[str, Any]:
    """Keyword arguments of the env at this place, a copy."""
    kwargs = dict(config.kwargs)
    if config.per_env:
        kwargs |= config.per_env[(places["worker"] * places["num_envs"] + places["index"]) % len(config.per_env)]
    return copy.deepcopy(kwargs)


def _base(
    config: EnvConfig, kwargs: dict[str, Any], places: dict[str, int], factory: Factory | None
) -> tuple[Any, bool]:
    """(the bare env, whether it already has the time limit of the config)."""
    if (config.id is None) == (factory is None):
        both = "both env.id and a factory are given" if factory else "env.id is missing and no factory is given"
        raise ConfigError(f"{both}: give one of them, for example env.id=CartPole-v1")
    probes.register()
    no_velocity.register()
    goals.register()
    chain.register()
    target = factory if factory is not None else target_of(str(config.id))
    if isinstance(target, str):
        return registered(target, config, kwargs, places["index"]), True
    return called(target, config.id or repr(target), kwargs, places), False


def called(target: Factory, name: str, kwargs: dict[str, Any], places: dict[str, int]) -> Any:
    """What a class or factory makes. It is told of its place what its signature names and the config does not say;
    not what **kwargs would take, for most that have them hand them on to an env that knows no places."""
    accepted = {key: place for key, place in places.items() if _names(target, key)}
    return build(lambda: target(**accepted | kwargs), name, kwargs, places["index"])


def target_of(env_id: str) -> Any:
    """A class or factory, or the gymnasium id (a string) whose module has been imported."""
    if env_id in registry.names("env"):
        return registry.lookup("env", env_id)
    module_name, colon, name = env_id.partition(":")
    if not colon:
        return env_id
    must_have(module_name, env_id)
    module = registry.import_module(module_name)
    if name not in gymnasium.registry:
        inner = inner_module(module, name)
        if inner is not None and makers_of(inner):
            raise ConfigError(f"env.id={env_id} has several agents: set {wanted_api(inner)} (docs/several-players.md)")
        if callable(target := getattr(module, name, None)):
            _refuse_several(env_id, module, target)
            return target
        own = [
            key for key, value in vars(module).items() if inspect.isclass(value) and issubclass(value, gymnasium.Env)
        ]
        hint = registry.did_you_mean(name, [*own, *gymnasium.registry])
        raise ConfigError(f"module {module_name!r} neither defines nor registers an env {name!r}.{hint}")
    return name


def _refuse_several(env_id: str, module: ModuleType, target: Any) -> None:
    """A game of PettingZoo's that is named by its factory takes any argument, and fails on those of ours."""
    apis = [api for api, maker in makers_of(module).items() if maker is target]
    if apis and module.__name__.partition(".")[0] in ("pettingzoo", "mpe2"):
        raise ConfigError(f"env.id={env_id} has several agents: set env.api={apis[0]}")


def inner_module(module: ModuleType, name: str) -> ModuleType | None:
    """The module of this name inside of a package, as PettingZoo has one for each of its games."""
    inside = vars(module).get(name)  # PettingZoo answers getattr with a warning
    path = f"{module.__name__}.{name}"
    if inside is None and hasattr(module, "__path__") and name.isidentifier() and importlib.util.find_spec(path):
        return registry.import_module(path)
    return inside if isinstance(inside, ModuleType) else None


def registered(env_id: str, config: EnvConfig, kwargs: dict[str, Any], index: int) -> Any:
    """What gymnasium makes of an id."""
    spec = copy.deepcopy(find_spec(env_id))
    spec.order_enforce = False  # our own boundary check is always on, and the vector env keeps the order
    spec.kwargs |= kwargs  # here, for an env may have an argument max_episode_steps of its own
    limit = config.max_episode_steps
    return build(lambda: gymnasium.make(spec, max_episode_steps=limit, disable_env_checker=True), env_id, kwargs, index)


def find_spec(env_id: str) -> Any:
    """gymnasium's entry of an id, or a ConfigError with the nearest names or the package to install."""
    probes.register()
    no_velocity.register()
    goals.register()
    chain.register()
    if env_id.startswith("ALE/"):
        ale_py = import_package("ale_py", env_id)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for every env
        gymnasium.register_envs(ale_py)
    if env_id not in gymnasium.registry:
        raise ConfigError(
            f"unknown env {env_id!r}.{_nearest(env_id)} An env of your own: env.id=package.module:Class; "
            f"an id that a package registers: env.id=package:Name"
        )
    return gymnasium.registry[env_id]


def _nearest(env_id: str) -> str:
    """What the user may have meant by an id that nobody has registered."""
    if env_id.startswith("pettingzoo."):
        package, _, game = env_id.rpartition(".")
        return f" A game of PettingZoo: env.id={package}:{game} with env.api=turns or env.api=parallel."
    if module := registering(env_id):
        return f" The package {module} registers such envs: env.id={module}:{env_id}."
    if old := _OLD_ATARI.fullmatch(env_id):
        return f" The Atari game: env.id=ALE/{old[1]}-v5 env.wrappers=[atari] env.stack=4."
    known = [*gymnasium.registry, *registry.names("env")]
    return registry.did_you_mean(env_id, known) or " `rookery list envs` shows the known ones."


def build(construct: Callable[[], Any], name: str, kwargs: dict[str, Any], index: int) -> Any:
    try:
        return construct()
    except RookeryError:
        raise
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        entry = str(getattr(gymnasium.registry.get(name), "entry_point", ""))
        needs = next(((need, how) for place, (need, how) in _EXTRAS.items() if entry.startswith(place)), None)
        hint = f"it needs {needs[0]}: {needs[1]}" if needs else f"{error}{place(error)}"
        raise ConfigError(f"{name} cannot be made, {hint}") from error
    except TypeError as error:
        raise ConfigError(f"{name} cannot be made with env.kwargs={kwargs}: {error}{place(error)}") from error
    except ERRORS as error:
        what = f"{type(error).__name__}: {error}{place(error)}"
        raise EnvError(f"making env {index} ({name}) with {kwargs} failed: {what}") from error


def _names(target: Any, name: str) -> bool:
    try:
        return name in inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


def checked(env: Any, count: int, config: EnvConfig, purpose: Purpose) -> GymnasiumVector:
    """A vector env that fits what the config asks for."""
    if not isinstance(env, GymnasiumVector):
        raise ConfigError(f"env.engine=native needs a gymnasium VectorEnv, got a {type(env).__name__}")
    if env.num_envs != count:
        raise ConfigError(
            f"the vector env has {env.num_envs} envs, {count} are needed: let the factory use its argument num_envs"
        )
    wrappers = wrappers_for(config, purpose)
    clashes = {"wrappers": wrappers, "per_env": config.per_env, "on_bad": config.on_bad == "drop"}
    if clashing := [f"env.{name}" for name, value in clashes.items() if value]:
        raise ConfigError(
            f"{', '.join(clashing)} cannot be used with a vectorised engine, whose single envs are out of reach"
        )
    return env
