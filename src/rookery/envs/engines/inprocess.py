"""InProcess: gymnasium envs stepped one after the other in this process.

An ended env is reset at once. Env i is reset for its episode e with `seed_of(i, e)`, whatever happened before, so
the state of an env is its seed and its actions since the reset (or its own snapshot, see `replay`), and the
settings it was told (see `settings`).

An env that raises is replaced by a new one, which begins the next episode;
the row is a hole, and the unfinished episode is cut before it.

Longer than 300 lines because stepping, ending, restoring and blaming an env share the same few lists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import gymnasium
from gymnasium.wrappers import TimeLimit

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import Diverged, EnvError, UsageError
from rookery.core.restoring import restoring
from rookery.core.tree import Tree, tree_copy_into
from rookery.envs.action_log import ENDED, ActionLog, differs, give_snapshot, saved_envs, snapshot_layers, take_snapshot
from rookery.envs.actions import not_finite, quicken, split
from rookery.envs.boundary import LARGEST, BadValue, flag, number, reset_problem, step_problem
from rookery.envs.closing import close_all
from rookery.envs.faults import ERRORS, Failures, FaultConfig, Raised, Renewal, failure, place
from rookery.envs.told_calls import BEFORE, CALLED, Call, Settings, answers_of, attributes, called
from rookery.envs.vector import ABNORMAL, DROPS, ENDLESS, SeedOf, Step, VectorEnv, Writer, closely, same_spaces
from rookery.envs.wrappers import has_limit

log = logging.getLogger(__name__)


class InProcess(VectorEnv):
    """gymnasium envs of equal spaces, stepped in this process."""

    def __init__(
        self,
        envs: Sequence[gymnasium.Env],
        seed_of: SeedOf,
        *,
        name: str = "env",
        worker: int = 0,
        on_bad: Literal["raise", "drop"] = "raise",
        first: int = 0,
        faults: FaultConfig | None = None,
        remake: Callable[[int], gymnasium.Env] | None = None,
    ):
        super().__init__(len(envs), envs[0].observation_space, envs[0].action_space, name)
        self.envs, self.worker = list(envs), worker
        self._first = first  # number of the first of these envs, if others are elsewhere
        self._remake = remake  # makes another env in place of one that failed; None: the same is reset
        self._longest = ENDLESS
        self.limited = has_limit(envs[0])
        self._failures = Failures()
        self._renewal = [Renewal(faults or FaultConfig(renewals=0), self._failures) for _ in envs]
        self._steps = 0  # of all envs together
        self._failed_steps = 0  # of single envs
        self.on_close: Callable[[], None] = lambda: None
        same_spaces(envs, name)
        self._seed_of, self._drop_bad = seed_of, on_bad == "drop"
        self._split = split(self.action_space)
        self._limits, self._calls = [ENDLESS] * self.num, [env.step for env in envs]
        self._writers: list[Writer] = [self._receiver.write] * self.num
        for i, env in enumerate(envs):
            self._put(i, env)
        layers = [env_layers for env in envs if (env_layers := snapshot_layers(env)) is not None]
        self._layers = layers if len(layers) == self.num else None
        self._log = ActionLog(self.action_spec, self.num, self._forgotten) if self._layers is None else None
        self._settings = Settings(self.num)
        zero = [0] * self.num
        self._episode, self._length, self._drops = list(zero), list(zero), list(zero)
        self._total = [0.0] * self.num
        self._seed: list[int | None] = [None] * self.num
        self._ready = False
        self._at, self._resetting = -1, False  # for the watchdog: whose code is running

    def _put(self, i: int, env: gymnasium.Env) -> None:
        self.envs[i] = env
        quicken(env.unwrapped.action_space)
        self._calls[i] = (env.env if type(env) is TimeLimit else env).step
        self._writers[i] = closely(self._receiver, i, self._writers)
        self._read_limits()

    def reset(self) -> Tree:
        return self.begin([0] * self.num)

    @property
    def episodes(self) -> list[int]:
        """Number of the running episode of each env."""
        return self._episode

    def begin(self, episodes: list[int]) -> Tree:
        """As `reset`, but with these episodes."""
        self._out.clear()
        self._episode, self._drops = list(episodes), [0] * self.num
        for i in range(self.num):
            self._start(i)
        self._ready = True
        return self._out.obs

    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        out, num = self._out, self.num
        if out.marked:
            self._out.clear()
        acts = self._split(action)
        if len(acts) != num or not self._ready:
            raise UsageError(
                f"step got {len(acts)} actions for {num} envs" if self._ready else "step was called before reset"
            )
        count = num if steps is None or steps > num else max(steps, 0)
        self._steps += 1
        for i in range(count):
            if episodes is not None and len(out.ended) >= episodes:
                count = i
                break
            self._at = i
            self._one(i, acts[i], action)
        self._at = -1
        if count < num:
            self._hole(count)
        if not self._receiver.sound():
            for i in range(count):
                self._examine(i, action)
        return out

    def _one(self, i: int, act: Any, action: Tree) -> None:
        """Step env i. The hot path: everything rare is elsewhere."""
        try:
            result = self._calls[i](act)
        except BadValue as error:  # a wrapper or an adapter of ours has looked at what the env gave
            raise self._failed(i, "step", str(error), act) from error
        except ERRORS as error:  # the env's own code
            self._drop(i)
            self._renew(i, self._raised(i, "step", error, act), stepping=True)
            return
        try:
            obs, reward, terminated, truncated, info = result
            if info and ABNORMAL in info and info[ABNORMAL]:
                self._length[i] += 1
                self._drop_episode(i, f"its info says that the step is {ABNORMAL}")
                return
            self._writers[i](i, obs)
            if reward.__class__ is not float:
                reward = number(reward)
            done = terminated or truncated
            if done is None or terminated is None:
                flag(None, "terminated" if terminated is None else "truncated")
        except (BadValue, TypeError, ValueError, RuntimeError) as error:
            raise self._failed(i, "step", step_problem(result) or str(error), act) from error
        n = self._length[i]
        if self._log is not None:
            self._log.add(i, n, action)
        n += 1
        self._length[i] = n
        if n >= self._limits[i]:
            truncated = done = True
        self._total[i] += reward
        if not -LARGEST <= reward <= LARGEST:
            self._bad(i, f"the reward is {reward}", action)
            return
        self._out.reward[i] = reward
        self._infos[i] = info
        if done:
            self._end(i, terminated, truncated, action)

    def _end(self, i: int, terminated: Any, truncated: Any, action: Tree) -> None:
        try:
            terminated, truncated = flag(terminated, "terminated"), flag(truncated, "truncated")
        except BadValue as error:
            raise self._failed(i, "step", str(error)) from error
        if not self._examine(i, action):
            return
        out = self._out
        out.marked = True
        out.terminated[i], out.truncated[i] = terminated, truncated
        out.final.append((i, self._receiver.row(i)))
        info = self._infos[i] if isinstance(self._infos[i], dict) else {}
        numbers = (self._episode[i], self._seed[i], self._length[i], self._total[i])
        out.ended.append(EpisodeEnd(i, *numbers, terminated, truncated, info))
        self._drops[i] = 0
        self._begin_next(i)

    def _begin_next(self, i: int) -> None:
        self._episode[i] += 1
        self._start(i)

    def _start(self, i: int) -> None:
        try:
            self._begin(i)
        except Raised as error:
            self._renew(i, error)

    def _begin(self, i: int, seed: int | None = None) -> None:
        """Reset env i for its current episode; `seed` is given when a saved episode is replayed."""
        self._seed[i] = self._seed_of(self._first + i, self._episode[i]) if seed is None else seed
        self._length[i], self._total[i] = 0, 0.0
        if seed is None:
            self._settings.begin(i)
        self._at, self._resetting = i, True
        try:
            result = self.envs[i].reset(seed=self._seed[i])
        except BadValue as error:
            raise self._failed(i, "reset", str(error)) from error
        except ERRORS as error:
            raise self._raised(i, "reset", error) from error
        finally:
            self._at, self._resetting = -1, False
        if problem := reset_problem(result):
            raise self._failed(i, "reset", problem)
        try:
            self._writers[i](i, result[0])
        except BadValue as error:
            raise self._failed(i, "reset", str(error)) from error
        self._examine(i, None)

    def _hole(self, start: int) -> None:
        self._out.hole(slice(start, None))
        self._infos[start:] = [{} for _ in range(start, self.num)]

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        self._write_elapsed()
        if not isinstance(name, str):
            self._inexact(CALLED.format(name=self.name))
            answers = called(name, self.envs, *args, **kwargs)
            self._read_limits()
            return answers
        values = attributes(self.envs, name, self.name, lambda env, name: env.get_wrapper_attr(name))
        answers = answers_of(values, name, *args, **kwargs)
        if (args or kwargs) and callable(values[0]) and not self._settings.note(name, args, kwargs, self._length):
            self._inexact(f"the call {name}{args} cannot be saved, so a resumed run would not repeat it ({self.name})")
        self._read_limits()
        return answers

    def _tell(self, i: int, calls: Iterable[Call]) -> None:
        """Repeat what env i was told."""
        for name, args, kwargs in calls:
            self.envs[i].get_wrapper_attr(name)(*args, **kwargs)
            self._read_limits()

    def _read_limits(self) -> None:
        """An outermost TimeLimit is not called in each step:
        its steps are the length of the episode, which is kept anyway.
        """
        for i, env in enumerate(self.envs):
            self._limits[i] = min(env._max_episode_steps if type(env) is TimeLimit else ENDLESS, self._longest)

    def cut_after(self, steps: int) -> None:
        """Episodes are cut after so many steps, whatever limit their envs have."""
        self._longest = steps
        self._read_limits()

    def _write_elapsed(self) -> None:
        """For whoever looks at an outermost TimeLimit: snapshots and calls."""
        for i, env in enumerate(self.envs):
            if type(env) is TimeLimit and self._ready:
                env._elapsed_steps = self._length[i]  # type: ignore[assignment]  # declared as None

    def method(self, name: str) -> Callable[..., Any] | None:
        return self.envs[0].get_wrapper_attr(name) if self.envs[0].has_wrapper_attr(name) else None

    def close(self) -> None:
        self.on_close()
        close_all(self.envs, self.name)

    def state(self) -> dict[str, Any]:
        self._write_elapsed()
        envs = {str(i): self._env_state(i) for i in range(self.num)} if self._ready else {}
        return {"exactness": self.exactness, "envs": envs}

    def restore(self, state: dict[str, Any]) -> None:
        envs = saved_envs(state, self.num, self.name)
        self._out.clear()
        self.exactness = state["exactness"]
        self.renewed[:] = False
        for i in range(self.num if envs else 0):
            try:
                with restoring(f"envs/{i}"):
                    self._restore_env(i, envs[str(i)])
            except Raised as error:
                self._renew(i, error)
                self.renewed[i] = True
        self._ready = bool(envs)

    def _env_state(self, i: int) -> dict[str, Any]:
        n = self._length[i]
        common: dict[str, Any] = {"episode": self._episode[i], "seed": self._seed[i], "length": n}
        common |= {"total": self._total[i], "obs": self._receiver.row(i), "settings": self._settings.state(i)}
        if self._layers is not None:
            return common | {"snapshot": take_snapshot(self._layers[i])}
        actions = self._log.of(i, n) if self._log is not None else None
        return common | ({} if actions is None else {"actions": actions})

    def _restore_env(self, i: int, saved: dict[str, Any]) -> None:
        self._episode[i], self._drops[i] = int(saved["episode"]), 0
        self._settings.restore(i, saved["settings"])
        self._tell(i, self._settings.at(i, BEFORE))
        self._begin(i, saved["seed"])
        if "snapshot" in saved and self._layers is not None:
            for step in range(int(saved["length"]) + 1):
                self._tell(i, self._settings.at(i, step))
            give_snapshot(self._layers[i], saved["snapshot"])
            tree_copy_into(self._receiver.obs, i, saved["obs"])
        elif "actions" in saved and self._log is not None:
            problem = self._replay(i, self._split(self._log.load(i, saved["actions"])), saved)
            if problem:
                self._inexact(f"the saved episode could not be replayed: {problem} ({self._where(i)})")
            if problem is ENDED:
                return self._begin_another(i)
        else:
            self._inexact(f"the running episode was not saved, a new one was begun ({self._where(i)})")
            return self._begin_another(i)
        self._length[i], self._total[i] = int(saved["length"]), float(saved["total"])
        return None

    def _begin_another(self, i: int) -> None:
        self.renewed[i] = True
        self._tell(i, self._settings.now.values())  # what it was told in the lost episode holds in the next
        self._begin_next(i)

    def _replay(self, i: int, acts: list[Any], saved: dict[str, Any]) -> str | None:
        """Give env i its actions again; returns what came out differently."""
        for step, act in enumerate(acts):
            self._tell(i, self._settings.at(i, step))
            try:
                obs, reward, terminated, truncated, _ = self._calls[i](act)
                self._writers[i](i, obs)
                self._total[i] += number(reward)
            except ERRORS as error:
                raise self._raised(i, "replaying the saved episode", error, act) from error
            self._length[i] += 1
            if terminated or truncated or self._length[i] >= self._limits[i]:
                return ENDED
        self._tell(i, self._settings.at(i, len(acts)))
        return differs(self._receiver.row(i), self._total[i], saved)

    # --- what is wrong ---

    def _examine(self, i: int, action: Tree | None) -> bool:
        """Whether the observation of env i in the buffer is sound; if not, raise or drop its episode."""
        problem = self._receiver.problem(i)
        if problem is None:
            return True
        text, droppable = problem
        if not droppable:
            raise self._failed(i, "step" if self._length[i] else "reset", text)
        self._bad(i, text, action)
        return False

    def _bad(self, i: int, text: str, action: Tree | None) -> None:
        """NaN or infinity from env i: raise, or drop the running episode and start the next one."""
        if action is not None and not_finite(action, i):
            raise Diverged(f"the policy gave env {i} an action that is not finite, and then {text}. {self._where(i)}")
        if not self._drop_bad:
            advice = "Mend the env, or set env.on_bad=drop to drop such episodes and go on"
            raise self._failed(i, "step" if self._length[i] else "reset", f"{text}. {advice}")
        self._drop_episode(i, text)

    def _drop_episode(self, i: int, text: str) -> None:
        """What is left of the running episode of env i is not recorded; the next one begins."""
        self._drops[i] += 1
        if self._drops[i] >= DROPS:
            raise self._failed(i, "step", f"{text}; {DROPS} episodes in a row had to be dropped")
        self._inexact(f"{text} ({self._where(i)}); the episode was dropped")
        if self._length[i]:  # else a reset observation was bad: the row before it stays as it is
            self._drop(i)
        self._begin_next(i)

    def _drop(self, i: int) -> None:
        """The row of env i is a hole, after which its episode does not go on."""
        self._out.hole(i)
        self._out.cut.append(i)
        self._infos[i] = {}

    def _renew(self, i: int, error: Raised, stepping: bool = False) -> None:
        """Env i raised: another one in its place begins the next episode, unless it happens too often."""
        self._failed_steps += stepping
        tried = (self._steps - 1) * self.num + i + 1
        if stepping and self._failed_steps == tried >= max(self.num, 2):
            given_up = EnvError(f"{error} Every env failed at its first step: the run is given up.")
            given_up.shown = True  # by the one before it
            raise given_up from error.__cause__

        def anew() -> None:
            self._episode[i] += 1
            self._replace(i)
            self._begin(i)

        self._at = -1
        self._note(f"{error} Its unfinished episode was dropped")
        self.renewals += self._renewal[i](error, self._steps, anew)

    def _replace(self, i: int) -> None:
        if self._remake is None:
            return
        close_all([self.envs[i]], self.name, logging.DEBUG)  # it is broken anyway
        try:
            self._put(i, self._remake(self._first + i))
            self._tell(i, self._settings.now.values())
        except ERRORS as error:
            raise self._raised(i, "making it anew", error) from error
        if self._layers is not None:
            self._layers[i] = snapshot_layers(self.envs[i]) or []

    def _raised(self, i: int, doing: str, error: BaseException, act: Any = None) -> Raised:
        what = f"{type(error).__name__}: {error}{place(error)}"
        sentence = failure(self._where(i), doing, what, act, self.name)
        return Raised(sentence, error)

    @property
    def doing(self) -> tuple[Any, str, bool] | None:
        """(something that changes with every call, where, whether it is a reset) of the env whose code is running."""
        i, resetting = self._at, self._resetting
        if i < 0:
            return None
        return (i, self._episode[i], self._length[i], resetting, self._steps), self._where(i), resetting

    def _inexact(self, reason: str) -> None:
        log.warning("%s", reason)
        self._note(reason)

    def _note(self, reason: str) -> None:
        self.exactness = reason if self.exactness == "exact" else self.exactness

    def _forgotten(self, i: int) -> None:
        self._inexact(f"the episode is too long to be replayed, so a resumed run starts a new one ({self._where(i)})")

    def _where(self, i: int) -> str:
        episode = f"episode {self._episode[i]}, seed {self._seed[i]}, step {self._length[i]}"
        return f"env {self._first + i} of worker {self.worker} ({self.name}), {episode}"

    def _failed(self, i: int, doing: str, what: str, act: Any = None) -> EnvError:
        return EnvError(failure(self._where(i), doing, what, act, self.name))
