"""What a goal env says about goals, looked at before hindsight asks: alone, for `check_env` and nobody else, since no
other env has it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import EnvError
from rookery.envs.boundary import number
from rookery.envs.check.trial import Report, Stop
from rookery.envs.faults import place
from rookery.envs.goal_functions import GOALS, ByRow, Judge, for_rows


def check_goals(env: gymnasium.Env, report: Report, seed: int) -> None:
    """Whether the two functions can be asked, and whether they say what `step` said."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or any(key not in space.spaces for key in GOALS):
        return
    if isinstance(space["achieved_goal"], spaces.Dict | spaces.Tuple):
        report.warnings.append("its goals are no arrays: store.hindsight cannot be used")
        return
    env.reset(seed=seed)
    obs, reward, terminated, _, info = env.step(env.action_space.sample())
    pair = obs["achieved_goal"], obs["desired_goal"]
    for name, said in (("compute_reward", reward), ("compute_terminated", terminated)):
        judge = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
        if judge is None and name == "compute_reward":
            report.warnings.append("it shows goals but has no compute_reward: store.hindsight cannot be used")
        if judge is None:
            report.facts[name] = "none"
            continue
        try:
            judged = for_rows(name, judge, *(np.asarray(goal) for goal in pair))
            report.facts[name] = "one pair of goals at a time" if isinstance(judged, ByRow) else "many goals at once"
            _compare(report, name, judged, pair, info, said)
        except EnvError as error:
            report.warnings.append(f"store.hindsight cannot be used: {error}")


def _compare(report: Report, name: str, judge: Judge, pair: tuple[Any, Any], info: Any, said: Any) -> None:
    """With the info of the step: that it can do without was tried before."""
    try:
        achieved, desired = (np.asarray(goal)[None] for goal in pair)
        again = float(np.ravel(judge(achieved, desired, [info]))[0])
    except Exception as error:
        raise Stop(f"{name} raised {type(error).__name__}: {error}{place(error)}") from error
    if not np.isclose(again, number(said), rtol=1e-4, atol=1e-6):
        report.warnings.append(
            f"{name} gave {again:g} for the goals of a step for which step itself gave {said}: in hindsight something "
            "else would be learnt than the task"
        )
