"""Engines with several agents: B tables stepped one after the other in this process.

    ParallelAgents   PettingZoo's ParallelEnv
    TurnAgents       PettingZoo's AECEnv
    DictAgents       the plain dict API of `apis.Dicts`
    TupleAgents      gymnasium envs with a Tuple of agents

Env i is reset for its episode e with `seed_of(i, e)`, so the state of an env is its seed, the actions since the reset
and what its methods were told (`settings`).

Longer than 300 lines because stepping, dropping and restoring an env share the same tables and buffers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from rookery.core.errors import ConfigError, Diverged, EnvError, UsageError
from rookery.core.restoring import restoring
from rookery.core.spec import describe, spec_of
from rookery.core.tree import Tree, tree_copy_into, tree_map
from rookery.envs.action_log import ActionLog, Batches, same_bits, saved_envs
from rookery.envs.actions import not_finite
from rookery.envs.closing import close_all
from rookery.envs.multi.apis import ApiAdapter, Dicts, Parallel, Tuples, Turns
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.multi.layers import Layers
from rookery.envs.multi.table import Abnormal, NotFinite, Table
from rookery.envs.told_calls import BEFORE, CALLED, Call, Settings, answers_of, attributes, called
from rookery.envs.vector import DROPS, SeedOf, Step, closely

log = logging.getLogger(__name__)


class Agents(MultiEnv):
    """Envs with equal agents and spaces; the engines differ in their front alone."""

    adapter: type[ApiAdapter]

    def __init__(
        self,
        envs: Sequence[Any],
        seed_of: SeedOf,
        *,
        name: str = "env",
        worker: int = 0,
        on_bad: Literal["raise", "drop"] = "raise",
        first: int = 0,
        **layers: Any,
    ):
        """`layers`: options of `Layers`."""
        adapters = [Layers(**layers).around(self.adapter(env)) for env in envs]
        pairs = {agent: adapters[0].spaces(agent) for agent in adapters[0].agents}
        obs_spaces, action_spaces = ({agent: pair[k] for agent, pair in pairs.items()} for k in (0, 1))
        super().__init__(len(envs), obs_spaces, action_spaces, name)
        self.envs, self._drop_bad = list(envs), on_bad == "drop"
        self._first = first  # number of the first of these envs, if others are elsewhere
        self.receivers = {a: adapters[0].receiver(a, self.obs_spec[a], self.num) for a in self.agents}
        self.writers = {agent: [receiver.write] * self.num for agent, receiver in self.receivers.items()}
        for agent, writers in self.writers.items():
            writers[:] = [closely(self.receivers[agent], i, writers) for i in range(self.num)]
        self.obs = {agent: receiver.obs for agent, receiver in self.receivers.items()}
        self.out = MultiStep({agent: _holes(obs, self.num) for agent, obs in self.obs.items()})
        _same_agents(self, adapters)
        self._seed_of, self._settings = seed_of, Settings(len(envs))
        self._tables = [
            Table(adapter, i, self, partial(self._seed, i), worker=worker, first=first)
            for i, adapter in enumerate(adapters)
        ]
        self._split = {agent: adapters[0].split(agent) for agent in self.agents}
        self._logs = {agent: ActionLog(spec, self.num, self._forgotten) for agent, spec in self.action_spec.items()}
        self._batches = Batches(self._logs, self.num)
        self._exactness = "exact"
        self._ready = self._stepping = False
        self.on_close: Callable[[], None] = lambda: None

    def cut_after(self, steps: int) -> None:
        """Episodes are cut after so many steps, whatever limit their envs have."""
        for table in self._tables:
            table.adapter.limit = min(table.adapter.limit or steps, steps)

    @property
    def doing(self) -> tuple[Any, str, bool] | None:
        """For the watchdog: (something that changes with every call, where, whether it is a reset) of the env whose
        code is running."""
        table = next((table for table in self._tables if table.busy), None)
        if table is None:
            return None
        return (table.index, table.episode, table.length, table.resetting), table.where(), table.resetting

    def _seed(self, i: int, episode: int) -> int | None:
        """Of the episode that begins in env i; what env i was told until now came before it."""
        self._settings.begin(i)
        self._batches.begin(i)
        return self._seed_of(self._first + i, episode)

    def reset(self) -> None:
        self.begin([0] * self.num)

    @property
    def episodes(self) -> list[int]:
        """Number of the running episode of each env."""
        return [table.episode for table in self._tables]

    def begin(self, episodes: list[int]) -> None:
        """As `reset`, but with these episodes."""
        self.out.forget()
        for table, episode in zip(self._tables, episodes):
            table.drops = 0
            try:
                table.begin(episode)
            except NotFinite as error:
                self._bad(table, error, {})
        self._finish({})
        self._ready = True

    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        if not self._ready:
            raise UsageError("step was called before reset")
        self._check(action)
        self.out.clear()
        count = self.num if steps is None or steps > self.num else max(steps, 0)
        whole = self.everyone and count == self.num and episodes is None
        plain, count = (self._all_step(action), count) if whole else self._some_step(action, count, episodes)
        if count < self.num:
            plain = False
            self.out.hole(slice(count, None), self.num)
        if not plain or not all(receiver.sound() for receiver in self.receivers.values()):  # few steps
            self._finish(action)
        return self.out

    def _all_step(self, action: dict[str, Tree]) -> bool:
        """Most steps: everybody acts in every env. Whether that was plain everywhere."""
        plain, agents = True, list(action)
        each = zip(*[self._split[agent](rows) for agent, rows in action.items()])  # the actions of every env
        full, stepped, self._stepping = self._batches.note(action), 0, True
        try:
            for table, acts in zip(self._tables, each):
                plain = self._one_step(table, dict(zip(agents, acts)), action) and plain
                stepped += 1
        finally:
            if full or stepped < self.num:  # something failed: what others did is still to be known
                self._batches.log(self._tables, stepped)
            self._stepping = False
        return plain

    def _some_step(self, action: dict[str, Tree], count: int, episodes: int | None) -> tuple[bool, int]:
        """Up to `count` envs, or until so many episodes ended; who must act does."""
        self._batches.log(self._tables, self.num)
        plain, everyone, acts = True, self.everyone, {agent: self._split[agent](rows) for agent, rows in action.items()}
        for i in range(count):
            if episodes is not None and len(self.out.ended) >= episodes:
                return plain, i
            table, actions = self._tables[i], {agent: rows[i] for agent, rows in acts.items()}
            if not everyone:
                actions = {agent: act for agent, act in actions.items() if self.acting[agent][i]}
            for agent in actions:
                self._logs[agent].add(i, table.seats[agent].actions, action[agent])
            plain = self._one_step(table, actions, action) and plain
        return plain, count

    def _one_step(self, table: Table, acts: dict[str, Any], action: dict[str, Tree]) -> bool:
        """Of one env; whether it was plain."""
        try:
            return table.step(acts)
        except NotFinite as error:
            self._bad(table, error, action)
        except EnvError as error:
            _blame(error, table.index, action)
            raise
        return False

    def _finish(self, action: dict[str, Tree]) -> None:
        """The check for NaN and infinity of all envs at once, and marks."""
        if not all(receiver.sound() for receiver in self.receivers.values()):
            for table in self._tables:
                while not self._sound(table, action):
                    pass  # another episode was begun, and is looked at as well
        self.everyone = True
        for agent, out in self.out.agents.items():
            out.marked = bool(out.final) or not out.valid.all()
            self.everyone = self.everyone and bool(self.acting[agent].all())

    def _sound(self, table: Table, action: dict[str, Tree]) -> bool:
        try:
            for agent in self.agents:
                table.examine(agent)
        except NotFinite as error:
            self._bad(table, error, action)
            return False
        return True

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        if not isinstance(name, str):
            self._inexact(CALLED.format(name=self.name))
            return called(name, self.envs, *args, **kwargs)
        values = attributes(self.envs, name, self.name)
        answers = answers_of(values, name, *args, **kwargs)
        lengths = [table.length for table in self._tables]
        if (args or kwargs) and callable(values[0]) and not self._settings.note(name, args, kwargs, lengths):
            self._inexact(f"the call {name}{args} cannot be saved, so a resumed run would not repeat it ({self.name})")
        return answers

    def method(self, name: str) -> Callable[..., Any] | None:
        return self._tables[0].adapter.method(name)

    def close(self) -> None:
        self.on_close()
        close_all(self.envs, self.name)

    def state(self) -> dict[str, Any]:
        self._batches.log(self._tables, self.num)
        envs = {str(table.index): self._env_state(table) for table in self._tables} if self._ready else {}
        return {"exactness": self.exactness, "envs": envs}

    def restore(self, state: dict[str, Any]) -> None:
        envs = saved_envs(state, self.num, self.name)
        self.exactness = state["exactness"]
        self.renewed[:] = False
        self._batches.forget()
        for table in self._tables if envs else ():
            with restoring(f"envs/{table.index}"):
                self._restore_env(table, envs[str(table.index)])
        self.out.forget()  # nothing that was replayed is a row
        self.everyone = all(bool(acting.all()) for acting in self.acting.values())
        self._ready = bool(envs)

    def _env_state(self, table: Table) -> dict[str, Any]:
        i, seats = table.index, table.seats
        common: dict[str, Any] = {"episode": table.episode, "seed": table.seed, "length": table.length}
        common["settings"] = self._settings.state(i)
        common["totals"] = {agent: seat.total for agent, seat in seats.items()}
        common["acting"] = {agent: bool(self.acting[agent][i]) for agent in self.agents}
        common["obs"] = {agent: receiver.row(i) for agent, receiver in self.receivers.items()}
        actions = {agent: kept.of(i, seats[agent].actions) for agent, kept in self._logs.items()}
        known = all(part is not None for part in actions.values())
        return common | ({"actions": actions} if known else {})

    def _restore_env(self, table: Table, saved: dict[str, Any]) -> None:
        self._settings.restore(table.index, saved["settings"])
        if "actions" not in saved:
            table.episode, table.seed = int(saved["episode"]), saved["seed"]
            self._inexact(f"the running episode was not saved, a new one was begun ({table.where()})")
            self._anew(table, "")
            return
        self._tell(table, self._settings.at(table.index, BEFORE))
        table.begin(int(saved["episode"]), saved["seed"])
        actions = saved["actions"]
        acts = {agent: self._split[agent](kept.load(table.index, actions[agent])) for agent, kept in self._logs.items()}
        if problem := self._replay(table, acts, saved):
            reason = f"{problem}, the env is not deterministic given its seed"
            self._inexact(f"the saved episode could not be replayed: {reason} ({table.where()})")
            return
        for agent, receiver in self.receivers.items():  # stale ones too
            tree_copy_into(receiver.obs, table.index, saved["obs"][agent])

    def _replay(self, table: Table, acts: dict[str, list[Any]], saved: dict[str, Any]) -> str | None:
        """Give the env its actions again; returns what came out differently."""
        i = table.index
        for step in range(int(saved["length"])):
            self._tell(table, self._settings.at(i, step))
            turns = {agent: table.seats[agent].actions for agent in self.agents if self.acting[agent][i]}
            if any(n >= len(acts[agent]) for agent, n in turns.items()):
                return self._anew(table, "it was somebody else's turn")
            table.step({agent: acts[agent][n] for agent, n in turns.items()})
            if table.episode != int(saved["episode"]):
                self._tell(table, self._settings.now.values())
                self.renewed[i] = True  # its next episode has begun
                return "it ended earlier than before"
        self._tell(table, self._settings.at(i, int(saved["length"])))
        for agent in self.agents:
            if bool(self.acting[agent][i]) != bool(saved["acting"][agent]):
                return self._anew(table, "it was somebody else's turn")
            if self.acting[agent][i] and not same_bits(self.receivers[agent].row(i), saved["obs"][agent]):
                return f"the last observation of {agent!r} differs"
            if table.seats[agent].total != float(saved["totals"][agent]):
                return f"the return of {agent!r} differs"
        return None

    def _anew(self, table: Table, problem: str) -> str:
        self.renewed[table.index] = True
        self._tell(table, self._settings.now.values())
        table.begin(table.episode + 1)
        return problem

    def _tell(self, table: Table, calls: Iterable[Call]) -> None:
        for name, args, kwargs in calls:
            getattr(self.envs[table.index], name)(*args, **kwargs)

    # --- what is wrong ---

    def _place(self, i: int, agent: str) -> str:
        return self._tables[i].where(agent)

    def _bad(self, table: Table, error: NotFinite, action: dict[str, Tree]) -> None:
        """NaN or infinity from an env: raise, or drop the running episode and begin the next one. What an env itself
        calls abnormal is always dropped."""
        if table.length:  # else it came from a reset
            _blame(error, table.index, action)
        if not self._drop_bad and not isinstance(error, Abnormal):
            advice = "Mend the env, or set env.on_bad=drop to drop such episodes and go on."
            raise EnvError(f"{error} {advice}") from error
        table.drops += 1
        if table.drops >= DROPS:
            raise EnvError(f"{error} {DROPS} episodes in a row had to be dropped.") from error
        self._inexact(f"{error} The episode was dropped")
        if table.length:  # else a reset was bad: the row before it stays as it is
            self.out.drop(table.index, self.num)
        for receiver in self.receivers.values():  # who does not act at once would keep what is not finite
            tree_map(lambda buffer: buffer.__setitem__(table.index, 0), receiver.obs)
        try:
            table.begin(table.episode + 1)
        except NotFinite as again:
            self._bad(table, again, {})

    @property
    def exactness(self) -> str:
        """What was not logged yet may turn out to be too much; in a step that hangs a watchdog asks."""
        if not self._stepping:
            self._batches.log(self._tables, self.num)
        return self._exactness

    @exactness.setter
    def exactness(self, reason: str) -> None:
        self._exactness = reason

    def _inexact(self, reason: str) -> None:
        log.warning("%s", reason)
        if self._exactness == "exact":
            self._exactness = reason

    def _forgotten(self, i: int) -> None:
        reason = "the episode is too long to be replayed, so a resumed run starts a new one"
        self._inexact(f"{reason} ({self._tables[i].where()})")


def _holes(obs: Tree, num: int) -> Step:
    terminated, truncated, valid = (np.zeros(num, np.bool_) for _ in range(3))
    infos: list[dict[str, Any]] = [{} for _ in range(num)]
    return Step(obs, np.zeros(num, np.float32), terminated, truncated, valid, infos=infos, marked=True)


def _same_agents(env: MultiEnv, adapters: list[ApiAdapter]) -> None:
    for i, adapter in enumerate(adapters):
        if adapter.agents != env.agents:
            raise ConfigError(
                f"env {i} ({env.name}) has the agents {list(adapter.agents)}, env 0 has {list(env.agents)}: "
                f"they must be equal"
            )
        for agent in env.agents:
            obs, act = adapter.spaces(agent)
            if (spec_of(obs), act) != (env.obs_spec[agent], env.action_spaces[agent]):
                raise ConfigError(
                    f"{agent!r} has other spaces in env {i} ({env.name}) than in env 0: observations "
                    f"{describe(spec_of(obs))}, "
                    f"actions {act}; expected {describe(env.obs_spec[agent])} and {env.action_spaces[agent]}"
                )


def _blame(error: EnvError, i: int, action: dict[str, Tree]) -> None:
    """An env that fails after NaN or infinity from a policy is not to blame."""
    if guilty := [agent for agent, rows in action.items() if not_finite(rows, i)]:
        raise Diverged(f"the policy of {guilty} gave an action that is not finite, and then: {error}") from error


class ParallelAgents(Agents):
    """All agents that are there act at once."""

    adapter = Parallel


class TurnAgents(Agents):
    """One agent acts at a time."""

    adapter = Turns


class DictAgents(Agents):
    """Whoever observed acts."""

    adapter = Dicts


class TupleAgents(Agents):
    """All agents act at once, to the end."""

    adapter = Tuples
