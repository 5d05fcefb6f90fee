"""A replay in a scratch file gives the same bits as one in memory, leaves nothing behind, and is
refused before the disk is full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.replay_reference import Envs
from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf
from rookery.data import ReplayConfig, ReplayStore
from rookery.data.replay.leaf import stored_spec
from rookery.data.replay.scratch import check_disk, on_disk, scratch_bytes

PAIR = Leaf("box", (2,), np.dtype(np.float32))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))


def made(mmap: Any, folder: Path | None = None, capacity: int = 60) -> ReplayStore:
    config = ReplayConfig(capacity=capacity, batch_size=8, min_fill=8, mmap=mmap, max_memory=None)
    return ReplayStore(config, PAIR, CHOICE, 4, 0.99, 3, np.random.default_rng(0), 2, 2, scratch=folder)


def test_the_bits_are_those_of_a_replay_in_memory(tmp_path: Path) -> None:
    stores = [made(False), made(True, tmp_path), made(str(tmp_path))]
    rng = np.random.default_rng(7)
    envs = [Envs(rng, 2, c) for c in (0, 1)]
    for version in range(60):  # wraps many times
        for env in envs[: 1 + version % 2]:
            chunk = env.chunk(3, version)
            for store in stores:
                store.add(chunk)
        while stores[0].ready():
            (a, keys), *others = [store.sample() for store in stores]
            for b, other in others:
                assert (keys == other).all()
                assert all(torch.equal(a[name], b[name]) for name in a)
    assert stores[0]._limiter.updates > 100


def test_the_arrays_are_on_disk_and_the_folder_stays_empty(tmp_path: Path) -> None:
    store = made(True, tmp_path)
    for leaf in store._ring.leaves:
        assert isinstance(leaf.data.base, np.memmap)
        assert type(leaf.data) is np.ndarray
    assert list(tmp_path.iterdir()) == []
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(f"{tmp_path}/") == len(store._ring.leaves)  # the nameless files
    before = len(os.listdir("/proc/self/fd"))
    del store, leaf
    assert len(os.listdir("/proc/self/fd")) <= before
    assert f"{tmp_path}/" not in Path("/proc/self/maps").read_text()


def test_a_state_goes_from_memory_to_disk_and_back(tmp_path: Path) -> None:
    one, two, three = made(False), made(True, tmp_path), made(False)
    one.add(Envs(np.random.default_rng(1), 2, 0).chunk(12))
    two.restore(one.state())
    three.restore(two.state())
    for a, b in zip(one._ring.leaves, three._ring.leaves):
        assert np.array_equal(a.data, b.data)


def test_a_replay_that_the_disk_has_no_room_for_is_refused_with_the_numbers(tmp_path: Path) -> None:
    # 15 rows and the head's slot in each of 4 columns, of two float32 and an int64
    assert scratch_bytes(60, 4, stored_spec(PAIR, CHOICE)) == 16 * 4 * (8 + 8)
    with pytest.raises(ConfigError, match=r"the replay needs 16000000000000000 bytes in .* bytes are free"):
        made(True, tmp_path, capacity=10**15 - 4)
    with pytest.raises(ConfigError, match=r"nowhere cannot be used: No such file"):
        check_disk(1, tmp_path / "nowhere")
    check_disk(1, tmp_path)


def test_what_stays_in_memory_is_still_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.data.replay.store.available_bytes", lambda: 16 * 64 - 1)  # 16 bytes per row
    config = ReplayConfig(capacity=60, batch_size=8, min_fill=8, mmap=str(tmp_path), max_memory=1.0)
    with pytest.raises(ConfigError, match=r"store\.capacity=60 needs 1\.0 KiB \(1024 bytes"):
        ReplayStore(config, PAIR, CHOICE, 4, 0.99, 3, np.random.default_rng(0))
    monkeypatch.setattr("rookery.data.replay.store.available_bytes", lambda: 16 * 64)
    ReplayStore(config, PAIR, CHOICE, 4, 0.99, 3, np.random.default_rng(0))


def test_space_that_cannot_be_taken_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ConfigError, match=r"store\.mmap: 24 bytes cannot be kept in .*: No space left"):
        on_disk(tmp_path)((3,), np.dtype(np.int64))
    assert list(tmp_path.iterdir()) == []


def test_space_is_taken_at_once(tmp_path: Path) -> None:
    taken = []
    real = os.posix_fallocate

    def watch(descriptor: int, offset: int, size: int) -> None:
        real(descriptor, offset, size)
        taken.append(os.fstat(descriptor).st_blocks * 512)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_fallocate", watch)
        on_disk(tmp_path)((1 << 20,), np.dtype(np.int64))
    assert taken[0] >= 8 << 20


def test_without_a_run_folder_a_path_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"Set store\.mmap to a folder"):
        made(True)
