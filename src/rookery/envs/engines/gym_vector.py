"""FromVector: any gymnasium vector env, in its three autoreset modes.

    NEXT_STEP   the step after an end is dead: it ignores the action and gives the reset observation. It becomes a hole.
    SAME_STEP   the reset observation comes with the end, the true final one in `infos["final_obs"]`.
    DISABLED    nothing is reset by itself; we reset the ended envs with `options={"reset_mask": …}`.

In each mode the valid rows are the same transitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import CheckpointError, Diverged, EnvError, UsageError
from rookery.core.tree import Tree, tree_map, tree_take
from rookery.envs.action_log import OTHER_ENGINE
from rookery.envs.actions import batched, not_finite
from rookery.envs.boundary import BadValue, Receiver
from rookery.envs.closing import close_all
from rookery.envs.faults import ERRORS, SHOWN, FaultConfig, own_code, place
from rookery.envs.told_calls import BEFORE, Settings, told_as
from rookery.envs.vector import ABNORMAL, DROPS, SeedOf, Step, VectorEnv
from rookery.envs.watchdog import Watchdog, end_unworkable

log = logging.getLogger(__name__)


class FromVector(VectorEnv):
    """Any gymnasium vector env. It cannot be restored: a resumed run begins new episodes.

    The engine always steps every env. Beyond the limits of a `step` call the rows are holes and named in
    `Step.cut`: what happened in them is not counted.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv, seed_of: SeedOf, *, name: str | None = None, worker: int = 0):
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space, name or str(env))
        self.env, self.worker = env, worker
        self.mode = self._autoreset_mode()
        self.exactness = f"{self.name} keeps the state of its envs to itself, so a resumed run begins new episodes"
        self._seed_of, self._batched = seed_of, batched(self.action_space)
        self._seeds_each = isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv | gymnasium.vector.AsyncVectorEnv)
        self._one = Receiver(self.obs_space, self.obs_spec, 1)  # for final observations that come one by one
        self._dead = np.zeros(self.num, np.bool_)  # rows whose next step only resets
        self._spoiled = np.zeros(self.num, np.bool_)  # rows of episodes that are dropped, up to their ends
        self._drops = [0] * self.num  # episodes in a row
        self._episode, self._length = np.zeros(self.num, np.int64), np.zeros(self.num, np.int64)
        self._total = np.zeros(self.num, np.float64)
        self._seed: list[int | None] = [None] * self.num
        self._resumes = 0
        self._settings = Settings(1)  # all envs are told the same
        self._told_reuse = False
        self._calls, self._busy = 0, ""  # for the watchdog: `step` or `reset` while the engine's own code is running
        self.on_close: Callable[[], None] = lambda: None

    def watched(self, faults: FaultConfig) -> FromVector:
        """Itself, with a watchdog that ends the process if the engine hangs. A call may step, and reset, every env."""
        step, reset = faults.step_seconds * self.num, faults.reset_seconds * self.num
        limits = faults.model_copy(update={"step_seconds": max(step, faults.reset_seconds), "reset_seconds": reset})
        self.on_close = Watchdog(self, limits, end_unworkable).stop
        return self

    @property
    def doing(self) -> tuple[Any, str, bool] | None:
        """(something that changes with every call, where, whether it is a reset) while the engine's code is running."""
        busy = self._busy
        return (self._calls, f"{self.name} (worker {self.worker})", busy == "reset") if busy else None

    def _asked(self, doing: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._calls, self._busy = self._calls + 1, doing
        try:
            return call(*args, **kwargs)
        except ERRORS as error:
            raise self._failed(doing, error) from error
        finally:
            self._busy = ""

    def reset(self) -> Tree:
        self._episode[:] = 0
        return self._start(0)

    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        self._out.clear()
        out, dead, spoiled = self._out, self._dead, self._spoiled
        obs, reward, terminated, truncated, infos = self._asked("step", self.env.step, self._batched(action))
        reward = self._column(reward, "the reward")
        terminated, truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
        dropped = self._abnormal(infos) if infos else []
        np.logical_and(terminated, ~dead, out=out.terminated)
        np.logical_and(truncated, ~dead, out=out.truncated)
        done = out.terminated | out.truncated
        self._fill(obs, "step", action, spoiled & ~done if self.mode is AutoresetMode.SAME_STEP else spoiled)
        paid = np.where(dead | spoiled, 0.0, reward)
        out.reward[:] = paid
        self._check_reward()
        self._begin(np.flatnonzero(dead))
        self._length += ~dead
        self._total += paid
        surplus = self._surplus(done & ~spoiled, steps, episodes) & ~dead
        out.valid[:] = ~(dead | surplus | spoiled)
        out.cut = sorted({*np.flatnonzero(surplus).tolist(), *dropped})
        self._infos[:] = [_info_of(infos, i) for i in range(self.num)] if infos else [{} for _ in range(self.num)]
        for i in np.flatnonzero(done & ~spoiled).tolist():
            self._end(i, infos)
        for rows in (out.reward, out.terminated, out.truncated):
            rows[surplus | spoiled] = 0
        out.marked = bool(done.any() or not out.valid.all())
        over = done | spoiled if self.mode is AutoresetMode.DISABLED else done
        self._spoiled = spoiled & ~over
        self._autoreset(over)
        return out

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(name, str) or not hasattr(self.env, "call"):
            wanted = name if isinstance(name, str) else "Python objects"
            raise UsageError(
                f"{self.name}: its vectorised engine has no {wanted} for single envs. Use env.engine=gymnasium"
            )
        try:
            with told_as(EnvError, name):
                answers = list(self.env.call(name, *args, **kwargs))
        except EnvError as error:
            if not isinstance(error.__cause__, AttributeError):
                raise
            raise UsageError(
                f"foreach_env: {self.name} has no method or attribute {name!r}: {error.__cause__}"
            ) from error
        if args or kwargs:
            self._settings.note(name, args, kwargs, [0])
        return answers

    def state(self) -> dict[str, Any]:
        self._settings.begin(0)  # nothing is replayed: only the last call of each method counts
        return {"episode": self._episode.copy(), "resumes": self._resumes, "settings": self._settings.state(0)}

    def restore(self, state: dict[str, Any]) -> None:
        if "resumes" not in state:
            raise CheckpointError(f"the checkpoint of {self.name} was {OTHER_ENGINE}")
        self._resumes = int(state["resumes"]) + 1
        self._episode[:] = np.asarray(state["episode"]) + 1
        self._settings.restore(0, state["settings"])
        for name, args, kwargs in self._settings.at(0, BEFORE):
            self.env.call(name, *args, **kwargs)  # type: ignore[attr-defined]  # not in the base class
        self.renewed[:] = True
        self._start(f"resumed {self._resumes}")  # other seeds than before: the first episodes must not come again

    def close(self) -> None:
        self.on_close()
        close_all([self.env], self.name)

    def _start(self, seed_name: Any) -> Tree:
        self._out.clear()
        seeds = [self._seed_of(i, seed_name) for i in range(self.num)]
        self._reset(seeds if self._seeds_each else seeds[0], None)
        self._seed = list(seeds) if self._seeds_each else [None] * self.num
        self._dead[:], self._spoiled[:], self._length[:], self._total[:] = False, False, 0, 0.0
        return self._out.obs

    def _reset(self, seed: Any, options: dict[str, Any] | None) -> None:
        obs, _ = self._asked("reset", self.env.reset, seed=seed, options=options)
        self._fill(obs, "reset")

    def _begin(self, rows: np.ndarray) -> None:
        self._episode[rows] += 1
        self._length[rows], self._total[rows] = 0, 0.0
        for i in rows.tolist():
            self._seed[i] = None

    def _surplus(self, done: np.ndarray, steps: int | None, episodes: int | None) -> np.ndarray:
        """The rows beyond the limits of this call."""
        surplus = np.zeros(self.num, np.bool_)
        if steps is not None:
            surplus[max(steps, 0) :] = True
        if episodes is not None:
            before = np.concatenate(([0], np.cumsum(done)[:-1]))  # ends in earlier rows
            surplus |= before >= episodes
        return surplus

    def _end(self, i: int, infos: dict[str, Any]) -> None:
        out = self._out
        final = self._same_step_final(i, infos) if self.mode is AutoresetMode.SAME_STEP else self._receiver.row(i)
        self._drops[i] = 0
        if out.valid[i]:
            out.final.append((i, final))
            info = _info_of(infos.get("final_info", {}), i) if self.mode is AutoresetMode.SAME_STEP else self._infos[i]
            numbers = int(self._episode[i]), self._seed[i], int(self._length[i]), float(self._total[i])
            out.ended.append(EpisodeEnd(i, *numbers, bool(out.terminated[i]), bool(out.truncated[i]), info))

    def _autoreset(self, done: np.ndarray) -> None:
        if self.mode is AutoresetMode.NEXT_STEP:
            self._dead = done
            return
        ended = np.flatnonzero(done)
        self._begin(ended)
        if self.mode is AutoresetMode.DISABLED and len(ended):
            seeds = [self._seed_of(i, int(self._episode[i])) if done[i] else None for i in range(self.num)]
            self._reset(seeds if self._seeds_each else None, {"reset_mask": done.copy()})
            for i in ended.tolist() if self._seeds_each else ():
                self._seed[i] = seeds[i]

    def _same_step_final(self, i: int, infos: dict[str, Any]) -> Tree:
        finals = infos.get("final_obs")
        if finals is None or (isinstance(finals, np.ndarray) and finals[i] is None):
            raise EnvError(
                f"env {i} of {self.name} ended, but its infos hold no 'final_obs', as SAME_STEP autoreset must"
            )
        single = finals[i] if isinstance(finals, np.ndarray) else _pick(finals, i)
        try:
            self._one.write(0, single)
        except BadValue as error:
            raise EnvError(f"env {i} of {self.name}: the final observation: {error}") from error
        if problem := self._one.problem(0):
            raise EnvError(f"env {i} of {self.name}: in the final observation {problem[0]}")
        final = self._one.row(0)
        same = all(np.array_equal(a, b) for a, b in _pairs(final, tree_take(self._out.obs, i)))
        if same and not self._told_reuse:
            self._told_reuse = True
            log.warning(
                "the final observation of env %d of %s equals the reset observation: "
                "if the env reuses its array, use NEXT_STEP or DISABLED",
                i,
                self.name,
            )
        return final

    def _abnormal(self, infos: dict[str, Any]) -> list[int]:
        """Mark the rows whose infos say so: what is left of their episodes is dropped. Which they are."""
        rows: set[int] = set()
        for part in (infos, infos.get("final_info", {})):
            if ABNORMAL in part:
                rows |= {i for i in range(self.num) if _info_of(part, i).get(ABNORMAL)}
        fresh = [i for i in sorted(rows) if not self._dead[i] and not self._spoiled[i]]
        for i in fresh:
            where = f"env {i} of {self.name} (worker {self.worker}), episode {self._episode[i]}"
            text, self._drops[i] = f"its info says that the step is {ABNORMAL}", self._drops[i] + 1
            if self._drops[i] >= DROPS:
                raise EnvError(f"{where}: {text}; {DROPS} episodes in a row had to be dropped")
            log.warning("%s: %s; the episode was dropped", where, text)
        self._spoiled[fresh] = True
        return fresh

    def _column(self, values: Any, what: str) -> np.ndarray:
        """One number per env, or a sentence about what came instead."""
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, RuntimeError) as error:
            raise EnvError(f"{self.name} (worker {self.worker}): {what} is no array: {error}") from error
        if array.shape != (self.num,) or array.dtype.kind not in "fiub" or np.ma.is_masked(values):
            got = "masked" if np.ma.is_masked(values) else f"{array.dtype} of shape {array.shape}"
            raise EnvError(
                f"{self.name} (worker {self.worker}): {what} is {got}, expected {self.num} numbers, one per env"
            )
        return array

    def _flags(self, values: Any, what: str) -> np.ndarray:
        array = self._column(values, what)
        if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
            raise EnvError(f"{self.name} (worker {self.worker}): {what} is {array.tolist()}, expected True or False")
        return array

    def _fill(self, obs: Any, doing: str, action: Tree | None = None, spoiled: np.ndarray | None = None) -> None:
        """`spoiled`: rows that nobody will see."""
        try:
            self._receiver.fill(obs)
        except BadValue as error:
            raise EnvError(f"{self.name} (worker {self.worker}): {doing} failed: {error}") from error
        if spoiled is not None and spoiled.any():
            tree_map(lambda buffer: buffer.__setitem__(spoiled, 0), self._receiver.obs)
        if not self._receiver.sound():
            problems = ((i, self._receiver.problem(i)) for i in range(self.num))
            i, problem = next((i, fault) for i, fault in problems if fault)
            if action is not None and not_finite(action, i):
                raise Diverged(
                    f"the policy gave env {i} of {self.name} an action that is not finite, and then {problem[0]}"
                )
            raise EnvError(
                f"env {i} of {self.name} (worker {self.worker}), episode {self._episode[i]}: in {doing} {problem[0]}"
            )

    def _check_reward(self) -> None:
        if not np.isfinite(self._out.reward).all():
            i = int(np.flatnonzero(~np.isfinite(self._out.reward))[0])
            where = (
                f"env {i} of {self.name} (worker {self.worker}), episode {self._episode[i]}, step {self._length[i] + 1}"
            )
            raise EnvError(f"{where}: the reward is {self._out.reward[i]}")

    def _failed(self, doing: str, error: BaseException) -> EnvError:
        log.error("%s (worker %d): an env failed.%s%s", self.name, self.worker, SHOWN, own_code(error))
        what = f"{type(error).__name__}: {error}{place(error)}"
        return EnvError(f"{self.name} (worker {self.worker}): {doing} failed: {what}")

    def _autoreset_mode(self) -> AutoresetMode:
        mode = self.env.metadata.get("autoreset_mode")
        if mode is None:
            log.warning(
                "%s does not say its autoreset mode in metadata['autoreset_mode']: NEXT_STEP is assumed", self.name
            )
            return AutoresetMode.NEXT_STEP
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def _pick(batch: Any, i: int) -> Any:
    """Row i of a batch of observations in the structure of its space."""
    if isinstance(batch, dict):
        return {key: _pick(part, i) for key, part in batch.items()}
    return tuple(_pick(part, i) for part in batch) if isinstance(batch, tuple) else batch[i]


def _pairs(a: Tree, b: Tree) -> list[tuple[Any, Any]]:
    return [pair for key in a for pair in _pairs(a[key], b[key])] if isinstance(a, dict) else [(a, b)]


def _info_of(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """The info of env i from gymnasium's dict of arrays with their `_key` masks."""
    info: dict[str, Any] = {}
    for key, value in infos.items():
        if key in ("final_obs", "final_info") or key.startswith("_") or not infos.get(f"_{key}", _NOBODY)[i]:
            continue
        info[key] = _info_of(value, i) if isinstance(value, dict) else value[i]
    return info


class _Nobody:
    def __getitem__(self, i: int) -> bool:
        return False


_NOBODY = _Nobody()
