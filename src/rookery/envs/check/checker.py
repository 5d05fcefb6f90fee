"""check_env: looks at an env before training does, and says in sentences what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.config.check import Checker, InvalidConfig
from rookery.core.config.layers import Layer, Merged
from rookery.core.config.overrides import Overrides, as_texts, parse_overrides
from rookery.core.errors import ConfigError, RookeryError
from rookery.core.spec import describe, spec_of
from rookery.envs.action_log import snapshot_layers
from rookery.envs.actions import action_spec_of
from rookery.envs.adapters import FourTuple, adapted
from rookery.envs.builders.single import single
from rookery.envs.check.goals import check_goals
from rookery.envs.check.multi import check_multi, speaks_for_several
from rookery.envs.check.trial import Played, Report, Stop, always_ended_at, play, trajectory
from rookery.envs.closing import close_problem
from rookery.envs.config import EnvConfig


def check_env(
    target: Any,
    *,
    episodes: int = 5,
    seed: int = 0,
    max_steps: int = 1000,
    api: str = "auto",
    settings: Overrides = (),
) -> Report:
    """Check an env against what Rookery relies on; the report says in sentences what to change.

    Args:
        target: an id, an env class, a factory or an env.
        episodes: that are played, at random.
        seed: of resets and actions.
        max_steps: of each episode.
        api: as `env.api`: auto, gymnasium, four, parallel, turns, dict, tuple.
        settings: further options of the env, `["env.teams.red=[a, b]"]` or `{"env.kwargs": {"size": 5}}`.
    """
    report = Report(_name(target))
    config = _config(target, api, settings)
    if speaks_for_several(target, config.api):
        return check_multi(target, report, config, episodes=episodes, seed=seed, max_steps=max_steps)
    try:
        env, again = _made(target, config)
    except RookeryError as error:
        report.problems.append(str(error))
        return report
    try:
        _check_spaces(env, report)
        played = play(env, report, episodes, seed, max_steps)
        _check_ends(env, report, played, max_steps)
        _check_seeding(env, again, report, seed, max_steps)
        _check_render(env, report)
        check_goals(env, report, seed)
    except Stop as stop:
        report.problems.append(str(stop))
    finally:
        if problem := close_problem([env]):
            report.warnings.append(problem)
    return report


def _name(target: Any) -> str:
    if isinstance(target, str):
        return target
    return getattr(target, "__qualname__", None) or str(target)


def _config(target: Any, api: str, settings: Overrides) -> EnvConfig:
    """The section `env`; all that is wrong with it at once."""
    named = {"id": target if isinstance(target, str) else None} | ({} if api == "auto" else {"api": api})
    layer = parse_overrides(as_texts(settings))
    if others := [name for name in layer.tree if name != "env"]:
        raise ConfigError(f"only an env is checked: expected options such as env.kwargs, got {', '.join(others)}")
    checker = Checker(Merged([layer, Layer("argument", {"env": named})]))
    config = checker.section("env", EnvConfig)
    if checker.problems or not isinstance(config, EnvConfig):
        raise InvalidConfig(checker.problems)
    return config


def _made(target: Any, config: EnvConfig) -> tuple[gymnasium.Env, Callable[[], gymnasium.Env] | None]:
    """(the env, how to make another one if that is known)."""
    if not isinstance(target, str) and not isinstance(target, type) and hasattr(target, "step"):
        return adapted(target, config.api), None
    build = lambda: single(config, factory=None if isinstance(target, str) else target)  # noqa: E731
    return build(), build


def _check_spaces(env: gymnasium.Env, report: Report) -> None:
    report.facts["api"] = "four values (adapted)" if isinstance(env.unwrapped, FourTuple) else "gymnasium"
    try:
        report.facts["observation"] = describe(spec_of(env.observation_space, "the observation space"))
        report.facts["action"] = describe(action_spec_of(env.action_space, "the action space"))
    except RookeryError as error:
        raise Stop(str(error)) from error
    for box in _boxes(env.action_space):
        if not (np.isfinite(box.low).all() and np.isfinite(box.high).all()):
            report.warnings.append(
                f"the action space {box} has infinite bounds: squashed policies (SAC) need finite ones"
            )
    for box in _boxes(env.observation_space):
        if box.dtype == np.float64:
            report.warnings.append("an observation is declared float64: it is stored as float32")


def _boxes(space: Any) -> Iterator[spaces.Box]:
    if isinstance(space, spaces.Box):
        yield space
    elif isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            yield from _boxes(part)


def _check_ends(env: gymnasium.Env, report: Report, played: Played, max_steps: int) -> None:
    spec = env.spec
    limit = spec.max_episode_steps if spec is not None else getattr(env, "_max_episode_steps", None)
    report.facts["time_limit"] = limit
    if limit is None and played.unended:
        problem = f"{played.unended} episode(s) did not end within {max_steps} steps and there is no time limit"
        report.warnings.append(f"{problem}: set env.max_episode_steps")
    same = len(set(played.lengths)) == 1 and len(played.lengths) >= 3 and played.lengths[0] >= 20
    if same and all(played.terminated) and not played.unended:
        report.warnings.append(always_ended_at(played.lengths[0]))


def _check_seeding(
    env: gymnasium.Env, again: Callable[[], gymnasium.Env] | None, report: Report, seed: int, max_steps: int
) -> None:
    first, actions = trajectory(env, seed, None, min(max_steps, 200))
    repeated, _ = trajectory(env, seed, actions, len(actions))
    fresh = repeated
    if again is not None:
        other = again()
        try:
            fresh, _ = trajectory(other, seed, actions, len(actions))
        finally:
            close_problem([other])
    report.facts["deterministic"] = first == repeated == fresh
    snapshot = snapshot_layers(env) is not None
    report.facts["resume"] = "exact" if snapshot or report.facts["deterministic"] else "approximate"
    if first != repeated or first != fresh:
        where = (
            "" if first != repeated else " in a newly made env (something is carried over from one episode to the next)"
        )
        problem = f"the same seed and actions gave another trajectory{where}: a resumed run will be approximate"
        report.warnings.append(
            f"{problem}. Let reset(seed=…) call super().reset(seed=seed), draw only from self.np_random, "
            f"set all state in reset"
        )


def _check_render(env: gymnasium.Env, report: Report) -> None:
    modes = (env.metadata or {}).get("render_modes")
    report.facts["render_modes"] = list(modes or [])
    if modes is None:
        report.warnings.append(
            "metadata has no 'render_modes': add metadata = {'render_modes': [...], 'render_fps': 30} to the class"
        )
    elif modes and "render_fps" not in env.metadata:
        report.warnings.append("metadata names render modes but no 'render_fps': videos would have no speed")
