"""F24: a replay larger than memory is refused before it is allocated, with the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf
from rookery.core.system.memory import available_bytes
from rookery.data import ReplayConfig, ReplayStore
from rookery.data.replay.memory_check import check_replay_fits, replay_bytes

FRAME = Leaf("box", (84, 84), np.dtype(np.uint8))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (4,))
GIB = 2**30


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_million_atari_frames_are_stored_once() -> None:
    needed = replay_bytes(1_000_000, 8, FRAME, CHOICE)
    assert (
        needed == 1_000_008 * (7056 + 8 + 16) + 1_000_000 * 7056 // 50
    )  # frames, actions, 16 bytes per row; finals at one per 50 steps
    assert needed < 7.5e9


def test_prioritised_sampling_adds_its_tree_and_stamps() -> None:
    more = replay_bytes(1_000_000, 8, FRAME, CHOICE, prioritised=True) - replay_bytes(1_000_000, 8, FRAME, CHOICE)
    assert more == 2 * 2**20 * 8 + 4 * 1_000_008  # 2²⁰ leaves are the first power of two that holds 1 000 008 places
    needed = replay_bytes(1_000_000, 8, FRAME, CHOICE) + more // 2
    check_replay_fits(1_000_000, 8, FRAME, CHOICE, 1.0, needed)
    with pytest.raises(ConfigError, match=r"store.capacity=1000000 needs") as error:
        check_replay_fits(1_000_000, 8, FRAME, CHOICE, 1.0, needed, prioritised=True)
    fits = int(str(error.value).split("largest capacity that fits is ")[1].split(".")[0])
    assert replay_bytes(fits, 8, FRAME, CHOICE, True) <= needed < replay_bytes(fits + 8, 8, FRAME, CHOICE, True)


def test_the_machine_has_what_meminfo_says(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:  16000 kB\nMemAvailable:   12000 kB\n")
    assert available_bytes(tmp_path) == 12000 * 1024


def test_a_container_of_version_2_has_its_limit_minus_use_plus_idle_file_pages(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemAvailable:   99999999 kB\n")
    write(tmp_path, "proc/self/cgroup", "0::/job/step\n")
    write(tmp_path, "sys/fs/cgroup/job/step/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/job/step/memory.current", "5\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.max", "1000\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.current", "700\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.stat", "anon 600\ninactive_file 50\nactive_file 50\n")
    assert available_bytes(tmp_path) == 1000 - 700 + 50  # the parent's limit holds too


def test_a_container_of_version_1_has_its_limit_minus_use(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemAvailable:   99999999 kB\n")
    write(tmp_path, "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n")
    write(tmp_path, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000\n")
    write(tmp_path, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000\n")
    assert available_bytes(tmp_path) == 2000


def test_without_any_source_nothing_is_known_and_nothing_refused(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    check_replay_fits(10**12, 1, FRAME, CHOICE, 0.8, None)


def test_a_replay_that_does_not_fit_is_refused_with_numbers_and_advice() -> None:
    with pytest.raises(ConfigError) as error:
        check_replay_fits(1_000_000, 8, FRAME, CHOICE, 0.5, 2 * GIB)
    text = str(error.value)
    needed = replay_bytes(1_000_000, 8, FRAME, CHOICE)
    assert f"store.capacity=1000000 needs 6.7 GiB ({needed} bytes" in text
    assert f"2.0 GiB ({2 * GIB} bytes) are available, of which store.max_memory=0.5 may be used" in text
    assert "Lower store.capacity" in text
    fits = int(text.split("largest capacity that fits is ")[1].split(".")[0])
    assert replay_bytes(fits, 8, FRAME, CHOICE) <= GIB < replay_bytes(fits + 8, 8, FRAME, CHOICE)


def test_the_store_checks_before_it_allocates() -> None:
    config = ReplayConfig(capacity=10**12)
    with pytest.raises(ConfigError, match=r"store.capacity=1000000000000 needs"):
        ReplayStore(config, FRAME, CHOICE, 1, 0.99, 1, np.random.default_rng(0))
