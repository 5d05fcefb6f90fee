"""Parts: from a config to the objects of a run — algorithm, learner, store, collectors, pool."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from rookery import envs
from rookery.acting.actor import Actor
from rookery.acting.players import MAIN
from rookery.algos.base import Algorithm
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.core.schedule import Schedule
from rookery.core.spec import stacked_spec
from rookery.core.tree import Tree
from rookery.data.mixture import Mixture
from rookery.data.recorded.demonstrations import Demonstrations
from rookery.data.replay.hindsight import GoalFunctions
from rookery.data.replay.leaf import stored_spec
from rookery.data.replay.sequences import Window
from rookery.data.replay.store import ReplayStore
from rookery.data.rollout import RolloutStore
from rookery.data.shares import rows_of
from rookery.data.store import Store
from rookery.envs.config import WorkersConfig
from rookery.envs.multi.env import MultiEnv
from rookery.envs.vector import VectorEnv
from rookery.learning.compiled.cache import Cache, default_folder
from rookery.learning.learner import Learner, Mode
from rookery.run.collect.collector import Collector
from rookery.run.config.option_owners import NOT_OF_SEQUENCES
from rookery.run.config.resolve import Config
from rookery.run.learners import build_learner
from rookery.run.players import Player, Players, actor_of, collecting
from rookery.run.pools.local import LocalPool
from rookery.run.pools.remote import RemotePool

EnvFactory = Callable[..., Any]
Pool = LocalPool | RemotePool


@dataclass(slots=True)
class Parts:
    """The objects of one run; of several players, the first that learns is spoken of where one is."""

    config: Config
    streams: Streams
    algo: Algorithm
    learner: Learner
    store: Store
    pool: Pool
    knobs: dict[str, Schedule]
    mode_reason: str
    env_factory: EnvFactory | None = None
    frame_spec: Tree = None  # of one observation; networks see `env.stack` of them
    players: Players = field(default_factory=Players)

    def __post_init__(self) -> None:
        if not self.players:
            own = self.algo, self.learner, self.store, self.knobs, self.mode_reason, self.frame_spec
            self.players[MAIN] = Player(MAIN, self.config, self.streams, *own)

    def actor(self) -> Actor:
        """An actor of its own on the learner's live weights."""
        return actor_of(self.algo, self.algo.rule(), self.learner, self.config.env.stack)

    def eval_env(self, num: int, purpose: str = "eval") -> VectorEnv:
        """Envs with the evaluation wrappers, and seeds that depend on `purpose` only."""
        return make_env(self.config, self.streams, num, "eval", factory=self.env_factory, seeds=purpose)

    def eval_table(self, num: int, purpose: str = "eval") -> MultiEnv:
        """The same with several agents."""
        from rookery.run.several import make_several  # it needs this module

        return make_several(
            self.config, seeded_for(self.streams, "eval", purpose), num, "eval", factory=self.env_factory
        )


def seeded_for(streams: Streams, purpose: str, seeds: str | None) -> Streams:
    """The streams that seed envs: those of the run, or others for another name."""
    return streams if seeds is None or seeds == purpose else Streams(streams.seed_of("envs", seeds))


def make_env(
    config: Config,
    streams: Streams,
    num: int,
    purpose: str,
    *,
    worker: int = 0,
    factory: EnvFactory | None = None,
    seeds: str | None = None,
    here: bool = False,
) -> VectorEnv:
    """The envs of one worker, or those of an evaluation. `here`: in this process, whatever env.workers says."""
    source = seeded_for(streams, purpose, seeds)
    at_once = config.pool.workers if purpose == "train" and config.pool.kind != "local" else 1
    section = config.env.model_copy(update={"workers": WorkersConfig()}) if here else config.env.shared_by(at_once)
    return envs.make(section, count=num, purpose=purpose, streams=source, worker=worker, factory=factory)  # type: ignore[arg-type]


def build_parts(
    config: Config, *, env: EnvFactory | None = None, mode: Any = None, folder: Path | None = None
) -> Parts:
    """`mode` given: that (or those, by player) of the run being resumed, which never change. `folder`: that of the run, if it has one."""
    streams = Streams(config.run.seed)
    remote = config.pool.kind != "local"
    if config.players is not None:
        return _parts_of_several(config, env, mode, folder)
    with ExitStack() as unfinished:  # closes the envs if anything below fails
        vectors = []
        for w in range(1 if remote else config.pool.workers):  # remote: one env, to know its spaces
            count = 1 if remote else config.env.num
            vectors.append(make_env(config, streams, count, "train", worker=w, factory=env, here=remote))
            unfinished.callback(vectors[-1].close)
        obs_spec = stacked_spec(vectors[0].obs_spec, config.env.stack)
        algo = config.algorithm(config.algo, obs_spec, vectors[0].action_spec, config.model)
        chosen, reason = (mode, "as in the run being resumed") if mode else choose_mode(config)
        automatic = mode is None and config.learning.mode == "auto"
        settings = {"mode": chosen, "cache": cache_of(config), "device": device_of(config), "fall_back": automatic}
        learner = build_learner(config, algo, streams, settings)
        store = build_store(config, algo, vectors[0], streams, folder)
        pool: Pool
        if remote:
            pool = remote_pool(config, {MAIN: learner}, streams, env)
            pool.spare = vectors[0]
        else:
            pool = LocalPool([collector_of(config, learner, vector, w, streams) for w, vector in enumerate(vectors)])
        unfinished.pop_all()
    knobs = {name: schedule.resolved(config.train.max_steps) for name, schedule in algo.knobs().items()}
    return Parts(config, streams, algo, learner, store, pool, knobs, reason, env, vectors[0].obs_spec)


def collector_of(config: Config, learner: Learner, env: VectorEnv, worker: int, streams: Streams) -> Collector:
    """The collector of one worker, on the live weights of a learner."""
    algo, num = cast(Algorithm, learner.algo), config.env.num
    actor = actor_of(algo, algo.rule(worker * num, config.pool.workers * num), learner, config.env.stack)
    stacked = algo.store_kind == "rollout"  # a rollout is read once: nothing is saved by stacking it later
    return Collector(env, collecting(actor, config), streams.numpy(f"act/{worker}"), index=worker, stack_rows=stacked)


def remote_pool(
    config: Config, learners: dict[str, Learner], streams: Streams, factory: EnvFactory | None
) -> RemotePool:
    """The pool of pool.kind=process or ray; its workers start with the first round."""
    if config.pool.kind == "process":
        from rookery.run.pools.process import ProcessPool

        return ProcessPool(config, learners, streams, factory)
    from rookery.run.pools.ray import RayPool

    return RayPool(config, learners, streams, factory)


def _parts_of_several(config: Config, env: EnvFactory | None, modes: Any, folder: Path | None) -> Parts:
    from rookery.run.several import build_several  # it needs this module

    streams, players, pool = build_several(config, env, modes, folder)
    main = players.main
    assert main.store is not None
    own = main.algo, main.learner, main.store, pool, main.knobs, main.mode_reason
    return Parts(config, streams, *own, env, main.frame_spec, players)


def build_store(config: Config, algo: Algorithm, env: VectorEnv, streams: Streams, folder: Path | None = None) -> Store:
    workers, num = config.pool.workers, config.env.num
    if algo.store_kind == "rollout":
        together = 1 if config.pool.mode == "async" else workers  # asynchronously each chunk is a batch of its own
        return RolloutStore(rows=algo.rows or 1, columns=num * together, collectors=together)
    check_windows(config, algo)
    check_room(config, algo.window())
    rows, demonstrations = build_demonstrations(config, algo, env, streams)
    store = ReplayStore(
        config.store.model_copy(update={"batch_size": config.store.batch_size - rows}),
        env.obs_spec,
        env.action_spec,
        columns=num * workers,
        gamma=config.algo.gamma,
        n_step=getattr(config.algo, "n_step", 1),
        rng=streams.numpy("store"),
        collectors=workers,
        window=algo.window(),
        extras={"state": algo.memory()} if algo.window() is not None else None,
        stack=config.env.stack,
        goals=GoalFunctions(env.method("compute_reward"), env.method("compute_terminated")),
        total_steps=config.train.max_steps,
        scratch=folder,
    )
    if demonstrations is None:
        return store
    share = rows / config.store.batch_size
    return Mixture({"replay": store, "demonstrations": demonstrations}, {"replay": 1 - share, "demonstrations": share})


def check_windows(config: Config, algo: Algorithm) -> None:
    """What sequences cannot be combined with."""
    given = {f"store.{name}": getattr(config.store, name) is not None for name in NOT_OF_SEQUENCES}
    given["env.stack"] = config.env.stack > 1
    for key, is_set in given.items():
        if is_set and algo.window() is not None:
            raise ConfigError(
                f"{key} is set, but algo.name={algo.name} learns from sequences, which cannot have it. Remove {key}."
            )


def check_room(config: Config, window: Window | None, agents: int = 1) -> None:
    """A column of the replay must hold at least one whole sequence."""
    if window is None:
        return
    columns, needed = config.env.num * config.pool.workers * agents, window.burn_in + window.length
    whom = "envs" if agents == 1 else "seats"
    if config.store.capacity < needed * columns:
        raise ConfigError(
            f"store.capacity={config.store.capacity} is {config.store.capacity // columns} steps for each of the {columns} {whom}, but a sequence "
            f"(algo.burn_in + algo.sequence) has {needed}: none would ever be complete. Raise store.capacity to at least {needed * columns}."
        )


def build_demonstrations(
    config: Config, algo: Algorithm, env: VectorEnv, streams: Streams
) -> tuple[int, Demonstrations | None]:
    """(rows of each batch, the store they come from)."""
    path, size, share = config.store.demonstrations, config.store.batch_size, config.store.demonstration_share
    if path is None:
        return 0, None
    rows = rows_of(size, share, ("store.batch_size", "store.demonstration_share"))
    demonstrations = Demonstrations(
        path,
        stored_spec(env.obs_spec, env.action_spec),
        rows,
        streams.numpy("store/demonstrations"),
        n_step=getattr(config.algo, "n_step", 1),
        gamma=config.algo.gamma,
        from_env=getattr(algo.rule(), "from_env", None),
        stack=config.env.stack,
    )
    return rows, demonstrations


def choose_mode(config: Config) -> tuple[Mode, str]:
    """(mode, why): a pure function of config and machine."""
    wanted, algorithm = config.learning.mode, config.algorithm
    if wanted == "eager":
        return "eager", "learning.mode=eager"
    from rookery.learning.compiled.artefact import unavailable
    from rookery.learning.compiled.internals import untested
    from rookery.learning.compiled.key import compiler

    problem = algorithm.eager_only or unavailable()
    if config.learning.learners > 1:
        problem = f"learning.learners={config.learning.learners} exchange gradients in the middle of an update"
    if problem is None and device_of(config) != "cpu":
        problem = f"compiled updates run on the CPU, run.device is {config.run.device}"
    note = f"; {untested()}" if untested() else ""
    if wanted == "compiled":
        if problem:
            raise ConfigError(f"learning.mode=compiled is not possible: {problem}. Set learning.mode=auto or eager.")
        return "compiled", f"learning.mode=compiled{note}"
    if problem:
        return "eager", problem
    planned, least = algorithm.planned_updates(config), config.learning.compile_after
    if planned < least:
        return "eager", f"{planned} updates planned < learning.compile_after={least}"
    found = f"{Path(compiler() or '').name} found, {planned} updates planned ≥ learning.compile_after={least}"
    return "compiled", found + note


def cache_of(config: Config) -> Cache:
    """Where compiled artefacts live, and the bounds of that folder."""
    given = config.learning.cache
    folder = Path(given).expanduser().absolute() if given else default_folder()
    return Cache(folder, config.learning.cache_bytes, config.learning.cache_days)


def device_of(config: Config) -> str:
    """The learner's device; a device that is not there is an error before anything starts."""
    wanted = config.run.device
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = wanted.partition(":")[0]
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"run.device={wanted}, but torch finds no CUDA device here. Set run.device=cpu or auto.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("run.device=mps, but torch finds no Metal device here. Set run.device=cpu or auto.")
    return wanted
