"""One folder per run: unique, locked by the kernel, and never shared."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rookery.core.errors import UsageError
from rookery.run.experiment.folder import RunFolder, plain, write_json_atomic


def finished_run(path: Path) -> Path:
    with RunFolder.create(path.parent, "x", "fail", path) as folder:
        folder.config.write_text("seed: 1\n")
    return path


def test_many_runs_in_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: RunFolder.create(tmp_path, "cartpole-dqn-s1"), range(40)))
    assert len({folder.path for folder in folders}) == 40
    assert all(
        folder.path.parent == tmp_path and folder.path.name.startswith("cartpole-dqn-s1-20") for folder in folders
    )
    assert not any(folder.resuming for folder in folders)
    for folder in folders:
        folder.close()


def test_paths_are_those_of_the_documentation(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", explicit=tmp_path / "run") as f:
        assert f.path == tmp_path / "run"
        names = [
            path.name for path in (f.config, f.metrics, f.summary, f.log, f.tensorboard, f.checkpoints, f.offending)
        ]
    assert names == [
        "config.yaml",
        "metrics.jsonl",
        "summary.json",
        "log.txt",
        "tensorboard",
        "checkpoints",
        "offending",
    ]


def test_an_existing_run_is_not_overwritten_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    path = finished_run(tmp_path / "run")
    with pytest.raises(
        UsageError, match=r"already holds a run.*--resume.*--on-exists resume.*--on-exists new"
    ) as caught:
        RunFolder.create(tmp_path, "x", "fail", path)
    assert caught.value.exit_code == 2
    assert path.joinpath("config.yaml").read_text() == "seed: 1\n"


def test_on_exists_resume_goes_on_with_a_run_or_starts_one(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", "resume", tmp_path / "run") as folder:
        assert not folder.resuming
        folder.config.write_text("")
    with RunFolder.create(tmp_path, "x", "resume", tmp_path / "run") as folder:
        assert folder.resuming


def test_on_exists_new_takes_a_sibling(tmp_path: Path) -> None:
    path = finished_run(tmp_path / "run")
    with RunFolder.create(tmp_path, "x", "new", path) as folder:
        assert folder.path.parent == tmp_path
        assert folder.path != path
        assert folder.path.name.startswith("run-")
        assert not folder.resuming
        with RunFolder.create(tmp_path, "x", "new", folder.path) as third:  # locked, though no run is in it yet
            assert third.path not in (path, folder.path)


def test_a_folder_in_use_is_refused_with_the_process_that_uses_it(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", "fail", tmp_path / "run") as folder:
        folder.config.write_text("")
        for attempt in (
            lambda: RunFolder.create(tmp_path, "x", "fail", folder.path),
            lambda: RunFolder.create(tmp_path, "x", "resume", folder.path),
            lambda: RunFolder.resume(folder.path),
        ):
            with pytest.raises(
                UsageError, match=f"being written by process {os.getpid()} on .*--resume.*--on-exists new"
            ):
                attempt()
        assert RunFolder.read(folder.path).config == folder.config  # reading needs no lock
    with RunFolder.resume(folder.path) as again:
        assert again.resuming


def test_resume_and_read_want_a_run(tmp_path: Path) -> None:
    for opener in (RunFolder.resume, RunFolder.read):
        with pytest.raises(UsageError, match="not a folder"):
            opener(tmp_path / "nothing")
        with pytest.raises(UsageError, match="holds no run"):
            opener(tmp_path)
    assert list(tmp_path.iterdir()) == []


HOLD = """
import os, sys, time
from pathlib import Path
from rookery.run.experiment.folder import RunFolder
folder = RunFolder.create(Path(sys.argv[1]).parent, "x", "resume", Path(sys.argv[1]))
folder.config.write_text("")
worker = os.fork()
if worker == 0:
    time.sleep(60)
print(worker, flush=True)
time.sleep(60)
"""


def test_the_lock_dies_with_kill_9_even_if_a_forked_worker_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    worker = int(child.stdout.readline())
    try:
        with pytest.raises(UsageError, match=f"process {child.pid}"):
            RunFolder.resume(path)
        child.send_signal(signal.SIGKILL)
        child.wait()
        os.kill(worker, 0)  # still there
        RunFolder.resume(path).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        child.stdout.close()


def test_a_place_where_no_folder_can_be_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UsageError, match="a file is in its way"):
            RunFolder.create(tmp_path, "x", "fail", path)
    with pytest.raises(UsageError, match="cannot be made"):
        RunFolder.create(tmp_path / "file", "x")
    with pytest.raises(UsageError, match="cannot be made"):
        RunFolder.create(Path("/proc"), "x")  # a file system where even root cannot make folders
    with pytest.raises(UsageError, match="cannot be made"):
        RunFolder.create(tmp_path, "n" * 300)


def test_json_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json_atomic(
        path, {"status": "finished", "steps": np.int64(5), "mean": np.float32(0.5), "list": (1, np.arange(2))}
    )
    assert json.loads(path.read_text()) == {"status": "finished", "steps": 5, "mean": 0.5, "list": [1, [0, 1]]}
    with pytest.raises(TypeError):
        write_json_atomic(path, {"status": object()})
    assert json.loads(path.read_text())["steps"] == 5
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json_atomic(path, {"n": 0})
    child = os.fork()
    if child == 0:
        try:
            for n in range(10_000):
                write_json_atomic(path, {"n": n, "filling": "x" * 5000})
        finally:
            os._exit(0)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        json.loads(path.read_text())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert json.loads(path.read_text())["n"] > 0


def test_nan_and_infinity_become_null_because_json_has_neither() -> None:
    assert plain({"a": math.nan, "b": [math.inf, np.float32("nan")], "c": True, "d": 1.5}) == {
        "a": None,
        "b": [None, None],
        "c": True,
        "d": 1.5,
    }
