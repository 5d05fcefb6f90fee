"""F41: envs without a time limit are told of at the start, and an evaluation episode has a bound in steps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from faults.commands import quick
from rookery import Experiment, Trainer, evaluate_run, load_config
from rookery.core.errors import EnvError
from rookery.run.evaluate import evaluate

ENDLESS = "has no time limit that is known here"
FOREVER = ["env.id=faults.fault_envs:Walk", "env.kwargs={length: 1000000000}"]


def trained(tmp_path, *words):
    _, algo, *changes = quick("dqn", "train.max_steps=40", *words)
    return Experiment(algo=algo, overrides=changes, out=tmp_path / "run").train()


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (["env.id=CliffWalking-v1"], True),
        (FOREVER, True),
        ([*FOREVER, "env.max_episode_steps=9"], False),
        ([*FOREVER, "env.wrappers=[{name: time_limit, kwargs: {max_episode_steps: 9}}]"], False),
        (["env.id=CartPole-v1"], False),
        (["env.id=rookery/BitFlip-v0"], False),
    ],
)
def test_an_env_without_a_time_limit_is_told_of_at_the_start(words, warned, tmp_path, caplog):
    result = trained(tmp_path, *words)
    assert (ENDLESS in caplog.text) == warned
    assert (ENDLESS in (result.folder / "log.txt").read_text()) == warned


def test_it_is_told_once(tmp_path, capsys):
    trained(tmp_path, *FOREVER, "log.sinks=[console]")
    assert capsys.readouterr().err.count(ENDLESS) == 1


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        (FOREVER, 7),
        ([*FOREVER, "env.max_episode_steps=30"], 7),  # the shorter of the two
        ([*FOREVER, "env.workers=subprocess", "env.workers.start=fork"], 7),
        (["env.id=CartPole-v1", "env.engine=native"], 5),
        (["env.id=rookery/Shifts-v0", "env.api=dict", "players={both: {}}"], 3),
    ],
)
def test_an_evaluation_episode_is_cut_at_the_bound_and_its_return_so_far_counts(words, bound, caplog):
    _, algo, *changes = quick("dqn", *words, f"eval.max_steps={bound}")
    with Trainer(load_config(algo=algo, overrides=changes)) as trainer:
        result = trainer.evaluate()
        assert result.lengths == [bound] * 2
        told = f"2 of 2 evaluation episodes had not ended after eval.max_steps={bound} steps and were cut there"
        assert told in caplog.text


def test_a_bound_that_is_not_reached_changes_nothing_and_says_nothing(caplog):
    with Trainer(load_config(algo="dqn", env="faults.fault_envs:Walk", overrides=quick()[2:])) as trainer:
        result = trainer.evaluate()
        assert result.lengths == [8, 8]
        assert "eval.max_steps" not in caplog.text


def test_a_run_can_be_evaluated_afterwards_with_the_bound_it_had(tmp_path):
    result = trained(tmp_path, *FOREVER, "eval.max_steps=6", "eval.at_end=true")
    assert result.evaluation.lengths == [6, 6]
    assert evaluate_run(result.folder, episodes=2)["lengths"] == [6, 6]


def test_training_is_not_cut_at_the_bound_of_evaluation(tmp_path):
    assert trained(tmp_path, *FOREVER, "eval.max_steps=6").summary["episodes"] == 0


def test_a_vector_engine_that_nobody_can_cut_ends_the_evaluation_with_a_sentence():
    class Stuck:
        """A collector of an engine whose episodes never end."""

        env = SimpleNamespace(num=2, name="stuck")

        def reset(self):
            pass

        def play(self):
            return []

    with pytest.raises(EnvError, match=r"has not ended after eval\.max_steps=5 steps.*env\.max_episode_steps"):
        evaluate(Stuck(), 2, longest=5)
