"""Rules between sections of a config. Each broken one is a sentence that names both fields and what to do.

A rule of one section lives in that section's model, a rule of one algorithm in `Algorithm.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.schedule import Schedule
from rookery.run.config.config import Config
from rookery.run.config.players import renamed
from rookery.run.config.trust import refusals


def broken_rules(config: Config, trusted: bool, *, needs_env: bool = True) -> list[str]:
    """All broken rules. `trusted`: whose code it may name (`trust`); whether there is such an env is asked if one is
    made from the config."""
    rules = [*_of_players(config), *_stops(config), *_rolls_back(config), *_names(config)]
    rules += [*refusals(config, trusted, needs_env), *_workers(config), *_pool(config)]
    return [*rules, *_env(config)] if needs_env else rules


def _of_learning(config: Config) -> list[str]:
    """Rules of whoever learns."""
    own = [*_learns(config), *_reaches(config), *_priorities(config), *_anneals(config), *_hindsight(config)]
    return [*own, *config.algorithm.rules(config), *_shared(config)]


def remarks(config: Config) -> list[str]:
    """What is allowed, but hardly meant: told at the start of a run, which goes on."""
    notes = []
    for name, view in config.views.items():
        prefix = f"players.{name}." if config.players[name].prefix else ""
        epsilon = dict(view.algo).get("epsilon")
        if isinstance(epsilon, Schedule) and epsilon.rises:
            notes.append(
                f"{prefix}algo.epsilon rises during the run ({epsilon}): actions become more random, not less. "
                "Did you mean start and end the other way round?"
            )
    env = config.env
    bare = not (env.wrappers or env.train_wrappers or env.eval_wrappers) and env.engine in ("auto", "gymnasium")
    if str(env.id).startswith("ALE/") and bare:
        notes.append(
            f"env.id={env.id} without a wrapper shows single colour frames of 210 × 160, hard to learn from. "
            "Set env.wrappers=[atari] env.stack=4, or begin with a preset such as pong-ppo (docs/atari.md)."
        )
    return notes


def _priorities(config: Config) -> Iterator[str]:
    """Actors judge their own experience in the rewards of the env."""
    priority = getattr(config.store, "priority", None)
    if config.algo.normalise_reward and priority is not None and priority.initial == "actor":
        yield (
            "store.priority.initial=actor compares Q with the rewards of the env, but algo.normalise_reward=true lets "
            "Q be learnt in other units. Set store.priority.initial=max, or algo.normalise_reward=false"
        )


def _reaches(config: Config) -> Iterator[str]:
    """A return of n steps needs n rows of one env in the store."""
    if config.store_kind.once or config.env.agents != 1:
        return
    n_step, columns = config.algo.n_step, config.env.num * config.pool.workers
    rows = config.store.capacity // columns
    if n_step >= rows:
        yield (
            f"algo.n_step={n_step} sums the rewards of {n_step} steps of one env, but store.capacity="
            f"{config.store.capacity} keeps {rows} of each (env.num × pool.workers = {columns}). "
            f"Raise store.capacity above {n_step * columns}, or lower algo.n_step"
        )


def _shared(config: Config) -> Iterator[str]:
    """Several learners have equal parts of every batch. Where an env has several agents, the size of rollouts is known
    only when players sit."""
    learners, once = config.learning.learners, config.store_kind.once
    if learners == 1:
        return
    if config.run.device == "mps":
        yield (
            f"learning.learners={learners} share gradients on CPUs or CUDA devices, but run.device=mps. "
            "Set run.device=cpu"
        )
    size = 0 if once else config.store.batch_size
    if size % learners:
        yield (
            f"store.batch_size={size} cannot be shared equally by learning.learners={learners}. "
            f"Set store.batch_size={max(1, round(size / learners)) * learners}, or change learning.learners"
        )
    parts = config.algo.minibatches
    if once and config.env.agents == 1 and parts is not None:
        sequence = config.algo.sequence or config.algo.rollout  # appo: whole rollouts
        length = 1 if config.model.core is None else sequence
        size = config.env.num * config.pool.workers * (config.algo.rollout // length) // parts
        if size % learners:
            yield (
                f"a minibatch of env.num × pool.workers × algo.rollout / algo.minibatches={parts} has {size} "
                f"{'rows' if length == 1 else 'sequences'}, which learning.learners={learners} cannot share equally. "
                f"Change algo.minibatches or learning.learners"
            )


def _of_players(config: Config) -> Iterator[str]:
    """Each player's rules; a player that the config names is told of with its name."""
    for name, view in config.views.items():
        for message in _of_learning(view):
            yield renamed(name, message) if config.players[name].prefix else message


def _learns(config: Config) -> Iterator[str]:
    """A run that cannot learn anything must not end with success."""
    limit = config.train.max_steps
    if limit is None:
        return
    if not config.store_kind.once and config.env.agents == 1:  # else its rows are not the env's steps
        fill, ratio = config.store.min_fill, config.store.updates_per_step
        if (limit - fill) * ratio < 1 - 1e-6:  # 1/3 and 0.1 are not quite what they are written as
            yield (
                f"train.max_steps={limit} ends before the first update, which comes after store.min_fill={fill} "
                f"steps and 1 / "
                f"store.updates_per_step={ratio:g} more. Raise train.max_steps, or lower store.min_fill"
            )
    rows = config.algo.rollout or 1
    round_steps = rows * config.env.num * config.pool.workers
    if config.store_kind.once and round_steps > limit:
        yield (
            f"train.max_steps={limit} is less than one rollout, algo.rollout={rows} × env.num={config.env.num} × "
            f"pool.workers={config.pool.workers} = {round_steps} steps: the run would end before the first update. "
            f"Raise train.max_steps, or lower algo.rollout or env.num"
        )


def _anneals(config: Config) -> Iterator[str]:
    """β of prioritised replay is annealed over the whole run, unless told otherwise."""
    priority = config.store.priority
    if priority is None or config.train.max_steps is not None:
        return
    beta = priority.beta
    if beta.steps is None and beta.kind not in ("constant", "piecewise"):
        yield (
            f"store.priority.beta is a {beta.kind} schedule over the whole run (`steps: null`), but "
            f"train.max_steps=null gives the "
            f"run no length. Set store.priority.beta={{kind: linear, start: 0.4, end: 1, steps: 100000}} or "
            f"train.max_steps"
        )


def _stops(config: Config) -> Iterator[str]:
    """A goal that is measured by evaluation needs evaluations before the end."""
    goals = [name for name in config.train.stop if name.startswith("eval/")]
    if goals and not config.eval.every_steps:
        yield (
            f"train.stop waits for {goals[0]!r}, but eval.every_steps=0 evaluates only when the run is over. "
            f"Set eval.every_steps, or remove the goal from train.stop"
        )


def _hindsight(config: Config) -> Iterator[str]:
    """A reward of several steps cannot be computed again from one pair of goals, and a memory has seen the old one."""
    n_step = config.algo.n_step
    if config.store.hindsight is None:
        return
    if config.algorithm.recurrent == "must":
        yield (
            f"store.hindsight gives single steps another goal, but algo.name={config.algo.name} learns from sequences. "
            f"Use dqn or another algorithm without memory, or set store.hindsight=null"
        )
    elif n_step != 1:
        yield (
            f"store.hindsight computes the reward of single steps again, but algo.n_step={n_step} sums several. "
            f"Set algo.n_step=1, or store.hindsight=null"
        )


def _rolls_back(config: Config) -> Iterator[str]:
    if config.sentinel.on_nan == "rollback" and not config.checkpoint.every_steps:
        yield (
            "sentinel.on_nan=rollback goes back to the last checkpoint, but checkpoint.every_steps=0 saves none "
            "before the end. "
            "Set checkpoint.every_steps, or sentinel.on_nan=stop"
        )


def _names(config: Config) -> Iterator[str]:
    """Names of sinks must be known."""
    known = registry.names("sink")
    for name in config.log.sinks:
        if name not in known:
            hint = registry.did_you_mean(name, known)
            yield f"log.sinks: unknown sink {name!r}.{hint} Known: {', '.join(known) or 'none'}"


def _workers(config: Config) -> Iterator[str]:
    """What cannot be stepped in worker processes."""
    from rookery.envs.builders.groups import refusal

    mode = config.env.workers.mode
    if mode == "inline":
        return
    if config.env.engine in ("native", "envpool") or (config.env.agents != 1 and mode == "async"):
        yield refusal(config.env)
    for view in config.views.values():
        if mode == "async" and view.store_kind.once:
            yield (
                f"env.workers=async delivers steps when they are done, some of them chosen by older weights, but "
                f"algo.name={view.algo.name} "
                "learns from whole rollouts of the newest. Set env.workers=subprocess"
            )


def _pool(config: Config) -> Iterator[str]:
    """What cannot be asynchronous."""
    pool = config.pool
    if pool.mode == "sync":
        return
    if pool.kind == "local":
        yield "pool.mode=async needs workers elsewhere, but pool.kind=local. Set pool.kind=process or ray"
    if config.train.max_episodes is not None:
        yield (
            "train.max_episodes is counted exactly, which pool.mode=async cannot. Use train.max_steps, "
            "or pool.mode=sync"
        )
    for player in config.views.values():
        if player.store_kind.once and not player.algorithm.corrects_lag:
            yield (
                f"pool.mode=async learns from rollouts of older weights, for which algo.name={player.algo.name} does "
                f"not correct. Use impala or "
                "appo, or set pool.mode=sync"
            )


def _env(config: Config) -> Iterator[str]:
    """The env must be known before a folder is made for the run; whether it can be built is seen when it is."""
    from rookery.envs.builders.single import find_spec
    from rookery.envs.engines.envpool import known

    name = config.env.id
    if name is None or ":" in name or name in registry.names("env"):
        return
    try:
        (known if config.env.engine == "envpool" else find_spec)(name)
    except ConfigError as error:
        yield f"env.id: {error}"
