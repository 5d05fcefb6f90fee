"""The command line as a process: start-up, what is imported, signals, pipes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-c", "import sys; from rookery.cli.main import main; main()"]


def rookery(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )


def test_help_and_listing_import_neither_torch_nor_rich(tmp_path: Path) -> None:
    for arguments in (["--help"], ["list", "presets"], ["list", "algos", "--json"]):
        code = (
            f"import sys; from rookery.cli.main import run; code = run({arguments!r}); "
            "print('heavy:', code, sorted({'torch', 'numpy', 'gymnasium', 'rich'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "heavy: 0 []"


def test_help_takes_less_than_three_tenths_of_a_second(tmp_path: Path) -> None:
    def seconds() -> float:
        before = os.times()
        assert rookery("--help", folder=tmp_path).returncode == 0
        after = os.times()
        return after.children_user - before.children_user + after.children_system - before.children_system

    assert min(seconds() for _ in range(5)) < 0.3  # CPU time, the best of five: other work on the machine is not ours


@pytest.mark.slow
def test_a_bad_config_exits_2_with_one_message(tmp_path: Path) -> None:
    done = rookery("train", "cartpole-dqn", "algo.gama=0.9", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: algo.gama: unknown key (set by command line). Did you mean 'algo.gamma'?\n"


@pytest.mark.slow
def test_modules_of_the_current_folder_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "my_presets.py").write_text(
        "from rookery import register\nregister('env', 'my-cart', "
        "'gymnasium.envs.classic_control:CartPoleEnv', 'mine')\n"
    )
    done = rookery("config", "show", "cartpole-dqn", "import=[my_presets]", "env.id=my-cart", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "id: my-cart" in done.stdout


def test_a_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    command = " ".join(f"'{part}'" for part in COMMAND) + " list envs | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_sigterm_saves_and_exits_143_and_resume_finishes(tmp_path: Path) -> None:
    arguments = [
        "train",
        "cartpole-dqn",
        "learning.mode=eager",
        "store.min_fill=100",
        "store.batch_size=64",
        "eval.every_steps=0",
        "eval.at_end=false",
        "log.every_steps=200",
    ]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--out", "here"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = tmp_path / "here" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert out.rstrip().splitlines()[-1].startswith("run: ")
    assert "--resume" in out
    steps = int(re.search(r"steps +(\d+)", out)[1])  # type: ignore[index]
    done = rookery("train", "--resume", "here", f"train.max_steps={steps + 50}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"steps +{steps + 50}\b", done.stdout)
