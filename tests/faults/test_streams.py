"""F46: standard streams that are closed, full or that nobody reads, a folder that is deleted, a terminal that can do
nothing. The run goes on, and there is no traceback."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from faults.commands import WALK, command, environment, quick, summary
from selection import slow_but

WORDS = quick("dqn", "log.sinks=[jsonl, console]", "train.max_steps=120")
SHELLS = {
    "full": '"$@" >/dev/full 2>/dev/full',
    "closed": '"$@" <&- >&- 2>&-',
    "closed output": '"$@" >&- 2>err',
    "head": '"$@" 2>err | true; exit "${PIPESTATUS[0]}"',
    "gone": '"$@" 2>&1 | true; exit "${PIPESTATUS[0]}"',
    "no unicode": 'PYTHONIOENCODING=ascii "$@" >out 2>err',
    "workers": '"$@" env.workers=subprocess >/dev/full 2>/dev/full',
}


def shell(line: str, *words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A shell with `words` as its arguments."""
    start = ["bash", "-c", line, "bash", *words]
    return subprocess.run(
        start, cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("kind", slow_but(list(SHELLS)))
def test_a_run_ends_well_whatever_its_streams_are(tmp_path: Path, kind: str) -> None:
    """Nothing of what is printed may get into a file of the run, either: closed numbers are given to other files."""
    env = ["--env", "faults.fault_envs:Prints"]
    done = shell(SHELLS[kind], *command("train", *WORDS, *env, "--out", "run"), cwd=tmp_path)
    said = done.stderr + ((tmp_path / "err").read_text() if (tmp_path / "err").exists() else "")
    assert done.returncode == 0, said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    told = summary(tmp_path / "run")
    assert (told["status"], told["steps"]) == ("finished", 120)
    assert [json.loads(line)["steps"] for line in (tmp_path / "run" / "metrics.jsonl").open()] == [40, 80, 120]
    assert "step" not in (tmp_path / "run" / ".lock").read_text()


@pytest.mark.slow
def test_a_list_that_head_cuts_off_ends_quietly(tmp_path: Path) -> None:
    line = '"$@" | head -1; exit "${PIPESTATUS[0]}"'
    done = shell(line, *command("list", "envs"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["", "env.workers=subprocess"])
def test_a_folder_that_was_deleted_before_or_in_the_run_is_no_reason_to_end(tmp_path: Path, workers: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = [*WORDS, *WALK, *([workers, "env.workers.start=spawn"] if workers else [])]
    done = shell('rmdir "$PWD" && exec "$@"', *command("train", *words, "--out", str(tmp_path / "run")), cwd=gone)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert summary(tmp_path / "run")["status"] == "finished"


@pytest.mark.slow
def test_a_relative_path_in_a_folder_that_was_deleted_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = shell('rmdir "$PWD" && exec "$@"', *command("train", *WORDS, *WALK, "--out", "run"), cwd=gone)
    assert done.returncode == 2
    assert "the folder that run lies in was deleted. Go to another one, or write the whole path." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", "", "xterm"])
def test_any_terminal_will_do(tmp_path: Path, term: str) -> None:
    """One of no width and height, whatever it says that it can do."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("train", *WORDS, *WALK, "--out", "run"),
        cwd=tmp_path,
        env=environment(TERM=term),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        said += part
        if not part:
            break
    os.close(ours)
    assert process.wait(60) == 0, said
    assert b"Traceback" not in said
    assert b"finished: train.max_steps=120 reached" in said


@pytest.mark.slow
def test_a_package_that_logs_to_the_screen_repeats_no_line_of_ours(tmp_path: Path) -> None:
    """dm_control and others give the root logger a handler when they are imported."""
    text = "import logging\nlogging.basicConfig(level=logging.INFO)\nfrom faults.fault_envs import Walk\n"
    (tmp_path / "loud.py").write_text(text)
    done = shell('"$@"', *command("train", *WORDS, "--env", "loud:Walk", "--out", "run"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "INFO:rookery" not in done.stderr
    assert done.stderr.count("has no time limit that is known here") == 1
