"""A system without fcntl, prctl, /proc, SIGUSR1 and their like: simulated in a child process, which trains and resumes.

It cannot show what Windows does otherwise (paths, descriptors), only that nothing needs what is missing there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.commands import environment
from rookery.core.system import portable

LESS = """
import builtins, ctypes, io, multiprocessing, os, signal, sys
import numba, gymnasium, torch, torch.distributed  # they know what they need, and get it
from torch.utils.tensorboard import SummaryWriter

for name in ("fcntl", "resource", "msvcrt"):
    sys.modules[name] = None
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "getuid", "geteuid", "memfd_create", "fork",
             "sched_getaffinity", "register_at_fork", "pwrite", "pread", "posix_fallocate", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGUSR1", "SIGUSR2", "SIGKILL", "SIGALRM", "SIGCHLD"):
    delattr(signal, name)

class CDLL(ctypes.CDLL):
    def __init__(self, name, *args, **kwargs):
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        super().__init__(name, *args, **kwargs)

ctypes.CDLL = CDLL
real_open, real_os_open = builtins.open, os.open

def no_proc(file, *args, **kwargs):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return real_open(file, *args, **kwargs)

def no_folders(path, *args, **kwargs):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return real_os_open(path, *args, **kwargs)

builtins.open = io.open = no_proc
os.open = no_folders
multiprocessing.get_all_start_methods = lambda: ["spawn"]
"""
RUN = """
import json
from rookery import Experiment, load_policy
from rookery.core.system import portable

if "SIGKILL" not in dir(signal):
    assert portable.start_method("auto") == "spawn" and portable.PREEMPT == (signal.SIGTERM, signal.SIGINT)
words = ["train.max_steps=256", "checkpoint.every_steps=128", "log.every_steps=64", "eval.every_steps=0",
         "eval.episodes=2", "eval.num=1", "log.sinks=[jsonl, tensorboard]", "model.hidden=[8]"]
extra = {"dqn": ["store.min_fill=64", "store.batch_size=16", "store.mmap=true", "store.capacity=400"],
         "ppo": ["env.num=2", "algo.rollout=32"]}
said = {}
for algo in extra:
    Experiment(algo=algo, env="CartPole-v1", overrides=[*words, *extra[algo]], out=algo).train()
    result = Experiment(resume=algo, overrides=["train.max_steps=384"]).train()
    assert result.summary["steps"] == 384
    assert load_policy(algo)([0.0, 0.0, 0.0, 0.0]).action in (0, 1)
    said[algo] = [result.summary["weights_sha256"], result.summary["learning_mode"]]
print(json.dumps(said))
"""


def trained(folder: Path, script: str) -> tuple[dict, str]:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_without_what_linux_has_a_run_trains_and_resumes_to_the_same_bits(tmp_path):
    less, log = trained(tmp_path / "less", LESS + RUN)
    whole, _ = trained(tmp_path / "whole", "import signal\n" + RUN)
    assert less == whole
    assert less["ppo"][1] == "eager"
    assert "cannot be locked" in log


def test_auto_is_forkserver_where_processes_can_be_forked(monkeypatch):
    assert portable.start_method("fork") == "fork"
    assert portable.start_method("auto") == "forkserver"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert portable.start_method("auto") == "spawn"


def test_files_are_written_and_read_at_places_without_pread(tmp_path, monkeypatch):
    for name in ("pread", "pwrite"):
        monkeypatch.delattr(os, name)
    descriptor = os.open(tmp_path / "x", portable.CREATE, 0o600)
    assert portable.write_at(descriptor, b"abcdef", 0) == 6
    assert portable.write_at(descriptor, memoryview(b"XY"), 2) == 2
    assert portable.read_at(descriptor, 3, 1) == b"bXY"
    os.close(descriptor)


def test_a_lock_is_another_s_until_its_file_is_closed(tmp_path):
    first, second = (os.open(tmp_path / "x", portable.CREATE, 0o600) for _ in range(2))
    portable.lock(first)
    with pytest.raises(BlockingIOError):
        portable.lock(second, shared=True)
    os.close(first)
    portable.lock(second, shared=True)
    os.close(second)


def test_shared_memory_that_cannot_travel_is_told_in_a_sentence(monkeypatch):
    from multiprocessing import reduction

    from rookery import UsageError
    from rookery.core.system.shared_memory import Shared

    shared = Shared({"x": ((2,), "f4")})
    monkeypatch.delattr(reduction, "DupFd")
    with pytest.raises(UsageError, match="pool=local"):
        shared.__reduce__()
    shared.close()
