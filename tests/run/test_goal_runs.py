"""Runs with goals in hindsight: exact resume, success in reports, and envs and options that do not fit."""

import copy
import json

import gymnasium
import numpy as np
import pytest

from envs.robot_goals import Fetch, Maze, NeedsInfo, OneByOne
from rookery import ConfigError, EnvError, Experiment, Trainer, evaluate_run, load_config
from rookery.envs import check_env
from rookery.envs.tasks.goals import BitFlip, Reach

pytestmark = pytest.mark.slow

TREE = {
    "algo": {"name": "dqn", "target_every": 20},
    "env": {"id": "rookery/BitFlip-v0", "num": 2, "kwargs": {"n": 3}},
    "model": {"hidden": [16]},
    "store": {"capacity": 200, "min_fill": 50, "batch_size": 32, "hindsight": {"strategy": "future", "k": 4}},
    "train": {"max_steps": 400},
    "eval": {"every_steps": 200, "episodes": 4, "num": 2},
    "log": {"every_steps": 100, "sinks": ["jsonl"]},
    "learning": {"mode": "eager"},
}


def config(**more):
    return load_config(tree={**TREE, **{name: {**TREE.get(name, {}), **part} for name, part in more.items()}})


class NoFunctions(gymnasium.Wrapper):
    """A goal env that keeps its reward to itself."""

    @property
    def compute_reward(self):
        raise AttributeError("hidden")

    def has_wrapper_attr(self, name):
        return name != "compute_reward" and super().has_wrapper_attr(name)


def test_success_is_reported_and_saved(tmp_path):
    result = Experiment(config(), out=tmp_path / "run").train()
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= line["episode/success_mean"] <= 1 for line in lines)
    returns, success = result.evaluation.returns, result.evaluation.success
    assert success == np.mean([value > -3 for value in returns])  # three failures in three steps are −3
    assert lines[-1]["eval/success_mean"] == result.summary["eval"]["success"] == success
    assert evaluate_run(result.folder)["success"] == success


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_a_restored_run_goes_on_bit_for_bit(algo):
    point = {"algo": {"name": "sac", "warmup": 60}, "env": {"id": "rookery/Reach-v0", "num": 2}}
    tree = copy.deepcopy(TREE) if algo == "dqn" else {**copy.deepcopy(TREE), **point}
    straight, first, second = (Trainer(load_config(tree=tree)) for _ in range(3))
    for _ in straight:
        pass
    for progress in first:
        if progress.steps == 200:
            break
    second.restore(copy.deepcopy(first.state()))
    for _ in second:
        pass
    assert second.learner.weights_sha256() == straight.learner.weights_sha256()


def test_hindsight_changes_what_is_learnt():
    hashes = set()
    for hindsight in ({"strategy": "future"}, {"strategy": "final"}, {"strategy": "episode"}, {"k": 1}, None):
        trainer = Trainer(config(store={"hindsight": hindsight}))
        for _ in trainer:
            pass
        hashes.add(trainer.learner.weights_sha256())
    assert len(hashes) == 5


def test_continuous_goals_have_the_rewards_of_the_env():
    tree = {"algo": {"name": "sac", "warmup": 400}, "env": {"id": "rookery/Reach-v0", "num": 1, "kwargs": {}}}
    trainer = Trainer(load_config(tree={**TREE, **tree}))
    for _ in trainer:
        pass
    judge = Reach()
    reached = 0
    for _ in range(20):
        batch, _ = trainer.store.sample()
        achieved, desired = (batch["next_obs"][key].numpy() for key in ("achieved_goal", "desired_goal"))
        assert np.array_equal(batch["reward"].numpy(), judge.compute_reward(achieved, desired, None))
        assert np.array_equal(batch["obs"]["desired_goal"], desired)
        assert (batch["discount"].numpy() == np.float32(trainer.config.algo.gamma)).all()  # Reach never terminates
        reached += int((batch["reward"] == 0).sum())
    assert reached > 0.15 * 20 * 32  # by chance alone a few in a hundred


@pytest.mark.parametrize("env", [Fetch, Maze, OneByOne])
@pytest.mark.parametrize("workers", ["inline", "subprocess"])
def test_envs_that_judge_one_pair_of_goals_as_those_of_gymnasium_robotics_do_are_learnt_from(env, workers):
    tree = {**TREE, "algo": {"name": "sac", "warmup": 60}, "train": {"max_steps": 150}}
    tree["env"] = {"id": f"envs.robot_goals:{env.__name__}", "num": 2, "workers": {"mode": workers, "start": "fork"}}
    with Trainer(load_config(tree=tree)) as trainer:
        for _ in trainer:
            pass
        judge, ended = env(), 0
        for _ in range(5):
            batch, _ = trainer.store.sample()
            achieved, desired = (batch["next_obs"][key].numpy() for key in ("achieved_goal", "desired_goal"))
            for i, pair in enumerate(zip(achieved, desired)):  # one by one, as the env's own step does
                assert batch["reward"][i] == judge.compute_reward(*pair, {})
                over = judge.compute_terminated(*pair, {})
                assert batch["discount"][i] == (0.0 if over else np.float32(trainer.config.algo.gamma))
                ended += over
        assert (ended > 0) == (env is not Fetch)


def test_a_goal_env_that_cannot_be_asked_is_refused_before_anything_starts(tmp_path):
    tree = {**TREE, "algo": {"name": "sac"}, "env": {"id": None}}
    experiment = Experiment(load_config(tree=tree), env=NeedsInfo, out=tmp_path / "run")
    with pytest.raises(EnvError, match=r"compute_reward of the env .*KeyError: 'touched'"):
        experiment.train()
    assert not (tmp_path / "run").exists()


@pytest.mark.matrix
@pytest.mark.parametrize("env_id", ["FetchReach-v4", "PointMaze_UMaze-v3", "HandReach-v3"])
def test_gymnasium_robotics_itself(env_id):
    pytest.importorskip("gymnasium_robotics")
    report = check_env(f"gymnasium_robotics:{env_id}", episodes=1, max_steps=20)
    assert not [text for text in report.warnings if "compute_" in text or "hindsight" in text]
    assert report.facts["compute_reward"] == "many goals at once"
    assert report.facts["compute_terminated"] == "one pair of goals at a time"
    tree = {**TREE, "algo": {"name": "sac", "warmup": 60}, "train": {"max_steps": 150}}
    tree["env"] = {"id": f"gymnasium_robotics:{env_id}", "num": 2}
    with Trainer(load_config(tree=tree)) as trainer:
        for _ in trainer:
            pass
        batch, _ = trainer.store.sample()
        assert (batch["reward"] == batch["reward"].max()).float().mean() > 0.5  # goals that were reached


@pytest.mark.parametrize(
    ("more", "env", "told"),
    [
        ({"env": {"id": "CartPole-v1", "kwargs": {}}}, None, "Dict with observation, achieved_goal, desired_goal"),
        ({"env": {"id": None, "kwargs": {}}}, lambda: NoFunctions(BitFlip(3)), "needs the env's compute_reward"),
    ],
)
def test_an_env_without_goals_is_refused_before_anything_starts(more, env, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        Experiment(config(**more), env=env, out=tmp_path / "run").train()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"algo": {"n_step": 3}}, r"store\.hindsight .* algo\.n_step=3"),
        ({"store": {"hindsight": {"strategy": "futur"}}}, r"store\.hindsight\.strategy"),
        ({"store": {"hindsight": {"k": 0}}}, r"store\.hindsight\.k"),
        ({"store": {"hindsight": {"kk": 1}}}, r"store\.hindsight\.kk"),
        ({"store": {"hindsight": True}}, r"store\.hindsight"),
    ],
)
def test_options_that_do_not_fit_are_named(more, told):
    with pytest.raises(ConfigError, match=told):
        config(**more)


def test_an_on_policy_algorithm_has_no_hindsight_and_is_told_who_has():
    with pytest.raises(
        ConfigError, match=r"store\.hindsight: unknown key .*for .*c51, .*, dqn, .*sac.*tqc.*, not for ppo"
    ) as told:
        load_config(algo="ppo", env="rookery/BitFlip-v0", overrides=["store.hindsight.k=4"])
    assert "r2d2" not in str(told.value)  # which learns from sequences


def test_sequences_have_no_hindsight_whatever_the_number_of_steps():
    with pytest.raises(ConfigError, match=r"store\.hindsight .*algo\.name=r2d2 learns from sequences.*Use dqn") as told:
        load_config(algo="r2d2", env="rookery/BitFlip-v0", overrides=["store.hindsight.k=4"])
    assert "n_step" not in str(told.value)


def test_a_preset_can_be_told_to_leave_it_out_or_to_change_one_number():
    assert load_config("bitflip8-dqn-her", overrides=["store.hindsight=null"]).store.hindsight is None
    changed = load_config("bitflip8-dqn-her", overrides=["store.hindsight.k=8"]).store.hindsight
    assert (changed.strategy, changed.k) == ("future", 8)
