"""From a config to the objects of a run: envs at their table, players with what they learn with, collectors, the
pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rookery import envs
from rookery.acting.initial_priority import Judge
from rookery.algos.base import Algorithm
from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.core.rng import Streams
from rookery.core.spec import describe, spec_to_json, stacked_spec
from rookery.core.system.functions import Sent
from rookery.core.system.memory import check_room
from rookery.core.system.process import LEAST_BYTES
from rookery.core.team import REWARDS
from rookery.core.tree import Tree
from rookery.data.build import StoreNeeds
from rookery.data.replay.hindsight import ACHIEVED, DESIRED, GoalFunctions, check_goals
from rookery.data.store import Store
from rookery.envs.goal_functions import for_rows
from rookery.envs.multi.env import MultiEnv
from rookery.learning.group.follower import GroupSpec
from rookery.learning.group.leader import Leader
from rookery.learning.learner import Learner
from rookery.run.collect.collector import Collector
from rookery.run.collect.rows import Rows
from rookery.run.collect.seats import By, Chances, Seats, agents_of
from rookery.run.config.config import Config
from rookery.run.config.players import renamed
from rookery.run.config.teams import central, env_of, seats_of_members
from rookery.run.execution import cache_of, choose_mode, device_of
from rookery.run.players import Player, Players
from rookery.run.pools.local import LocalPool
from rookery.run.pools.remote import RemotePool
from rookery.run.pools.worker import CollectorWorker, WorkerSpec
from rookery.run.spaces import Spaced, Spaces
from rookery.run.ties import tie

EnvFactory = Callable[..., Any]
Pool = LocalPool | RemotePool


@dataclass(slots=True)
class Parts:
    """The objects of one run."""

    config: Config
    streams: Streams
    players: Players
    pool: Pool
    spaces: Spaces
    env_factory: EnvFactory | None = None
    remarks: tuple[str, ...] = ()  # on the envs, told at the start
    by: By | None = None  # seats players

    def judge(self, num: int, purpose: str = "eval") -> Collector:
        """All players in envs with the evaluation wrappers and seeds that depend on `purpose` only; they act
        greedily."""
        env = make_env(self.config, self.streams, num, "eval", factory=self.env_factory, seeds=purpose)
        return build_collector(self.players, env, seating(self.config, env), 0, self.streams, greedy=True)


def build_parts(
    config: Config,
    *,
    env: EnvFactory | None = None,
    by: By | None = None,
    modes: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Parts:
    """`modes`: those of the run being resumed, by player, which never change. `folder`: that of the run, if it has
    one. `by`: a function in place of `run.seating`."""
    by = by or (None if config.run.seating is None else registry.load(config.run.seating))
    streams, remote = Streams(config.run.seed), config.pool.kind != "local"
    with ExitStack() as unfinished:  # closes the envs if anything below fails
        tables: list[MultiEnv] = []
        for w in range(1 if remote else config.pool.workers):  # remote: one env, to know its spaces
            count = 1 if remote else config.env.num
            tables.append(make_env(config, streams, count, "train", worker=w, factory=env, here=remote))
            unfinished.callback(tables[-1].close)
        seats = seating(config, tables[0])
        players = build_players(config, tables[0], seats, streams, modes or {})
        if any(view.store.hindsight is not None for view in config.views.values()):
            tables[0].reset()  # for goals to try the env's functions with
        for name, player in players.items():
            if config.players[name].train:
                player.store = build_store(player, tables[0], folder)
        pool: Pool
        if remote:
            learners = {name: player.learner for name, player in players.items()}
            pool = remote_pool(config, learners, streams, env, folder, by)
            pool.spare = tables[0]
        else:
            each = [build_collector(players, table, seats, w, streams, by=by) for w, table in enumerate(tables)]
            pool = LocalPool(each)
        unfinished.pop_all()
    return Parts(config, streams, players, pool, Spaces.of(tables[0]), env, _endless(config, tables[0]), by)


def _endless(config: Config, env: MultiEnv) -> tuple[str, ...]:
    if env.limited:
        return ()
    return (
        f"{env.name} has no time limit that is known here: an episode that does not end by itself goes on for ever in "
        f"training, and for eval.max_steps={config.eval.max_steps} steps in every evaluation. "
        "Set env.max_episode_steps, or give an env that ends its episodes itself the attribute time_limit.",
    )


# --- envs ---


def make_env(
    config: Config,
    streams: Streams,
    num: int,
    purpose: Any,
    *,
    worker: int = 0,
    factory: EnvFactory | None = None,
    seeds: str | None = None,
    here: bool = False,
) -> MultiEnv:
    """The envs of one worker, or those of an evaluation, at their table. `here`: in this process, whatever env.workers
    says.

    `seeds`: the name of the stream that seeds them, if it is not their purpose.
    """
    source = streams if seeds is None or seeds == purpose else Streams(streams.seed_of("envs", seeds))
    at_once = config.pool.workers if purpose == "train" and config.pool.kind != "local" else 1
    section = env_of(config)
    section = section.inline() if here else section.shared_by(at_once)
    own: dict[str, Any] = {"worker": worker, "factory": factory}
    own |= {"longest": config.eval.max_steps if purpose == "eval" else None, "central": central(config)}
    return envs.make_table(section, count=num, purpose=purpose, streams=source, **own)


def purpose_of(offset: int) -> str:
    """Name of the stream that seeds evaluation envs."""
    return "eval" if offset == 0 else f"eval+{offset}"


def seating(config: Config, env: Spaced) -> dict[str, dict[str, float]]:
    """agent → player → weight for every agent of the env, in its order; all that is wrong with that."""
    players, seats = config.players, seats_of_members(config, env.agents)
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
                f"nobody sits for the agent {agent!r} of {env.name}: give it one of the players "
                f"({', '.join(players)}) in `seats`."
            )
        chances[agent] = dict(seats.get(agent, {str(only): 1.0}))
    for player in players:
        _same_spaces(player, agents_of(chances, player), env)
    return chances


def _same_spaces(player: str, agents: list[str], env: Spaced) -> None:
    """One network has one kind of input and output."""
    if not agents:
        raise ConfigError(f"player {player!r} has no seat in {env.name}: give it an agent in `seats`, or remove it.")
    one = agents[0]
    for agent in agents[1:]:
        actions = [spec_to_json(env.action_spec[name]) for name in (one, agent)]  # with their bounds
        if env.obs_spec[agent] != env.obs_spec[one] or actions[0] != actions[1]:
            kinds = [f"{describe(env.obs_spec[a])} and actions {describe(env.action_spec[a])}" for a in (one, agent)]
            raise ConfigError(
                f"player {player!r} sits for {one!r} and {agent!r}, whose spaces differ: observations {kinds[0]}; "
                f"observations {kinds[1]}. Give them different players (`players:` and `seats:` of the config)."
            )


# --- players ---


def build_players(
    config: Config, env: Spaced, seats: Chances, streams: Streams, modes: Mapping[str, Any] | None
) -> Players:
    """Every player with its networks, and no store yet. `modes` None: they only act, eagerly and on the CPU."""
    players = Players({name: build_player(config, name, env, seats, streams, modes) for name in config.players})
    tie(players)
    return players


def build_player(
    config: Config, name: str, env: Spaced, seats: Chances, streams: Streams, modes: Mapping[str, Any] | None
) -> Player:
    """A player for the observations and actions of the agents that it sits for."""
    view, prefix, agents = config.of(name), config.players[name].prefix, agents_of(seats, name)
    frame_spec, action_spec = env.obs_spec[agents[0]], env.action_spec[agents[0]]
    branch = streams.branch(prefix.rstrip("/")) if prefix else streams
    make = MakeAlgorithm(view, frame_spec, action_spec, registry.imported())
    with told_of(config, name):
        algo = make()
        knobs = {key: schedule.resolved(config.train.max_steps) for key, schedule in algo.knobs().items()}
        if modes is None:
            learner, reason = Learner(algo, branch), "to act only"
        else:
            known = modes.get(name)
            mode, reason = (known, "as in the run being resumed") if known else choose_mode(view)
            automatic = not known and view.learning.mode == "auto"
            settings = {"mode": mode, "cache": cache_of(view), "device": device_of(view), "fall_back": automatic}
            learner = build_learner(view, algo, branch, settings, make)
    player = Player(name, view, branch, algo, learner, knobs, reason, frame_spec, prefix)
    player.columns = config.env.num * len(agents) * config.pool.workers
    return player


@contextmanager
def told_of(config: Config, name: str) -> Iterator[None]:
    """What is wrong with a player that the config names is told with its name, and keys are written in full."""
    try:
        yield
    except ConfigError as error:
        if not config.players[name].prefix:
            raise
        raise ConfigError(f"player {name!r}: {renamed(name, str(error))}") from error


@dataclass(frozen=True, slots=True)
class MakeAlgorithm:
    """The only place that makes a player's algorithm; it may be called again in another process."""

    view: Config
    frame_spec: Tree  # of one observation; networks see `env.stack` of them
    action_spec: Tree
    imports: tuple[str, ...]  # modules of users, which register names

    def __call__(self) -> Algorithm:
        registry.import_again(self.imports)
        view = self.view
        return view.algorithm(view.algo, stacked_spec(self.frame_spec, view.env.stack), self.action_spec, view.model)


def build_learner(
    view: Config, algo: Algorithm, streams: Streams, settings: dict[str, Any], make: MakeAlgorithm
) -> Learner:
    """One, or the first of several that share its updates. `settings`: how a single one executes them; several always
    do it eagerly."""
    learning, device = view.learning, str(settings["device"])
    if learning.learners == 1:
        return Learner(algo, streams, **settings)
    if device.startswith("cuda") and torch.cuda.device_count() < learning.learners:
        raise ConfigError(
            f"learning.learners={learning.learners} need a GPU each, but torch finds {torch.cuda.device_count()} here. "
            "Lower learning.learners, or set run.device=cpu."
        )
    check_room(
        learning.learners * LEAST_BYTES, f"learning.learners={learning.learners} need", "Lower learning.learners."
    )
    axis = 0 if algo.window() is None and algo.memory() is None else 1  # rows [N], or sequences [T, N]
    return Leader(algo, streams, GroupSpec(make, learning.learners, axis, device, learning.deadline, view.pool.start))


def build_store(player: Player, env: MultiEnv, folder: Path | None) -> Store:
    """A store for the columns of a player; what is wrong with its section is told with the player's name."""
    view, algo = player.config, player.algo
    with told_of(view, player.name):
        goals = goal_functions(player, env)
    needs = StoreNeeds(
        section=view.store,
        algo=algo.name,
        obs_spec=player.frame_spec,
        action_spec=algo.action_spec,
        columns=player.columns,
        collectors=view.pool.workers,
        apart=view.pool.mode == "async",
        rows=algo.rows or 1,
        gamma=view.algo.gamma,
        n_step=view.algo.n_step,
        stack=view.env.stack,
        window=algo.window(),
        memory=algo.memory(),
        goals=goals,
        paid=REWARDS if algo.own_rewards and algo.team.own else None,
        from_env=algo.rule().from_env,
        stream=player.streams.numpy,
        total_steps=view.train.max_steps,
        folder=folder,
    )
    with told_of(view, player.name):
        return view.store_kind.build(needs)


def goal_functions(player: Player, env: MultiEnv) -> GoalFunctions:
    """What the env says about goals. If hindsight will ask, it is tried now with a pair of goals that the env shows."""
    judges = {name: env.method(name) for name in ("compute_reward", "compute_terminated")}
    if player.config.store.hindsight is None:
        return GoalFunctions(**judges)
    check_goals(player.frame_spec, GoalFunctions(**judges))
    agent = next(agent for agent in env.agents if env.obs_spec[agent] == player.frame_spec)
    pair = [np.array(env.obs[agent][key][0]) for key in (ACHIEVED, DESIRED)]
    return GoalFunctions(**{name: for_rows(name, judge, *pair) for name, judge in judges.items() if judge is not None})


# --- collectors and pools ---


def build_collector(
    players: Players,
    env: MultiEnv,
    seats: Chances,
    worker: int,
    streams: Streams,
    *,
    by: By | None = None,
    greedy: bool = False,
) -> Collector:
    """The collector of one worker (or, greedy, of an evaluation), on the live weights of all players. `by`: the user's
    function that seats them."""
    rows = {name: _rows(player, env, seats, worker, greedy) for name, player in players.items()}
    drawn = not greedy and any(len(weights) > 1 for weights in seats.values())
    named = any(player.prefix for player in players.values())
    own: dict[str, Any] = {"noted": named, "worker": worker, "by": by if drawn else None}
    table = Seats(seats, env.num, streams.numpy(f"seats/{worker}") if drawn else None, **own)
    return Collector(env, rows, seats=table, greedy=greedy, index=worker)


def _rows(player: Player, env: MultiEnv, seats: Chances, worker: int, greedy: bool) -> Rows:
    agents = agents_of(seats, player.name)
    if greedy:
        actor = player.actor()
        actor.knobs = player.knob_values
        return Rows(actor, None, env, agents)
    config, columns = player.config, env.num * len(agents)
    actor = player.actor(worker * columns, config.pool.workers * columns)
    priority = config.store.priority
    if priority is not None and priority.initial == "actor" and config.players[player.name].train:
        with told_of(config, player.name):
            actor.judge = Judge(actor, config.algo.gamma, config.algo.rescale)
    stream = player.streams.numpy(f"act/{worker}")
    return Rows(actor, stream, env, agents, stacked=config.store_kind.stacked)


def build_worker(spec: WorkerSpec, streams: Streams) -> tuple[dict[str, Learner], Collector]:
    """What lives in the process of a remote worker: copies of the networks, and the collector that acts with them."""
    config = spec.config
    env = make_env(config, streams, config.env.num, "train", worker=spec.worker, factory=spec.factory)
    seats = seating(config, env)
    players = build_players(config, env, seats, streams, None)
    collector = build_collector(players, env, seats, spec.worker, streams, by=spec.by)
    return {name: player.learner for name, player in players.items()}, collector


def add_player(parts: Parts, config: Config, name: str, mode: Any = None, folder: Path | None = None) -> Player:
    """Build a player that `config` has and the run has not, and seat it in every collector of the pool."""
    seats, pool = seating(config, parts.spaces), parts.pool
    player = build_player(config, name, parts.spaces, seats, parts.streams, {name: mode})
    if config.players[name].train:
        player.store = build_store(player, pool.known_env, folder)
    if isinstance(pool, LocalPool):
        for collector in pool.collectors:
            _seat(collector, player, seats, parts.streams)
    else:
        spec = partial(WorkerSpec, build_worker, config, factory=parts.env_factory, folder=folder, by=_sent(parts.by))
        pool.add_player(config, name, player.learner, spec, extend_worker)
    parts.players[name] = player
    tie(parts.players)
    return player


def _seat(collector: Collector, player: Player, seats: Chances, streams: Streams) -> None:
    rows = _rows(player, collector.env, seats, collector.index, greedy=False)
    collector.add(player.name, rows, seats, streams.numpy(f"seats/{collector.index}"))


def extend_worker(worker: CollectorWorker, config: Config, name: str) -> None:
    """In the process of a remote worker: a player that `config` has and the worker has not."""
    env = worker.collector.env
    seats = seating(config, env)
    player = build_player(config, name, env, seats, worker.streams, None)
    _seat(worker.collector, player, seats, worker.streams)
    worker.learners[name] = player.learner


def _sent(by: By | None) -> Any:
    return None if by is None else Sent(by)


def remote_pool(
    config: Config,
    learners: dict[str, Learner],
    streams: Streams,
    factory: EnvFactory | None,
    folder: Path | None = None,
    by: By | None = None,
) -> RemotePool:
    """The pool of pool.kind=process or ray; its workers start with the first round."""
    spec = partial(WorkerSpec, build_worker, config, factory=factory, folder=folder, by=_sent(by))
    if config.pool.kind == "process":
        from rookery.run.pools.process import ProcessPool

        workers = config.pool.workers
        check_room(workers * LEAST_BYTES, f"pool.workers={workers} processes need", "Lower pool.workers.")

        return ProcessPool(config, learners, streams, spec)
    from rookery.run.pools.ray import RayPool

    return RayPool(config, learners, streams, spec)
