"""Table: one env with several agents, its running episode and its seats.

A seat is one agent in one env. It *waits* from its action until its transition is complete, and adds up what it earns
meanwhile:

    row reward = Σ of what the agent received after its action, up to its next turn or its end
    return     = Σ of what it received in the episode, also before its first action and after its end

Adapters know the APIs; this knows the rows, and writes them into its column of the env that owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import EnvError
from rookery.envs.boundary import LARGEST, BadValue, Receiver, number
from rookery.envs.faults import ERRORS, SHOWN, own_code, place
from rookery.envs.multi.apis import ApiAdapter, Timestep
from rookery.envs.multi.env import MultiStep
from rookery.envs.vector import ABNORMAL, Step, Writer

log = logging.getLogger(__name__)


class NotFinite(EnvError):
    """NaN or infinity from an env, for which `env.on_bad=drop` drops the running episode."""


class Abnormal(NotFinite):
    """A step that the env itself says is not to be believed: the running episode is dropped, whatever env.on_bad."""


class Owner(Protocol):
    """The engine whose column a table is: what it writes into."""

    name: str
    agents: tuple[str, ...]
    acting: dict[str, np.ndarray]
    receivers: dict[str, Receiver]
    writers: dict[str, list[Writer]]  # per env
    out: MultiStep


@dataclass(slots=True)
class Seat:
    """One agent in one env during one episode."""

    waiting: bool = False  # it acted, and its transition is not complete
    earned: float = 0.0  # since it acted
    total: float = 0.0  # in the episode
    actions: int = 0
    seen: bool = False  # it took part
    terminated: bool = False
    truncated: bool = False

    @property
    def gone(self) -> bool:
        return self.terminated or self.truncated


class Table:
    """One env; column `index` of its owner. An ended episode is followed by the next one at once."""

    def __init__(
        self,
        adapter: ApiAdapter,
        index: int,
        owner: Owner,
        seed_of: Callable[[int], int | None],
        *,
        worker: int = 0,
        first: int = 0,
    ):
        self.adapter, self.index, self.owner = adapter, index, owner
        self._place = f"env {first + index} of worker {worker} ({owner.name})"  # first: number of the owner's first env
        self.seats: dict[str, Seat] = {}
        self._columns: list[tuple[str, Seat, Step]] = []  # agent, seat, its rows
        # agent, seat, who writes its obs, its rewards and infos
        self._quick: list[tuple[str, Seat, list[Writer], np.ndarray, list[Any]]] = []
        self.episode, self.length = 0, 0  # length: env steps of the running episode
        self.seed: int | None = None
        self._seed_of = seed_of
        self.drops = 0  # episodes in a row that had to be dropped
        self.busy = self.resetting = False  # for the watchdog: whether the env's own code is running

    def begin(self, episode: int, seed: int | None = None) -> None:
        """Reset the env; `seed` is given when a saved episode is replayed."""
        self.episode, self.length = episode, 0
        owner, self.seats = self.owner, {agent: Seat() for agent in self.owner.agents}
        self._columns = [(agent, seat, owner.out.agents[agent]) for agent, seat in self.seats.items()]
        self._quick = [(a, seat, owner.writers[a], out.reward, out.infos or []) for a, seat, out in self._columns]
        self.seed = self._seed_of(episode) if seed is None else seed
        for acting in self.owner.acting.values():
            acting[self.index] = False
        self.busy = self.resetting = True
        try:
            timestep = self.adapter.reset(self.seed)
        except ERRORS as error:
            raise self.failed(error) from error
        finally:
            self.busy = self.resetting = False
        if timestep.over or timestep.terminated or timestep.truncated or not timestep.acting:
            raise self.failed("somebody has ended, or nobody must act, right after reset")
        self._settle(timestep)

    def step(self, actions: dict[str, Any]) -> bool:
        """One step with the actions of those who must act. Whether it was *plain*: everybody acted, got a reward and
        must act again."""
        self.length += 1
        self.busy = True
        try:
            timestep = self.adapter.step(actions)
        except ERRORS as error:
            raise self.failed(error, actions=actions) from error
        finally:
            self.busy = False
        for info in timestep.infos.values():
            if info and info.__class__ is dict and info.get(ABNORMAL):
                raise self.failed(Abnormal(f"its info says that the step is {ABNORMAL}"))
        limit = self.adapter.limit
        if timestep.plain and len(actions) == len(self._columns) and (limit is None or self.length < limit):
            self._go_on(timestep)
            return True
        for agent, seat, out in self._columns:
            out.hole(self.index)
            if agent in actions:
                seat.actions, seat.waiting, seat.earned = seat.actions + 1, True, 0.0
                self.owner.acting[agent][self.index] = False
        self._settle(timestep)
        return False

    def _go_on(self, timestep: Timestep) -> None:
        """What `_settle` does with a plain step, at a fraction of its price: whoever acted acts again."""
        i = self.index
        obs, paid, remarks = timestep.obs, timestep.reward, timestep.infos
        for agent, seat, writers, rewards, infos in self._quick:
            reward, info = paid[agent], remarks.get(agent)
            if reward.__class__ is not float or not -LARGEST <= reward <= LARGEST:
                reward = self._sound(agent, reward, 0.0)
            try:
                writers[i](i, obs[agent])
            except BadValue as error:
                raise self.failed(error, agent) from error
            seat.actions += 1
            seat.total += reward
            rewards[i] = reward
            infos[i] = info if info.__class__ is dict else {}

    def _settle(self, timestep: Timestep) -> None:
        """Bring what the env said into the seats: pay, let go, then end the episode or give the turn."""
        for agent in (*timestep.obs, *timestep.reward, *timestep.terminated, *timestep.truncated, *timestep.acting):
            if agent not in self.seats:
                raise self.failed(f"it speaks of an agent {agent!r}, but its agents are {list(self.adapter.known())}")
        for agent, reward in timestep.reward.items():
            self._pay(agent, reward)
        for agent in self.seats:
            if agent in timestep.terminated or agent in timestep.truncated:
                self._leave(agent, timestep, agent in timestep.terminated, agent in timestep.truncated)
        if timestep.over or (self.adapter.limit is not None and self.length >= self.adapter.limit):
            self._end(timestep)
        elif not timestep.acting:
            waiting = [agent for agent, seat in self.seats.items() if seat.waiting]
            raise self.failed(f"nobody must act and the episode is not over; {waiting} would wait for ever")
        else:
            for agent in timestep.acting:
                self._turn(agent, timestep)

    def _pay(self, agent: str, reward: Any) -> None:
        seat = self.seats[agent]
        value = self._sound(agent, reward, seat.earned)
        seat.total += value
        seat.seen = seat.seen or value != 0.0
        if seat.waiting:
            seat.earned += value

    def _sound(self, agent: str, reward: Any, earned: float) -> float:
        try:
            value = number(reward)
        except BadValue as error:
            raise self.failed(error, agent) from error
        if not -LARGEST <= earned + value <= LARGEST:
            raise self.failed(NotFinite(f"the reward is {value}"), agent)
        return value

    def _turn(self, agent: str, timestep: Timestep) -> None:
        """The agent must act next, so what it did before is complete."""
        seat = self.seats[agent]
        if seat.gone and not self.adapter.comes_back:
            raise self.failed("it must act after it ended; agents come back only in the next episode", agent)
        seat.terminated = seat.truncated = False
        if agent not in timestep.obs:
            raise self.failed("it must act and was given no observation", agent)
        self._write(agent, timestep.obs[agent])
        seat.seen = True
        if seat.waiting:
            self._complete(agent, timestep)
        self.owner.acting[agent][self.index] = True

    def _leave(self, agent: str, timestep: Timestep, terminated: bool, truncated: bool) -> None:
        seat = self.seats[agent]
        seat.terminated, seat.truncated = terminated, truncated
        if not seat.waiting:
            return
        if timestep.obs.get(agent) is not None:  # else its last observation is the one it acted on
            self._write(agent, timestep.obs[agent])
            self.examine(agent)
        out = self.owner.out.agents[agent]
        out.final.append((self.index, self.owner.receivers[agent].row(self.index)))
        out.terminated[self.index], out.truncated[self.index] = terminated, truncated
        self._complete(agent, timestep)

    def _complete(self, agent: str, timestep: Timestep) -> None:
        seat, out = self.seats[agent], self.owner.out.agents[agent]
        out.valid[self.index], out.reward[self.index] = True, seat.earned
        info = timestep.infos.get(agent)
        assert out.infos is not None
        out.infos[self.index] = info if isinstance(info, dict) else {}
        seat.waiting = False

    def _end(self, timestep: Timestep) -> None:
        """The episode is over, or its time is: whoever still waits is cut off, and the next episode begins."""
        unsaid, obs = [], dict(timestep.obs)
        timestep.obs = obs
        for agent, seat in self.seats.items():
            if not seat.gone and agent not in obs:
                obs[agent], reward = self.adapter.last(agent)
                self._pay(agent, reward)
            if seat.waiting:
                unsaid += [agent] if timestep.over else []
                self._leave(agent, timestep, False, True)
        self.owner.out.ended.append(self._summary(unsaid, timestep))
        self.drops = 0
        self.begin(self.episode + 1)

    def _summary(self, unsaid: list[str], timestep: Timestep) -> EpisodeEnd:
        seats = self.seats.values()
        took_part = {agent: seat for agent, seat in self.seats.items() if seat.seen}
        info: dict[str, Any] = {"returns": {agent: seat.total for agent, seat in took_part.items()}}
        info["lengths"] = {agent: seat.actions for agent, seat in took_part.items()}
        info |= {"unsaid": unsaid, "infos": dict(timestep.infos)}
        if members := self.adapter.returns():
            info["members"] = members
        ways = any(seat.terminated for seat in seats), any(seat.truncated for seat in seats)
        total = float(sum(seat.total for seat in seats))
        return EpisodeEnd(self.index, self.episode, self.seed, self.length, total, *ways, info)

    def _write(self, agent: str, obs: Any) -> None:
        try:
            self.owner.writers[agent][self.index](self.index, obs)
        except BadValue as error:
            raise self.failed(error, agent) from error

    # --- what is wrong ---

    def examine(self, agent: str) -> None:
        """Raise if the observation in the buffer is not sound."""
        if problem := self.owner.receivers[agent].problem(self.index):
            text, droppable = problem
            raise self.failed(NotFinite(text) if droppable else text, agent)

    def where(self, agent: str | None = None) -> str:
        who = "" if agent is None else f"agent {agent!r}, "
        return f"{self._place}, {who}episode {self.episode}, seed {self.seed}, step {self.length}"

    def failed(
        self, what: BaseException | str, agent: str | None = None, actions: dict[str, Any] | None = None
    ) -> EnvError:
        text = str(what).removesuffix(".")
        if not isinstance(what, str | BadValue | NotFinite):
            text = f"{type(what).__name__}: {what}{place(what)}"
            log.error("%s: an env failed.%s%s", self.where(agent), SHOWN, own_code(what))
        shown = {
            name: act if isinstance(act, dict | tuple) else np.asarray(act).tolist()
            for name, act in (actions or {}).items()
        }
        last = f" Actions: {shown}." if shown else ""
        doing = "step" if self.length else "reset"
        kind = type(what) if isinstance(what, NotFinite) else EnvError
        return kind(
            f"{self.where(agent)}: {doing} failed: {text}.{last} `rookery check-env {self.owner.name}` "
            f"looks at it alone."
        )
