"""Hindsight: some drawn transitions are given a goal that their episode did reach (Andrychowicz 2017, "HER").

    with probability k / (k + 1): g'           = achieved goal of a successor in the episode, as the strategy chooses
                                  reward       = compute_reward(achieved goal of the own successor, g')
                                  terminated   = compute_terminated(the same), if the env has it; else as it was

The goal is replaced in obs and next_obs of the batch; the ring keeps what happened.
An episode that still runs counts up to its newest step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.core.errors import ConfigError, EnvError
from rookery.core.spec import Leaf, describe
from rookery.core.tree import Tree
from rookery.data.config import HindsightConfig
from rookery.data.replay.leaf import words
from rookery.data.replay.ring import Ring
from rookery.kernels import gather, hindsight

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
KEYS = ("observation", ACHIEVED, DESIRED)
STRATEGIES = {"future": hindsight.FUTURE, "final": hindsight.LAST, "episode": hindsight.EPISODE}


@dataclass(frozen=True, slots=True)
class GoalFunctions:
    """What an env says about goals:
    functions of (achieved [N, …], desired [N, …], N infos) → [N]; None if it has none.
    """

    compute_reward: Callable[[Any, Any, Any], Any] | None
    compute_terminated: Callable[[Any, Any, Any], Any] | None = None


class Hindsight:
    """Relabels batches of a ring in place. `arrays` are those of the ring's reader, with n_step = 1."""

    def __init__(
        self, config: HindsightConfig, ring: Ring, arrays: dict[str, Tree], gamma: float, goals: GoalFunctions
    ):
        check_goals(ring.fields["obs"], goals)
        self._ring, self._arrays, self._gamma, self._goals = ring, arrays, gamma, goals
        self._strategy, self._share = STRATEGIES[config.strategy], config.k / (config.k + 1)
        self._leaf = next(leaf for leaf in ring.obs_leaves if leaf.path == ("obs", ACHIEVED))
        size = len(arrays["reward"])
        self._uniform = np.zeros((2, size))
        self._at = np.zeros(size, np.int64)
        self._goal = np.zeros((size, *self._leaf.shape), self._leaf.dtype)
        self._words = words(self._goal, 1)
        self._infos: list[dict[str, Any]] = [{} for _ in range(size)]  # infos are not stored

    def relabel(self, index: np.ndarray, rng: np.random.Generator) -> None:
        """Give goals in hindsight to some of the transitions at `index`, which the arrays hold."""
        rng.random(out=self._uniform)
        chosen = np.flatnonzero(self._uniform[0] < self._share)
        if not len(chosen):
            return
        ring, leaf, arrays = self._ring, self._leaf, self._arrays
        hindsight.choose_goals(index, self._uniform[1], self._strategy, ring.lanes, ring.meta, self._at)
        gather.copy_rows(leaf.words, leaf.final_words, self._at, self._words)
        goal, achieved = self._goal[chosen], arrays["next_obs"][ACHIEVED][chosen]
        if achieved.ndim > goal.ndim:  # stacked frames: the newest is the successor's own, the goal is the same in all
            achieved, stacked = achieved[:, -1], np.repeat(goal[:, None], achieved.shape[1], axis=1)
        else:
            stacked = goal
        arrays["obs"][DESIRED][chosen] = stacked
        arrays["next_obs"][DESIRED][chosen] = stacked
        arrays["reward"][chosen] = self._asked("compute_reward", achieved, goal)
        if self._goals.compute_terminated is not None:
            ended = self._asked("compute_terminated", achieved, goal)
            arrays["discount"][chosen] = np.where(ended != 0, 0.0, self._gamma)

    def _asked(self, name: str, achieved: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """The env's answer for copies of the goals: [N] finite numbers."""
        count = len(goal)
        try:
            answer = np.asarray(
                getattr(self._goals, name)(achieved.copy(), goal.copy(), self._infos[:count]), np.float32
            )
        except Exception as error:
            raise EnvError(
                f"{name} of the env failed for {count} goals: {type(error).__name__}: {error}. "
                f"Hindsight asks about goals of shape {goal.shape[1:]}, without infos: they are not stored."
            ) from error
        if answer.shape != (count,) or not np.isfinite(answer).all():
            got = f"shape {answer.shape}" if answer.shape != (count,) else "numbers that are not finite"
            raise EnvError(
                f"{name} of the env gave {got} for {count} goals of shape {goal.shape}, expected {count} finite "
                "numbers: it must work on arrays, one goal per row. Use operations over the last axis, e.g. "
                "np.linalg.norm(achieved - desired, axis=-1)."
            )
        return answer


def check_goals(obs_spec: Tree, goals: GoalFunctions) -> None:
    """Refuse an env that hindsight cannot work with."""
    missing = [key for key in KEYS if not isinstance(obs_spec, dict) or key not in obs_spec]
    if missing:
        raise ConfigError(
            f"store.hindsight needs an env whose observation is a Dict with {', '.join(KEYS)}; this one is "
            f"{describe(obs_spec)} and has no {', '.join(missing)}. Choose a goal env, or set store.hindsight=null."
        )
    achieved, desired = obs_spec[ACHIEVED], obs_spec[DESIRED]
    if not isinstance(achieved, Leaf) or achieved != desired or achieved.kind == "discrete":
        raise ConfigError(
            "store.hindsight exchanges goals, so achieved_goal and desired_goal must be arrays of one "
            f"shape and dtype; they are {describe(achieved)} and {describe(desired)}. Make their spaces "
            "equal, or set store.hindsight=null."
        )
    if not callable(goals.compute_reward):
        raise ConfigError(
            "store.hindsight needs the env's compute_reward(achieved_goal, desired_goal, info) to judge a goal that "
            "was not the desired one, but the env has no such method (a vectorised engine hides it: use "
            "env.engine=gymnasium). Add it, or set store.hindsight=null."
        )
