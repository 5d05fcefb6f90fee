"""Evaluation: greedy episodes, the same number in every env, in envs of their own with their own wrappers and seeds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from rookery.acting.actor import Actor
from rookery.acting.frames import Frames
from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import EnvError
from rookery.envs.multi.env import MultiEnv
from rookery.envs.vector import VectorEnv
from rookery.run.build import Parts
from rookery.run.collect.multicollector import MultiCollector
from rookery.run.collect.seats import Seats
from rookery.run.machine import one_thread
from rookery.run.players import Players
from rookery.run.report.meters import returns_of
from rookery.run.report.progress import Evaluation

LONGEST = 10_000_000  # rows after which an evaluation that does not end is given up
NEVER_ENDS = f"an evaluation episode has not ended after {LONGEST} steps: give the env a limit (env.max_episode_steps)"
ROWS = 32  # of several players' evaluations between looks at what has ended


def evaluate(env: VectorEnv, actor: Actor, episodes: int, *, steps: int = 0) -> Evaluation:
    """`episodes` / env.num greedy episodes per env, from the env's first episode on: the same every time."""
    quota = -(-episodes // env.num)
    done: list[list[EpisodeEnd]] = [[] for _ in range(env.num)]
    obs, first = env.reset(), np.ones(env.num, bool)
    frames = Frames(env.obs_spec, env.num, actor.stack) if actor.stack > 1 else None
    for _ in range(LONGEST):
        out = actor.act(obs if frames is None else frames.push(obs, first), None, first, greedy=True)
        step = env.step(actor.rule.to_env(out["action"]))
        obs, first = step.obs, ~step.valid | step.terminated | step.truncated  # a dead step comes before a start
        for end in step.ended:
            if len(done[end.env]) < quota:
                done[end.env].append(end)
        if step.ended and min(map(len, done)) >= quota:
            break
    else:
        raise EnvError(NEVER_ENDS)
    return result_of(done, quota, episodes, steps)


def result_of(done: list[list[EpisodeEnd]], quota: int, episodes: int, steps: int) -> Evaluation:
    """From the first `quota` episodes of each env, in the order of their numbers."""
    ends = [done[i][e] for e in range(quota) for i in range(len(done))][:episodes]
    returns, told = np.array([end.total for end in ends]), [end.success for end in ends if end.success is not None]
    figures = float(returns.mean()), float(returns.std())
    success = sum(told) / len(told) if told else None
    found = Evaluation(steps, returns.tolist(), [end.length for end in ends], *figures, success=success)
    if ends and "seats" in ends[0].info:
        found.players = _players(ends)
    return found


def _players(ends: list[EpisodeEnd]) -> dict[str, float]:
    """player → mean return over the episodes in which it took part."""
    told = [returns_of(end.info) for end in ends]
    names = dict.fromkeys(name for returns in told for name in returns)
    return {name: float(np.mean([returns[name] for returns in told if name in returns])) for name in names}


def evaluate_players(collector: MultiCollector, episodes: int, *, steps: int = 0) -> Evaluation:
    """As `evaluate`, with everybody in its most likely seat."""
    num = collector.env.num
    quota = -(-episodes // num)
    done: list[list[EpisodeEnd]] = [[] for _ in range(num)]
    collector.reset()
    for _ in range(0, LONGEST, ROWS):
        for end in collector.collect(ROWS).episodes:
            done[end.env].append(end)
        if min(map(len, done)) >= quota:
            return result_of(done, quota, episodes, steps)
    raise EnvError(NEVER_ENDS)


def seat_players(players: Players, env: MultiEnv) -> MultiCollector:
    """The players at an evaluation table; without randomness."""
    from rookery.run.several import seated

    config = next(iter(players.values())).config
    actors = {name: player.actor() for name, player in players.items()}
    for name, actor in actors.items():
        actor.knobs = players[name].knob_values
    seats = Seats(seated(config, env), env.num, None)
    return MultiCollector(env, actors, dict.fromkeys(actors), seats, greedy=True)


class Evaluator:
    """Repeats the same evaluation episodes on the live weights; the envs are made when first needed."""

    def __init__(self, parts: Parts):
        self.parts, self.config, self.actor = parts, parts.config.eval, parts.actor()
        self._env: VectorEnv | None = None
        self._table: MultiCollector | None = None

    def __call__(self, steps: int) -> Evaluation:
        with one_thread():
            return self._play(steps)

    def _play(self, steps: int) -> Evaluation:
        if not self.parts.players.single:
            return evaluate_players(self._seated(), self.config.episodes, steps=steps)
        if self._env is None:
            self._env = self.parts.eval_env(self.config.num, purpose_of(self.config.seed_offset))
        return evaluate(self._env, self.actor, self.config.episodes, steps=steps)

    def _seated(self) -> MultiCollector:
        if self._table is None:
            env = self.parts.eval_table(self.config.num, purpose_of(self.config.seed_offset))
            self._table = seat_players(self.parts.players, env)
        return self._table

    def close(self) -> None:
        for opened in (self._env, self._table):
            if opened is not None:
                opened.close()


def purpose_of(offset: int) -> str:
    """Name of the stream that seeds evaluation envs."""
    return "eval" if offset == 0 else f"eval+{offset}"


def evaluate_run(
    folder: Path | str, episodes: int | None = None, checkpoint: str | int = "last", seed: int | None = None
) -> dict[str, Any]:
    """Evaluate a finished or running run; `seed` None repeats the run's own evaluation seeds."""
    from rookery.run.load import load_run

    with load_run(folder, checkpoint) as loaded:
        config = loaded.config
        count = episodes or config.eval.episodes
        num = next(n for n in range(min(config.eval.num, count), 0, -1) if count % n == 0)
        if loaded.players is not None:
            with closing(seat_players(loaded.players, loaded.make_table(num, seed))) as table:
                result = evaluate_players(table, count, steps=loaded.steps)
        else:
            with closing(loaded.make_env(num, seed)) as env:
                result = evaluate(env, loaded.actor, count, steps=loaded.steps)
    return result.summary() | {"checkpoint": loaded.checkpoint, "episodes": count, "lengths": result.lengths}
