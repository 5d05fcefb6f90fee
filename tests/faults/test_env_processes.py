"""F7, F8, F16, F23, F29, F30 with real processes: how runs end, and that nothing is left of them."""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.commands import command, environment, quick, wait_for
from rookery import Callback, Experiment, Trainer, load_config
from rookery.cli.main import run

pytestmark = pytest.mark.slow
NUMBERED = ["--env", "faults.numbered:Numbered"]
FORK = ["env.workers=subprocess", "env.workers.start=fork", "env.workers.processes=2", "env.num=4"]
SCRIPT = """
import sys
from rookery import Callback, Experiment

class Stumbles(Callback):
    def round_end(self, progress):
        if {stumbles} and progress.steps > 50:
            raise ZeroDivisionError("a mistake in a callback")

def main():
    words = {words}
    Experiment(algo="dqn", env="faults.numbered:Numbered", callbacks=[Stumbles()], overrides=words, out="run").train()

{call}
"""


def kwargs(**given):
    return "env.kwargs={" + ", ".join(f"{key}: {value}" for key, value in given.items()) + "}"


def words(*changes):
    return quick("dqn", *changes)[2:]


def descendants(pid):
    """Processes below a process, as they are now."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found, front = [], [pid]
    while front:
        front = [child for child, parent in parents.items() if parent in front]
        found += front
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def finished(words, folder):
    more = {"capture_output": True, "text": True, "timeout": 100, "check": False}
    return subprocess.run(words, cwd=folder, env=environment(), **more)


def test_an_env_that_hangs_in_this_process_ends_it_with_code_3_all_stacks_and_advice(tmp_path):
    changes = ["env.faults.step_seconds=0.4", kwargs(fault="hang", when=5, only=0)]
    done = finished(command("train", *NUMBERED, *quick("dqn", *changes), "--out", "run"), tmp_path)
    assert done.returncode == 3
    assert "time.sleep(1000)" in done.stderr
    assert "env 0 of worker 0 (faults.numbered:Numbered), episode 0, seed " in done.stderr
    assert "with env.workers=subprocess such an env is ended and renewed" in done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("failed", 5)
    assert "step has not returned for 0.4 s" in summary["reason"]


@pytest.mark.parametrize(("fault", "cause"), [("raise", "the gripper is stuck"), ("kill", "SIGKILL")])
def test_an_env_that_always_fails_ends_the_command_with_code_3_and_the_cause(monkeypatch, tmp_path, fault, cause):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command line extends it
    changes = [*FORK, "env.faults.renewals=2", "env.faults.backoff_seconds=0", kwargs(fault=fault, when=2)]
    assert run(("train", *NUMBERED, *quick("dqn", *changes), "--out", "run")) == 3
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert cause in summary["reason"]
    assert not multiprocessing.active_children()


def test_an_exception_in_a_callback_and_the_end_of_a_run_leave_no_process(tmp_path):
    class Stumbles(Callback):
        def round_end(self, progress):
            if progress.steps > 40:
                raise ZeroDivisionError("a mistake in a callback")

    given = {"algo": "dqn", "env": "faults.numbered:Numbered", "overrides": words(*FORK)}
    with pytest.raises(ZeroDivisionError):
        Experiment(**given, callbacks=[Stumbles()], out=tmp_path / "a").train()
    assert not multiprocessing.active_children()
    result = Experiment(**given, out=tmp_path / "b").train()
    assert len(result.summary["workers"][0]["env_pids"]) == 2
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_memory_and_descriptors_stay_flat_over_many_renewals():
    overrides = words(*FORK, "env.faults.renewals=100000", "env.faults.backoff_seconds=0")
    with Trainer(load_config(algo="dqn", env="faults.numbered:Numbered", overrides=overrides)) as trainer:
        collector = trainer.pool.collectors[0]
        collector.load({"main": trainer.players.main.message(0)})
        env = collector.env

        def renewals(times):
            for _ in range(times):
                os.kill(env.pids[0], signal.SIGKILL)
                collector.collect(2)
            gc.collect()
            memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            return len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children()), memory

        before, after = renewals(10), renewals(40)
        assert env.renewals >= 90
        assert after[:2] == before[:2]
        assert after[2] - before[2] < 8e6


ENDS = [
    (start, end) for start in ("forkserver", "spawn", "fork") for end in ("SIGKILL", "SIGINT", "callback", "finish")
]
QUICK = {("forkserver", "SIGKILL"), ("forkserver", "SIGINT"), ("fork", "callback")}


@pytest.mark.parametrize(
    ("start", "end"), [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.matrix) for case in ENDS]
)
def test_nothing_is_left_however_a_run_ends(tmp_path, short_path, start, end):
    """No process, no shared memory, no temporary folder: also with an env that hangs when the run is killed."""
    named = set(os.listdir("/dev/shm"))
    changes = ["env.workers=subprocess", f"env.workers.start={start}", "env.workers.processes=2", "env.num=2"]
    changes += [kwargs(fault="hang", when=5) if end == "SIGKILL" else kwargs(seconds=0.005)]
    changes += ["train.max_steps=100" if end == "finish" else "train.max_steps=100000", "eval.at_end=true"]
    script = SCRIPT.format(
        stumbles=end == "callback", words=words(*changes), call='if __name__ == "__main__":\n    main()'
    )
    (tmp_path / "script.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(TMPDIR=str(short_path)),
        stderr=subprocess.PIPE,
    ) as process:
        wait_for(lambda: len(descendants(process.pid)) >= (2 if start == "fork" else 3) or process.poll() is not None)
        children = set(descendants(process.pid))
        if end.startswith("SIG"):
            wait_for(lambda: (tmp_path / "run" / "config.yaml").exists())
            time.sleep(1.0)
            children |= set(descendants(process.pid))
            process.send_signal(getattr(signal, end))
            sent = time.monotonic()
        process.wait(60)
        if end.startswith("SIG"):
            assert time.monotonic() - sent < 30  # 1 s on a quiet machine; 10 s were seen on one with load 8
    assert process.returncode == {"SIGKILL": -9, "SIGINT": -2, "callback": 1, "finish": 0}[end]
    wait_for(lambda: not any(map(alive, children)), 10)
    wait_for(lambda: not os.listdir(short_path), 10)
    assert not [name for name in set(os.listdir("/dev/shm")) - named if "rookery" in name or name.startswith("psm")]


def test_a_long_name_of_the_temporary_folder_is_no_obstacle(tmp_path):
    """A socket's name has at most 107 bytes: batch systems and test runners give longer folders than that."""
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    changes = ["env.workers=subprocess", "env.workers.processes=1", "train.max_steps=40"]
    words = command("train", *NUMBERED, *quick("dqn", *changes), "--out", "run")
    more = {"capture_output": True, "text": True, "timeout": 100, "check": False}
    done = subprocess.run(words, cwd=tmp_path, env=environment(TMPDIR=str(folder)), **more)
    assert done.returncode == 0, done.stderr
    assert not os.listdir(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "changes"),
    [
        pytest.param(
            "env.workers.start",
            ["env.workers=subprocess", "env.workers.start=spawn", "env.workers.processes=1"],
            marks=pytest.mark.matrix,
        ),
        ("env.workers.start", ["env.workers=subprocess", "env.workers.start=forkserver", "env.workers.processes=1"]),
        ("pool.start", ["pool=process", "pool.start=spawn", "pool.workers=2"]),
    ],
)
def test_a_script_without_a_main_guard_is_told_so(tmp_path, option, changes):
    (tmp_path / "script.py").write_text(SCRIPT.format(stumbles=False, words=words(*changes), call="main()"))
    done = finished([sys.executable, "script.py"], tmp_path)
    assert done.returncode == 1
    assert 'must stand under `if __name__ == "__main__":`, or set ' + option + "=fork" in done.stderr
    if option == "env.workers.start":  # a pool starts with the first round, when the folder is there
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_names_that_a_users_module_registers_are_known_to_spawned_workers(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import rookery\nfrom faults.numbered import Numbered\nrookery.register('env', 'numbered', Numbered)\n"
    )
    changes = ["env.workers=subprocess", "env.workers.start=spawn", "import=[mine]", "env.id=numbered"]
    done = finished(command("train", *quick("dqn", *changes), "--out", "run"), tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_factory_that_cannot_travel_is_refused_with_what_to_do(tmp_path):
    from faults.numbered import Numbered

    changes = words("env.workers=subprocess", "env.workers.start=spawn")
    with pytest.raises(Exception, match=r"cannot be sent to a worker process .*env\.workers\.start=fork") as caught:
        Experiment(algo="dqn", env=lambda: Numbered(), overrides=changes, out=tmp_path / "run").train()
    assert caught.value.exit_code == 2
    assert not (tmp_path / "run").exists()


def test_fork_works_beside_running_threads(tmp_path):
    import threading

    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        result = Experiment(
            algo="dqn", env="faults.numbered:Numbered", overrides=words(*FORK), out=tmp_path / "run"
        ).train()
    finally:
        over.set()
        thread.join()
    assert (result.status, result.summary["exact"]) == ("finished", True)
