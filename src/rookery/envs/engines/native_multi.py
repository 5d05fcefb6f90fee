"""NativeMulti: B envs of a task for several agents, stepped by one numba call over arrays.

For tasks in which everybody acts in every step and all end together. For the same seeds and actions it gives what
`multi.engine.ParallelAgents` gives with the task's own env, to the bit, with and without teams. Env i is reset for its
episode e with `seed_of(i, e)`. Its state is a few numbers, which `state` hands out: a resumed run is exact.

A task is a module:

    made_by(target)           whether what an id names makes it
    parameters(model, …)      of its kernel, from the arguments of the env; a ConfigError for those it does not know
    start(seed, agents)       the physical state at the start of an episode
    look, advance             its kernels: what is seen, one step
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import CheckpointError, Diverged, EnvError, UsageError
from rookery.core.tree import Tree, tree_take
from rookery.envs.action_log import OTHER_ENGINE, check_count, same_bits, saved_envs
from rookery.envs.actions import not_finite
from rookery.envs.closing import close_all
from rookery.envs.engines import matrix, spread
from rookery.envs.engines.native_rows import Views, payroll, settle
from rookery.envs.multi.apis import Parallel
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.multi.layers import Layers
from rookery.envs.multi.teams import Teams, state_space
from rookery.envs.told_calls import attribute
from rookery.envs.vector import ENDLESS, SeedOf, Step

TASKS: tuple[ModuleType, ...] = (matrix, spread)
TRIAL = 12  # steps in which a kernel is compared with the env


class Task(NamedTuple):
    """What is stepped."""

    kernel: ModuleType  # one of TASKS
    model: Any  # one env, as Python has it
    parameters: np.ndarray


class NativeMulti(MultiEnv):
    """B envs of one task."""

    def __init__(
        self,
        task: Task,
        num: int,
        seed_of: SeedOf,
        *,
        layers: Layers,
        limit: int | None = None,
        name: str = "env",
        worker: int = 0,
    ):
        self._made_of: dict[str, Any] = {"task": task, "layers": layers, "limit": limit}
        model = task.model
        adapter = layers.around(Parallel(model))
        pairs = {agent: adapter.spaces(agent) for agent in adapter.agents}
        super().__init__(
            num, {a: pair[0] for a, pair in pairs.items()}, {a: pair[1] for a, pair in pairs.items()}, name
        )
        self.worker, self._task, self._seed_of, self._model = worker, task.kernel, seed_of, model
        members = adapter.members if isinstance(adapter, Teams) else {}
        self._everybody, self._members = tuple(model.possible_agents), members
        self._views = _views(model, num, members)
        joined = state_space(model, layers.world) is None
        self.obs = {agent: self._views.of(agent, self.obs_spec[agent], joined) for agent in self.agents}
        self._flags = np.zeros((3, num), np.bool_)  # terminated, truncated, the task itself is over
        self._earned = np.zeros((len(self.agents), num), np.float32)
        self.out = MultiStep({agent: self._rows(k) for k, agent in enumerate(self.agents)})
        count = len(self._everybody)
        self._physics = np.stack([task.kernel.start(0, count)] * num)
        self._length, self._totals = np.zeros(num, np.int64), np.zeros((num, len(self.agents)))
        self._paid = np.zeros((num, count))  # to every agent in the episode
        self._reward = np.zeros((num, count))
        self._payroll = payroll(self._views, self.agents, layers)
        self._episode, self._seed = [0] * num, list[int | None]([None] * num)
        self._ready = False
        self._limit = ENDLESS if limit is None else limit
        self._whole = (self._limit, num, num + 1)  # of a step without limits
        chosen = _actions(model, num)
        self._columns = [self._column(agent, chosen) for agent in self.agents]
        self._advance = task.kernel.advance
        seen = self._physics, self._views.own, self._views.state
        self._seen = (*seen, self._views.place)
        self._arrays = (chosen, *seen, self._reward, self._flags, self._length, self._views.place, task.parameters)
        self._sums = (self._reward, self._flags, *self._payroll, self._earned, self._totals, self._paid)

    def _rows(self, k: int) -> Step:
        """Of the agent with number k; all end together, so the flags are common to them."""
        infos: list[dict[str, Any]] = [{} for _ in range(self.num)]
        if k == 0:
            self._valid = np.zeros(self.num, np.bool_)
        terminated, truncated, _ = self._flags
        return Step(self.obs[self.agents[k]], self._earned[k], terminated, truncated, self._valid, infos=infos)

    def _column(self, agent: str, chosen: np.ndarray) -> tuple[np.ndarray, str, str]:
        """(where its actions go, itself, kinds of numbers that they may be)."""
        at = self._views.at[agent]
        return chosen[:, at if agent in self._members else at.start], agent, "iuf" if chosen.dtype.kind == "f" else "iu"

    def reset(self) -> None:
        self.out.forget()
        self._episode = [0] * self.num
        self._begin(np.arange(self.num))
        self._go()

    def _go(self) -> None:
        """Everybody acts, from now on for ever."""
        self._ready = self.everyone = True
        for acting in self.acting.values():
            acting[:] = True

    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        if not self._ready:
            raise UsageError("step was called before reset")
        self._check(action)
        out = self.out
        for part, agent, kinds in self._columns:
            rows = action[agent]
            if rows.dtype.kind not in kinds:
                raise UsageError(f"the actions of {agent!r} in {self.name} are {rows.dtype}, expected {part.dtype}")
            part[...] = rows
        out.clear()
        limits = self._whole if steps is None and episodes is None else self._limits(steps, episodes)
        stepped, ended = self._advance(*self._arrays, limits)
        if stepped < 0:
            raise self._refused(-1 - stepped, action)
        settle(stepped, *self._sums)
        self._views.join()
        if stepped < self.num:
            out.hole(slice(stepped, None), self.num)
        if ended:
            self._end()
        return out

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Attributes are those of the env in Python; there are no methods to call."""
        return [attribute(partial(getattr, self._model), name, bool(args or kwargs), self.name)] * self.num

    def state(self) -> dict[str, Any]:
        if not self._ready:
            return {"exactness": self.exactness, "native": {}}
        now: dict[str, Any] = {name: array.copy() for name, array in self._numbers().items()}
        return {"exactness": self.exactness, "native": now | {"episode": list(self._episode), "seed": list(self._seed)}}

    def _numbers(self) -> dict[str, np.ndarray]:
        return {"physics": self._physics, "length": self._length, "totals": self._totals, "paid": self._paid}

    def restore(self, state: dict[str, Any]) -> None:
        saved = state["native"] if "native" in state else self._replayed(saved_envs(state, self.num, self.name))
        check_count(len(saved.get("episode", ())), self.num, self.name)
        self.out.forget()
        self.exactness, self._ready = state["exactness"], bool(saved)
        self.renewed[:] = False
        if not saved:
            return
        for name, array in self._numbers().items():
            array[:] = np.asarray(saved[name])
        self._episode = [int(episode) for episode in saved["episode"]]
        self._seed = [None if seed is None else int(seed) for seed in saved["seed"]]
        self._look(np.arange(self.num))
        self._go()

    def _replayed(self, envs: dict[str, Any]) -> dict[str, Any]:
        """A checkpoint of `multi.engine`, which keeps seeds and actions, as one of this engine."""
        saved: dict[str, Any] = {name: np.zeros_like(array) for name, array in self._numbers().items()}
        saved |= {"episode": [], "seed": []}
        for i in range(len(envs)):
            one = envs[str(i)]
            calls = one["settings"]
            if "actions" not in one or calls["before"] or calls["during"]:
                raise CheckpointError(f"the checkpoint of {self.name} was {OTHER_ENGINE}")
            saved["episode"].append(int(one["episode"]))
            saved["seed"].append(one["seed"])
            again = NativeMulti(num=1, seed_of=lambda *_, seed=one["seed"]: seed, **self._made_of)
            again.reset()
            for t in range(int(one["length"])):
                again.step({agent: np.asarray(one["actions"][agent])[t : t + 1] for agent in self.agents})
            if again._episode[0] or not all(same_bits(tree_take(again.obs[a], 0), one["obs"][a]) for a in self.agents):
                raise CheckpointError(
                    f"the checkpoint of {self.name} holds an episode that cannot be replayed (env {i})"
                )
            for name, array in again._numbers().items():
                saved[name][i] = array[0]
        return saved if envs else {}

    def close(self) -> None:
        close_all([self._model], self.name)

    def _begin(self, rows: np.ndarray) -> None:
        """Start the current episodes of these envs."""
        count = len(self._everybody)
        for i in rows.tolist():
            self._seed[i] = seed = self._seed_of(i, self._episode[i])
            self._physics[i] = self._task.start(seed, count)
        self._length[rows], self._totals[rows], self._paid[rows] = 0, 0.0, 0.0
        self._look(rows)

    def _look(self, rows: np.ndarray) -> None:
        self._task.look(rows, *self._seen)
        self._views.join()

    def _end(self) -> None:
        """Whoever ended has a last observation, and begins anew."""
        out, agents = self.out, self.agents
        terminated, truncated, _ = self._flags
        rows = np.flatnonzero(terminated | truncated)
        for agent, step in out.agents.items():
            step.marked = True
            step.final = self._views.finals(agent, self.obs[agent], rows, terminated)
        for i in rows.tolist():
            returns, length = dict(zip(agents, self._totals[i].tolist())), int(self._length[i])
            info: dict[str, Any] = {"returns": returns, "lengths": dict.fromkeys(agents, length), "unsaid": []}
            info["infos"] = {agent: {} for agent in self._everybody}
            if self._members:
                paid = dict(zip(self._views.order, self._paid[i].tolist()))
                info["members"] = {member: paid[member] for names in self._members.values() for member in names}
            numbers = self._episode[i], self._seed[i], length, float(sum(returns.values()))
            out.ended.append(EpisodeEnd(i, *numbers, bool(terminated[i]), bool(truncated[i]), info))
            self._episode[i] += 1
        self._begin(rows)

    def _limits(self, steps: int | None, episodes: int | None) -> tuple[int, int, int]:
        rows = self.num if steps is None or steps > self.num else max(steps, 0)
        return self._limit, rows, self.num + 1 if episodes is None else episodes

    def _place(self, i: int, agent: str) -> str:
        episode = f"episode {self._episode[i]}, seed {self._seed[i]}, step {self._length[i]}"
        who = f"agent {agent!r}, " if agent else ""
        return f"env {i} of worker {self.worker} ({self.name}), {who}{episode}"

    def _refused(self, i: int, action: dict[str, Tree]) -> EnvError | Diverged:
        for agent, rows in action.items():
            if not_finite(rows, i):
                return Diverged(f"the policy gave {agent!r} an action that is not finite. {self._place(i, agent)}")
            space = self.action_spaces[agent]
            if rows.dtype.kind != "f" and not space.contains(rows[i]):
                where = self._place(i, agent)
                return EnvError(f"{where}: step failed: the action {rows[i].tolist()} is not in {space}")
        return EnvError(f"{self._place(i, '')}: step failed: two agents stand in the same place, so no force is finite")


def _views(model: Any, num: int, members: dict[str, tuple[str, ...]]) -> Views:
    agents = tuple(model.possible_agents)
    width = model.observation_space(agents[0]).shape[0]
    return Views(num, (width, model.state_space.shape[0]), agents, members)


def _actions(model: Any, num: int) -> np.ndarray:
    """What the kernel reads: of every agent, as they stand side by side."""
    space = model.action_space(model.possible_agents[0])
    dtype = np.float32 if space.shape else np.int64
    return np.zeros((num, len(model.possible_agents), *space.shape), dtype)


def agrees(task: Task) -> bool:
    """Whether the kernel gives what the installed env gives, to the bit: another version of it, or of the C library,
    might not. The env is played with; nobody else may be using it."""
    ours, model = NativeMulti(task, 1, lambda i, episode: episode, layers=Layers()), task.model
    ours.reset()
    rng = np.random.Generator(np.random.PCG64(0))
    obs, _ = model.reset(seed=0)
    for _ in range(TRIAL):
        if not all(np.array_equal(ours.obs[agent][0], obs[agent]) for agent in ours.agents):
            return False
        chosen = {agent: _drawn(space, rng) for agent, space in ours.action_spaces.items()}
        out = ours.step({agent: np.asarray(act)[None] for agent, act in chosen.items()})
        obs, reward, terminated, truncated, _ = model.step(chosen)
        for agent, rows in out.agents.items():
            expected = np.float32(reward[agent]), bool(terminated[agent]), bool(truncated[agent])
            if (rows.reward[0], rows.terminated[0], rows.truncated[0]) != expected:
                return False
        if out.ended:
            obs, _ = model.reset(seed=out.ended[0].episode + 1)
    return True


def _drawn(space: spaces.Space, rng: np.random.Generator) -> Any:
    return int(rng.integers(space.n)) if isinstance(space, spaces.Discrete) else rng.random(space.shape, np.float32)
