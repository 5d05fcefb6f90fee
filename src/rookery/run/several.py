"""The parts of a run with several players: an env with several agents, and for each player algorithm, learner, store and actors."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rookery import envs
from rookery.acting.actor import Actor
from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.core.rng import Streams
from rookery.core.spec import describe
from rookery.data.replay.store import ReplayStore
from rookery.data.rollout import RolloutStore
from rookery.data.store import Store
from rookery.envs.multi.env import MultiEnv
from rookery.run.build import Pool, cache_of, check_room, check_windows, choose_mode, device_of, remote_pool
from rookery.run.collect.multicollector import MultiCollector
from rookery.run.collect.seats import Chances, Seats
from rookery.run.config.players import renamed
from rookery.run.config.resolve import Config
from rookery.run.learners import build_learner
from rookery.run.players import Player, Players, collecting
from rookery.run.pools.local import LocalPool


def make_several(
    config: Config, streams: Streams, num: int, purpose: str, worker: int = 0, factory: Any = None
) -> MultiEnv:
    """The envs of one worker, or those of an evaluation."""
    return envs.make_multi(
        config.env,
        count=num,
        purpose=purpose,  # type: ignore[arg-type]
        streams=streams,
        worker=worker,
        factory=factory,
    )


def build_several(
    config: Config, env: Any = None, modes: dict[str, Any] | None = None, folder: Path | None = None
) -> tuple[Streams, Players, Pool]:
    """`modes`: those of the run being resumed, by player."""
    streams, num = Streams(config.run.seed), config.env.num
    with ExitStack() as unfinished:  # closes the envs if anything below fails
        tables = []
        remote = config.pool.kind != "local"
        for w in range(1 if remote else config.pool.workers):
            tables.append(make_several(config, streams, num, "train", w, env))
            unfinished.callback(tables[-1].close)
        chances = seated(config, tables[0])
        players = players_in(config, tables[0], chances, streams, modes, device_of(config))
        for player in players.values():
            if (config.players or {})[player.name].train:
                player.store = build_store(player, len(agents_of(chances, player.name)), folder)
        pool: Pool
        if remote:
            pool = remote_pool(config, {name: player.learner for name, player in players.items()}, streams, env)
            pool.spare = tables[0]
        else:
            made = [collector_of(config, players, chances, table, w, streams) for w, table in enumerate(tables)]
            pool = LocalPool(made)
        unfinished.pop_all()
    return streams, players, pool


def collector_of(
    config: Config, players: Players, chances: Chances, table: MultiEnv, worker: int, streams: Streams
) -> MultiCollector:
    """The collector of one worker, on the live weights of all players."""
    actors = {name: seated_actor(player, chances, worker) for name, player in players.items()}
    rngs = {name: player.streams.numpy(f"act/{worker}") for name, player in players.items()}
    seats = Seats(chances, config.env.num, streams.numpy(f"seats/{worker}"))
    return MultiCollector(table, actors, rngs, seats, index=worker)


def seated_actor(player: Player, chances: Chances, worker: int) -> Actor:
    """The actor of a player in one worker's envs."""
    config = player.config
    columns = config.env.num * len(agents_of(chances, player.name))
    actor = player.actor(worker * columns, config.pool.workers * columns)
    if not (config.players or {})[player.name].train:
        return actor
    try:
        return collecting(actor, config)
    except ConfigError as error:
        raise ConfigError(renamed(player.name, str(error))) from error


def players_in(
    config: Config, env: MultiEnv, chances: Chances, streams: Streams, modes: dict[str, Any] | None, device: str
) -> Players:
    """Every player with its networks, and no store yet."""
    players = Players()
    for name in config.players or {}:
        view, branch, agent = config.of(name), streams.branch(f"player/{name}"), agents_of(chances, name)[0]
        try:
            algo = view.algorithm(view.algo, env.obs_spec[agent], env.action_spec[agent], view.model)
        except ConfigError as error:
            raise ConfigError(f"player {name!r}: {error}") from error
        known = None if modes is None else modes[name]
        mode, reason = (known, "as in the run being resumed") if known else choose_mode(view)
        automatic = known is None and view.learning.mode == "auto"
        settings: Any = {"mode": mode, "cache": cache_of(view), "device": device, "fall_back": automatic}
        learner = build_learner(view, algo, branch, settings)
        knobs = {key: schedule.resolved(config.train.max_steps) for key, schedule in algo.knobs().items()}
        players[name] = Player(
            name, view, branch, algo, learner, None, knobs, reason, env.obs_spec[agent], f"player/{name}/"
        )
    return players


def build_store(player: Player, agents: int, folder: Path | None) -> Store:
    """A store for the columns of a player that sits for so many agents."""
    config, algo = player.config, player.algo
    workers = config.pool.workers
    columns = config.env.num * agents * workers
    if algo.store_kind == "rollout":
        together = 1 if config.pool.mode == "async" else workers
        return RolloutStore(rows=algo.rows or 1, columns=columns // workers * together, collectors=together)
    if config.store.demonstrations is not None:
        raise ConfigError(f"players.{player.name}.store.demonstrations is for an env with one agent. Set it to null.")
    try:
        check_windows(config, algo)
        check_room(config, algo.window(), agents)
    except ConfigError as error:
        raise ConfigError(renamed(player.name, str(error))) from error
    return ReplayStore(
        config.store,
        algo.obs_spec,
        algo.action_spec,
        columns=columns,
        gamma=config.algo.gamma,
        n_step=getattr(config.algo, "n_step", 1),
        rng=player.streams.numpy("store"),
        collectors=workers,
        window=algo.window(),
        extras={"state": algo.memory()} if algo.window() is not None else None,
        total_steps=config.train.max_steps,
        scratch=folder,
    )


def agents_of(chances: Chances, player: str) -> list[str]:
    return [agent for agent, weights in chances.items() if player in weights]


def seated(config: Config, env: MultiEnv) -> dict[str, dict[str, float]]:
    """agent → player → weight for every agent of the env, in its order; all that is wrong with that."""
    players, seats = config.players or {}, config.seats or {}
    for agent in seats:
        if agent not in env.agents:
            hint = did_you_mean(agent, env.agents)
            raise ConfigError(
                f"seats names an agent {agent!r}, but {env.name} has the agents {list(env.agents)}.{hint}"
            )
    only = next(iter(players)) if len(players) == 1 else None
    chances = {}
    for agent in env.agents:
        if agent not in seats and only is None:
            raise ConfigError(
                f"nobody sits for the agent {agent!r} of {env.name}: give it one of the players ({', '.join(players)}) in `seats`."
            )
        chances[agent] = dict(seats.get(agent, {str(only): 1.0}))
    for player in players:
        _same_spaces(player, agents_of(chances, player), env)
    return chances


def _same_spaces(player: str, agents: list[str], env: MultiEnv) -> None:
    """One network has one kind of input and output."""
    if not agents:
        raise ConfigError(f"player {player!r} has no seat in {env.name}: give it an agent in `seats`, or remove it.")
    one = agents[0]
    for agent in agents[1:]:
        if env.obs_spec[agent] != env.obs_spec[one] or env.action_spaces[agent] != env.action_spaces[one]:
            raise ConfigError(
                f"player {player!r} sits for {one!r} and {agent!r}, whose spaces differ: observations {describe(env.obs_spec[one])} "
                f"and {describe(env.obs_spec[agent])}, actions {env.action_spaces[one]} and {env.action_spaces[agent]}. "
                f"Give them different players."
            )
