"""Which of `env.teams` are one agent of the env, and which only name several: that depends on who sits for them.

It stands alone because the env, which knows no algorithm, and the seats, which know no env, must answer it alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.core.errors import ConfigError
from rookery.envs.config import EnvConfig, TeamConfig
from rookery.envs.multi.teams import members_of
from rookery.run.config.config import Config
from rookery.run.config.players import SeatWeights

TEAM = "team"  # name of the team that is meant where an algorithm for teams learns and none is named


def env_of(config: Config) -> EnvConfig:
    """The section `env` as the env itself needs it: only teams that are one agent."""
    section = config.env
    if section.agents == 1:
        return section
    one = {name: team for name, team in _teams(config).items() if _one(config, name)}
    return section.model_copy(update={"teams": one})


def central(config: Config) -> tuple[str, ...]:
    """Patterns of agents whose player has a critic that sees the world."""
    views, agents = config.views, dict[str, None]()
    seats = {agent: list(weights) for agent, weights in config.seats.items()} if config.seats else {"*": list(views)}
    for agent, weights in seats.items():
        wants = {getattr(views[name].algo, "critic", "own") == "world" for name in weights}
        if len(wants) > 1:
            raise ConfigError(
                f"the players of {agent!r} ({', '.join(weights)}) must all have algo.critic=world, or none of them: "
                "they see what the agent is shown."
            )
        if wants == {True}:
            team = config.env.teams.get(agent)
            agents |= dict.fromkeys(team.members if team is not None else (agent,))
    return tuple(agents)


def seats_of_members(config: Config, agents: Sequence[str]) -> SeatWeights:
    """`seats` with the members of teams that only name them, each by itself."""
    seats = dict(config.seats or {})
    each = {name: team for name, team in config.env.teams.items() if not _one(config, name)}
    for team, members in members_of(each, agents).items():
        if team in seats:
            weights = seats.pop(team)
            seats |= {member: weights for member in members if member not in seats}
    return seats


def _teams(config: Config) -> Mapping[str, TeamConfig]:
    """Those that the config names; else all agents, if the only player learns teams."""
    if config.env.teams or any(view.algorithm.sits != "team" for view in config.views.values()):
        return config.env.teams
    return {TEAM: TeamConfig(members=("*",))}


def _one(config: Config, team: str) -> bool:
    """Whether a team is one agent."""
    body = config.env.teams[team].body if team in config.env.teams else "one"
    if body != "auto":
        return body == "one"
    views = config.views
    sitting = [views[name] for name in (config.seats or {}).get(team, views)]
    kinds = {view.algorithm.sits for view in sitting}
    if len(kinds) > 1:
        names = ", ".join(f"{view.algo.name} ({view.algorithm.sits})" for view in sitting)
        raise ConfigError(
            f"env.teams.{team}: some of its players learn a team, others a single agent: {names}. Set "
            f"env.teams.{team}.body=one to let the latter drive the whole team, too."
        )
    return kinds == {"team"}
