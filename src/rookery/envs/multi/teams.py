"""Teams: several agents of an env as one body with an axis of its members (`core.team`), whatever the env's API.

A team acts when any of its members must; its row is complete when one of them must act again, or all have ended. It
ends with the last of them, truncated if any of them was. Its reward is the sum (or mean) of what its members received;
with `own` the sum, and the observation tells what each of them received since the team acted.

    terminated, or not there yet   zeros, present 0
    waits for its turn             what it saw last, present 0
    truncated                      what it saw last, present 0; at the end of the team 1, for its future has a value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.envs.boundary import BadValue, number
from rookery.envs.config import TeamConfig
from rookery.envs.multi.apis import ApiAdapter, Timestep
from rookery.envs.multi.team_rows import Seen, TeamReceiver, TeamSpaces


class Teams(ApiAdapter):
    """An adapter whose agents are teams, and who is in none."""

    def __init__(self, inner: ApiAdapter, teams: Mapping[str, TeamConfig], world: str):
        self.inner, self.env, self.limit, self.comes_back = inner, inner.env, inner.limit, inner.comes_back
        self.members = members_of(teams, inner.agents)
        self._team = {member: team for team, members in self.members.items() for member in members}
        self.agents = tuple(dict.fromkeys(self._team.get(agent, agent) for agent in inner.agents))
        state = state_space(self.env, world)
        self._state: Callable[[], Any] | None = None if state is None else self.env.state
        self._spaces = {
            team: TeamSpaces(team, {m: inner.spaces(m) for m in members}, state, teams[team].reward == "own")
            for team, members in self.members.items()
        }
        self._share = {t: 1 / len(self.members[t]) if c.reward == "mean" else 1.0 for t, c in teams.items()}
        self._own = frozenset(team for team, config in teams.items() if config.reward == "own")
        self._alone = [agent for agent in self.agents if agent not in self.members]
        lonely = len(self.agents) == 1 and all(one.counted for one in self._spaces.values())
        self._only = self.agents[0] if lonely else None  # a team that all are in, whose actions are plain lists
        self._bodies = [(team, m, self._share[team], Seen({}, None, None)) for team, m in self.members.items()]
        self._shown: dict[str, Any] = {team: seen for team, _, _, seen in self._bodies}
        self._again = Timestep(list(self.agents), self._shown, plain=True)  # of every plain step
        self._begin()

    def _begin(self) -> None:
        self._there: set[str] = set()  # members who came and have not ended
        self._came: set[str] = set()
        self._truncated: dict[str, Any] = {}  # member → what it saw last, with its mask; None: that was not told
        self._gone: set[str] = set()  # teams that have ended
        self._acting: set[str] = set()  # members who must act
        self._unseen: dict[str, dict[str, Any]] = {team: dict.fromkeys(m) for team, m in self.members.items()}
        self._earned = {team: dict.fromkeys(self.members[team], 0.0) for team in self._own}  # since it acted
        self.totals: dict[str, float] = dict.fromkeys(self._team, 0.0)  # what each member received in the episode

    def spaces(self, agent: str) -> tuple[spaces.Space, spaces.Space]:
        if agent in self.members:
            return self._spaces[agent].obs, self._spaces[agent].action
        return self.inner.spaces(agent)

    def receiver(self, agent: str, spec: Any, num: int) -> Any:
        if agent in self.members:
            return TeamReceiver(self._spaces[agent], spec, num)
        return self.inner.receiver(agent, spec, num)

    def known(self) -> tuple[str, ...]:
        return self.inner.agents

    def returns(self) -> dict[str, float]:
        return {member: self.totals[member] for member in self._team if member in self._came}

    def reset(self, seed: int | None) -> Timestep:
        self._begin()
        return self._as_teams(self.inner.reset(seed))

    def split(self, agent: str) -> Callable[[Any], list[Any]]:
        counted = agent in self.members and self._spaces[agent].counted
        return (lambda action: action.tolist()) if counted else super().split(agent)

    def step(self, actions: dict[str, Any]) -> Timestep:
        for team in self._own.intersection(actions):
            self._earned[team] = dict.fromkeys(self.members[team], 0.0)
        everybody = len(self._acting) == len(self._team)
        if everybody and self._only is not None:
            timestep = self.inner.step(dict(zip(self._team, actions[self._only])))
            return self._plain(timestep) if timestep.plain else self._as_teams(timestep)
        apart: dict[str, Any] = {}
        for agent, action in actions.items():
            if agent in self.members:
                apart.update(self._spaces[agent].apart(action, None if everybody else self._acting))
            else:
                apart[agent] = action
        return self._as_teams(self.inner.step(apart))

    def method(self, name: str) -> Callable[..., Any] | None:
        return self.inner.method(name)

    def last(self, agent: str) -> tuple[Any, float]:
        if agent not in self.members:
            return self.inner.last(agent)
        waiting = {m: self.inner.last(m) for m in self.members[agent] if m in self._there}
        self._unseen[agent] |= {m: obs for m, (obs, _) in waiting.items() if obs is not None}
        reward = sum(self._paid(agent, m, paid) for m, (_, paid) in waiting.items())
        return self._seen(agent, set(waiting)), reward

    # --- what the env said, by team ---

    def _as_teams(self, timestep: Timestep) -> Timestep:
        if timestep.plain and len(self._acting) == len(self._team):
            return self._plain(timestep)
        reward = {agent: paid for agent, paid in timestep.reward.items() if agent not in self._team}
        for member, paid in timestep.reward.items():
            if (team := self._team.get(member)) is not None:
                reward[team] = reward.get(team, 0.0) + self._paid(team, member, paid)
        self._note(timestep)
        obs = {agent: seen for agent, seen in timestep.obs.items() if agent not in self._team}
        terminated, truncated = (
            [agent for agent in flags if agent not in self._team] for flags in (timestep.terminated, timestep.truncated)
        )
        acting = [agent for agent in timestep.acting if agent not in self._team]  # whoever is unknown, too
        for team in self.members:
            self._tell(team, timestep.over, acting, obs, (terminated, truncated))
        return Timestep(acting, obs, reward, terminated, truncated, timestep.infos, timestep.over)

    def _plain(self, timestep: Timestep) -> Timestep:
        """Most steps: every member observed, was paid and acts again."""
        paid, shown, totals, again = timestep.reward, timestep.obs, self.totals, self._again
        reward, obs = again.reward, self._shown
        for agent in self._alone:
            reward[agent], obs[agent] = paid[agent], shown[agent]
        world = None if self._state is None else self._state()
        for team, members, share, seen in self._bodies:
            total, own = 0.0, team in self._own
            for member in members:
                value = paid[member]
                if value.__class__ is float and not own:
                    totals[member] += value
                    total += value * share
                else:
                    total += self._paid(team, member, value)
            reward[team], seen.members, seen.world, seen.rewards = total, shown, world, self._each(team)
        again.obs, again.infos = obs, timestep.infos  # who cuts an episode may have put other ones there
        return again

    def _paid(self, team: str, member: str, reward: Any) -> float:
        try:
            value = number(reward)
        except BadValue as error:
            raise BadValue(f"member {member!r} of {team!r}: {error}") from error
        self.totals[member] += value
        if team in self._own:
            self._earned[team][member] += value
        return value * self._share[team]

    def _note(self, timestep: Timestep) -> None:
        """Who came, who ended, and what they saw."""
        self._acting = {agent for agent in timestep.acting if agent in self._team}
        if unseen := [
            member for member in timestep.acting if member in self._team and timestep.obs.get(member) is None
        ]:
            raise BadValue(f"member {unseen[0]!r} of {self._team[unseen[0]]!r} must act and was given no observation")
        if back := [member for member in self._acting if member in self._came and member not in self._there]:
            raise BadValue(f"member {back[0]!r} of {self._team[back[0]]!r} must act after it ended")
        for member in (*timestep.obs, *timestep.acting):
            if member in self._team and member not in self._came:
                self._came.add(member)
                self._there.add(member)
        for member, seen in timestep.obs.items():
            if member in self._team and seen is not None:
                self._unseen[self._team[member]][member] = seen
        for member in timestep.truncated:
            if member in self._there and member not in timestep.terminated:
                self._truncated[member] = deepcopy(timestep.obs.get(member))
                self._there.discard(member)
        for member in timestep.terminated:
            if member in self._there:
                self._there.discard(member)
                self._unseen[self._team[member]][member] = None

    def _tell(
        self, team: str, over: bool, acting: list[str], obs: dict[str, Any], ends: tuple[list[str], list[str]]
    ) -> None:
        """Its turn, or its end."""
        members = self.members[team]
        if self._acting.intersection(members):
            acting.append(team)
            if team in self._own and (waiting := self._there.intersection(members) - self._acting):
                raise BadValue(
                    f"member {min(waiting)!r} of {team!r} waits while others act, but with env.teams.{team}.reward=own "
                    "who does not act has no future of its own. Set reward=sum"
                )
            obs[team] = self._seen(team, self._acting)
            return
        if team in self._gone or self._there.intersection(members):
            return
        came = self._came.intersection(members)
        if len(came) == len(members) or (over and came):
            self._gone.add(team)
            cut = {member for member in members if member in self._truncated}
            self._unseen[team] |= {m: self._truncated[m] for m in cut if self._truncated[m] is not None}
            obs[team] = self._seen(team, cut)
            ends[bool(cut)].append(team)

    def _seen(self, team: str, present: set[str]) -> Seen:
        """What was not handed on yet, with who is present."""
        unseen, self._unseen[team] = self._unseen[team], {}
        world = None if self._state is None else self._state()
        return Seen(unseen, [member in present for member in self.members[team]], world, self._each(team))

    def _each(self, team: str) -> list[float] | None:
        return list(self._earned[team].values()) if team in self._own else None


def members_of(teams: Mapping[str, TeamConfig], agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """team → its members, in the order of the env where a pattern names them; all that is wrong with that."""
    members: dict[str, tuple[str, ...]] = {}
    team_of: dict[str, str] = {}
    for team, config in teams.items():
        if team in agents:
            raise ConfigError(f"env.teams.{team}: {team!r} is the name of an agent. Call the team something else.")
        names: list[str] = []
        for pattern in config.members:
            fitting = matching([pattern], agents)
            if not fitting:
                hint = did_you_mean(pattern, agents)
                raise ConfigError(
                    f"env.teams.{team} names {pattern!r}, but the env has the agents {list(agents)}.{hint}"
                )
            names += fitting
        for member in names:
            if (other := team_of.setdefault(member, team)) != team:
                raise ConfigError(
                    f"env.teams: {member!r} is in two teams, {other!r} and {team!r}. Leave it out of one of them."
                )
        members[team] = tuple(dict.fromkeys(names))
    return members


def matching(patterns: Sequence[str], agents: Sequence[str]) -> list[str]:
    """The agents whose names fit one of the patterns."""
    return [agent for agent in agents if any(fnmatchcase(agent, pattern) for pattern in patterns)]


def state_space(env: Any, world: str) -> spaces.Space | None:
    """Of the env's own state, if that is the world; None: what the members see is."""
    space = getattr(env, "state_space", None)
    has_state = callable(getattr(env, "state", None)) and isinstance(space, spaces.Box)
    if world == "state" and not has_state:
        raise ConfigError(
            f"env.world=state needs an env with a method state() and its space as state_space (a Box), but "
            f"{type(env).__name__} has {'no state_space that is a Box' if hasattr(env, 'state') else 'no state()'}. "
            "Set env.world=joined: what the members see, side by side."
        )
    return space if has_state and world in ("auto", "state") else None
