"""Errors, exits and signals in the middle of somebody's own code: what is saved, what is said, what a resumed run does
first (F38, F41, F42, F44)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.commands import (
    DQN,
    FAULTY,
    WALK,
    Cli,
    checkpoint,
    environment,
    in_process,
    quick,
    started,
    summary,
    wait_for,
)
from faults.fault_envs import Walk
from rookery import Callback, Experiment
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.experiment import experiment as experiments
from selection import matrix_but

EVERY = ["eval.every_steps=40", "eval.at_end=true", "checkpoint.every_steps=1000", "env.faults.renewals=0"]
GOAL = "train.stop={episode/return_mean: -1e9}"  # reached in the first report, which then closes the run


def run_of(folder: Path, *changes: str, env: Any = Walk, callbacks: Any = ()) -> Experiment:
    words = quick("dqn", *EVERY, *changes)[2:]
    return Experiment(algo="dqn", env=env, overrides=words, out=folder, callbacks=callbacks)


def resumed(folder: Path, callbacks: Any = ()) -> dict[str, Any]:
    return Experiment(resume=folder, env=Walk, callbacks=callbacks).train().summary


def reports(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def same(folder: Path, straight: Path) -> None:
    """As if nothing had happened: weights, evaluation, the best one, every report."""
    one, other = summary(folder), summary(straight)
    for key in ("status", "reason", "steps", "updates", "weights_sha256", "eval", "best", "exact", "return_mean"):
        assert one[key] == other[key], key
    assert reports(folder) == reports(straight)
    ours, theirs = (Checkpoints(path / "checkpoints").load("best")[0] for path in (folder, straight))
    assert ours["run"] == theirs["run"]


class Counts(Callback):
    """How often each hook was called, over resumes."""

    def __init__(self, priority: int):
        self.priority, self.calls = priority, dict.fromkeys(("round_end", "evaluation", "report"), 0)

    def round_end(self, progress: Any) -> None:
        self.calls["round_end"] += 1

    def evaluation(self, evaluation: Any) -> None:
        self.calls["evaluation"] += 1

    def report(self, progress: Any) -> None:
        self.calls["report"] += 1

    def state(self) -> dict[str, Any]:
        return dict(self.calls)

    def restore(self, state: dict[str, Any]) -> None:
        self.calls = dict(state)


class Breaks(Counts):
    """Raises when a hook hears of a step."""

    def __init__(self, hook: str, at: int, error: BaseException):
        super().__init__(50)
        self._broken = hook, at, error
        for name in self.calls:
            setattr(self, name, lambda thing, name=name: self._hear(name, thing))

    def _hear(self, name: str, thing: Any) -> None:
        hook, at, error = self._broken
        if (name, thing.steps) == (hook, at):
            raise error
        self.calls[name] += 1


class Mended(Counts):
    """The same, mended."""

    __qualname__ = "Breaks"


# --- between two rounds (F42) ---

CASES = [(hook, at, ()) for hook in ("round_end", "evaluation", "report") for at in (80, 120)]
CASES += [(hook, 40, (GOAL,)) for hook in ("evaluation", "report")]


@pytest.mark.parametrize(("hook", "at", "goal"), CASES)
def test_an_error_in_a_callback_costs_nothing_and_the_resumed_run_begins_with_what_was_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hook: str, at: int, goal: tuple[str, ...]
) -> None:
    """In the middle of the run, in its closing evaluation and report, and in a report that reaches a goal."""
    straight = [Counts(10), Mended(50), Counts(60)]
    run_of(tmp_path / "straight", *goal, callbacks=straight).train()
    broken = [Counts(10), Breaks(hook, at, LookupError("my mistake")), Counts(60)]
    with pytest.raises(LookupError, match="my mistake"):
        run_of(tmp_path / "run", *goal, callbacks=broken).train()
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [at]
    assert summary(tmp_path / "run")["status"] == "failed"
    said = capsys.readouterr().err
    assert f"The last checkpoint is that of step {at}: `rookery train --resume {tmp_path / 'run'}` goes on" in said
    assert "(nothing is repeated)" in said
    mended = [Counts(10), Mended(50), Counts(60)]
    resumed(tmp_path / "run", callbacks=mended)
    same(tmp_path / "run", tmp_path / "straight")
    assert [callback.calls for callback in mended] == [callback.calls for callback in straight]  # each heard once


class Second:
    """Makes envs; what `happens` in the k-th step of the second, which is the first of the evaluation."""

    def __init__(self, happens: Callable[[], None], step: int = 5):
        self.happens, self.step, self.made = happens, step, 0

    def __call__(self) -> Walk:
        self.made += 1
        return Walk() if self.made == 1 else _Happens(self.happens, self.step)


class _Happens(Walk):
    def __init__(self, happens: Callable[[], None], step: int):
        super().__init__()
        self.happens, self.left = happens, step

    def step(self, action: Any) -> Any:
        self.left -= 1
        if not self.left:
            self.happens()
        return super().step(action)


def mistake() -> None:
    raise ZeroDivisionError("the simulator broke")


def test_an_error_of_an_env_in_an_evaluation_costs_nothing(tmp_path: Path) -> None:
    from rookery.core.errors import EnvError

    run_of(tmp_path / "straight").train()
    with pytest.raises(EnvError, match="the simulator broke"):
        run_of(tmp_path / "run", env=Second(mistake)).train()
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [40]
    resumed(tmp_path / "run")
    same(tmp_path / "run", tmp_path / "straight")


def test_an_error_in_a_round_saves_nothing_and_says_what_will_be_repeated(cli: Cli, tmp_path: Path) -> None:
    words = [*quick("dqn", "env.faults.renewals=0"), *FAULTY, "env.kwargs={fault: raise_step, at: 70}"]
    ended = cli("train", *words, "--out", "run")
    assert ended.code == 3
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [50]
    again = f"`rookery train --resume {tmp_path / 'run'}`"
    told = f"The last checkpoint is that of step 50: {again} goes on from there (20 steps and the round that failed are"
    assert told in ended.err
    lines = ended.err.splitlines()
    raised = [i for i, line in enumerate(lines) if 'raise ZeroDivisionError("the simulator broke")' in line]
    assert len(raised) == 1  # its own frames, once
    assert lines[raised[0] - 1].endswith("in step")
    assert lines[raised[0] - 2] == "It was raised in:"
    assert lines[-1].startswith("error: env 0 of worker 0")


def test_an_error_before_the_first_checkpoint_says_so(cli: Cli) -> None:
    words = [*quick("dqn", "env.faults.renewals=0"), *FAULTY, "env.kwargs={fault: raise_step, at: 30}"]
    ended = cli("train", *words, "--out", "run")
    assert ended.code == 3
    assert "There is no checkpoint yet" in ended.err
    assert "begins again (30 steps are repeated)" in ended.err


# --- evaluations and signals (F41) ---


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("goal", [(), (GOAL,), ("eval.every_steps=0",)], ids=["usual", "goal", "closing"])
def test_a_signal_in_an_evaluation_ends_it_and_the_resumed_run_begins_with_it(
    tmp_path: Path, goal: tuple[str, ...]
) -> None:
    run_of(tmp_path / "straight", *goal).train()
    result = run_of(tmp_path / "run", *goal, env=Second(terminate)).train(raise_signals=False)
    assert (result.status, result.exit_code, result.reason) == ("preempted", 143, "SIGTERM received; saved")
    saved = Checkpoints(tmp_path / "run" / "checkpoints").load("last")[0]["run"]
    assert saved["owed"][0] == "play"
    assert result.summary["steps"] == saved["steps"] == (120 if goal == ("eval.every_steps=0",) else 40)
    again = resumed(tmp_path / "run")
    assert again["resumed_from"] == [saved["steps"]]
    same(tmp_path / "run", tmp_path / "straight")


def kill() -> None:
    raise KeyboardInterrupt  # as a second Ctrl-C: nothing is saved any more


def test_a_checkpoint_is_written_in_an_evaluation_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "LONG", 0.0)
    monkeypatch.setattr(experiments, "SHARE", 0.0)
    run_of(tmp_path / "straight").train()
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path / "run", env=Second(kill)).train()
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [40]
    monkeypatch.undo()
    resumed(tmp_path / "run")
    same(tmp_path / "run", tmp_path / "straight")


class Told(Callback):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def checkpoint(self, path: Path) -> None:
        self.steps.append(path.name)


def test_nobody_is_told_of_a_checkpoint_in_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes by the clock: a hook there could evaluate, or record a number, in one run and not in another."""
    usual, hurried = Told(), Told()
    run_of(tmp_path / "usual", callbacks=[usual]).train()
    monkeypatch.setattr(experiments, "LONG", 0.0)
    monkeypatch.setattr(experiments, "SHARE", 0.0)
    run_of(tmp_path / "hurried", callbacks=[hurried]).train()
    assert usual.steps == hurried.steps
    same(tmp_path / "hurried", tmp_path / "usual")


@pytest.mark.slow
def test_an_evaluation_without_an_end_is_saved_and_ended_by_a_signal(tmp_path: Path) -> None:
    words = quick("dqn", "eval.every_steps=60", "checkpoint.every_steps=1000", "env.kwargs={length: 1000000000}")
    process = started("train", *words, *WALK, "--out", "run", folder=tmp_path)
    try:
        wait_for((checkpoint(tmp_path / "run", 60) / "COMMIT").exists)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=15)
    finally:
        process.kill()
    assert process.returncode == 143, err
    told = summary(tmp_path / "run")
    assert (told["status"], told["steps"], told["exact"]) == ("preempted", 60, True)


# --- signals and scripts (F44) ---


class Sends(Callback):
    def __init__(self, number: int):
        self.number = number

    def report(self, progress: Any) -> None:
        os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("name", "error"), [("SIGINT", KeyboardInterrupt), ("SIGTERM", SystemExit)])
def test_a_signal_reaches_the_script_after_the_run_was_saved(tmp_path: Path, name: str, error: Any) -> None:
    number = getattr(signal, name)
    usual = signal.getsignal(number)
    with pytest.raises(error) as raised:
        run_of(tmp_path / "run", callbacks=[Sends(number)]).train()
    assert signal.getsignal(number) is usual
    assert error is KeyboardInterrupt or raised.value.code == 143
    assert summary(tmp_path / "run")["reason"] == f"{name} received; saved"
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [40]


def test_a_signal_reaches_the_scripts_own_handler_and_then_the_result_is_there(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        result = run_of(tmp_path / "run", callbacks=[Sends(signal.SIGTERM)]).train()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (heard, result.status, result.exit_code) == ([signal.SIGTERM], "preempted", 143)


SCRIPT = """
from rookery import Experiment
words = {words!r}
for seed in range(3):
    try:
        Experiment(algo="dqn", env="faults.fault_envs:Walk", overrides=words, seed=seed, out=f"run-{{seed}}").train()
    finally:
        print("seed", seed, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", -signal.SIGINT)])
def test_a_signal_ends_a_script_of_many_runs_and_not_only_one_of_them(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(words=quick("dqn", "train.max_steps=10000000")[2:]))
    pipe = subprocess.PIPE
    words = [sys.executable, "script.py"]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    try:
        wait_for(lambda: list((tmp_path / "run-0" / "checkpoints").glob("step-*/COMMIT")))
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (code, "seed 0\n"), err
    assert summary(tmp_path / "run-0")["status"] == "preempted"
    assert not (tmp_path / "run-1").exists()


# --- exits (F38) ---

EXITS = {"sys.exit(0)": "import sys; sys.exit(0)", "exit()": "exit()", "os._exit(0)": "import os; os._exit(0)"}
ENV = """
from faults.fault_envs import Walk
class Leaves(Walk):
    def step(self, action):
        if self.lived == 60:
            {code}
        return super().step(action)
"""
OWN = """
from rookery import Callback, Experiment
class Leaves(Callback):
    def report(self, progress):
        {code}
experiment = Experiment({{"algo": {{"name": "dqn"}}}}, callbacks=[Leaves()])
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes `leaves.py`; whoever imported it before has forgotten it."""

    def write(text: str) -> None:
        (tmp_path / "leaves.py").write_text(text)
        monkeypatch.delitem(sys.modules, "leaves", raising=False)

    return write


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
def test_a_module_that_exits_when_it_is_imported_is_named_and_the_code_is_3(
    cli: Cli, module: Callable[[str], None], code: str
) -> None:
    module(code)
    ended = cli("train", *DQN, "--env", "leaves:Leaves", "--out", "run")
    assert ended.code == 3
    assert "leaves" in ended.err
    assert "exit" in ended.err


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
def test_an_env_that_exits_in_a_step_is_named_and_the_code_is_3(
    cli: Cli, tmp_path: Path, module: Callable[[str], None], code: str
) -> None:
    module(ENV.format(code=code))
    ended = cli("train", *quick("dqn", "env.faults.renewals=0"), "--env", "leaves:Leaves", "--out", "run")
    assert ended.code == 3
    assert "env 0 of worker 0 (leaves:Leaves)" in ended.err
    assert summary(tmp_path / "run")["status"] == "failed"
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [50]


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
def test_a_callback_that_exits_is_named_saved_and_the_code_is_3(cli: Cli, tmp_path: Path, code: str) -> None:
    (tmp_path / "mine.py").write_text(OWN.format(code=code))
    ended = cli("train", "-c", str(tmp_path / "mine.py"), *DQN, *WALK, "--out", "run")
    assert ended.code == 3
    assert f"{tmp_path / 'mine.py'}, line 5, in report" in ended.err
    assert summary(tmp_path / "run")["status"] == "failed"
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [40]


WORKERS = {"subprocess": ["env.workers=subprocess"], "pool": ["pool=process"]}
LEAVING = [(workers, how) for workers in WORKERS for how in ("sys.exit(0)", "os._exit(0)")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "how"), matrix_but(LEAVING, ("subprocess", "sys.exit(0)"), ("pool", "os._exit(0)"))
)
def test_an_env_that_exits_in_a_worker_ends_the_run_with_code_3(
    tmp_path: Path, module: Callable[[str], None], workers: str, how: str
) -> None:
    module(ENV.format(code=EXITS[how]))
    changes = ["env.faults.renewals=0", "env.num=1", *WORKERS[workers]]
    ended = in_process("train", *quick("dqn", *changes), "--env", "leaves:Leaves", "--out", "run", folder=tmp_path)
    assert ended.code == 3, ended.err
    assert ("SystemExit" if how == "sys.exit(0)" else "ended with exit code 0") in ended.err
    assert summary(tmp_path / "run")["status"] == "failed"


# --- sinks (F42) ---


def test_a_sink_that_exits_does_not_end_the_run(tmp_path: Path) -> None:
    from rookery.run.report.sinks import Sink

    class Leaves(Sink):
        def report(self, record: Any) -> None:
            sys.exit(0)

    words = quick("dqn", *EVERY)[2:]
    result = Experiment(algo="dqn", env=Walk, overrides=words, out=tmp_path / "run", sinks=[Leaves()]).train()
    assert (result.status, result.summary["steps"]) == ("finished", 120)
