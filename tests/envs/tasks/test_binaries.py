"""Envs that need a binary which no extra brings: what is missing is told. Neither game is played here; stand-ins with
the interface of SMAC and gfootball show what becomes of their answers."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make_multi
from rookery.envs.tasks.football import Football
from rookery.envs.tasks.starcraft import StarCraft


def with_packages(monkeypatch, *names):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: object() if name in names else None)


def install(monkeypatch, name, **parts):
    """A module of this name, as if it were installed."""
    module = ModuleType(name)
    vars(module).update(parts)
    monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType(name.partition(".")[0]))
    monkeypatch.setitem(sys.modules, name, module)
    with_packages(monkeypatch, name, name.partition(".")[0])


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("rookery/StarCraft-v0", r"needs SMAC, .*github.com/oxwhirl/smac.* Without the game: env.id=rookery/SMAX-v0"),
        ("rookery/Football-v0", r"needs gfootball, .* EnvPool has the game for one player: pip install"),
    ],
)
def test_a_missing_package_is_told_from_a_config(monkeypatch, env_id, told):
    with_packages(monkeypatch)
    with pytest.raises(ConfigError, match=told):
        make_multi(EnvConfig(id=env_id, api="parallel"), count=1, purpose="train", streams=Streams(0))


def test_another_package_of_the_same_name_is_told(monkeypatch):
    with_packages(monkeypatch, "smac")
    with pytest.raises(ConfigError, match="The smac of the package index is another package"):
        StarCraft()


def test_the_game_and_its_maps_are_asked_for_one_after_the_other(monkeypatch, tmp_path):
    with_packages(monkeypatch, "smac", "smac.env")
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs StarCraft II, which is not in .* set SC2PATH"):
        StarCraft()
    (tmp_path / "Versions").mkdir()
    with pytest.raises(ConfigError, match=r"needs SMAC_Maps in its folder Maps, which is not in"):
        StarCraft()


class Battle:
    """Two units; the second falls in step 2; the battle is cut in step 3."""

    def __init__(self, map_name):
        self.map_name = map_name

    def get_env_info(self):
        return {"n_agents": 2, "n_actions": 3, "obs_shape": 4, "state_shape": 5, "episode_limit": 3}

    def reset(self):
        self.time = 0

    def step(self, actions):
        self.acted = actions
        self.time += 1
        return 1.5, self.time == 3, {"episode_limit": True} if self.time == 3 else {}

    def get_obs(self):
        return [np.full(4, self.time), np.full(4, -self.time)]

    def get_avail_actions(self):
        return [[0, 1, 1], [1, 0, 0] if self.time >= 2 else [0, 1, 1]]

    def get_state(self):
        return np.arange(5)

    def close(self):
        pass


def test_units_that_fall_leave_and_time_truncates(monkeypatch, tmp_path):
    install(monkeypatch, "smac.env", StarCraft2Env=Battle)
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    (tmp_path / "Versions").mkdir()
    (tmp_path / "Maps" / "SMAC_Maps").mkdir(parents=True)
    env = StarCraft("8m")
    assert env._game.map_name == "8m"
    obs, _ = env.reset(seed=3)
    assert env.state_space.contains(env.state())
    assert env.observation_space("ally_0").contains(obs["ally_0"])
    env.step({"ally_0": 1, "ally_1": 2})
    _, reward, terminated, truncated, _ = env.step({"ally_0": 1, "ally_1": 2})
    assert (terminated, truncated) == ({"ally_0": False, "ally_1": True}, {"ally_0": False, "ally_1": False})
    assert env.agents == ["ally_0"]
    obs, reward, terminated, truncated, infos = env.step({"ally_0": 2})
    assert env._game.acted == [2, 0]
    assert (reward, terminated, truncated) == ({"ally_0": 1.5, "ally_1": 1.5}, {"ally_0": False}, {"ally_0": True})
    assert (env.agents, infos) == ([], {"ally_0": {"is_success": False}})


def test_players_of_football_have_a_row_each(monkeypatch):
    made = []

    class Match:
        action_space = SimpleNamespace(nvec=np.array([19, 19]))

        def __init__(self, **kwargs):
            made.append(kwargs)

        def reset(self):
            return np.stack([np.zeros(115), np.ones(115)])

        def step(self, actions):
            return self.reset(), np.array([0.0, 1.0]), True, {"score_reward": 1}

        def close(self):
            pass

    install(monkeypatch, "gfootball.env", create_environment=Match)
    env = Football(players=2, rewards="scoring")
    obs, _ = env.reset(seed=1)
    assert made[0]["rewards"] == "scoring"
    assert "game_engine_random_seed" in made[1]["other_config_options"]
    assert obs["player_1"].tolist() == [1.0] * 115
    _, reward, terminated, _, _ = env.step({"player_0": 0, "player_1": 18})
    assert (reward, terminated, env.agents) == ({"player_0": 0.0, "player_1": 1.0}, dict.fromkeys(obs, True), [])
