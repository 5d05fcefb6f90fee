"""Native: B envs of a classic task, stepped by one numba call over arrays.

For the same seeds and actions it gives what `InProcess` gives with gymnasium's own env, to the bit (numpy ≥ 2): start
states are drawn by the same generator, and the kernels compute in the same order. Env i is reset for its episode e with
`seed_of(i, e)`. Its state is a few numbers, which `state` hands out: a resumed run is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import Env, spaces

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import CheckpointError, Diverged, EnvError, UsageError
from rookery.core.tree import Tree
from rookery.envs.action_log import OTHER_ENGINE, check_count
from rookery.envs.closing import close_all
from rookery.envs.engines import cartpole, pendulum
from rookery.envs.told_calls import attribute
from rookery.envs.vector import ENDLESS, SeedOf, Step, VectorEnv

TASKS: dict[str, ModuleType] = {task.ENTRY_POINT: task for task in (cartpole, pendulum)}


class Native(VectorEnv):
    """B envs of one task; `task` is a module with `start`, `look` and the kernel `advance`,
    `model` one env of gymnasium's.
    """

    def __init__(
        self,
        task: ModuleType,
        model: Env,
        num: int,
        seed_of: SeedOf,
        *,
        parameters: np.ndarray,
        limit: int | None = None,
        name: str = "env",
        worker: int = 0,
    ):
        super().__init__(num, model.observation_space, model.action_space, name)
        self.worker, self._task, self._seed_of, self._model = worker, task, seed_of, model
        flags = np.zeros((2, num), np.bool_)
        self._out.terminated, self._out.truncated = flags
        self._physics = np.zeros((num, task.WIDTH), np.float64)
        self._length, self._total = np.zeros(num, np.int64), np.zeros(num, np.float64)
        self._episode = [0] * num
        self._seed: list[int | None] = [None] * num
        self._ready = False
        self._limit = ENDLESS if limit is None else limit
        self.limited = limit is not None
        self._whole = (self._limit, num, num + 1)  # of a step without limits
        self._shape = (num, *self.action_spec.shape)
        self._dtype = np.dtype(np.int64 if isinstance(self.action_space, spaces.Discrete) else np.float32)
        self._advance = task.advance
        arrays = self._physics, self._out.obs, self._out.reward, flags, self._length, self._total
        self._arrays = (*arrays, parameters)

    def reset(self) -> Tree:
        self._out.clear()
        for i in range(self.num):
            self._episode[i] = 0
            self._begin(i)
        self._ready = True
        return self._out.obs

    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        out = self._out
        if out.marked:
            self._out.clear()
        # another dtype or layout would make numba compile the kernel anew
        if action.dtype is not self._dtype or action.shape != self._shape or not action.flags.c_contiguous:
            action = self._received(action)
        if not self._ready:
            raise UsageError("step was called before reset")
        limits = self._whole if steps is None and episodes is None else self._limits(steps, episodes)
        stepped, ended = self._advance(action, *self._arrays, limits)
        if stepped < self.num:
            self._hole(stepped, action)
        if ended:
            self._end()
        return out

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Attributes are those of gymnasium's own env; there are no methods to call."""
        return [attribute(self._model.get_wrapper_attr, name, bool(args or kwargs), self.name)] * self.num

    def state(self) -> dict[str, Any]:
        if not self._ready:
            return {"exactness": self.exactness, "native": {}}
        arrays = {"physics": self._physics, "length": self._length, "total": self._total, "obs": self._out.obs}
        now: dict[str, Any] = {name: array.copy() for name, array in arrays.items()}
        return {"exactness": self.exactness, "native": now | {"episode": list(self._episode), "seed": list(self._seed)}}

    def restore(self, state: dict[str, Any]) -> None:
        if "native" not in state:
            raise CheckpointError(f"the checkpoint of {self.name} was {OTHER_ENGINE}")
        saved = state["native"]
        check_count(len(saved.get("episode", ())), self.num, self.name)
        self._out.clear()
        self.exactness, self._ready = state["exactness"], bool(saved)
        if not saved:
            return
        self._physics[:], self._out.obs[:] = np.asarray(saved["physics"]), np.asarray(saved["obs"])
        self._length[:], self._total[:] = np.asarray(saved["length"]), np.asarray(saved["total"])
        self._episode = [int(episode) for episode in saved["episode"]]
        self._seed = [None if seed is None else int(seed) for seed in saved["seed"]]

    def close(self) -> None:
        close_all([self._model], self.name)

    def _begin(self, i: int) -> None:
        """Start the current episode of env i, as gymnasium's `reset(seed=…)` does."""
        self._seed[i] = seed = self._seed_of(i, self._episode[i])
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._physics[i] = self._task.start(generator)
        self._out.obs[i] = self._task.look(self._physics[i])
        self._length[i], self._total[i] = 0, 0.0

    def _end(self) -> None:
        out = self._out
        out.marked = True
        for i in np.flatnonzero(out.terminated | out.truncated).tolist():
            terminated, truncated = bool(out.terminated[i]), bool(out.truncated[i])
            numbers = self._episode[i], self._seed[i], int(self._length[i]), float(self._total[i])
            out.final.append((i, out.obs[i].copy()))
            out.ended.append(EpisodeEnd(i, *numbers, terminated, truncated))
            self._episode[i] += 1
            self._begin(i)

    def _hole(self, start: int, action: np.ndarray) -> None:
        if start < 0:
            raise self._refused(-1 - start, action)
        self._out.hole(slice(start, None))

    def _limits(self, steps: int | None, episodes: int | None) -> tuple[int, int, int]:
        rows = self.num if steps is None or steps > self.num else max(steps, 0)
        return self._limit, rows, self.num + 1 if episodes is None else episodes

    def _received(self, action: Any) -> np.ndarray:
        """The actions in the form of the kernel, if they can be."""
        array = np.asarray(action)
        kinds = "iu" if self._dtype.kind == "i" else "iuf"
        if array.shape != self._shape or array.dtype.kind not in kinds:
            raise UsageError(
                f"step got actions of shape {array.shape} and {array.dtype} for {self.num} envs of {self.name}, "
                f"expected shape {self._shape} and {self._dtype}"
            )
        return np.ascontiguousarray(array, self._dtype)

    def _refused(self, i: int, action: np.ndarray) -> EnvError | Diverged:
        episode = f"episode {self._episode[i]}, seed {self._seed[i]}, step {self._length[i]}"
        where = f"env {i} of worker {self.worker} ({self.name}), {episode}"
        if action.dtype.kind == "f":
            return Diverged(f"the policy gave env {i} an action that is not finite. {where}")
        return EnvError(f"{where}: step failed: the action {action[i]} is not in {self.action_space}")
