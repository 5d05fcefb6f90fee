"""Whole runs that go wrong or are stopped: checkpoints, disks, folders, divergence, callbacks, signals, limits
(F1-F5, F13, F19, F22, F28, F30)."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rookery
from faults.commands import (
    DQN,
    WALK,
    Cli,
    checkpoint,
    in_process,
    quick,
    started,
    summary,
    wait_for,
)
from rookery.core.errors import CheckpointError
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.manifest import commit_text
from rookery.run.checkpoints.statefile import read_state
from rookery.run.experiment.folder import RunFolder
from rookery.run.trainer import Trainer
from selection import slow_but


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 120 steps with an evaluation, and checkpoints at 100 and 120."""
    from rookery.cli.main import run

    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run(["train", *quick("dqn", "eval.at_end=true"), *WALK, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage, called `run`."""
    return shutil.copytree(finished, tmp_path / "run")


# --- checkpoints that are damaged ---


def flip(folder: Path) -> None:
    path = folder / "players.main.learner.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def cut(folder: Path) -> None:
    os.truncate(folder / "state.json", 100)


def lose(folder: Path) -> None:
    (folder / "players.main.learner.safetensors").unlink()


def age(folder: Path) -> None:
    text = (folder / "manifest.json").read_bytes().replace(b'"format": 4,', b'"format": 99,')
    assert b'"format": 99,' in text
    (folder / "manifest.json").write_bytes(text)
    (folder / "COMMIT").write_bytes(commit_text(text))


DAMAGE = {"flipped bit": (flip, "is damaged"), "cut": (cut, "it was cut or changed"), "lost": (lose, "is missing")}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_with_a_warning(cli: Cli, copy: Path, kind: str) -> None:
    damage, told = DAMAGE[kind]
    before = summary(copy)
    damage(checkpoint(copy, 120))
    ended = cli("eval", "run", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["steps"] == 100
    assert f"checkpoint skipped: {checkpoint(copy, 120)}" in ended.log
    assert told in ended.log
    ended = cli("train", "--resume", "run")
    assert ended.code == 0
    assert told in ended.err
    after = summary(copy)
    assert after["resumed_from"] == [100]
    for key in ("steps", "updates", "weights_sha256", "eval", "exact"):  # the last 20 steps once more, exactly
        assert after[key] == before[key], key
    assert cli("eval", "run", "--json", "--checkpoint", "120").code == 0  # written anew


def test_a_run_that_cannot_be_resumed_is_what_it_was(cli: Cli, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise CheckpointError("it does not fit")

    before = (copy / "summary.json").read_bytes(), (copy / "config.yaml").read_bytes()
    monkeypatch.setattr(Trainer, "restore", fails)
    ended = cli("train", "--resume", "run", "train.max_steps=150")
    assert (ended.code, ended.err.count("resume")) == (4, 0), ended.err  # nor is the same advised again
    assert ((copy / "summary.json").read_bytes(), (copy / "config.yaml").read_bytes()) == before


def test_a_goal_may_be_raised_and_a_reached_one_stays_reached(cli: Cli, tmp_path: Path) -> None:
    goal = "train.stop={episode/return_mean: %s}"
    assert cli("train", *DQN, *WALK, goal % -1000, "--out", "run").code == 0
    stopped = summary(tmp_path / "run")["steps"]
    assert stopped < 120
    again = cli("train", "--resume", "run")
    assert (again.code, summary(tmp_path / "run")["steps"]) == (0, stopped)
    assert "no report had such a metric" not in again.err
    assert cli("train", "--resume", "run", goal % 1000).code == 0
    assert summary(tmp_path / "run")["steps"] == 120


@pytest.mark.parametrize("kind", DAMAGE)
def test_if_no_checkpoint_is_whole_the_run_is_not_begun_again_and_each_cause_is_told(
    cli: Cli, copy: Path, kind: str
) -> None:
    damage, told = DAMAGE[kind]
    for step in (100, 120):
        damage(checkpoint(copy, step))
    for words in (["eval", "run"], ["train", "--resume", "run"], ["train", *quick(), *WALK, "--init-from", "run"]):
        ended = cli(*words)
        assert ended.code == 4
        last = ended.err.splitlines()[-1]
        assert f"no checkpoint in {copy / 'checkpoints'} is whole." in last
        assert last.count(told) == 2
    assert cli("train", "--resume", "run").code == 4  # the lock was given back


def test_a_checkpoint_of_another_format_is_refused_and_names_both_versions(cli: Cli, copy: Path) -> None:
    """It is intact, and newer: going on from the older one would throw it away, so that is not done silently."""
    age(checkpoint(copy, 120))
    for words in (["eval", "run"], ["train", "--resume", "run"]):
        ended = cli(*words)
        assert ended.code == 4
        assert f"has checkpoint format 99 (written by Rookery {rookery.__version__})" in ended.err
        assert "reads format 1, 2, 3 and 4. Use the version that wrote it." in ended.err
    assert checkpoint(copy, 120).is_dir()


@pytest.mark.parametrize("which", ["best", "77"])
def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(cli: Cli, copy: Path, which: str) -> None:
    shutil.rmtree(copy / "checkpoints" / "best")
    ended = cli("eval", "run", "--checkpoint", which)
    assert ended.code == 4
    assert "there are: 100, 120." in ended.err


def test_a_run_that_broke_before_its_first_checkpoint_can_be_resumed_from_its_beginning(
    cli: Cli, tmp_path: Path
) -> None:
    words = quick("dqn", "env.kwargs={fault: raise_step, at: 20}", "env.faults.renewals=0")
    assert cli("train", *words, "--env", "faults.fault_envs:Faulty", "--out", "run").code == 3
    for _ in range(2):
        ended = cli("train", "--resume", "run")
        assert ended.code == 3  # it breaks again, but at its own fault
        assert "holds no checkpoint: the run starts again from its beginning" in ended.err
        assert "the simulator broke" in ended.err
    assert summary(tmp_path / "run")["steps"] == 20


# --- disks and folders ---


def can_mount() -> bool:
    words = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    return bool(shutil.which("unshare")) and not subprocess.run(words, capture_output=True, check=False).returncode


@pytest.mark.slow
def test_a_full_disk_costs_a_checkpoint_but_neither_the_run_nor_the_checkpoint_before(tmp_path: Path) -> None:
    """Full from step 60 to 130 and saves at 50, 100 (refused) and 150: the run ends as if nothing had happened."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if can_mount():
        before, said = f"mount -t tmpfs -o size=1m none {disk}", "No space left on device"
        env = ["--env", "faults.fault_envs:FillsDisk", f"env.kwargs={{file: {disk}/filler, full: 60, empty: 130}}"]
    else:
        before, said = "", "File too large"
        env = ["--env", "faults.fault_envs:LimitsFiles", "env.kwargs={full: 60, empty: 130}"]
    look = tmp_path / "look.py"  # a callback, because what lies on that disk vanishes with the process
    look.write_text(LOOK.format(run=disk / "run", saved=tmp_path / "saved"))
    words = [*quick("dqn", "train.max_steps=170"), *env, "-c", str(look), "--out", str(disk / "run")]
    ended = in_process("train", *words, folder=tmp_path, before=before)
    assert ended.code == 0, ended.err
    told = re.findall(
        r"checkpoint step-0+(\d+) could not be written to .*: (.*)\. Needed: (\d+) bytes, free: (\d+)", ended.err
    )
    assert [(step, what) for step, what, _, _ in told] == [("100", said)]
    needed, free = int(told[0][2]), int(told[0][3])
    assert needed > 10_000
    if before:
        assert free < needed
    assert "Training goes on" in ended.err
    assert "Traceback" not in ended.err
    assert json.loads((tmp_path / "saved").read_text()) == {"while full": 50, "steps": [50, 150, 170], "left": []}


LOOK = """
import json
from pathlib import Path
from rookery import Callback, Experiment
from rookery.run.checkpoints.checkpoints import Checkpoints

checkpoints = Checkpoints(Path("{run}") / "checkpoints")
found = {{}}

class Look(Callback):
    def round_end(self, progress):
        if progress.steps == 120:
            found["while full"] = checkpoints.load("last")[1].step

    def checkpoint(self, path):
        found.setdefault("steps", []).append(checkpoints.load("last")[1].step)
        found["left"] = [p.name for p in checkpoints.folder.iterdir() if p.name.startswith(".")]
        Path("{saved}").write_text(json.dumps(found))

experiment = Experiment({{"algo": {{"name": "dqn"}}}}, callbacks=[Look()])
"""


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="this machine does not allow mounts in a namespace of its own")
def test_a_folder_that_cannot_be_written_is_told_before_the_start(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "there").mkdir(parents=True)
    read_only = f"mount --bind {place} {place} && mount -o remount,bind,ro {place}"
    for out, told in (("place/there", "cannot be written"), ("place/new", "cannot be made")):
        ended = in_process("train", *DQN, *WALK, "--out", out, folder=tmp_path, before=read_only)
        assert ended.code == 2
        assert f"{tmp_path / out} {told}: Read-only file system." in ended.err
        assert "Traceback" not in ended.err


def test_a_file_in_the_way_of_out_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/run"):
        ended = cli("train", *DQN, *WALK, "--out", out)
        assert (ended.code, "a file is in its way" in ended.err) == (2, True)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_existing_run_is_never_overwritten_and_on_exists_says_what_else_to_do(cli: Cli, copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name not in (".lock",)}
    ended = cli("train", *DQN, *WALK, "--out", "run")
    assert ended.code == 2
    assert f"{copy} already holds a run." in ended.err
    assert f"--resume {copy} (or --on-exists resume)" in ended.err
    assert "--on-exists new" in ended.err
    ended = cli("train", *DQN, *WALK, "--out", "run", "--on-exists", "new")
    assert ended.code == 0
    sibling = Path(ended.out.splitlines()[-1].removeprefix("run: "))
    assert sibling.parent == copy.parent
    assert sibling.name.startswith("run-")
    assert summary(sibling)["steps"] == 120
    assert {path: path.read_bytes() for path in before} == before
    ended = cli(
        "train",
        *quick("dqn", "train.max_steps=150", "eval.at_end=true"),
        *WALK,
        "--out",
        "run",
        "--on-exists",
        "resume",
    )
    assert ended.code == 0
    assert (summary(copy)["steps"], summary(copy)["resumed_from"]) == (150, [120])


def test_a_folder_with_foreign_files_may_be_used_and_they_stay(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert cli("train", "--algo", "sac", "--env", "CartPole-v1", "learning.mode=eager", "--out", "run").code == 2
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]
    assert cli("train", *DQN, *WALK, "--out", "run").code == 0
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


# --- resuming and taking over weights ---


def test_a_resumed_run_must_be_the_same_run_and_every_changed_key_is_listed(cli: Cli, copy: Path) -> None:
    ended = cli("train", "--resume", "run", "algo.gamma=0.5", "env.num=3", "--seed", "4", "log.window=7")
    assert ended.code == 2
    for line in (
        "algo.gamma: 0.99 in the run, 0.5 now",
        "env.num: 1 in the run, 3 now",
        "run.seed: 0 in the run, 4 now",
    ):
        assert line in ended.err
    assert "log.window" not in ended.err
    assert "--init-from" in ended.err
    assert summary(copy)["status"] == "finished"


def test_a_longer_limit_goes_on_where_the_run_ended_and_is_remembered(cli: Cli, copy: Path, tmp_path: Path) -> None:
    assert cli("train", "--resume", "run", "train.max_steps=200").code == 0
    told = summary(copy)
    assert (told["steps"], told["resumed_from"], told["exact"]) == (200, [120], True)
    straight = quick("dqn", "train.max_steps=200", "eval.at_end=true")
    assert cli("train", *straight, *WALK, "--out", "straight").code == 0
    assert summary(tmp_path / "straight")["weights_sha256"] == told["weights_sha256"]
    shutil.rmtree(checkpoint(copy, 200))  # as if killed before the last save: the new limit counts, not the first one
    assert cli("train", "--resume", "run").code == 0
    assert summary(copy)["steps"] == 200
    assert summary(copy)["weights_sha256"] == told["weights_sha256"]


def test_init_from_takes_the_weights_and_nothing_else(cli: Cli, finished: Path, tmp_path: Path) -> None:
    words = quick("dqn", "store.min_fill=100", "train.max_steps=101", "algo.lr=0", "checkpoint.every_steps=0")
    ended = cli("train", *words, *WALK, "--init-from", f"{finished}@best", "--out", "run")
    assert ended.code == 0
    told = summary(tmp_path / "run")
    assert (told["steps"], told["resumed_from"]) == (101, [])
    theirs = Checkpoints(finished / "checkpoints").load("best")[0]["players"]["main"]["learner"]["tensors"]
    mine, manifest = Checkpoints(tmp_path / "run" / "checkpoints").load("last")
    assert manifest.step == 101
    assert torch.equal(
        mine["players"]["main"]["learner"]["tensors"]["q.value"], theirs["q.value"]
    )  # a learning rate of 0 keeps them
    assert mine["players"]["main"]["learner"]["updates"] == told["updates"] == 1  # the optimiser began anew


def test_init_from_a_run_with_another_network_lists_every_mismatch_and_leaves_no_folder(
    cli: Cli, finished: Path, tmp_path: Path
) -> None:
    words = quick("dqn", "model.hidden=[5]")
    ended = cli("train", *words, *WALK, "--init-from", str(finished), "--out", "run")
    assert ended.code == 4
    assert f"--init-from {finished}: the weights do not fit these networks" in ended.err
    assert re.search(r"q: expected .*\[5, 2\].*got .*\[4, 2\]", ended.err)
    assert re.search(r"q_target: expected .*\[5, 2\].*got .*\[4, 2\]", ended.err)
    assert not (tmp_path / "run").exists()
    ended = cli("train", *words, *WALK, "--init-from", str(finished), "--resume", str(finished))
    assert (ended.code, "give one of them" in ended.err) == (2, True)


# --- learning that breaks ---


def poisoned(first: int, last: int = 10**9, *changes: str) -> list[str]:
    kwargs = f"model.kwargs={{first: {first}, last: {last}}}"
    encoder = ["model.encoder=faults.fault_envs:Poisoned", "model.hidden="]
    return [*quick("dqn", *encoder, kwargs, *changes), *WALK, "--out", "run"]


def finite(folder: Path) -> list[int]:
    """Steps of all checkpoints of a run; every learned number in them is finite."""
    checkpoints = Checkpoints(folder / "checkpoints")
    for step in checkpoints.steps():
        for name, tensor in checkpoints.load(step)[0]["players"]["main"]["learner"]["tensors"].items():
            assert torch.isfinite(tensor).all(), (step, name)
    return checkpoints.steps()


def test_nan_in_learning_ends_with_exit_5_and_the_offending_batch(cli: Cli, tmp_path: Path) -> None:
    ended = cli("train", *poisoned(first=80))
    assert ended.code == 5
    folder = tmp_path / "run" / "offending" / "update-80"
    assert "learning diverged in update 80: q/loss = nan" in ended.err
    assert f"The batch is in {folder}. Lower the learning rate" in ended.err
    batch = read_state(folder, ["batch.safetensors"])["batch"]
    assert batch["obs"].shape == (16, 2)
    assert all(torch.isfinite(batch[name]).all() for name in ("obs", "next_obs", "reward", "discount"))
    assert json.loads((folder / "metrics.json").read_text())["metrics"]["q/loss"] == "nan"
    told = summary(tmp_path / "run")
    assert told["status"] == "failed"
    assert "diverged in update 80" in told["reason"]
    assert told["updates"] == 80
    assert finite(tmp_path / "run") == [50, 100]  # min_fill 32: update 80 is after step 111
    assert cli("eval", "run", "--json").code == 0


def test_one_nan_is_recovered_from_by_rollback_and_the_summary_says_so(cli: Cli, tmp_path: Path) -> None:
    ended = cli("train", *poisoned(80, 80, "sentinel.on_nan=rollback", "train.max_steps=170"))
    assert ended.code == 0
    assert "Going back to step 100 (1 of 3)." in ended.err
    told = summary(tmp_path / "run")
    assert (told["status"], told["steps"]) == ("finished", 170)
    assert told["exact"] == "went back to an earlier checkpoint after a divergence, 1 time(s)"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines] == [40, 80, 120, 160, 170]  # none twice, none of the lost attempt
    assert finite(tmp_path / "run") == [150, 170]
    assert cli("train", "--resume", "run", "train.max_steps=180").code == 0
    assert summary(tmp_path / "run")["exact"] == told["exact"]


def test_rollback_gives_up_after_the_number_of_times_it_may(cli: Cli, tmp_path: Path) -> None:
    ended = cli("train", *poisoned(80, 10**9, "sentinel.on_nan=rollback", "sentinel.rollbacks=2"))
    assert ended.code == 5
    assert "(1 of 2)" in ended.err
    assert "(2 of 2)" in ended.err
    assert ended.err.splitlines()[-1].startswith("error: learning diverged in update ")
    assert summary(tmp_path / "run")["status"] == "failed"
    assert finite(tmp_path / "run") == [50, 100]
    names = sorted(path.name for path in (tmp_path / "run" / "offending").iterdir())
    assert len(names) == 3  # one batch per attempt


def test_rollback_before_the_first_checkpoint_is_a_stop(cli: Cli) -> None:
    ended = cli("train", *poisoned(3, 3, "sentinel.on_nan=rollback"))
    assert ended.code == 5
    assert "diverged in update 3" in ended.err


RATES = [(lr, algo) for lr in ("1e6", "1e38") for algo in ("dqn", "ppo", "sac")]


@pytest.mark.parametrize(("lr", "algo"), slow_but(RATES, ("1e6", "ppo"), ("1e38", "dqn")))
def test_a_huge_learning_rate_ends_with_exit_5_and_no_checkpoint_or_best_is_infinite(
    cli: Cli, tmp_path: Path, algo: str, lr: str
) -> None:
    """At 1e38 a single update with a finite loss leaves infinite weights: saves and evaluations
    after every step must notice."""
    words = quick(algo, f"algo.lr={lr}", "checkpoint.every_steps=1", "eval.every_steps=1", "train.max_steps=400")
    extra = ["env.kwargs={continuous: true}"] if algo == "sac" else []
    ended = cli("train", *words, *extra, *WALK, "--out", "run")
    assert ended.code == 5, ended.err + ended.out
    assert "diverged" in ended.err
    assert "Lower the learning rate" in ended.err or "not finite" in ended.err
    finite(tmp_path / "run")
    if algo != "ppo":  # which is over in its first round
        best = Checkpoints(tmp_path / "run" / "checkpoints").load("best")[0]["players"]["main"]["learner"]["tensors"]
        assert all(torch.isfinite(tensor).all() for tensor in best.values())


def test_a_divergence_in_the_second_worker_does_not_count_the_steps_of_the_first_twice(
    cli: Cli, tmp_path: Path
) -> None:
    """The policy's NaN is met by an env: worker 0 has delivered by then, worker 1 raises, and the run goes back."""
    from rookery import Experiment
    from rookery.core.errors import Diverged

    words = quick("dqn", "pool.workers=2", "sentinel.on_nan=rollback")[2:]
    experiment = Experiment(
        {"algo": {"name": "dqn"}, "env": {"id": "faults.fault_envs:Walk"}}, overrides=words, out="run"
    )
    raised = []
    real = Checkpoints.save

    def break_once(self: Checkpoints, step: int, *rest: Any) -> Path:
        path = real(self, step, *rest)
        if step == 100 and not raised:
            second = experiment.trainer.pool.collectors[1]

            def collect(*_: Any, **__: Any) -> Any:
                del second.collect
                raised.append(step)
                raise Diverged("the policy gave env 0 an action that is not finite")

            second.collect = collect  # type: ignore[method-assign]
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", break_once)
        result = experiment.train()
    assert raised == [100]
    assert result.summary["steps"] == 120
    assert [worker["steps"] for worker in result.summary["workers"]] == [60, 60]


# --- callbacks and signals ---

CALLBACK = """
from rookery import Callback, Experiment

class Breaks(Callback):
    def report(self, progress):
        raise LookupError("a mistake in my callback")

experiment = Experiment({"algo": {"name": "dqn"}}, callbacks=[Breaks()])
"""


@pytest.mark.slow
def test_an_exception_in_a_callback_ends_the_run_at_once_with_one_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CALLBACK)
    process = started("train", "-c", "mine.py", *DQN, *WALK, "--out", "run", folder=tmp_path)
    wait_for(lambda: (tmp_path / "run" / "summary.json").exists())
    begun = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < 5
    assert process.returncode == 1
    assert err.count("Traceback (most recent call last)") == 1
    assert err.rstrip().endswith("LookupError: a mistake in my callback")
    told = summary(tmp_path / "run")
    assert (told["status"], told["reason"]) == ("failed", "LookupError: a mistake in my callback")
    RunFolder.resume(tmp_path / "run").close()  # the lock is free


def test_after_an_exception_in_a_callback_this_process_is_as_before(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CALLBACK)
    handlers, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    with pytest.raises(LookupError, match="a mistake in my callback"):
        cli("train", "-c", "mine.py", *DQN, *WALK, "--out", "run")
    assert (signal.getsignal(signal.SIGTERM), torch.get_num_threads()) == (handlers, threads)
    RunFolder.resume(tmp_path / "run").close()
    assert cli("train", "--resume", "run").code == 0  # without the callback


@pytest.mark.slow
def test_two_runs_into_one_folder_and_ctrl_c(cli: Cli, tmp_path: Path) -> None:
    """While one run writes, another is refused or takes a sibling; Ctrl-C then saves, exits with
    130, and the run can go on."""
    words = quick("dqn", "train.max_steps=10000000")
    process = started("train", *words, *WALK, "--out", "run", folder=tmp_path)
    try:
        wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("step-*/COMMIT")))
        for more in (["--out", "run"], ["--out", "run", "--on-exists", "resume"]):
            ended = cli("train", *words, *WALK, *more)
            assert ended.code == 2
            assert f"{tmp_path / 'run'} is being written by process {process.pid}" in ended.err
            assert "--resume" in ended.err
            assert "--on-exists new" in ended.err
        assert cli("train", "--resume", "run").code == 2
        ended = cli("train", *DQN, *WALK, "--out", "run", "--on-exists", "new")
        assert ended.code == 0
        assert cli("eval", "run", "--json").code == 0  # reading is allowed
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert out.splitlines()[-1] == f"run: {tmp_path / 'run'}"
    told = summary(tmp_path / "run")
    assert (told["status"], told["reason"]) == ("preempted", "SIGINT received; saved")
    assert checkpoint(tmp_path / "run", told["steps"]).is_dir()
    assert cli("train", "--resume", "run", f"train.max_steps={told['steps'] + 10}").code == 0
    assert summary(tmp_path / "run")["resumed_from"] == [told["steps"]]


@pytest.mark.slow
def test_a_second_sigterm_ends_a_run_that_hangs_in_its_env(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    env = ["--env", "faults.fault_envs:Slow", f"env.kwargs={{file: {mark}, seconds: 600}}"]
    process = started("train", *DQN, *env, "--out", "run", folder=tmp_path)
    try:
        wait_for(mark.exists)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None  # the first is a request; the env does not come back
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    RunFolder.resume(tmp_path / "run").close()


# --- limits ---


@pytest.mark.parametrize("algo", ["dqn", "ppo", "sac"])
@pytest.mark.parametrize("limit", ["steps", "updates", "episodes"])
def test_limits_are_exact_counts_also_where_the_envs_do_not_divide_them(
    cli: Cli, tmp_path: Path, algo: str, limit: str
) -> None:
    count = {"steps": 101, "updates": 37, "episodes": 11}[limit]
    limits = {"train.max_steps": "null"} | {f"train.max_{limit}": str(count)}
    words = quick(algo, *(f"{key}={value}" for key, value in limits.items()), "env.num=3", "pool.workers=2")
    extra = ["env.kwargs={continuous: true}"] if algo == "sac" else []
    ended = cli("train", *words, *extra, *WALK, "--out", "run")
    assert ended.code == 0, ended.err
    told = summary(tmp_path / "run")
    assert told[limit] == count
    assert told["reason"] == f"train.max_{limit}={count} reached"
    assert told["status"] == "finished"
    assert sum(worker["steps"] for worker in told["workers"]) == told["steps"]
    assert told["updates"] > 0


def test_max_seconds_ends_the_run(cli: Cli, tmp_path: Path) -> None:
    begun = time.monotonic()
    words = quick("dqn", "train.max_steps=null", "train.max_seconds=0.5", "checkpoint.every_steps=0")
    assert cli("train", *words, *WALK, "--out", "run").code == 0
    assert 0.5 <= time.monotonic() - begun < 10
    told = summary(tmp_path / "run")
    assert (told["status"], told["reason"]) == ("finished", "train.max_seconds=0.5 reached")
    assert told["steps"] > 0
    assert told["time"]["wall_seconds"] >= 0.5


# --- the caller's process ---


@pytest.mark.parametrize("algo", slow_but(["dqn", "ppo", "sac"], "dqn"))
def test_the_callers_generators_are_untouched_by_a_run_and_do_not_touch_it(tmp_path: Path, algo: str) -> None:
    from rookery import Experiment

    def state() -> list[bytes]:
        kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global one is what is watched
        return [
            repr(random.getstate()).encode(),
            keys.tobytes() + repr((kind, rest)).encode(),
            torch.get_rng_state().numpy().tobytes(),
        ]

    found = []
    for seed in (1, 2):  # of the caller's generators, not of the run
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        before = state()
        tree = {"env": {"id": "faults.fault_envs:Walk", "kwargs": {"continuous": algo == "sac"}}}
        overrides = quick(algo, "eval.at_end=true")[2:]
        result = Experiment(tree, algo=algo, overrides=overrides, out=tmp_path / str(seed)).train()
        assert state() == before
        found.append(result.summary["weights_sha256"])
    assert found[0] == found[1]
