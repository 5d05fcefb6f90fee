"""The first signal is a request, the second an order; afterwards everything is as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from rookery.run.experiment.signals import SAME, SIGNALS, Preemption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_the_first_signal_only_sets_requested_and_handlers_come_back(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with Preemption() as preemption:
        assert preemption.requested is None
        os.kill(os.getpid(), number)
        assert preemption.requested == number
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert preemption.requested == number  # still known when the exit code is chosen


def test_a_request_that_comes_twice_at_the_same_time_is_one_request() -> None:
    """`timeout 60 rookery …` signals its child and then its group; a batch script forwards
    what its children got already."""
    with Preemption() as preemption:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.requested == signal.SIGTERM


def test_handlers_come_back_after_an_error() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(ValueError, match="in the run"), Preemption():
        raise ValueError("in the run")
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_the_second_ctrl_c_interrupts_at_once() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]

    def twice() -> None:
        with Preemption():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(SAME)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second signal did nothing")

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert [signal.getsignal(each) for each in SIGNALS] == before


def in_a_child(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_second_sigterm_ends_the_process() -> None:
    done = in_a_child("""
        import os, signal, time
        from rookery.run.experiment.signals import Preemption
        with Preemption() as preemption:
            os.kill(os.getpid(), signal.SIGTERM)
            print("asked", preemption.requested, flush=True)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGTERM)
            print("still here", flush=True)
    """)
    assert done.stdout == "asked 15\n"
    assert done.returncode == -signal.SIGTERM


def test_a_forked_worker_obeys_the_first_signal() -> None:
    done = in_a_child("""
        import os, signal, time
        from rookery.run.experiment.signals import Preemption
        with Preemption() as preemption:
            worker = os.fork()
            if worker == 0:
                time.sleep(30)
                os._exit(0)
            time.sleep(0.2)
            os.kill(worker, signal.SIGTERM)
            print(os.WTERMSIG(os.waitpid(worker, 0)[1]), preemption.requested)
    """)
    assert done.stdout == "15 None\n", done.stderr


def test_outside_the_main_thread_nothing_is_changed() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    seen: list[object] = []

    def enter() -> None:
        with Preemption() as preemption:
            seen.append([signal.getsignal(each) for each in SIGNALS] == before)
            seen.append(preemption.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [True, None]
