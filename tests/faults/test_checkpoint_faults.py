"""Faults 1 to 5 of checkpoints, really injected: kill -9 inside a save, a full disk, a read-only
folder, flipped bits, cut files."""

from __future__ import annotations

import itertools
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rookery.core.errors import CheckpointError
from rookery.core.segments import Segments
from rookery.run.checkpoints.checkpoints import Checkpoints

pytestmark = pytest.mark.slow


def state_of(step: int, size: int = 1000) -> dict[str, Any]:
    return {
        "net": {"w": np.full(size, step, dtype=np.float64)},
        "store": {"reward": np.full(size, -step)},
        "run": {"steps": step},
    }


def is_state_of(state: dict[str, Any], step: int) -> bool:
    return (
        state["run"]["steps"] == step
        and bool((state["net"]["w"] == step).all())
        and bool((state["store"]["reward"] == -step).all())
    )


@pytest.fixture
def two(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for step in (10, 20):
        checkpoints.save(step, state_of(step), {})
    return checkpoints


FILES = ["net.safetensors", "store.safetensors", "state.json", "manifest.json", "COMMIT"]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_is_noticed_and_the_checkpoint_before_is_used(
    two: Checkpoints, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = two.folder / "step-000000000020" / name
    whole = path.read_bytes()
    draw = random.Random(name)
    for _ in range(25):
        place, bit = draw.randrange(len(whole)), draw.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match="step-000000000020"):
            two.load(20)
    with caplog.at_level(logging.WARNING, "rookery"):
        state, manifest = two.load("last")
    assert manifest.step == 10
    assert is_state_of(state, 10)
    assert "step-000000000020" in caplog.text
    assert "damaged" in caplog.text


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_file_is_noticed_and_the_checkpoint_before_is_used(two: Checkpoints, name: str, share: float) -> None:
    path = two.folder / "step-000000000020" / name
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(CheckpointError):
        two.load(20)
    assert is_state_of(two.load("last")[0], 10)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_noticed_and_the_checkpoint_before_is_used(two: Checkpoints, name: str) -> None:
    (two.folder / "step-000000000020" / name).unlink()
    with pytest.raises(CheckpointError):
        two.load(20)
    assert is_state_of(two.load("last")[0], 10)


def test_if_every_checkpoint_is_damaged_that_is_an_error_and_not_a_fresh_start(two: Checkpoints) -> None:
    for folder in two.folder.iterdir():
        os.truncate(folder / "net.safetensors", 8)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is whole.*step-000000000020.*step-000000000010"):
        two.latest()


def test_a_first_save_that_was_interrupted_leaves_nothing_to_resume_from(two: Checkpoints) -> None:
    shutil.rmtree(two.folder / "step-000000000010")
    (two.folder / "step-000000000020" / "COMMIT").unlink()
    assert two.latest() is None


def test_a_damaged_checkpoint_gives_way_once_the_next_one_is_committed(two: Checkpoints) -> None:
    os.truncate(two.folder / "step-000000000020" / "net.safetensors", 8)
    assert two.latest() is not None
    two.save(15, state_of(15), {})
    assert two.steps() == [10, 15]


# --- the disk says no ---


def save_without_threads(folder: Path) -> int:
    """In a child: save where the system starts no more threads; 2 if it starts them all the same."""
    if os.getuid() == 0:  # whom no limit binds
        os.setgid(65534)
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        threading.Thread(target=time.sleep, args=(0,)).start()
    except RuntimeError:
        Checkpoints(folder / "checkpoints").save(300, state_of(300), {})
        return 0
    return 2


def test_a_checkpoint_is_written_where_no_thread_can_be_started(short_path: Path) -> None:
    """F40: a limit on processes, which counts threads."""
    short_path.chmod(0o777)
    pid, code = os.fork(), 1
    if pid == 0:
        try:
            code = save_without_threads(short_path)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 2:
        pytest.skip("here RLIMIT_NPROC does not bind")
    assert code == 0
    assert is_state_of(Checkpoints(short_path / "checkpoints").load("last")[0], 300)


def run_python(code: str, *arguments: str, shell_before: str = "") -> subprocess.CompletedProcess[str]:
    """A child with mounts of its own if shell_before is given: they vanish with it."""
    script = textwrap.dedent(code)
    command = [sys.executable, "-c", script, *arguments]
    if shell_before:
        command = ["unshare", "-rm", "sh", "-c", f'{shell_before} && exec "$@"', "sh", *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
    )


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(
            ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
        ).returncode
        == 0
    )


needs_mount = pytest.mark.skipif(not can_mount(), reason="this machine does not allow mounts in a namespace of its own")

FULL_DISK = """
import sys
from pathlib import Path
import numpy as np
from rookery.core.errors import CheckpointError
from rookery.run.checkpoints.checkpoints import Checkpoints

folder = Path(sys.argv[1])
checkpoints = Checkpoints(folder, keep=5)
checkpoints.save(1, {"net": {"w": np.ones(1000)}}, {})
checkpoints.save_best(1, {"net": {"w": np.ones(1000)}}, {})
before = sorted(path.name for path in folder.iterdir())
for save in (checkpoints.save, checkpoints.save_best):
    try:
        save(2, {"net": {"w": np.ones(1_000_000)}}, {})
    except CheckpointError as error:
        print(error)
    else:
        raise SystemExit("the disk was not full")
    assert sorted(path.name for path in folder.iterdir()) == before, list(folder.iterdir())
    assert checkpoints.load("last")[1].step == 1
    assert checkpoints.load("best")[1].step == 1
checkpoints.save(3, {"net": {"w": np.ones(1000)}}, {})
assert checkpoints.load("last")[1].step == 3
"""


@needs_mount
def test_on_a_full_disk_earlier_checkpoints_stay_and_the_error_has_the_numbers(tmp_path: Path) -> None:
    done = run_python(FULL_DISK, str(tmp_path), shell_before=f"mount -t tmpfs -o size=4m none '{tmp_path}'")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "No space left on device" in line
        needed, free = (int(line.split(word)[1].split(" bytes")[0]) for word in ("Needed: ", "free: "))
        assert 8_000_000 < needed < 8_010_000  # a million float64
        assert 3_000_000 < free < 4 * 2**20  # what the small one left of 4 MiB


def test_a_file_size_limit_is_told_like_a_full_disk(tmp_path: Path) -> None:
    limit = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, {resource.getrlimit(resource.RLIMIT_FSIZE)[1]}))
"""
    done = run_python(limit + FULL_DISK, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("File too large") == 2


@needs_mount
def test_a_read_only_folder_is_told_and_what_is_in_it_still_loads(two: Checkpoints) -> None:
    code = """
    import sys
    from pathlib import Path
    import numpy as np
    from rookery.core.errors import CheckpointError
    from rookery.run.checkpoints.checkpoints import Checkpoints

    checkpoints = Checkpoints(Path(sys.argv[1]))
    try:
        checkpoints.save(30, {"net": np.ones(3)}, {})
    except CheckpointError as error:
        print(error)
    checkpoints.clean_orphans()
    print(checkpoints.load("last")[1].step)
    """
    folder = two.folder
    done = run_python(
        code, str(folder), shell_before=f"mount --bind '{folder}' '{folder}' && mount -o remount,bind,ro '{folder}'"
    )
    assert done.returncode == 0, done.stderr
    assert "Read-only file system" in done.stdout
    assert done.stdout.splitlines()[-1] == "20"


def test_a_file_in_the_way_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"Needed: \d+ bytes, free: \d+ bytes"):
        Checkpoints(tmp_path / "file" / "checkpoints").save(1, state_of(1), {})


# fsync: net, store, state.json, manifest.json, their folder; the parent; COMMIT; the folder again for COMMIT's name
# rename: the old one aside, the new one into place
@pytest.mark.parametrize(("failing", "calls"), [("fsync", 5 + 1 + 1 + 1), ("rename", 2)])
def test_an_error_at_any_point_leaves_everything_as_it_was(
    two: Checkpoints, failing: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, failing)
    before = sorted(path.name for path in two.folder.iterdir())
    for point in range(calls + 1):
        numbers = itertools.count()  # counts in threads too

        def fail(*arguments: Any, point: int = point, numbers: Any = numbers) -> Any:
            if next(numbers) == point:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        monkeypatch.setattr(os, failing, fail)
        if point < calls:
            with pytest.raises(CheckpointError, match="No space left"):
                two.save(20, state_of(99), {})  # replaces an existing one
            monkeypatch.undo()
            assert sorted(path.name for path in two.folder.iterdir()) == before
            assert is_state_of(two.load(20)[0], 20)
        else:
            two.save(20, state_of(99), {})
            assert is_state_of(two.load(20)[0], 99)


# --- kill -9 ---


def save_for_ever(folder: Path, tell: int) -> None:
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.clean_orphans()
    latest = checkpoints.latest()
    step = 0 if latest is None else latest.step
    os.write(tell, b"ready\n")
    while True:
        step += 1
        state = state_of(step, 20_000)
        checkpoints.save(step, state, {})
        checkpoints.save(step, state, {})  # the closing save of a run may meet the periodic one
        checkpoints.save_best(step, state, {})
        os.write(tell, b"%d\n" % step)


def killed_after(folder: Path, seconds: float) -> int | None:
    """kill -9 a child that saves for ever; the last step that it said was saved (as checkpoint and as best)."""
    read, write = os.pipe()
    child = os.fork()  # not a fresh interpreter: importing torch would take longer than the whole test
    if child == 0:
        try:
            save_for_ever(folder, write)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.readline() == "ready\n"
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = told.read().split()
    return int(lines[-1]) if lines else None


def kill_at_random(folder: Path, times: int, seed: int) -> None:
    draw = random.Random(seed)
    started = time.monotonic()
    Checkpoints(folder).save(1, state_of(1, 20_000), {})
    Checkpoints(folder).save_best(1, state_of(1, 20_000), {})
    one_round = 1.5 * (time.monotonic() - started)  # seconds of the child's three saves, on this machine, now
    step = best = 1  # what must at least be there
    left_behind = 0
    for _ in range(times):
        told = killed_after(folder, draw.uniform(0.0, 2.0 * one_round))
        step, best = (told, told) if told else (step, best)
        left_behind += sum(path.name.startswith(".") for path in folder.iterdir())
        reader = Checkpoints(folder)
        state, manifest = reader.load("last")
        assert step <= manifest.step <= step + 1  # at least what it said was saved, at most what it was saving
        assert is_state_of(state, manifest.step)
        step = manifest.step
        state, manifest = reader.load("best")
        assert best <= manifest.step <= step
        assert is_state_of(state, manifest.step)
        best = manifest.step
    assert step > 1  # it did get on
    assert left_behind > 0  # otherwise no kill ever hit a save, and the test says nothing
    checkpoints = Checkpoints(folder)
    checkpoints.clean_orphans()
    assert all(path.name == "best" or path.name.startswith("step-") for path in folder.iterdir())
    assert checkpoints.load("last")[1].step == step
    assert checkpoints.load("best")[1].step == best


def test_kill_9_inside_a_save_never_loses_the_newest_committed_checkpoint(tmp_path: Path) -> None:
    kill_at_random(tmp_path, times=20, seed=1)


@pytest.mark.slow
def test_kill_9_at_many_points(tmp_path: Path) -> None:
    kill_at_random(tmp_path, times=150, seed=2)


CHANGES = ("os.link", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")


def die_before(change: int) -> None:
    """kill -9 of this process just before its n-th change of the file system, each of which is an audit event."""
    count = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in CHANGES or (event == "open" and "x" in str(arguments[1])):
            count += 1
            if count == change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def save_and_die(folder: Path, name: str, change: int) -> bool:
    """Save state 2 in a child that dies at that point; True if it got through."""
    child = os.fork()
    if child == 0:
        try:
            checkpoints = Checkpoints(folder, keep=1)
            die_before(change)
            checkpoints.save_best(2, state_of(2), {}) if name == "best" else checkpoints.save(
                int(name), state_of(2), {}
            )
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


@pytest.mark.parametrize("name", ["best", "1", "2"])
def test_death_just_before_each_single_change_of_the_file_system_leaves_the_old_or_the_new(
    tmp_path: Path, name: str
) -> None:
    which: Any = "best" if name == "best" else "last"
    seen = set()
    for point in range(1, 60):
        folder = tmp_path / str(point)
        checkpoints = Checkpoints(folder)
        checkpoints.save_best(1, state_of(1), {})
        checkpoints.save(1, state_of(1), {})
        done = save_and_die(folder, name, point)
        for _ in range(2):  # as found, and after cleaning
            state, _ = checkpoints.load(which)
            step = state["run"]["steps"]
            assert is_state_of(state, step)
            checkpoints.clean_orphans()
        seen.add(step)
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
        assert checkpoints.load("best")[0]["run"]["steps"] in (1, 2)
        if done:
            assert step == 2
            break
    else:
        pytest.fail("never survived")
    assert point > 8
    assert seen == {1, 2}


# --- pieces that are linked from the checkpoint before ---


class Pieces:
    """An array of 40 rows in 8 pieces, of which each step changes one; each row says at which step it was written."""

    def __init__(self) -> None:
        self.rows, self.known = np.zeros((40, 500)), {}

    def state_of(self, step: int) -> dict[str, Any]:
        piece = step % 8
        self.rows[piece * 5 : piece * 5 + 5] = step
        self.known.pop(piece, None)
        return state_of(step) | {"ring": {"obs": Segments(self.rows, 5, self.known)}}

    def restore(self, state: dict[str, Any]) -> None:
        state["ring"]["obs"].copy_to(self.rows)
        self.known = dict(state["ring"]["obs"].known)


def holds(state: dict[str, Any], step: int) -> bool:
    """Whether this is the whole state of that step: each piece as its last change left it."""
    found = np.zeros((40, 500))
    state["ring"]["obs"].copy_to(found)
    wanted = [max([s for s in range(1, step + 1) if s % 8 == piece], default=0) for piece in range(8)]
    return is_state_of(state, step) and bool((found.reshape(8, -1) == np.array(wanted)[:, None]).all())


def test_death_at_any_point_of_a_save_with_links_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    seen = set()
    for point in range(1, 80):
        folder, pieces = tmp_path / str(point), Pieces()
        checkpoints = Checkpoints(folder, keep=1)
        for step in (1, 2):
            checkpoints.save(step, pieces.state_of(step), {})
        child = os.fork()
        if child == 0:
            try:
                state = pieces.state_of(3)
                die_before(point)
                checkpoints.save(3, state, {})
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        for _ in range(2):  # as found, and after cleaning
            state, manifest = Checkpoints(folder).load("last")
            assert holds(state, manifest.step)
            Checkpoints(folder).clean_orphans()
        seen.add(manifest.step)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            linked = [file for file in (folder / "step-000000000003").iterdir() if file.name.startswith("ring.0.")]
            assert len(linked) == 8
            break
    else:
        pytest.fail("never survived")
    assert point > 7 + 8  # seven links among the changes
    assert seen == {2, 3}


def save_pieces_for_ever(folder: Path, tell: int) -> None:
    checkpoints, pieces = Checkpoints(folder, keep=2), Pieces()
    checkpoints.clean_orphans()
    latest = checkpoints.latest()
    step = 0
    if latest is not None:
        step = latest.step
        pieces.restore(latest.load())
    os.write(tell, b"ready\n")
    while True:
        step += 1
        checkpoints.save(step, pieces.state_of(step), {})


def test_kill_9_in_runs_that_link_resume_and_link_again_never_mixes_two_states(tmp_path: Path) -> None:
    draw, step = random.Random(5), 0
    for _ in range(15):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                save_pieces_for_ever(tmp_path, write)
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as told:
            assert told.readline() == "ready\n"
            time.sleep(draw.uniform(0.0, 0.15))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        latest = Checkpoints(tmp_path).latest()
        if latest is not None:
            assert latest.step >= step
            assert holds(latest.load(), latest.step)
            step = latest.step
    assert step > 8  # every piece was written, and most were linked


def test_a_flipped_bit_in_any_piece_leaves_the_checkpoint_before_whole(tmp_path: Path) -> None:
    checkpoints, pieces = Checkpoints(tmp_path), Pieces()
    for step in range(1, 12):
        newest = checkpoints.save(step, pieces.state_of(step), {})
        files = sorted(newest.glob("ring.0.*.safetensors"))
        assert len(files) == 8
        for file in files if step > 1 else ():
            whole = file.read_bytes()
            with open(file, "r+b") as same:  # in place: all names of the file see it
                same.write(whole[:-9] + bytes([whole[-9] ^ 16]) + whole[-8:])
            state, manifest = Checkpoints(tmp_path).load("last")
            assert manifest.step == step - 1
            assert holds(state, step - 1)
            with open(file, "r+b") as same:
                same.write(whole)


@needs_mount
def test_a_disk_that_is_too_small_for_two_replays_still_takes_the_second_checkpoint(tmp_path: Path) -> None:
    code = """
    import sys
    from pathlib import Path
    import numpy as np
    from rookery.core.errors import CheckpointError
    from rookery.core.segments import Segments
    from rookery.run.checkpoints.checkpoints import Checkpoints

    checkpoints = Checkpoints(Path(sys.argv[1]))
    rows, known = np.zeros((300, 1000)), {}
    checkpoints.save(1, {"ring": Segments(rows, 10, known)}, {})
    rows[:10] = 1
    known.pop(0)
    checkpoints.save(2, {"ring": Segments(rows, 10, known)}, {})
    back = np.zeros_like(rows)
    checkpoints.load("last")[0]["ring"].copy_to(back)
    assert (back == rows).all()
    rows[:] = 2
    known.clear()
    try:
        checkpoints.save(3, {"ring": Segments(rows, 10, known)}, {})
    except CheckpointError as error:
        print(error)
    checkpoints.load("last")[0]["ring"].copy_to(back)
    assert back[0, 0] == 1 and back[299, 0] == 0
    """
    done = run_python(code, str(tmp_path), shell_before=f"mount -t tmpfs -o size=4m none '{tmp_path}'")
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
