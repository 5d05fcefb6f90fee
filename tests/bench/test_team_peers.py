"""The benchmark of several agents: our words are a config, and the single file does the work that its settings say."""

import numpy as np
import pytest

from bench.tools import rookery_run, single_teams, works
from rookery.run.config.resolve import load_config

FEW = {"envs": 2, "hidden": [8], "mixer": 4, "hyper": 4, "batch": 8, "capacity": 32, "min_fill": 8}


class Corridor:
    """Two agents who see how many steps are done; every third step ends the episode by a time limit."""

    agents, inputs, actions, world_size = 2, 1, 3, 4

    def reset(self, seed=None):
        self.steps = 0
        return self._seen()

    def step(self, actions):
        self.steps += 1
        return self._seen(), float(sum(actions)), False, self.steps == 3

    def world(self):
        return np.full(4, self.steps, np.float32)

    def _seen(self):
        return np.full((2, 1), self.steps, np.float32)


@pytest.mark.parametrize(("work", "algo"), [("qmix-lbf", "qmix"), ("mappo-spread", "ppo")])
def test_the_settings_of_a_work_are_a_config_of_ours(work, algo):
    s = works.WORKS[work].settings
    config = load_config(overrides=rookery_run.overrides(s, work.split("-")[0]), needs_env=False)
    assert (config.algo.name, config.env.id, config.env.num) == (algo, s["env"], s["envs"])
    assert list(config.model.hidden) == s["hidden"]
    if algo == "qmix":
        assert (config.algo.embed, config.algo.hyper, config.algo.double) == (32, 64, False)
        assert (config.env.kwargs, config.env.max_episode_steps) == ({"max_episode_steps": 51}, 50)
        assert (config.store.batch_size, config.store.updates_per_step) == (128, 0.125)
    else:
        assert (config.algo.critic, config.algo.normalise_value, config.env.ids) == ("world", True, True)
        assert config.env.kwargs == s["kwargs"]
        assert (config.algo.rollout, config.algo.epochs, config.algo.minibatches) == (25, 10, 1)


def test_who_ends_begins_anew_and_what_was_seen_last_is_kept():
    envs = single_teams.Envs(Corridor, 2, seed=0)
    for _ in range(2):
        envs.step(np.ones((2, 2), np.int64))
    reward, terminated, truncated, final, final_world = envs.step(np.full((2, 2), 2))
    assert (reward.tolist(), terminated.any(), truncated.all()) == ([4.0, 4.0], False, True)
    assert final[0].tolist() == [[3.0, 1.0, 0.0], [3.0, 0.0, 1.0]]  # steps, then who it is
    assert final_world[1].tolist() == [3.0] * 4
    assert envs.obs[0, :, 0].tolist() == [0.0, 0.0]
    assert envs.world.max() == 0.0


def test_the_single_files_qmix_learns_as_often_as_its_settings_say(monkeypatch):
    monkeypatch.setattr(single_teams, "Foraging", lambda s: Corridor())
    seen = []
    nets = single_teams.qmix(works.LBF | FEW | {"updates_per_step": 0.5}, 40, 0, lambda *at: seen.append(at))
    assert seen[-1] == (40, 15)  # one update after each of the 15 pairs of steps between the 10th and the 40th
    mixer = 4 * 4 + 4 + 4 * 8 + 8 + 4 * 4 + 4 + 4 * 4 + 4 + 4 * 4 + 4 + 4 * 4 + 4 + 4 + 1
    assert sum(p.numel() for net in nets for p in net.parameters()) == (3 * 8 + 8 + 8 * 3 + 3) + mixer


def test_the_single_files_mappo_learns_as_often_as_its_settings_say(monkeypatch):
    monkeypatch.setattr(single_teams, "make_spread", lambda s: Corridor())
    settings = works.SPREAD | {"envs": 2, "hidden": [8], "rollout": 4, "epochs": 3, "minibatches": 2}
    seen = []
    nets = single_teams.mappo(settings, 24, 0, lambda *at: seen.append(at))
    assert seen == [(8, 0), (16, 6), (24, 12)]
    policy, value = 3 * 8 + 8 + 8 * 3 + 3, 7 * 8 + 8 + 8 + 1
    assert sum(p.numel() for net in nets for p in net.parameters()) == policy + value
