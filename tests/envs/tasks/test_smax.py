"""SMAX: what is missing is told; with JaxMARL, battles are exact by seed, masked, and end as they should."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from rookery import Trainer, check_env, load_config
from rookery.core.errors import ConfigError
from rookery.envs.tasks.smax import SMAX


@pytest.fixture
def jaxmarl():
    if importlib.util.find_spec("jaxmarl") is None:
        pytest.skip('jaxmarl is not installed: pip install "rookery[smax]"')


def test_a_missing_package_is_told_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None)
    with pytest.raises(ConfigError, match=r'rookery/SMAX-v0 needs jaxmarl, .* pip install "rookery\[smax\]"'):
        SMAX("a scenario that nobody has compiled yet")


@pytest.mark.matrix
def test_a_scenario_that_is_not_there_is_told_with_the_nearest(jaxmarl):
    with pytest.raises(ConfigError, match=r"scenario '2s4z' is none of 3m, 2s3z, .* Did you mean '2s3z'"):
        SMAX("2s4z")


@pytest.mark.matrix
@pytest.mark.parametrize("scenario", ["3m", "2s3z"])
def test_battles_are_exact_by_seed_and_say_nothing(jaxmarl, capfd, scenario):
    settings = {"env.kwargs": {"scenario": scenario}, "env.teams": {"team": "ally_*"}}
    report = check_env("rookery/SMAX-v0", api="parallel", episodes=2, settings=settings)
    assert (report.problems, report.warnings, report.facts["resume"]) == ([], [], "exact")
    assert report.facts["team"].endswith("world: state()")
    assert capfd.readouterr().out == ""
    json.dumps(report.to_dict())


def played(env, seed, choose):
    """(how it ended for who was there, what each was paid)."""
    obs, _ = env.reset(seed)
    total = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        assert env.state_space.contains(env.state())
        assert all(env.observation_space(agent).contains(obs[agent]) for agent in env.agents)
        actions = {agent: choose(obs[agent]["action_mask"]) for agent in env.agents}
        obs, reward, terminated, truncated, infos = env.step(actions)
        total = {agent: total[agent] + reward[agent] for agent in total}
    return terminated, truncated, infos, total


@pytest.mark.matrix
def test_a_lost_battle_terminates_and_time_truncates(jaxmarl):
    env = SMAX("3m")
    stop = lambda mask: 4  # noqa: E731
    terminated, truncated, infos, total = played(env, 0, stop)
    assert all(terminated.values())
    assert not any(truncated.values())
    assert {info["is_success"] for info in infos.values()} == {False}
    assert len(set(total.values())) == 1, "all are paid alike, also who has fallen"
    terminated, truncated, _, _ = played(SMAX("3m", max_steps=3), 0, stop)
    assert list(truncated.values()) == [True] * 3
    assert not any(terminated.values())


@pytest.mark.matrix
def test_who_shoots_whenever_it_may_hurts_the_enemy(jaxmarl):
    shoot = lambda mask: int(np.flatnonzero(mask)[-1])  # noqa: E731
    totals = [played(SMAX("3m"), seed, shoot)[3]["ally_0"] for seed in range(3)]
    assert max(totals) > 0.3


@pytest.mark.matrix
@pytest.mark.parametrize("preset", ["smax-3m-qmix", "smax-3m-vdn"])
def test_a_preset_trains(jaxmarl, preset):
    words = ["env.num=2", "train.max_steps=200", "store.min_fill=128", "learning.mode=eager", "eval.every_steps=0"]
    with Trainer(load_config(preset, overrides=[*words, "eval.episodes=2", "eval.num=2"])) as trainer:
        *_, progress = trainer
    assert np.isfinite(progress.evaluation.mean)
