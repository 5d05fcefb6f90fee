"""F6, F42: a simulator that raises. Where it did so in the user's own code is shown once; then failures are counted."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from envs.sample_envs import Faulty
from faults.commands import Cli, in_process, quick
from rookery.core.errors import ConfigError, EnvError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, InProcess, make
from rookery.envs.faults import FaultConfig


class Breaks(Faulty):
    """Every `often`-th step of its life raises, deep inside; 1: the first one already."""

    def __init__(self, often: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.often, self.lived = often, 0

    def step(self, action):
        self.lived += 1
        if self.lived % self.often == 0:
            self.deep_inside()
        return super().step(action)

    def deep_inside(self):
        raise ZeroDivisionError("the simulator broke")


def engine(envs, renewals=5):
    faults = FaultConfig(renewals=renewals, backoff_seconds=0)
    env = InProcess(envs, lambda i, episode: episode, name="breaks", faults=faults)
    env.reset()
    return env


def test_the_own_code_is_shown_at_the_first_failure_and_failures_are_counted_afterwards(caplog):
    env = engine([Breaks(50), Breaks(30)])
    for _ in range(160):
        env.step(np.zeros(2, np.int64))
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == env.renewals == 8
    assert ["in deep_inside" in text for text in texts].count(True) == 8  # the place is in every sentence
    shown = [text for text in texts if "It was raised in:" in text]
    assert shown == texts[:1]
    lines = shown[0].partition("It was raised in:\n")[2].splitlines()
    assert [line.rpartition(", in ")[2] for line in lines if line.startswith("  File")] == ["step", "deep_inside"]
    assert all(f'File "{__file__}"' in line for line in lines if line.startswith("  File"))  # nothing of ours
    assert "A new env takes its place. 8 failures of these envs so far." in texts[-1]


@pytest.mark.parametrize("num", [1, 3])
def test_a_run_is_given_up_at_once_when_every_env_fails_at_its_first_step(num, caplog):
    env = engine([Breaks() for _ in range(num)], renewals=50)
    action = np.zeros(num, np.int64)
    if num == 1:
        assert not env.step(action).valid.any()  # a single failure may be bad luck
    with pytest.raises(
        EnvError, match=r"the simulator broke \(.*test_raising.py:\d+ in deep_inside\).*Every env failed"
    ):
        env.step(action)
    assert len(caplog.records) == max(num, 2) - 1


def test_some_that_fail_at_their_first_step_are_borne():
    env = engine([Breaks(), Breaks(10)])
    for _ in range(3):
        env.step(np.zeros(2, np.int64))
    assert env.renewals == 3


def test_the_command_shows_it_once(cli: Cli):
    ended = cli("train", *quick("dqn", "env.num=3"), "--env", "faults.test_raising:Breaks", "--out", "here")
    assert ended.code == 3
    assert ended.err.count("It was raised in:") == 1
    assert "Every env failed at its first step" in ended.err.splitlines()[-1]


def test_without_renewals_the_own_code_is_shown_too(cli: Cli):
    words = quick("dqn", "env.faults.renewals=0", "env.kwargs={often: 20}")
    ended = cli("train", *words, "--env", "faults.test_raising:Breaks", "--out", "here")
    assert ended.code == 3
    assert ended.err.count("It was raised in:") == 1


@pytest.mark.slow
def test_of_several_workers_only_the_first_shows_it(tmp_path):
    changes = ["env.num=4", "env.workers=subprocess", "env.workers.processes=2", "env.kwargs={often: 25}"]
    words = quick("dqn", *changes, "env.faults.backoff_seconds=0", "train.max_steps=400")
    done = in_process("train", *words, "--env", "faults.test_raising:Breaks", "--out", "run", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("It was raised in:") == 1
    assert done.err.count("A new env takes its place") >= 8


class NotMade(gymnasium.Env):
    def __init__(self, error: str = "ValueError"):
        self.prepare({"ValueError": ValueError, "TypeError": TypeError, "ImportError": ImportError}[error])

    def prepare(self, error):
        raise error("no licence")


@pytest.mark.parametrize(
    ("error", "kind"), [("ValueError", EnvError), ("TypeError", ConfigError), ("ImportError", ConfigError)]
)
@pytest.mark.parametrize("named", [True, False])
def test_a_constructor_that_raises_is_told_with_file_and_line_of_the_own_code(error, kind, named):
    config = EnvConfig(id="faults.test_raising:NotMade", kwargs={"error": error}) if named else EnvConfig()
    factory = None if named else lambda: NotMade(error)
    with pytest.raises(kind, match=r"no licence \(.*test_raising.py:\d+ in prepare\)"):
        make(config, count=1, purpose="train", streams=Streams(0), factory=factory)
