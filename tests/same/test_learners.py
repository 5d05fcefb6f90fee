"""Several learners in a run: the same bits each time, also with a resume in the middle and when a learner is killed."""

import json
import os
import signal

import pytest

from rookery import Experiment, Trainer, load_config
from rookery.core.errors import ConfigError, LearnerLost
from rookery.run.callbacks.base import Callback
from same.test_env_workers import CASES

pytestmark = pytest.mark.slow

COMMON = ["env.num=2", "model.hidden=[8]", "log.sinks=[]", "eval.num=2", "eval.episodes=2", "learning.learners=2"]


def config_of(algo, *words):
    env = "same.telling:TellingContinuous-v0" if algo == "sac" else "same.telling:Telling-v0"
    overrides = [*COMMON, "train.max_steps=160", *CASES[algo], *words]
    last = {text.partition("=")[0]: text for text in overrides}
    return load_config(algo=algo, env=env, overrides=list(last.values()))


def rounds(trainer, steps):
    while trainer.steps < steps:
        trainer.round()


@pytest.mark.parametrize(
    "algo", ["ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dqn", "sac", "r2d2"))]
)
def test_a_run_with_two_learners_repeats_and_resumes_bit_for_bit(algo):
    found = []
    for _ in range(2):
        with Trainer(config_of(algo)) as trainer:
            rounds(trainer, 96)
            trainer.players.check(deep=True)
            assert len(trainer.players.main.learner_pids) == 1
            assert trainer.updates > 5
            found.append(trainer.players.weights_sha256())
    with Trainer(config_of(algo)) as first, Trainer(config_of(algo)) as second:
        rounds(first, 48)
        second.restore(first.state())
        rounds(second, 96)
        found.append(second.players.weights_sha256())
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_several_learners_learn_the_same_from_a_pool_of_processes():
    found = set()
    for words in ([], ["pool=process"]):
        with Trainer(config_of("ppo", *words)) as trainer:
            rounds(trainer, 64)
            found.add(trainer.players.weights_sha256())
    assert len(found) == 1


@pytest.mark.slow
def test_every_one_of_several_players_that_learns_has_learners_of_its_own():
    players = ["players={thinker: {}, doer: {algo: {name: ppo, rollout: 8}}, guest: {train: false}}"]
    seats = ["env.api=parallel", "seats={left: {thinker: 3, guest: 1}, right: doer}", "train.max_steps=160"]
    words = [*COMMON, *players, *seats, "store.min_fill=40", "store.batch_size=16", "store.capacity=400"]
    found = []
    for _ in range(2):
        with Trainer(load_config(algo="dqn", env="same.pairing:CountingPairing", overrides=words)) as trainer:
            rounds(trainer, 96)
            trainer.players.check(deep=True)
            assert [len(player.learner_pids) for player in trainer.players.values()] == [1, 1, 0]
            found.append(trainer.players.weights_sha256())
    assert found[0] == found[1]


class Killer(Callback):
    """Kills the other learner at the first report after so many steps, `times` times."""

    def __init__(self, steps, times):
        self.steps, self.left, self.experiment = steps, times, None

    def report(self, progress):
        if progress.steps >= self.steps and self.left and (pids := self.experiment.trainer.players.main.learner_pids):
            self.left -= 1
            os.kill(pids[0], signal.SIGKILL)


def run(folder, times, *words, steps=100):
    killer = Killer(steps, times)
    made = Experiment(
        config_of("ppo", "log.every_steps=16", "log.sinks=[jsonl]", "checkpoint.every_steps=64", *words),
        callbacks=[killer],
        out=folder,
    )
    killer.experiment = made
    return made.train()


def lines(result):
    told = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in told]


def test_a_killed_learner_takes_all_back_to_the_last_checkpoint_and_the_run_ends_as_if_undisturbed(tmp_path, caplog):
    expected, disturbed = run(tmp_path / "a", 0), run(tmp_path / "b", 1)
    assert disturbed.status == "finished"
    assert "was ended by SIGKILL" in caplog.text
    assert "All learners start again from step 64" in caplog.text
    assert disturbed.summary["weights_sha256"] == expected.summary["weights_sha256"]
    assert disturbed.summary["exact"] is True
    assert lines(disturbed) == lines(expected)
    assert disturbed.summary["learning_mode"] == "eager"
    assert "learning.learners=2" in disturbed.summary["learning_mode_reason"]
    for pid in disturbed.summary["learners"][1:]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
def test_a_learner_that_always_dies_ends_the_run_with_exit_code_3(tmp_path, caplog):
    with pytest.raises(LearnerLost, match=r"3 times in a row from step 0 \(learning\.restarts=2\)") as caught:
        run(tmp_path / "a", 9, "learning.restarts=2", steps=0)
    assert caught.value.exit_code == 3
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["status"] == "failed"


@pytest.mark.parametrize(
    ("algo", "words", "message"),
    [
        ("dqn", ["store.batch_size=15"], r"store\.batch_size=15 cannot be shared equally by learning\.learners=2"),
        (
            "ppo",
            ["algo.rollout=2", "algo.minibatches=4"],
            r"algo\.minibatches=4 has 1 rows, which learning\.learners=2",
        ),
    ],
)
def test_batches_that_cannot_be_shared_are_refused_before_the_run(algo, words, message):
    with pytest.raises(ConfigError, match=message):
        config_of(algo, *words)


def test_rollouts_of_a_policy_with_memory_are_shared_by_whole_sequences():
    words = ["model.core={kind: gru, size: 4}", "algo.minibatches=1", "learning.learners=2"]
    assert load_config(algo="appo", env="CartPole-v1", overrides=[*words, "env.num=2"]).env.num == 2
    with pytest.raises(ConfigError, match=r"has 1 sequences, which learning\.learners=2 cannot share"):
        load_config(algo="appo", env="CartPole-v1", overrides=[*words, "env.num=1"])


def test_compiled_updates_of_several_learners_are_refused():
    with pytest.raises(ConfigError, match=r"learning\.mode=compiled is not possible: learning\.learners=2"):
        Trainer(config_of("ppo", "learning.mode=compiled"))
