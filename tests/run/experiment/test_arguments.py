"""What `Experiment` and `load_config` take from Python."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import pytest
import torch

from rookery import ConfigError, Experiment, UsageError, load_config
from rookery.run.experiment.resume import refuse_changes
from rookery.run.limits import RunLimits

SHORT = {"train.max_steps": 256, "algo.rollout": 16, "env.num": 2, "log.sinks": [], "eval.at_end": False}


def test_overrides_may_be_a_dict_whose_values_are_taken_as_they_are():
    one = load_config("cartpole-ppo", overrides={"algo.gamma": 0.9, "model.hidden": [8, 8], "run.name": "yes"})
    other = load_config("cartpole-ppo", overrides=["algo.gamma=0.9", "model.hidden=[8,8]", "run.name='yes'"])
    assert one.dump() == other.dump()
    assert one.run.name == "yes", "a text stays a text, whatever YAML would make of it"
    assert load_config("cartpole-ppo", overrides="algo.gamma=0.9").algo.gamma == 0.9


def test_a_wrong_key_or_value_of_the_dict_is_told():
    with pytest.raises(ConfigError, match=r"Did you mean 'algo.gamma'\?"):
        load_config("cartpole-ppo", overrides={"algo.gama": 0.9})
    with pytest.raises(ConfigError, match=r"run.out: expected numbers, text, lists and mappings, got <object object"):
        load_config("cartpole-ppo", overrides={"run.out": object()})


def test_the_seed_is_that_of_the_run_and_contradicts_another():
    assert Experiment("cartpole-ppo", seed=7).config.run.seed == 7
    assert Experiment("cartpole-ppo").config.run.seed == 0
    with pytest.raises(ConfigError, match=r"contradict each other: give run.seed once"):
        Experiment("cartpole-ppo", seed=7, overrides={"run.seed": 8})
    with pytest.raises(UsageError, match="not both"):
        Experiment(load_config("cartpole-ppo"), seed=7)


def test_instances_are_refused_with_what_to_pass_instead():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(UsageError, match=r"env takes an id, a class or a function .* pass lambda: TimeLimit\(…\)"):
        Experiment(algo="ppo", env=env)
    with pytest.raises(UsageError, match=r"model takes a class of encoders.*an instance of Linear: pass Linear itself"):
        Experiment("cartpole-ppo", model=torch.nn.Linear(4, 4))


def test_a_result_is_one_line(tmp_path):
    result = Experiment("cartpole-ppo", seed=1, overrides=SHORT, out=tmp_path / "run").train()
    assert repr(result) == f"Result(finished after 256 steps, {str(tmp_path / 'run')!r})"


def test_a_rising_epsilon_is_told_at_the_start_and_the_run_goes_on(tmp_path, caplog):
    rising = {"algo.epsilon": {"kind": "linear", "start": 0.05, "end": 1.0, "steps": 100}}
    short = {
        "train.max_steps": 200,
        "store.min_fill": 150,
        "log.sinks": [],
        "eval.at_end": False,
        "learning.mode": "eager",
    }
    result = Experiment("cartpole-dqn", overrides=rising | short, out=tmp_path / "run").train()
    assert result.status == "finished"
    assert "algo.epsilon rises during the run (linear, 0.05 → 1)" in caplog.text


def test_a_return_of_more_steps_than_are_kept_is_a_contradiction():
    words = {"algo.n_step": 500, "store.capacity": 1000, "env.num": 2, "store.min_fill": 200}
    with pytest.raises(ConfigError, match=r"algo.n_step=500 .* keeps 500 of each .* Raise store.capacity above 1000"):
        load_config("cartpole-dqn", overrides=words)
    assert load_config("cartpole-dqn", overrides=words | {"store.capacity": 1002}).algo.n_step == 500


def test_seconds_that_end_before_the_first_update_are_told():
    limits = RunLimits(load_config("cartpole-dqn", overrides={"train.max_seconds": 5.0}).train)
    counts = {"ticks": 10, "updates": 0, "episodes": 0, "seconds": 6.0}
    assert limits.reached(SimpleNamespace(**counts)) == (
        "train.max_seconds=5 reached before the first update: raise it, or let learning begin earlier"
    )
    assert limits.reached(SimpleNamespace(**counts | {"updates": 1})) == "train.max_seconds=5 reached"
    assert limits.reached(SimpleNamespace(**counts | {"seconds": 4.0})) is None


def test_steps_that_end_before_the_first_update_are_told_where_no_rule_could_know_it():
    """Of several agents nobody knows before the run how many rows a step gives."""
    words = ["env.api=parallel", "train.max_steps=200"]
    limits = RunLimits(load_config(algo="vdn", env="rookery/TwoStep-v0", overrides=words).train)
    counts = {"ticks": 200, "updates": 0, "episodes": 100, "seconds": 1.0}
    assert limits.reached(SimpleNamespace(**counts)) == (
        "train.max_steps=200 reached before the first update: raise it, or let learning begin earlier"
    )
    assert limits.reached(SimpleNamespace(**counts | {"updates": 1})) == "train.max_steps=200 reached"


def test_image_layers_that_an_earlier_version_wrote_out_are_those_of_today() -> None:
    made = lambda *words: load_config(algo="ppo", env="CartPole-v1", overrides=words)  # noqa: E731
    refuse_changes(made("model.convs=[[32,8,4],[64,4,2],[64,3,1]]").dump(), made())
    with pytest.raises(ConfigError, match=r"model.convs: 'auto' in the run, \[\[16, 3, 1\]\] now"):
        refuse_changes(made().dump(), made("model.convs=[[16,3,1]]"))


def test_a_number_in_place_of_a_schedule_is_one_change_and_so_is_a_schedule_in_place_of_a_number() -> None:
    made = lambda *words: load_config(algo="ppo", env="CartPole-v1", overrides=words)  # noqa: E731
    schedule, number = "algo.lr={start: 0.002, end: 0, kind: linear}", "algo.lr=0.01"
    with pytest.raises(
        ConfigError, match=r"change algo.lr: \{'kind': 'linear', .*\} in the run, 0.01 now \([^;]*\)\. S"
    ):
        refuse_changes(made(schedule).dump(), made(number))
    with pytest.raises(
        ConfigError, match=r"change algo.lr: 0.01 in the run, \{'kind': 'linear', .*\} now \([^;]*\)\. S"
    ):
        refuse_changes(made(number).dump(), made(schedule))
