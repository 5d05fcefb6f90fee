"""Evaluation: greedy episodes, the same number in every env, in envs of their own with their own wrappers and seeds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import EnvError, Interrupted
from rookery.run.build import Parts, build_collector, purpose_of, seating
from rookery.run.collect.collector import Collector
from rookery.run.config.sections import EvalConfig
from rookery.run.load import Loaded, load_run
from rookery.run.machine import one_thread
from rookery.run.report.meters import returns_of
from rookery.run.report.progress import Evaluation

log = logging.getLogger("rookery.run")
LONGEST = EvalConfig().max_steps
Look = Callable[[float], Any]


def evaluate(
    collector: Collector, episodes: int, *, steps: int = 0, longest: int = LONGEST, look: Look | None = None
) -> Evaluation:
    """`episodes` / env.num greedy episodes per env, from the env's first episode on: the same every time.

    `longest`: steps at which the envs cut an episode (`eval.max_steps`), for whoever cannot be cut ends the evaluation.
    `look` is told after every row how many seconds it has taken; a reason to give it up raises `Interrupted`.
    """
    num = collector.env.num
    quota = -(-episodes // num)
    done: list[list[EpisodeEnd]] = [[] for _ in range(num)]
    started = monotonic()
    collector.reset()
    for _ in range(2 * quota * (longest + 1)):  # twice: dead steps, dropped episodes
        if ended := collector.play():
            for end in ended:
                done[end.env].append(end)
            if min(map(len, done)) >= quota:
                _tell_cut(done, quota, longest)
                return result_of(done, quota, episodes, steps)
        if look is not None and look(monotonic() - started):
            raise Interrupted
    raise EnvError(
        f"an evaluation episode of {collector.env.name} has not ended after eval.max_steps={longest} steps, and its "
        "engine cannot be told to cut it: give the env a limit (env.max_episode_steps)"
    )


def _tell_cut(done: list[list[EpisodeEnd]], quota: int, longest: int) -> None:
    ends = [end for own in done for end in own[:quota]]
    if cut := [end for end in ends if end.truncated and end.length >= longest]:
        log.warning(
            "%d of %d evaluation episodes had not ended after eval.max_steps=%d steps and were cut there: their "
            "returns so far count. Perhaps the policy is stuck; a limit of the task itself is env.max_episode_steps.",
            *(len(cut), len(ends), longest),
        )


def result_of(done: list[list[EpisodeEnd]], quota: int, episodes: int, steps: int) -> Evaluation:
    """From the first `quota` episodes of each env, in the order of their numbers."""
    ends = [done[i][e] for e in range(quota) for i in range(len(done))][:episodes]
    returns, successes = np.array([end.total for end in ends]), [end.success for end in ends if end.success is not None]
    figures = float(returns.mean()), float(returns.std())
    success = sum(successes) / len(successes) if successes else None
    result = Evaluation(steps, returns.tolist(), [end.length for end in ends], *figures, success=success)
    if ends and "seats" in ends[0].info:
        result.players = _players(ends)
    return result


def _players(ends: list[EpisodeEnd]) -> dict[str, float]:
    """player → mean return over the episodes in which it took part."""
    parts = [returns_of(end.info) for end in ends]
    names = dict.fromkeys(name for returns in parts for name in returns)
    return {name: float(np.mean([returns[name] for returns in parts if name in returns])) for name in names}


class Evaluator:
    """Repeats the same evaluation episodes on the live weights; the envs are made when first needed."""

    def __init__(self, parts: Parts):
        self.parts, self.config = parts, parts.config.eval
        self._collector: Collector | None = None

    def __call__(self, steps: int, look: Look | None = None) -> Evaluation:
        with one_thread():
            if self._collector is None:
                self._collector = self.parts.judge(self.config.num, purpose_of(self.config.seed_offset))
            config = self.config
            return evaluate(self._collector, config.episodes, steps=steps, longest=config.max_steps, look=look)

    def close(self) -> None:
        if self._collector is not None:
            self._collector.close()


def evaluate_run(
    folder: Path | str,
    episodes: int | None = None,
    checkpoint: str | int = "last",
    seed: int | None = None,
    *,
    trust: bool = False,
) -> dict[str, Any]:
    """Evaluate a finished or running run, greedily: mean, std and every return.

    Args:
        folder: of the run.
        episodes: None: as many as `eval.episodes` of the run.
        checkpoint: "best", "last" or a step.
        seed: of the episodes; None repeats the run's own evaluation seeds.
        trust: lets a run that is not your own import the code that its config names.
    """
    with load_run(folder, checkpoint, trust=trust) as loaded:
        config = loaded.config
        count = episodes or config.eval.episodes
        num = next(n for n in range(min(config.eval.num, count), 0, -1) if count % n == 0)
        with closing(_seated(loaded, num, seed)) as collector:
            result = evaluate(collector, count, steps=loaded.steps, longest=config.eval.max_steps)
    return result.summary() | {"checkpoint": loaded.checkpoint, "episodes": count, "lengths": result.lengths}


def _seated(loaded: Loaded, num: int, seed: int | None) -> Collector:
    env = loaded.make_env(num, seed)
    return build_collector(loaded.players, env, seating(loaded.config, env), 0, loaded.streams, greedy=True)
