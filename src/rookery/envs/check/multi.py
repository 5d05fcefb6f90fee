"""check_multi: looks at an env with several agents before training does; PettingZoo's own tests where they fit, then
ours."""

from __future__ import annotations

import contextlib
import importlib
import io
import time
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rookery.core import registry
from rookery.core.errors import ConfigError, RookeryError
from rookery.core.spec import describe
from rookery.core.team import PRESENT, WORLD
from rookery.core.tree import Tree, leaves, tree_take
from rookery.envs.actions import legal_sample
from rookery.envs.adapters import api_of, makers_of
from rookery.envs.builders.multi import ENGINES, around_agents, named, spoken, together
from rookery.envs.check.trial import Report, always_ended_at, generators
from rookery.envs.config import EnvConfig
from rookery.envs.multi.env import MultiEnv, MultiStep

_CYCLES = 200  # of PettingZoo's tests
_TEAM_STEPS = 300  # of a team at random
Build = Callable[[], Any]


def speaks_for_several(target: Any, api: str) -> bool:
    """Whether `check_multi` is the check for this target: an env.api of several agents, or an env of PettingZoo's
    kinds."""
    if api != "auto" or not isinstance(target, str):
        return api in ENGINES or (api == "auto" and api_of(target) is not None)
    if ":" not in target and target not in registry.names("env"):
        return False
    try:
        entry = named(target)
    except ConfigError:  # for instance a gymnasium id; the check for one agent says what is wrong
        return target.startswith("pettingzoo")
    several = api_of(entry) is not None or hasattr(entry, "possible_agents")
    return bool(makers_of(entry)) if isinstance(entry, ModuleType) else several


def check_multi(target: Any, report: Report, config: EnvConfig, *, episodes: int, seed: int, max_steps: int) -> Report:
    """Check an id, a class, a factory or an env; every episode is played at random for at most `max_steps` env
    steps. `config.teams` are looked at as well."""
    is_env = not isinstance(target, str | type) and hasattr(target, "step")
    factory = None if isinstance(target, str) else target
    build: Build = lambda: target if is_env else together(config, factory=factory)  # noqa: E731
    own: dict[str, Any] = {"max_episode_steps": config.max_episode_steps, "wrappers": around_agents(config, "eval")}
    try:
        env = build()
        api = spoken(env, config.api)
        if api_of(env) is not None and not is_env:  # an env that somebody holds is not theirs to change
            _ask_pettingzoo(env, api, report)
        before = generators()
        own |= {"seed_of": lambda i, e: seed + e, "name": report.name}
        envs = [ENGINES[api]([build()], **own) for _ in range(1 if is_env else 2)]
        _facts(envs[0], api, report)
        moments, actions = _play(envs[0], report, episodes, max_steps)
        _check_seeding(envs, moments, actions, report)
        if config.teams:
            _check_teams(ENGINES[api]([build()], **own, teams=config.teams, world=config.world), report)
        for each in envs:
            each.close()
        if generators() != before:
            problem = "it draws from a global random generator (random or np.random): own one, seeded in reset"
            report.problems.append(problem)
    except RookeryError as error:
        report.problems.append(str(error))
    return report


def _facts(env: MultiEnv, api: str, report: Report) -> None:
    report.facts["api"] = api
    report.facts["agents"] = list(env.agents)
    for agent in env.agents:
        report.facts[agent] = _spaces(env, agent)


def _spaces(env: MultiEnv, agent: str) -> str:
    return f"observes {describe(env.obs_spec[agent])}, acts {describe(env.action_spec[agent])}"


def _ask_pettingzoo(env: Any, api: str, report: Report) -> None:
    """Their tests print, warn, assert, and leave traces in the env."""
    name = "api_test" if api == "turns" else "parallel_api_test"
    with warnings.catch_warnings(record=True) as messages, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            tests = importlib.import_module("pettingzoo.test")  # needs the packages of all its classic envs
            getattr(tests, name)(env, num_cycles=_CYCLES)
        except ImportError as error:
            report.warnings.append(f"PettingZoo's {name} could not be asked: {error}")
        except Exception as error:  # noqa: BLE001 - whatever the env raises belongs into the report
            what = str(error) or "an assertion without words"
            report.problems.append(f"PettingZoo's {name} failed: {type(error).__name__}: {what}")
        finally:
            env.close()
    texts = dict.fromkeys(str(one.message) for one in messages if not issubclass(one.category, DeprecationWarning))
    report.warnings += [f"PettingZoo's {name}: {text}" for text in texts]


def _play(env: MultiEnv, report: Report, episodes: int, max_steps: int) -> tuple[list[bytes], list[dict[str, Tree]]]:
    """Random episodes; what the first one showed, and its actions."""
    for k, space in enumerate(env.action_spaces.values()):
        space.seed(k)
    env.reset()
    ends: list[Any] = []
    moments, actions = [_bytes(env)], []
    start, steps, left = time.perf_counter(), 0, max_steps
    rows = dict.fromkeys(env.agents, 0)
    cut = False  # some episode
    while len(ends) < episodes and left:
        action = {agent: _sample(env, agent) for agent, acting in env.acting.items() if acting[0]}
        out = env.step(action)
        steps, left = steps + 1, left - 1
        for agent, step in out.agents.items():
            rows[agent] += int(step.valid[0])
            cut = cut or bool(step.truncated[0])
        if not ends:
            actions.append(action)
            moments.append(_moment(env, out))
        if out.ended:
            ends, left = [*ends, *out.ended], max_steps
    report.facts["steps_per_second"] = round(steps / max(time.perf_counter() - start, 1e-9))
    report.facts["episode_lengths"] = [end.length for end in ends]
    report.facts["rows"] = rows
    _check_ends(report, ends, rows, max_steps if not left else None)
    lengths = {end.length for end in ends}
    if len(ends) >= 3 and len(lengths) == 1 and min(lengths) >= 20 and not cut:
        report.warnings.append(always_ended_at(min(lengths)))
    return moments, actions


def _check_ends(report: Report, ends: list[Any], rows: dict[str, int], unended: int | None) -> None:
    if unended is not None:
        report.warnings.append(f"an episode did not end within {unended} steps: set env.max_episode_steps")
    if idle := [agent for agent, count in rows.items() if not count]:
        report.warnings.append(f"{idle} never completed a decision in random play: do they ever act?")
    if unsaid := sorted({agent for end in ends for agent in end.info["unsaid"]}):
        report.warnings.append(
            f"the env ended without saying so for {unsaid}, which counts as truncated: set terminated or truncated "
            f"for every agent"
        )


def _sample(env: MultiEnv, agent: str) -> Tree:
    drawn = legal_sample(env.action_spaces[agent], tree_take(env.obs[agent], 0))
    return _batched(drawn, env.action_spec[agent])


def _batched(drawn: Any, spec: Tree) -> Tree:
    """One action of a gymnasium space as a batch of one, counted from 0."""
    if isinstance(spec, dict):
        parts = drawn if isinstance(drawn, dict) else dict(enumerate(drawn))
        return {str(key): _batched(part, spec[str(key)]) for key, part in parts.items()}
    return np.asarray(drawn - spec.start if spec.kind == "discrete" else drawn)[None]


def _check_seeding(
    envs: Sequence[MultiEnv], moments: list[bytes], actions: list[dict[str, Tree]], report: Report
) -> None:
    same = True
    for env in envs:
        env.reset()
        again = [_bytes(env)]
        for action in actions:
            if action.keys() != {agent for agent, acting in env.acting.items() if acting[0]}:
                break
            again.append(_moment(env, env.step(action)))
        same = same and again == moments
    report.facts["deterministic"] = same
    report.facts["resume"] = "exact" if same else "approximate"
    if not same:
        problem = "the same seed and actions gave another episode: a resumed run will be approximate"
        report.warnings.append(
            f"{problem}. Let reset(seed=…) start a generator, draw only from it, set all state in reset"
        )


def _check_teams(env: MultiEnv, report: Report) -> None:
    """A few hundred random steps of `env.teams`; what a mixer or central critic would see of the world."""
    env.reset()
    teams = [agent for agent, spec in env.obs_spec.items() if isinstance(spec, dict) and PRESENT in spec]
    present = {team: np.zeros(env.obs_spec[team][PRESENT].shape, bool) for team in teams}
    worlds: set[bytes] = set()
    for _ in range(_TEAM_STEPS):
        for team in (team for team in teams if env.acting[team][0]):
            present[team] |= env.obs[team][PRESENT][0].astype(bool)
            worlds.add(np.asarray(env.obs[team].get(WORLD, 0)).tobytes())
        env.step({agent: _sample(env, agent) for agent, acting in env.acting.items() if acting[0]})
    for team in teams:
        state = WORLD in env.obs_spec[team]
        report.facts[team] = f"{_spaces(env, team)}, world: {'state()' if state else 'what its members see'}"
        if idle := [k for k, there in enumerate(present[team]) if not there]:
            report.warnings.append(f"members {idle} of team {team!r} never had to act in {_TEAM_STEPS} random steps")
        if state and len(worlds) == 1:
            report.warnings.append(
                f"state() was the same in {_TEAM_STEPS} random steps: a mixer learns nothing from it. Return the state "
                "of the env, or set env.world=joined"
            )
    env.close()


def _moment(env: MultiEnv, out: MultiStep) -> bytes:
    flags = [(step.reward[0], step.terminated[0], step.truncated[0]) for step in out.agents.values()]
    return _bytes(env) + str(flags).encode()


def _bytes(env: MultiEnv) -> bytes:
    """What those who must act see."""
    parts = [(agent, leaves(env.obs[agent])) for agent, acting in env.acting.items() if acting[0]]
    return b"|".join(agent.encode() + b"".join(np.asarray(leaf).tobytes() for leaf in own) for agent, own in parts)
