"""Traffic lights: what is missing is told; with SUMO, crossings are exact by seed and have a process each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from rookery import Trainer, check_env, load_config
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make_multi
from rookery.envs.tasks.games import Pairing
from rookery.envs.tasks.traffic import NETWORKS, Crossing, Crossings, _files, _sumo_rl

HOUR = {"num_seconds": 100}


@pytest.fixture
def sumo():
    if missing := [name for name in ("sumo", "libsumo", "sumo_rl") if importlib.util.find_spec(name) is None]:
        pytest.skip(f'{", ".join(missing)} not installed: pip install "rookery[traffic]"')


@pytest.mark.parametrize(
    ("module", "package"), [("sumo", "eclipse-sumo"), ("libsumo", "libsumo"), ("sumo_rl", "sumo-rl")]
)
def test_a_missing_package_is_told_with_its_extra(monkeypatch, module, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == module else object())
    with pytest.raises(ConfigError, match=rf'needs {package}, .* pip install "rookery\[traffic\]"'):
        Crossings()


def test_a_network_that_is_not_there_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match=r"network 'colone1' is none of single, .* Did you mean 'cologne1'"):
        _files("colone1", sys)


class Single(Pairing):
    one_per_process = True


def test_an_env_that_needs_a_process_of_its_own_is_refused_in_the_process_of_the_run():
    own = {"purpose": "train", "streams": Streams(0), "factory": Single}
    with pytest.raises(ConfigError, match=r"Single can run only once in a process: set env.workers=subprocess"):
        make_multi(EnvConfig(api="parallel"), count=1, **own)
    one = make_multi(EnvConfig(api="parallel"), count=1, **(own | {"purpose": "eval"}))
    one.close()
    with pytest.raises(ConfigError, match="only once in a process"):
        make_multi(EnvConfig(api="parallel"), count=2, **(own | {"purpose": "eval"}))


@pytest.mark.slow
def test_such_envs_get_a_process_each_whatever_number_of_processes_is_set():
    config = EnvConfig(api="parallel", workers={"mode": "subprocess", "processes": 1})
    env = make_multi(config, count=3, purpose="train", streams=Streams(0), factory=Single)
    assert len(env.processes) == 3
    env.close()


@pytest.mark.matrix
def test_every_network_is_there_with_its_routes(sumo):
    for name in NETWORKS:
        files = _files(name, _sumo_rl())
        assert Path(files["net_file"]).is_file()
        assert Path(files["route_file"]).is_file()


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("target", "api", "kwargs"),
    [(Crossing, "auto", {}), (Crossings, "parallel", {}), (Crossings, "parallel", {"network": "cologne3"})],
)
def test_crossings_are_exact_by_seed_and_cut_at_their_time(sumo, capfd, target, api, kwargs):
    settings = {"env.kwargs": HOUR | kwargs} | ({"env.teams": {"team": "*"}} if not kwargs and api != "auto" else {})
    report = check_env(f"rookery/{target.__name__}-v0", api=api, episodes=3, settings=settings)
    assert (report.problems, report.warnings, report.facts["resume"]) == ([], [], "exact")
    assert report.facts["episode_lengths"] == [20, 20, 20]
    assert capfd.readouterr().out == ""


@pytest.mark.matrix
def test_who_begins_a_simulation_ends_that_of_others_in_its_process(sumo):
    one, two = Crossing(**HOUR), Crossing(**HOUR)
    one.reset(seed=0)
    seen = [two.reset(seed=1)[0], two.step(0)[0]]
    with pytest.raises(ConfigError, match=r"libsumo has room for one: set env.workers=subprocess"):
        one.step(0)
    one.close()
    np.testing.assert_array_equal(two.reset(seed=1)[0], seen[0])
    two.close()
    with pytest.raises(ConfigError, match="network '2x2' has 4 crossings: use rookery/Crossings-v0"):
        Crossing("2x2")


@pytest.mark.matrix
@pytest.mark.parametrize("preset", ["traffic-dqn", "traffic-2x2-dqn"])
def test_a_preset_trains_in_processes_of_its_own(sumo, preset):
    words = ["env.kwargs.num_seconds=100", "train.max_steps=80", "store.min_fill=64", "learning.mode=eager"]
    with Trainer(load_config(preset, overrides=[*words, "eval.every_steps=0"])) as trainer:
        *_, progress = trainer
    assert np.isfinite(progress.evaluation.mean)
