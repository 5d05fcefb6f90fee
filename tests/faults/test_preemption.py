"""F19, F23, F30 where collectors live in other processes: a signal saves and ends the run in time, a
second one ends it at once."""

import atexit
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from faults.commands import command, environment, quick, wait_for
from faults.test_env_processes import alive, descendants
from rookery import Trainer, load_config
from rookery.learning.compiled.artefact import unavailable
from selection import matrix_but

pytestmark = pytest.mark.slow

MODES = {
    "local": [],
    "subprocess": ["env.workers=subprocess", "env.workers.processes=2"],
    "process": ["pool=process", "pool.workers=2"],
    "both": ["pool=process", "pool.workers=2", "env.workers=subprocess", "env.workers.processes=2"],
    "ray": ["pool=ray", "pool.workers=2"],
}
GRACE = 30.0  # seconds; 1 on a quiet machine, and Ray takes a few to part


class Run:
    """A run as a process, in a group of its own as a shell would start it."""

    def __init__(self, folder: Path, tmp: Path, mode: str, *words: str):
        self.folder, self.tmp, self.named = folder, tmp, set(os.listdir("/dev/shm"))
        changes = ["train.max_steps=1000000", "env.num=2", "checkpoint.every_steps=0", "env.kwargs={seconds: 0.002}"]
        names = {change.partition("=")[0] for change in words}
        changes = [change for change in changes if change.partition("=")[0] not in names]
        start = command("train", "--env", "faults.numbered:Numbered", *quick("ppo", *changes, *MODES[mode], *words))
        self.process = subprocess.Popen(
            [*start, "--out", "run"],
            cwd=folder,
            env=environment(TMPDIR=str(self.tmp)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.children: set[int] = set()

    def wait_for_steps(self):
        metrics = self.folder / "run" / "metrics.jsonl"
        wait_for(lambda: self.process.poll() is not None or (metrics.exists() and metrics.read_text()), 120)
        self.look()

    def look(self):
        self.children |= set(descendants(self.process.pid))

    def send(self, name, group=False):
        self.look()
        (os.killpg if group else os.kill)(self.process.pid, getattr(signal, name))
        return time.monotonic()

    def ended(self, since, within=GRACE):
        out, err = self.process.communicate(timeout=within)
        assert time.monotonic() - since < within
        return self.process.returncode, out, err

    def leaves_nothing(self):
        wait_for(lambda: not any(map(alive, self.children)), 15)
        mine = [self.tmp, *Path("/tmp").glob(f"rookery-ray-{self.process.pid}-*")]
        wait_for(lambda: not [name for folder in mine if folder.exists() for name in os.listdir(folder)], 15)
        wait_for(lambda: not list(Path("/tmp").glob(f"rookery-ray-{self.process.pid}-*")), 15)
        new = set(os.listdir("/dev/shm")) - self.named
        assert not [name for name in new if "rookery" in name or name.startswith("psm")]

    def summary(self):
        return json.loads((self.folder / "run" / "summary.json").read_text())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def started(tmp_path, short_path):
    runs = []

    def start(mode, *words):
        runs.append(Run(tmp_path, short_path, mode, *words))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def saved(run, name, group=False):
    run.wait_for_steps()
    code, _, err = run.ended(run.send(name, group))
    assert code == 128 + getattr(signal, name), err
    assert "Traceback" not in err
    told = run.summary()
    assert (told["status"], told["reason"]) == ("preempted", f"{name} received; saved")
    assert told["exact"] is True
    assert list((run.folder / "run" / "checkpoints").glob(f"step-{told['steps']:012d}/COMMIT"))
    run.leaves_nothing()
    return told


CASES = [(mode, name) for mode in MODES for name in ("SIGTERM", "SIGINT", "SIGUSR1")]
marked = matrix_but(CASES, ("process", "SIGTERM"), ("ray", "SIGINT"))


@pytest.mark.parametrize(("mode", "name"), marked)
def test_a_signal_saves_and_ends_the_run_in_time_and_nothing_is_left(started, mode, name):
    """SIGINT goes to the whole group, as Ctrl-C does: workers must not take it for theirs."""
    saved(started(mode), name, group=name == "SIGINT")


@pytest.mark.parametrize("mode", matrix_but(["process", "ray"], "process"))
def test_a_second_signal_ends_a_run_at_once_although_its_workers_hang(started, tmp_path, mode):
    run = started(mode, "env.kwargs={fault: hang, when: 11, only: 1}", "log.every_steps=32", "algo.rollout=8")
    run.wait_for_steps()
    time.sleep(1.0)
    run.send("SIGTERM")
    time.sleep(1.0)
    assert run.process.poll() is None  # the first is a request, and the round does not come back
    code, _, _ = run.ended(run.send("SIGTERM"), 6.0)
    assert code == -signal.SIGTERM
    run.leaves_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("mode", matrix_but(["process", "ray"], "process"))
def test_nothing_is_left_of_a_run_that_was_killed_and_it_can_be_resumed(started, tmp_path, mode):
    run = started(mode, "checkpoint.every_steps=64")
    run.wait_for_steps()
    wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("step-*/COMMIT")))
    assert run.ended(run.send("SIGKILL"))[0] == -signal.SIGKILL
    run.leaves_nothing()
    from rookery.cli.main import run as rookery

    newest = max(int(path.name[5:]) for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    words = ["pool=local", "env.kwargs={seconds: 0.002}", f"train.max_steps={newest + 64}"]
    assert rookery(["train", "--resume", str(tmp_path / "run"), *words]) == 0
    told = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (told["steps"], told["resumed_from"], told["exact"]) == (newest + 64, [newest], True)
    assert [worker["steps"] for worker in told["workers"]] == [(newest + 64) // 2] * 2


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["process", "ray"])
def test_a_second_ctrl_c_ends_within_seconds_although_workers_hang(started, mode):
    run = started(mode, "env.kwargs={fault: hang, when: 11, only: 1}", "log.every_steps=32", "algo.rollout=8")
    run.wait_for_steps()
    time.sleep(1.0)
    run.send("SIGINT", group=True)
    time.sleep(1.0)
    code, _, _ = run.ended(run.send("SIGINT", group=True), 15.0)
    assert (code, run.summary()["status"]) == (130, "failed")
    run.leaves_nothing()


@pytest.mark.slow
def test_a_run_that_was_preempted_goes_on_in_another_pool(started, tmp_path):
    told = saved(started("process"), "SIGUSR1")
    from rookery.cli.main import run

    limit = told["steps"] + 64
    assert run(["train", "--resume", str(tmp_path / "run"), f"train.max_steps={limit}", "pool=local"]) == 0
    after = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (after["steps"], after["exact"], after["resumed_from"]) == (limit, True, [told["steps"]])


# --- a cluster whose head is gone (F39) ---


def of_ray(pid, *programs):
    """Processes under this one that run one of these programs."""
    starts = {child: Path(f"/proc/{child}/cmdline") for child in descendants(pid)}
    words = {
        child: start.read_bytes().partition(b"\0")[0].decode() for child, start in starts.items() if start.exists()
    }
    return [child for child, word in words.items() if Path(word).name in programs]


@pytest.mark.matrix
@pytest.mark.parametrize("programs", [("gcs_server",), ("gcs_server", "raylet")], ids="-".join)
def test_a_ray_cluster_without_a_head_ends_the_run_with_a_sentence_and_it_can_be_resumed(started, tmp_path, programs):
    run = started("ray", "checkpoint.every_steps=64")
    run.wait_for_steps()
    wait_for(lambda: list((tmp_path / "run" / "checkpoints").glob("step-*/COMMIT")))
    run.look()
    since = time.monotonic()
    for pid in of_ray(run.process.pid, *programs):
        os.kill(pid, signal.SIGKILL)
    code, _, err = run.ended(since, 2 * GRACE)
    assert code == 3, err
    assert "error: " in err
    assert "Traceback (most recent call last)" not in err
    assert run.summary()["status"] == "failed"
    run.leaves_nothing()
    from rookery.cli.main import run as rookery

    newest = max(int(path.name[5:]) for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    words = ["pool=local", "env.kwargs={seconds: 0.002}", f"train.max_steps={newest + 64}"]
    assert rookery(["train", "--resume", str(tmp_path / "run"), *words]) == 0
    assert run.summary()["steps"] == newest + 64


# --- a compiler that is at work (F43) ---


def compilers(pid, cache):
    """Processes of g++ under this one that compile an update."""
    starts = {child: Path(f"/proc/{child}/cmdline") for child in descendants(pid)}
    words = {child: start.read_bytes().decode().split("\0") for child, start in starts.items() if start.exists()}
    named = {child: Path(start[0]).name for child, start in words.items() if any(str(cache) in word for word in start)}
    return [child for child, name in named.items() if name.startswith(("g++", "c++", "cc1plus"))]


@pytest.mark.slow
@pytest.mark.skipif(unavailable() is not None, reason=f"no compiled updates here: {unavailable()}")
def test_a_signal_while_an_update_is_compiled_ends_the_compiler_and_saves(started, tmp_path):
    cache = tmp_path / "cache"
    run = started("local", "learning.mode=compiled", f"learning.cache={cache}", "algo.rollout=16")
    wait_for(lambda: run.process.poll() is not None or compilers(run.process.pid, cache), 120)
    code, _, err = run.ended(run.send("SIGTERM"))
    assert code == 143, err
    assert "Traceback" not in err
    told = run.summary()
    assert (told["status"], told["learning_mode"]) == ("preempted", "compiled")
    assert told["exact"].startswith("a signal came while update ")
    assert list((tmp_path / "run" / "checkpoints").glob(f"step-{told['steps']:012d}/COMMIT"))
    wait_for(lambda: not any(map(alive, run.children)), 15)
    assert not [path for path in cache.rglob("*") if path.suffix in (".cpp", ".so", ".o")]


# --- workers that go at the same time as the run (a cluster that is taken away) ---


def trainer_of(*words):
    changes = [*quick("ppo", "train.max_steps=100000", "env.num=2", "pool=process", "pool.workers=2", *words)[2:]]
    return Trainer(load_config(algo="ppo", env="faults.numbered:Numbered", overrides=changes))


def test_workers_that_are_lost_while_the_run_ends_are_not_waited_for_and_the_checkpoint_is_written(tmp_path):
    with trainer_of() as trainer:
        for _ in range(3):
            trainer.round()
        steps = trainer.steps
        trainer.pool.interrupted = lambda: "signal 15"
        os.kill(trainer.pool.pids()[1][0], signal.SIGKILL)
        trainer.round()  # cannot be completed: nothing of it is counted
        assert (trainer.steps, trainer.worker_steps) == (steps, [steps // 2, steps // 2])
        state = trainer.state()
        assert state["pool"]["1"] is None
        assert state["pool"]["0"] is not None
        assert "pool worker 1" in trainer.exact()
        trainer.save(tmp_path / "saved")
    for pool in ("process", "local"):
        with trainer_of(f"pool={pool}") as other:
            other.load(tmp_path / "saved")
            other.round()
            assert (other.steps, other.worker_steps) == (steps + 64, [steps // 2 + 32, steps // 2 + 32])
            if pool == "process":
                assert other.pool._renewed == [0, 1]  # its successor has other seeds


def test_a_run_that_is_told_to_end_before_its_workers_are_ready_saves_what_it_went_on_from():
    with trainer_of() as trainer:
        trainer.round()
        state = trainer.state()
    with trainer_of() as other:
        other.restore(state)
        other.pool.interrupted = lambda: "signal 15"
        real = other.pool._link

        def doomed(recipe):
            line = real(recipe)
            os.kill(line.pid, signal.SIGKILL)
            return line

        other.pool._link = doomed
        other.round()
        assert other.steps == state["run"]["steps"]
        assert other.pool.state() == state["pool"]


# --- how workers go (F30) ---


class Telltale:
    """Leaves a file when the interpreter that holds it is taken apart."""

    def __init__(self, file):
        self.file, self._open, self._flags = file, os.open, os.O_CREAT | os.O_WRONLY  # modules may be gone by then

    def __del__(self):
        self._open(self.file, self._flags)


class Mark:
    """Called in a worker: exit functions and the end of the interpreter leave their marks."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, collector):
        atexit.register(Path(f"{self.folder}/left-{os.getpid()}").touch)
        globals()["_kept"] = Telltale(f"{self.folder}/taken-apart-{os.getpid()}")
        return os.getpid()


@pytest.mark.slow
def test_spawned_workers_run_exit_functions_but_nobody_waits_until_their_interpreters_are_taken_apart(tmp_path):
    with trainer_of("pool.start=spawn") as trainer:
        trainer.round()
        pids = trainer.foreach_worker(Mark(str(tmp_path)))
        processes = [line._process for line in trainer.pool._links]
        for process in processes:
            process.part()
            process.process.join(20)
        assert [process.process.exitcode for process in processes] == [0, 0]  # not killed: they went by themselves
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"left-{pid}" for pid in pids)
