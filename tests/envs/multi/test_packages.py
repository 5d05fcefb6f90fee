"""Envs of other packages (mpe2, lbforaging, rware): seeds, limits, teams; and what is said where one is missing."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from rookery import check_env, load_config
from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make_multi
from rookery.envs.packages import must_have
from rookery.testing.multi_env import MultiEnvContract

WORLDS = ["simple_spread_v3", "simple_speaker_listener_v4", "simple_adversary_v3", "simple_tag_v3"]


def env_of(preset, **changes):
    """The env of a preset, as its runs have it; skipped where its package is missing."""
    section = load_config(preset, needs_env=False).env
    package = section.id.partition(":")[0]
    pytest.importorskip(package, reason=f'{package} is not installed: pip install "rookery[marl]"')
    section = section.model_copy(update=changes)
    return make_multi(section, count=2, purpose="train", streams=Streams(5))


@pytest.mark.parametrize(
    ("env_id", "api", "told"),
    [
        ("mpe2:simple_spread_v3", "parallel", 'needs mpe2, which is not installed: pip install "rookery[marl]"'),
        ("lbforaging:Foraging-8x8-2p-2f-coop-v3", "tuple", 'needs lbforaging, .* pip install "rookery[marl]"'),
        ("rware:rware-tiny-2ag-v2", "tuple", 'needs rware, .* pip install "rookery[marl]"'),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(monkeypatch, env_id, api, told):
    real = importlib.util.find_spec
    missing = env_id.partition(":")[0]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == missing else real(name, *a))
    with pytest.raises(ConfigError, match=told.replace("[marl]", r"\[marl\]")):
        make_multi(EnvConfig(id=env_id, api=api), count=1, purpose="train", streams=Streams(0))


def test_packages_of_no_extra_are_nobodys_business():
    must_have("no_such_package.at_all", "it")


@pytest.mark.parametrize("name", [name for name in registry.names("preset") if name.startswith("two-step-")])
def test_presets_of_teams_name_their_team_and_its_pay(name):
    config = load_config(name)
    assert config.env.teams["team"].members == ("a", "b")
    assert config.env.teams["team"].reward == "mean"


@pytest.mark.matrix
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("api", ["parallel", "turns"])
def test_particle_worlds_are_exact_in_both_apis(world, api):
    pytest.importorskip("mpe2", reason='mpe2 is not installed: pip install "rookery[marl]"')
    report = check_env(f"mpe2:{world}", api=api, episodes=2)
    assert (report.problems, report.warnings, report.facts["resume"]) == ([], [], "exact")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("env_id", "limit", "kwargs"),
    [
        ("lbforaging:Foraging-8x8-2p-2f-coop-v3", 50, {"max_episode_steps": 51}),
        ("rware:rware-tiny-2ag-v2", 500, {"max_steps": None}),
    ],
)
def test_their_own_time_limit_is_called_an_end_and_ours_is_not(env_id, limit, kwargs):
    pytest.importorskip(env_id.partition(":")[0], reason='not installed: pip install "rookery[marl]"')
    (told,) = check_env(env_id, api="tuple", episodes=3).warnings
    assert f"every episode terminated after exactly {limit} steps" in told
    settings = {"env.kwargs": kwargs, "env.max_episode_steps": limit, "env.teams": {"team": "agent_*"}}
    report = check_env(env_id, api="tuple", episodes=3, settings=settings)
    assert (report.problems, report.warnings, report.facts["resume"]) == ([], [], "exact")
    assert report.facts["episode_lengths"] == [limit] * 3
    assert "world: what its members see" in report.facts["team"]


@pytest.mark.matrix
def test_a_team_of_foragers_is_paid_what_its_members_are_and_cut_at_the_limit():
    env = env_of("lbf-vdn")
    rng = np.random.default_rng(0)
    env.reset()
    total, ended = np.zeros(2), []
    for _ in range(50):
        out = env.step({"team": rng.integers(6, size=(2, 2))})
        total += out.agents["team"].reward
        ended += out.ended
    assert out.agents["team"].truncated.all()
    assert not out.agents["team"].terminated.any()
    np.testing.assert_allclose([end.total for end in ended], total, rtol=1e-6)


@pytest.mark.matrix
class TestSpread(MultiEnvContract):
    steps = 60

    def make(self):
        return env_of("spread-qmix")


@pytest.mark.matrix
class TestForaging(MultiEnvContract):
    steps = 120

    def make(self):
        return env_of("lbf-qmix")


@pytest.mark.matrix
class TestWarehouse(MultiEnvContract):
    steps = 60

    def make(self):
        return env_of("rware-qmix", max_episode_steps=25)
