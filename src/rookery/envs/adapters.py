"""APIs of envs with one agent (`env.api`): `adapted` chooses, an adapter makes a gymnasium env of each.

FourTuple: envs with the old four-value API, spaces of the old package included. APIs with several agents are in
`envs/multi/apis.py`.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.envs.boundary import flag
from rookery.envs.config import SEVERAL

_MAKERS = {"turns": "env", "parallel": "parallel_env"}  # names in a PettingZoo module, such as tictactoe_v3
_BASES = {"ParallelEnv": "parallel", "AECEnv": "turns"}  # PettingZoo's classes


def adapted(env: Any, api: str) -> gymnasium.Env:
    """The env behind gymnasium's API; `auto` takes an env whose reset knows no seed for one with the old API."""
    missing = [name for name in ("reset", "step", "observation_space", "action_space") if not hasattr(env, name)]
    if missing:
        raise ConfigError(f"{type(env).__name__} is not an env: it has no {', '.join(missing)}")
    modern = isinstance(env, gymnasium.Env)
    if hasattr(env, "possible_agents") and not modern:
        raise ConfigError(f"{type(env).__name__} has several agents: set {wanted_api(env)}")
    if api == "four" or (api == "auto" and not accepts(env.reset, "seed")):
        return FourTuple(env)
    if modern:
        return env
    raise ConfigError(
        f"{type(env).__name__} is not a gymnasium.Env: let it inherit from gymnasium.Env, "
        "or set env.api=four if it has the old API (step returns obs, reward, done, info)"
    )


def api_of(env: Any) -> str | None:
    """`parallel` or `turns` of a PettingZoo env (or its class); None for any other."""
    kind = env if isinstance(env, type) else type(env)
    return next(
        (_BASES[c.__name__] for c in kind.__mro__ if c.__module__.startswith("pettingzoo.") and c.__name__ in _BASES),
        None,
    )


def makers_of(module: ModuleType) -> dict[str, Any]:
    """env.api → what makes such an env, in a module like PettingZoo's."""
    return {api: getattr(module, name) for api, name in _MAKERS.items() if callable(getattr(module, name, None))}


def wanted_api(env: Any) -> str:
    """The setting of env.api that an env with several agents, or a module that makes some, needs."""
    known = list(makers_of(env)) if isinstance(env, ModuleType) else [api_of(env)]
    if known and known[0] is not None:
        return " or ".join(f"env.api={api}" for api in known)
    return f"env.api to one of {', '.join(SEVERAL)}"


class FourTuple(gymnasium.Env):
    """An env with `reset() -> obs` and `step(action) -> obs, reward, done, info` as a gymnasium env.

    `info["TimeLimit.truncated"]` tells a time limit from an end of the task.
    The seed goes to `seed(…)` if there is one.
    """

    def __init__(self, env: Any):
        self.env = env
        self.observation_space, self.action_space = modern_space(env.observation_space), modern_space(env.action_space)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self._seeded_reset = accepts(env.reset, "seed")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None and not self._seeded_reset and hasattr(self.env, "seed"):
            self.env.seed(seed)
        result = self.env.reset(seed=seed) if self._seeded_reset else self.env.reset()
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return result  # versions between the two APIs returned the info too
        return result, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, done, info = self.env.step(action)
        done = flag(done, "done")
        truncated = done and bool(info.get("TimeLimit.truncated", False))
        return obs, reward, done and not truncated, truncated, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        getattr(self.env, "close", lambda: None)()

    def __getattr__(self, name: str) -> Any:
        if name in ("env", "_np_random", "_np_random_seed"):  # not there yet while copying or unpickling
            raise AttributeError(name)
        return getattr(self.env, name)


def accepts(function: Any, *names: str) -> bool:
    """Whether the function can be called with these keyword arguments."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values()) or all(name in parameters for name in names)


def modern_space(space: Any) -> spaces.Space:
    """A space of the old `gym` package as gymnasium's; one of gymnasium's is returned as it is."""
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        return spaces.Box(np.asarray(space.low), np.asarray(space.high), dtype=np.dtype(space.dtype).type)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Dict":
        return spaces.Dict({key: modern_space(part) for key, part in space.spaces.items()})
    if kind == "Tuple":
        return spaces.Tuple([modern_space(part) for part in space.spaces])
    raise ConfigError(
        f"cannot use {space!r} as a space: expected a gymnasium space. Declare one in the env's constructor."
    )
