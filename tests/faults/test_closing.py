"""F45: a `close` that raises or hangs never fails a finished run, and cannot keep it waiting for ever."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from envs.sample_envs import Faulty
from faults.commands import Cli, in_process, quick, summary
from faults.fault_envs import Walk
from rookery.envs import InProcess, check_env, closing


class BadClose(Walk):
    """Leaves a file when it is closed, and then does it badly."""

    def __init__(self, how: str, file: str = ""):
        super().__init__()
        self.how, self.file = how, file

    def close(self):
        if self.file:
            Path(self.file).touch()
        if self.how == "raise":
            raise RuntimeError("the window is gone")
        if self.how == "exit":
            raise SystemExit(0)
        if self.how == "hang":
            time.sleep(1000)
        if self.how == "spin":
            while True:
                pass


def engine(*envs):
    return InProcess(envs, lambda i, episode: episode, name="bad")


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(closing, "SECONDS", 0.2)


@pytest.mark.parametrize(("how", "told"), [("raise", "RuntimeError: the window is gone"), ("exit", "SystemExit: 0")])
def test_one_that_raises_is_told_in_one_line_with_its_place_and_the_others_are_closed(how, told, tmp_path, caplog):
    files = [tmp_path / "0", tmp_path / "1", tmp_path / "2"]
    engine(*(BadClose(how if i < 2 else "well", str(file)) for i, file in enumerate(files))).close()
    assert all(file.exists() for file in files)
    assert len(caplog.records) == 1
    assert f"bad: close failed: {told} ({__file__}:" in caplog.text
    assert "in close)" in caplog.text


@pytest.mark.parametrize("how", ["hang", "spin"])
@pytest.mark.parametrize("thread", [False, True])
def test_one_that_hangs_is_given_up_in_the_main_thread_and_elsewhere(how, thread, soon, caplog):
    if thread and how == "spin":
        pytest.skip("a thread that spins for ever would slow down all tests behind this one")
    start, close = time.monotonic(), engine(BadClose(how), BadClose("well")).close
    if thread:
        other = threading.Thread(target=close)
        other.start()
        other.join()
    else:
        close()
    assert 0.1 < time.monotonic() - start < 10
    assert [record.getMessage() for record in caplog.records] == [
        "bad: close did not return within 0.2 s and was given up. What was learnt and saved does not depend on it."
    ]


def test_whoever_used_the_timer_before_gets_it_back(soon):
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    old = signal.setitimer(signal.ITIMER_REAL, 0.4)
    try:
        engine(BadClose("hang")).close()
        assert not rung
        end = time.monotonic() + 10
        while not rung and time.monotonic() < end:
            time.sleep(0.01)
        assert rung
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *old)


def test_check_env_tells_of_it():
    assert any("close failed: RuntimeError" in text for text in check_env(lambda: BadClose("raise")).warnings)
    assert check_env(lambda: Faulty()).ok


def test_a_run_whose_envs_fail_to_close_has_finished(cli: Cli, tmp_path):
    words = quick("dqn", "env.kwargs={how: raise}", "eval.at_end=true")
    ended = cli("train", *words, "--env", "faults.test_closing:BadClose", "--out", "here")
    assert ended.code == 0
    assert ended.err.count("close failed: RuntimeError: the window is gone") == 2  # training envs, evaluation envs
    assert summary(tmp_path / "here")["status"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["inline", "subprocess"])
def test_a_run_whose_envs_hang_in_close_ends_with_exit_0(tmp_path, workers):
    words = quick("dqn", f"env.workers={workers}", "env.kwargs={how: hang}")
    start = time.monotonic()
    done = in_process("train", *words, "--env", "faults.test_closing:BadClose", "--out", "run", folder=tmp_path)
    assert done.code == 0, done.err
    told = "close did not return within 10 s" if workers == "inline" else "did not close their envs within 3 s"
    assert told in done.err
    assert summary(tmp_path / "run")["status"] == "finished"
    assert time.monotonic() - start < 90
