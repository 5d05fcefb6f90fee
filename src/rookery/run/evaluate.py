"""Evaluation: greedy episodes, the same number in every env, in envs of their own with their own wrappers and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rookery.acting.actor import Actor
from rookery.acting.frames import Frames
from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import EnvError
from rookery.envs.vector import VectorEnv
from rookery.run.parts import Parts
from rookery.run.progress import Evaluation

LONGEST = 10_000_000  # rows after which an evaluation that does not end is given up


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
        raise EnvError(
            f"an evaluation episode has not ended after {LONGEST} steps: give the env a limit (env.max_episode_steps)"
        )
    ends = [done[i][e] for e in range(quota) for i in range(env.num)][:episodes]
    returns, told = np.array([end.total for end in ends]), [end.success for end in ends if end.success is not None]
    figures = float(returns.mean()), float(returns.std())
    success = sum(told) / len(told) if told else None
    return Evaluation(steps, returns.tolist(), [end.length for end in ends], *figures, success=success)


class Evaluator:
    """Repeats the same evaluation episodes on the live weights; the envs are made when first needed."""

    def __init__(self, parts: Parts):
        self.parts, self.config, self.actor = parts, parts.config.eval, parts.actor()
        self._env: VectorEnv | None = None

    def __call__(self, steps: int) -> Evaluation:
        if self._env is None:
            self._env = self.parts.eval_env(self.config.num, purpose_of(self.config.seed_offset))
        return evaluate(self._env, self.actor, self.config.episodes, steps=steps)

    def close(self) -> None:
        if self._env is not None:
            self._env.close()


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
        env = loaded.make_env(num, seed)
        try:
            result = evaluate(env, loaded.actor, count, steps=loaded.steps)
        finally:
            env.close()
    return result.summary() | {"checkpoint": loaded.checkpoint, "episodes": count, "lengths": result.lengths}
