"""A checkpoint writes only what changed since the one before the last: pieces of a replay that are still the same are
hard links to it. No two neighbours share a file."""

from __future__ import annotations

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.replay_reference import Envs
from rookery.core.chunk import Chunk
from rookery.core.errors import CheckpointError
from rookery.core.segments import Segments
from rookery.core.spec import Leaf
from rookery.data import ReplayConfig, ReplayStore
from rookery.data.replay import changed_pieces as changes
from rookery.run.checkpoints.checkpoints import Checkpoints

PAIR = Leaf("box", (2,), np.dtype(np.float32))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))
PIECE = 800  # bytes: 50 slots of two columns of two float32, or of two actions


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PIECE_BYTES", PIECE)


def made(slots: int = 500, collectors: int = 1) -> ReplayStore:
    columns = 2 * collectors
    config = ReplayConfig(capacity=(slots - 1) * columns, batch_size=8, min_fill=8, max_memory=None)
    return ReplayStore(config, PAIR, CHOICE, columns, 0.5, 1, np.random.default_rng(0), collectors)


def kept(folder: Path) -> Checkpoints:
    """None is pruned, so that a linked file has two names for as long as the test looks."""
    return Checkpoints(folder, keep=99)


def plain(store: ReplayStore) -> dict[str, np.ndarray]:
    """Copies of everything that the ring holds."""
    state = store._ring.state(in_pieces=False)
    arrays = {name: state[name] for name in ("meta", "version_of", "lanes", "free")}
    arrays |= state["fields"] | {"final_obs": state["finals"]["obs"]}
    return {key: np.array(value) for key, value in arrays.items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[key], b[key]) for key in a)


def save(checkpoints: Checkpoints, step: int, store: ReplayStore) -> Path:
    return checkpoints.save(step, {"store": store.state()}, {})


def pieces(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if re.search(r"\.\d+\.\d{5}\.safetensors$", path.name)}


def new_in(folder: Path) -> set[str]:
    """Pieces that no other checkpoint has."""
    return {name for name in pieces(folder) if (folder / name).stat().st_nlink == 1}


def whole(checkpoints: Checkpoints, like: ReplayStore, slots: int = 500, collectors: int = 1) -> bool:
    """Whether the newest checkpoint holds exactly what the store holds."""
    again = made(slots, collectors)
    again.restore(checkpoints.load("last")[0]["store"])
    return same(plain(again), plain(like))


def feed(store: ReplayStore, env: Envs, rows: int) -> None:
    store.add(env.chunk(rows))


@pytest.fixture
def env() -> Envs:
    return Envs(np.random.default_rng(3), 2, ends=0.0, holes=0.1, lost=0.0)


def test_only_the_pieces_that_were_written_to_are_new(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 220)
    first = save(checkpoints, 1, store)
    assert pieces(first) == {f"store.{leaf}.{n:05d}.safetensors" for leaf in (0, 1) for n in range(5)}  # obs, action
    second = save(checkpoints, 2, store)
    assert new_in(second) == pieces(first)  # the other chain begins
    feed(store, env, 20)  # slots 220 to 239, and the pending observation in 240
    third = save(checkpoints, 3, store)
    assert new_in(third) == {"store.0.00004.safetensors", "store.1.00004.safetensors"}
    assert whole(checkpoints, store)
    feed(store, env, 10)  # 240 to 249, pending in 250: the next piece begins
    fourth = save(checkpoints, 4, store)
    assert new_in(fourth) == {f"store.{leaf}.{n:05d}.safetensors" for leaf in (0, 1) for n in (4, 5)}
    assert whole(checkpoints, store)


def test_nothing_changed_means_no_piece_is_written_and_the_hashes_stay(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 220)
    first = save(checkpoints, 1, store)
    save(checkpoints, 2, store)
    for _ in range(5):
        store.sample()  # draws are counted in the small part of the state
    third = save(checkpoints, 3, store)
    assert new_in(third) == set()
    one, two, three = (checkpoints.load(step)[1].files for step in (1, 2, 3))
    assert all(one[name] == two[name] == three[name] for name in pieces(first))
    assert whole(checkpoints, store)


@pytest.mark.slow
def test_bytes_written_are_in_proportion_to_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PIECE_BYTES", 1 << 16)
    env = Envs(np.random.default_rng(0), 2, ends=0.0, holes=0.0, lost=0.0)
    store, checkpoints = made(100_001), kept(tmp_path)
    for _ in range(3):
        feed(store, env, 40_000)
    save(checkpoints, 1, store)
    save(checkpoints, 2, store)
    feed(store, env, 1000)
    third = save(checkpoints, 3, store)
    written = sum((third / name).stat().st_size for name in new_in(third))
    every = sum((third / name).stat().st_size for name in pieces(third))
    assert every > 100_000 * 2 * (8 + 8)
    assert written <= 2 * (1000 * 2 * 8 + 2 * 66_000)  # per leaf: the rows, and what shares their pieces
    assert whole(checkpoints, store, 100_001)


@pytest.mark.parametrize("rows", [1, 30, 49, 50, 70, 120, 449, 498, 499, 500, 700])
def test_a_ring_that_wraps_rewrites_both_ends(tmp_path: Path, env: Envs, rows: int) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 980)  # full, the head at 480
    save(checkpoints, 1, store)
    save(checkpoints, 2, store)
    feed(store, env, rows)
    save(checkpoints, 3, store)
    assert whole(checkpoints, store)
    if rows == 30:  # slots 480 to 499 and 0 to 9, pending in 10
        assert new_in(tmp_path / "step-000000000003") == {
            f"store.{leaf}.{n:05d}.safetensors" for leaf in (0, 1) for n in (0, 9)
        }


@pytest.mark.slow
def test_collectors_at_different_places_are_each_followed(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    envs = [Envs(rng, 2, c) for c in (0, 1)]
    store, checkpoints = made(300, collectors=2), Checkpoints(tmp_path, keep=3)
    for step in range(1, 40):
        for chunk in (envs[0].chunk(int(rng.integers(1, 40))), envs[1].chunk(int(rng.integers(1, 6)))):
            store.add(chunk)
        save(checkpoints, step, store)
        assert whole(checkpoints, store, 300, 2)


def test_the_table_of_final_observations_is_kept_in_pieces_too(tmp_path: Path) -> None:
    env = Envs(np.random.default_rng(1), 2, ends=0.5, holes=0.0, lost=0.2)
    store, checkpoints = made(), kept(tmp_path)
    for step in range(1, 30):
        feed(store, env, 7 + 31 * (step % 3))
        feed(store, env, 1)  # may cut episodes whose rows are stored
        path = save(checkpoints, step, store)
        assert whole(checkpoints, store)
    assert len([name for name in pieces(path) if name.startswith("store.2.")]) >= 5
    save(checkpoints, 98, store)
    feed(store, Envs(np.random.default_rng(1), 2, ends=0.0, holes=0.0, lost=0.0), 3)
    path = save(checkpoints, 99, store)
    assert len([name for name in new_in(path) if name.startswith("store.2.")]) <= 1  # two columns were cut


def test_a_resumed_run_links_to_the_checkpoint_before_the_one_it_came_from(tmp_path: Path, env: Envs) -> None:
    store = made()
    feed(store, env, 220)
    for step in (1, 2):
        save(kept(tmp_path), step, store)
    again, checkpoints = made(), kept(tmp_path)
    again.restore(checkpoints.load("last")[0]["store"])
    feed(again, env, 20)
    path = save(checkpoints, 3, again)
    assert new_in(path) == {"store.0.00004.safetensors", "store.1.00004.safetensors"}
    assert whole(checkpoints, again)


def numbers(folder: Path) -> set[int]:
    return {(folder / name).stat().st_ino for name in pieces(folder)}


def test_neighbours_share_no_file_whatever_was_there_before(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 220)
    first = save(checkpoints, 1, store)
    shutil.copytree(first, tmp_path / "step-000000000002", copy_function=os.link)  # as versions before 0.3 did it
    paths = [tmp_path / "step-000000000002"]
    for step in (3, 4, 5, 5, 6):  # 5 twice: the closing save of a run may meet the periodic one
        if step < 5:
            feed(store, env, 20)
        paths.append(save(kept(tmp_path), step, store))
    for one, other in pairwise(paths):
        assert one == other or not numbers(one) & numbers(other)
    assert numbers(tmp_path / "step-000000000004") & numbers(tmp_path / "step-000000000006")


def test_a_single_checkpoint_is_linked_to_the_one_it_replaces(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), Checkpoints(tmp_path, keep=1)
    feed(store, env, 220)
    before = numbers(save(checkpoints, 1, store))
    assert numbers(save(checkpoints, 2, store)) == before


def test_a_disk_without_room_for_two_copies_is_told_and_shares_them(
    tmp_path: Path, env: Envs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 220)
    first = save(checkpoints, 1, store)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    for step in (2, 3):
        assert numbers(save(checkpoints, step, store)) == numbers(first)
    assert caplog.text.count("for a second copy of the replay") == 1
    checkpoints.expect(10**9)
    assert "checkpoints take 2000 MB" in caplog.text
    assert "WARNING" in caplog.text.splitlines()[-1]


def test_a_run_that_went_back_never_links_to_what_it_left(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), Checkpoints(tmp_path, keep=9)
    feed(store, env, 220)
    save(checkpoints, 1, store)
    feed(store, env, 60)
    save(checkpoints, 2, store)
    store.restore(checkpoints.load(1)[0]["store"])  # the last save was 2
    other = Envs(np.random.default_rng(8), 2, ends=0.0, holes=0.0, lost=0.0)
    feed(store, other, 60)  # the same slots, other rows
    save(checkpoints, 3, store)
    assert whole(checkpoints, store)
    assert new_in(tmp_path / "step-000000000003") == {
        f"store.{leaf}.{n:05d}.safetensors" for leaf in (0, 1) for n in (4, 5)
    }


def test_after_a_save_that_failed_everything_changed_since_the_committed_one_is_written(
    tmp_path: Path, env: Envs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 220)
    save(checkpoints, 1, store)
    save(checkpoints, 2, store)
    feed(store, env, 60)

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(CheckpointError):
            save(checkpoints, 3, store)
    feed(store, env, 60)
    path = save(checkpoints, 4, store)
    assert new_in(path) == {f"store.{leaf}.{n:05d}.safetensors" for leaf in (0, 1) for n in (4, 5, 6)}
    assert whole(checkpoints, store)


def test_pruned_checkpoints_take_nothing_with_them(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), Checkpoints(tmp_path, keep=1)
    for step in range(1, 30):
        feed(store, env, 37)
        save(checkpoints, step, store)
        assert checkpoints.steps() == [step]
        assert whole(checkpoints, store)
    save(checkpoints, 29, store)  # the same step again replaces the folder that it links to
    assert whole(checkpoints, store)


def test_two_folders_share_no_file(tmp_path: Path, env: Envs) -> None:
    store = made()
    feed(store, env, 220)
    for step, name in enumerate(("a", "b", "a", "a")):
        save(Checkpoints(tmp_path / name), step, store)
    a, b = (
        {file.stat().st_ino for file in (tmp_path / name).rglob("store.*.*.safetensors") if file.name.count(".") == 3}
        for name in ("a", "b")
    )
    assert a
    assert not a & b
    assert len(a) == 2 * len(pieces(tmp_path / "b" / "step-000000000001"))  # the third save into a linked all of them


def test_without_links_the_bytes_are_written_again(tmp_path: Path, env: Envs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store, checkpoints = made(), Checkpoints(tmp_path)
    for step in (1, 2):
        feed(store, env, 120)
        path = save(checkpoints, step, store)
        assert new_in(path) == pieces(path)
        assert whole(checkpoints, store)


@pytest.mark.parametrize("harm", ["cut", "gone", "symlink"])
def test_a_piece_that_is_not_what_it_was_is_not_linked_to(tmp_path: Path, env: Envs, harm: str) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 220)
    piece = save(checkpoints, 1, store) / "store.0.00001.safetensors"
    save(checkpoints, 2, store)
    if harm == "cut":
        os.truncate(piece, 100)
    else:
        os.rename(piece, tmp_path / "elsewhere")
        if harm == "symlink":
            piece.symlink_to(tmp_path / "elsewhere")
    path = save(checkpoints, 3, store)
    assert new_in(path) == {"store.0.00001.safetensors"}
    assert whole(checkpoints, store)


def test_nothing_is_linked_to_a_checkpoint_that_was_found_damaged(tmp_path: Path, env: Envs) -> None:
    store, checkpoints = made(), kept(tmp_path)
    feed(store, env, 120)
    save(checkpoints, 1, store)
    file = save(checkpoints, 2, store) / "store.0.00000.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.step == 1
    path = save(checkpoints, 3, store)  # beside 1, to which a resume would go back
    assert new_in(path) == pieces(path)
    assert whole(checkpoints, store)


def test_a_large_ring_comes_back_through_a_plain_file_as_well(tmp_path: Path, env: Envs) -> None:
    from rookery.data import Replay

    replay = Replay(400, columns=2)
    chunk: Chunk = env.chunk(200)
    for t in range(200):
        flags = {name: chunk.rows[name][t] for name in ("terminated", "truncated")}
        after = chunk.rows["obs"][t + 1] if t < 199 else chunk.last_obs
        replay.add(
            obs=chunk.rows["obs"][t],
            action=chunk.rows["action"][t],
            reward=chunk.rows["reward"][t],
            next_obs=after,
            **flags,
        )
    replay.save(tmp_path / "file")
    again = Replay.load(tmp_path / "file")
    assert all(np.array_equal(a, b) for a, b in zip(replay[:].values(), again[:].values()))


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"},
        {"shape": [3, -1]},
        {"shape": []},
        {"rows": 0},
        {"files": []},
        {"files": ["../x"] * 5},
        {"files": 3},
    ],
)
def test_a_reference_to_pieces_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    from run.checkpoints.test_checkpoints import rewrite

    array = np.arange(50).reshape(25, 2)
    path = Checkpoints(tmp_path).save(1, {"a": Segments(array, 5, {})}, {})
    rewrite(path, lambda tree: {"a": {"$segments": tree["a"]["$segments"] | change}})
    with pytest.raises(CheckpointError, match=r"state\.json"):
        Checkpoints(tmp_path).load(path)


def test_a_piece_of_another_shape_is_refused_when_it_is_read(tmp_path: Path) -> None:
    from run.checkpoints.test_checkpoints import recommit

    path = Checkpoints(tmp_path).save(1, {"a": Segments(np.arange(50).reshape(25, 2), 5, {})}, {})
    other = Checkpoints(tmp_path / "other").save(1, {"a": Segments(np.arange(8).reshape(4, 2), 4, {})}, {})
    shutil.copy(other / "a.0.00000.safetensors", path / "a.0.00002.safetensors")
    recommit(path)
    state = Checkpoints(tmp_path).load(path)[0]
    with pytest.raises(CheckpointError, match=r"a\.0\.00002\.safetensors does not hold int64 \(5, 2\)"):
        state["a"].copy_to(np.zeros((25, 2), np.int64))


def test_a_checkpoint_of_hundreds_of_pieces_needs_few_open_files(tmp_path: Path) -> None:
    array, most = np.zeros((300, 1)), 0

    class Watching(Segments):
        def piece(self, number: int) -> np.ndarray:
            nonlocal most
            most = max(most, len(os.listdir("/proc/self/fd")))
            return super().piece(number)

    before = len(os.listdir("/proc/self/fd"))
    Checkpoints(tmp_path).save(1, {"a": Watching(array, 1, {})}, {})
    assert most - before < 80
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.slow
def test_a_killed_run_that_links_ends_as_the_uninterrupted_one(tmp_path: Path) -> None:
    from rookery import Callback, Experiment

    class Crash(Callback):
        def checkpoint(self, path: Path) -> None:
            if path.name.endswith("600"):
                raise KeyboardInterrupt

    dqn = {"algo": "dqn", "env": "CartPole-v1"}
    words = [
        "train.max_steps=1000",
        "checkpoint.every_steps=200",
        "checkpoint.keep=4",
        "store.min_fill=64",
        "store.updates_per_step=0.1",
    ]
    words += ["learning.mode=eager", "model.hidden=[8]", "log.sinks=[jsonl]", "eval.episodes=2", "eval.num=2"]
    straight = Experiment(**dqn, overrides=words, out=tmp_path / "straight").train()
    with pytest.raises(KeyboardInterrupt):
        Experiment(**dqn, overrides=words, out=tmp_path / "broken", callbacks=[Crash()]).train()
    again = Experiment(resume=tmp_path / "broken").train()
    assert again.summary["resumed_from"] == [600]
    assert again.summary["weights_sha256"] == straight.summary["weights_sha256"]
    for run in ("straight", "broken"):
        folder = tmp_path / run / "checkpoints" / "step-000000001000"
        assert 0 < len(new_in(folder)) < 0.75 * len(pieces(folder))  # what came after step 600
