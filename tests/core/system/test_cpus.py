"""The CPU quota, with faked control groups; and what libraries are told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.core.system import cpus
from rookery.core.system.cpus import bound_libraries, cpu_quota


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, affinity=6) == 6


def test_a_quota_of_version_2_bounds_the_affinity(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"})
    assert cpu_quota(tmp_path, affinity=64) == 2
    assert cpu_quota(tmp_path, affinity=1) == 1


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert cpu_quota(tmp_path, affinity=64) == 64


def test_a_group_far_above_bounds_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
    }
    assert cpu_quota(write(tmp_path, files), affinity=64) == 3


@pytest.mark.parametrize(
    ("controllers", "mount"), [("cpu,cpuacct", "cpu,cpuacct"), ("cpuacct,cpu", "cpu"), ("cpu", "cpu")]
)
def test_a_quota_of_version_1_is_found_under_each_name_of_its_mount(
    tmp_path: Path, controllers: str, mount: str
) -> None:
    files = {
        "proc/self/cgroup": f"5:cpuset:/\n4:{controllers}:/docker/abc\n0::/\n",
        f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": "400000\n",  # the path is the host's: only the mount is seen inside
        f"sys/fs/cgroup/{mount}/cpu.cfs_period_us": "100000\n",
    }
    assert cpu_quota(write(tmp_path, files), affinity=64) == 4


def test_a_quota_of_minus_one_is_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "1:cpu:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert cpu_quota(write(tmp_path, files), affinity=8) == 8


@pytest.mark.parametrize(("quota", "wanted"), [("150000", 1), ("50000", 1), ("299999", 2)])
def test_fractions_are_rounded_down_but_one_cpu_is_always_there(tmp_path: Path, quota: str, wanted: int) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"})
    assert cpu_quota(tmp_path, affinity=64) == wanted


def test_libraries_are_told_of_a_quota_below_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cpus, "BOUND", {"OMP_NUM_THREADS": "not_imported", "NUMBA_NUM_THREADS": "nor_this"})
    environ: dict[str, str] = {}
    bound_libraries(environ, quota=2)
    assert environ == {"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}


def test_what_the_user_has_set_stays_and_a_whole_machine_needs_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    environ = {"OMP_NUM_THREADS": "5"}
    bound_libraries(environ, quota=2)
    assert environ["OMP_NUM_THREADS"] == "5"
    whole: dict[str, str] = {}
    bound_libraries(whole, quota=64)
    assert whole == {}


@pytest.mark.slow
def test_importing_rookery_first_keeps_torch_and_blas_within_the_quota() -> None:
    code = (
        "import os; os.cpu_count = lambda: 64\n"  # the host; the affinity of one CPU stands for the quota
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import rookery; print(os.environ['OMP_NUM_THREADS'], os.environ['NUMBA_NUM_THREADS'])\n"
        "import torch, sys; print(torch.get_num_threads())"
    )
    environ = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
    source = str(Path(cpus.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ | {"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1", "1"]
