"""Pool: envs of EnvPool, which steps them in threads of its own, as a gymnasium vector env for `gymvector.FromVector`.

EnvPool calls an end at the time limit truncated even if the task was over in the same step, and learning
would then bootstrap through a death. So it is given a limit that it never reaches; the limit is kept here,
and ended envs are reset at once.
"""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.envs.packages import import_package

_WHO = "env.engine=envpool"
_OURS = ("env_id", "players", "elapsed_step")  # infos that say nothing about the task


class Pool(gymnasium.vector.VectorEnv):
    """`num` envs of one id. EnvPool takes seeds only when it is built, so a reset with another seed builds it anew."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, env_id: str, num: int, *, seed: int, limit: int | None = None, kwargs: dict[str, Any]):
        self._id, self._seed, self.num_envs = known(env_id), seed, num
        self._library = import_package("envpool", _WHO)
        self._kwargs = dict(kwargs)
        defaults = self._library.make_spec(self._id).config._asdict()
        if "stack_num" in defaults:
            self._kwargs.setdefault("stack_num", 1)  # env.stack shows the networks several, stored once
        self.limit = int(defaults["max_episode_steps"]) if limit is None else limit
        self._pool = self._built()
        self.single_observation_space = self._pool.observation_space  # EnvPool's own words: of one env
        self.single_action_space = self._pool.action_space
        self._obs: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """All envs, or those of `options["reset_mask"]`; the observations of the others stay."""
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            ended = np.flatnonzero(mask).astype(np.int32)
            self._obs = _replaced(self._obs, self._pool.reset(ended)[0], ended)
            return self._obs, {}
        if seed is not None and seed != self._seed:
            self._pool.close()
            self._seed = seed
            self._pool = self._built()
        self._obs = self._pool.reset()[0]
        return self._obs, {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._obs, reward, terminated, truncated, infos = self._pool.step(actions)
        truncated = truncated | (infos["elapsed_step"] >= self.limit)
        return self._obs, reward, terminated, truncated, _told(infos, self.num_envs)

    def close(self, **kwargs: Any) -> None:
        self._pool.close()

    def _built(self) -> Any:
        seed = min(self._seed, 2**31 - 1 - self.num_envs)  # env i gets seed + i, a signed 32-bit number
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered by casting")
            pool = self._library.make(
                self._id,
                env_type="gymnasium",
                num_envs=self.num_envs,
                seed=seed,
                max_episode_steps=self.limit + 1,
                **self._kwargs,
            )
            _ = pool.observation_space  # made, with its warnings, at the first look
        return pool


def known(env_id: str) -> str:
    """The id, if it is one of EnvPool's."""
    ids = import_package("envpool", _WHO).list_all_envs()
    if env_id in ids:
        return env_id
    short = env_id.rpartition("/")[2]
    hint = f" EnvPool calls it {short!r}: env.id={short}" if short in ids else did_you_mean(env_id, ids)
    raise ConfigError(f"env.engine=envpool: EnvPool has no env {env_id!r}.{hint or ' Use env.engine=gymnasium'}")


def _replaced(batch: Any, rows: Any, at: np.ndarray) -> Any:
    """A copy of the batch with other rows at these places."""
    if isinstance(batch, dict):
        return {key: _replaced(part, rows[key], at) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_replaced(part, other, at) for part, other in zip(batch, rows))
    copy = np.array(batch)
    copy[at] = rows
    return copy


def _told(infos: dict[str, Any], num: int) -> dict[str, Any]:
    """Infos with gymnasium's masks, which say whose they are: everyone's."""
    columns = {key: value for key, value in infos.items() if key not in _OURS and len(value) == num}
    return columns | {f"_{key}": np.ones(num, np.bool_) for key in columns}
