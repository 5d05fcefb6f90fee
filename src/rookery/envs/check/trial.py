"""Trying an env out: random episodes whose every result is looked at, for `checker`."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from rookery.core.spec import spec_of
from rookery.core.tree import leaves
from rookery.envs.actions import legal_sample
from rookery.envs.boundary import BadValue, Receiver, number, reset_problem, step_problem

Moment = tuple[bytes, float, bool, bool]  # observation, reward, terminated, truncated


@dataclass(slots=True)
class Report:
    """What was found: problems must be mended, warnings are worth a look."""

    name: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        findings = {"problems": list(self.problems), "warnings": list(self.warnings), "facts": dict(self.facts)}
        return {"env": self.name, "ok": self.ok, **findings}

    def __str__(self) -> str:
        lines = [f"{self.name}: {'ok' if self.ok else 'has problems'}"]
        lines += [f"  problem: {text}" for text in self.problems] + [f"  warning: {text}" for text in self.warnings]
        return "\n".join([*lines, *(f"  {key}: {value}" for key, value in self.facts.items())])


class Stop(Exception):
    """A problem after which nothing further can be checked."""


@dataclass(slots=True)
class Played:
    """What the random episodes showed."""

    lengths: list[int] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)  # of the episodes that ended, how
    unended: int = 0
    last: Any = None  # the observation before, to see whether its array is reused


def play(env: gymnasium.Env, report: Report, episodes: int, seed: int, max_steps: int) -> Played:
    receiver = Receiver(env.observation_space, spec_of(env.observation_space), 1)
    played, before = Played(), generators()
    env.action_space.seed(seed)
    start, steps = time.perf_counter(), 0
    for episode in range(episodes):
        obs = _reset(env, report, receiver, seed + episode)
        for step in range(1, max_steps + 1):
            obs, ended, terminated = _step(env, report, receiver, obs, played)
            steps += 1
            if ended:
                played.lengths.append(step)
                played.terminated.append(terminated)
                break
        else:
            played.unended += 1
    report.facts["steps_per_second"] = round(steps / max(time.perf_counter() - start, 1e-9))
    report.facts["episode_lengths"] = played.lengths
    if generators() != before:
        report.problems.append(
            "it draws from a global random generator (random or np.random): draw from self.np_random instead"
        )
    return played


def _reset(env: gymnasium.Env, report: Report, receiver: Receiver, seed: int) -> Any:
    try:
        result = env.reset(seed=seed)
    except Exception as error:
        raise Stop(f"reset(seed={seed}) raised {type(error).__name__}: {error}") from error
    if problem := reset_problem(result):
        raise Stop(f"reset: {problem}")
    _look(env, report, receiver, result[0], "reset")
    return result[0]


def _step(env: gymnasium.Env, report: Report, receiver: Receiver, obs: Any, played: Played) -> tuple[Any, bool, bool]:
    action = legal_sample(env.action_space, obs)
    try:
        result = env.step(action)
    except Exception as error:
        raise Stop(f"step({action!r}) raised {type(error).__name__}: {error}") from error
    if problem := step_problem(result):
        raise Stop(f"step: {problem}")
    after, reward, terminated, truncated, info = result
    _look(env, report, receiver, after, "step")
    _check_reward(report, reward)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            _once(report.problems, f"{name} is a {type(flag).__name__}: return bool({name})")
    if not isinstance(info, dict):
        _once(report.problems, f"info is a {type(info).__name__}: return a dict")
    if played.last is not None and _shares(played.last, after):
        _once(
            report.warnings,
            "it returns the same observation array again and again: harmless here (it is copied), not everywhere",
        )
    played.last = after
    return after, bool(terminated) or bool(truncated), bool(terminated)


def _look(env: gymnasium.Env, report: Report, receiver: Receiver, obs: Any, doing: str) -> None:
    try:
        receiver.write(0, obs)
    except BadValue as bad:
        raise Stop(f"in {doing}, {bad}") from bad
    if problem := receiver.problem(0):
        raise Stop(f"in {doing}, {problem[0]}")
    for part in receiver.parts:
        low, high, row = part.leaf.low, part.leaf.high, part.buffer[0]
        if low is not None and ((row < low.astype(row.dtype)) | (row > np.asarray(high).astype(row.dtype))).any():
            _once(
                report.warnings, f"{part.where} leaves the bounds of its Box: widen low and high to what really occurs"
            )
    if not env.observation_space.contains(obs):
        warning = (
            "an observation is not quite what its space declares (dtype width, list instead of array or "
            "bounds): it is cast"
        )
        _once(report.warnings, warning)


def _check_reward(report: Report, reward: Any) -> None:
    try:
        value = number(reward)
    except BadValue as bad:
        raise Stop(str(bad)) from bad
    if not np.isfinite(value):
        raise Stop(f"the reward is {value}: rewards must be finite")
    if not isinstance(reward, float | int | np.floating | np.integer):
        _once(report.warnings, f"the reward is a {type(reward).__name__}: return float(reward)")
    low, high = report.facts.get("reward_range", (value, value))
    report.facts["reward_range"] = (min(low, value), max(high, value))


def trajectory(env: gymnasium.Env, seed: int, actions: list[Any] | None, limit: int) -> tuple[list[Moment], list[Any]]:
    """One episode with the given actions, or with random ones."""
    receiver = Receiver(env.observation_space, spec_of(env.observation_space), 1)
    taken: list[Any] = []
    moments: list[Moment] = []
    try:
        obs, _ = env.reset(seed=seed)
        receiver.write(0, obs)
        moments.append((_bytes(receiver), 0.0, False, False))
        for step in range(limit):
            action = legal_sample(env.action_space, obs) if actions is None else actions[step]
            taken.append(action)
            obs, reward, terminated, truncated, _ = env.step(action)
            receiver.write(0, obs)
            moments.append((_bytes(receiver), number(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                break
    except Exception as error:
        raise Stop(f"replaying an episode with seed {seed} raised {type(error).__name__}: {error}") from error
    return moments, taken


def always_ended_at(length: int) -> str:
    """The warning about a time limit that is called an end."""
    problem = f"every episode terminated after exactly {length} steps"
    return f"{problem}: if that is a time limit, return truncated=True instead, so that values are bootstrapped"


def generators() -> tuple[Any, ...]:
    """The state of the global generators, which an env must not touch."""
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002  # only looked at
    return random.getstate(), state["key"].tobytes(), state["pos"]


def _bytes(receiver: Receiver) -> bytes:
    return b"".join(np.asarray(leaf).tobytes() for leaf in leaves(receiver.obs))


def _shares(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return any(_shares(a[key], b[key]) for key in a if key in b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return any(_shares(x, y) for x, y in zip(a, b))
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def _once(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)
