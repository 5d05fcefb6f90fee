"""The cache of compiled updates: bounded, cleaned, safe when runs meet in it, and nothing in it is believed unseen.

The machine code here is a stand-in, so that no test waits for a compiler; test_compiled.py has the real one.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from learning.toys import Toy, learner, toy_batch
from rookery.core.errors import CompileError
from rookery.core.rng import Streams
from rookery.learning.compiled import build, cache, loading
from rookery.learning.compiled.cache import PLAN, Cache, distrust
from rookery.learning.compiled.loading import CODE, Damaged, examine, seal
from rookery.learning.learner import Learner

pytestmark = pytest.mark.slow

DAY = 86400.0


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, tmp_path_factory):
    """No compiler, no loader; the private cache of this test is its own."""
    made = []

    def compile_(graph, examples, scratch, path, changes):
        made.append(path)
        path.write_bytes(b"machine code")

    monkeypatch.setattr(build, "_compile", compile_)
    monkeypatch.setattr(loading, "load", lambda path: lambda inputs: [torch.zeros(5), torch.zeros(32)])
    own = tmp_path_factory.mktemp("private")
    monkeypatch.setattr(cache.tempfile, "tempdir", str(own))
    cache.private.cache_clear()
    yield made
    cache.private.cache_clear()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def built(where, **settings):
    it = learner(Toy(), "compiled", Cache(where, **settings))
    it.run("update", toy_batch())
    return it.compiled["update"]


def rewrite(folder, **changes):
    """Change the plan as somebody would who knows of the seal."""
    plan = json.loads((folder / PLAN).read_text()) | changes
    plan.pop("seal")
    (folder / PLAN).write_text(json.dumps(plan | {"seal": seal(plan)}))


def test_what_was_built_once_is_loaded_and_nothing_else_is_left(folder, stand_in):
    first, second = built(folder), built(folder)
    assert (first.built, second.built, len(stand_in)) == (True, False, 1)
    assert [path.name for path in folder.iterdir()] == [first.key]
    assert sorted(path.name for path in (folder / first.key).iterdir()) == [PLAN, CODE]
    assert (folder / first.key).stat().st_mode & 0o777 == 0o700


def test_a_missing_folder_is_made_for_this_user_alone(tmp_path):
    built(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def cut(folder):
    (folder / CODE).write_bytes(b"machine")


def flipped(folder):
    (folder / CODE).write_bytes(b"machine\x00code")


def without_code(folder):
    (folder / CODE).unlink()


def half_a_plan(folder):
    text = (folder / PLAN).read_text()
    (folder / PLAN).write_text(text[: len(text) // 2])


def a_list_as_plan(folder):
    (folder / PLAN).write_text("[]")


def swapped_inputs(folder):
    plan = json.loads((folder / PLAN).read_text())
    plan["inputs"] = plan["inputs"][::-1]
    (folder / PLAN).write_text(json.dumps(plan))


def of_another_key(folder):
    rewrite(folder, key="0" * 32)


def of_another_format(folder):
    rewrite(folder, format=1)


def of_another_cpu(folder):
    plan = json.loads((folder / PLAN).read_text())
    rewrite(folder, circumstances=plan["circumstances"] | {"cpu": "another"})


def code_for_all(folder):
    (folder / CODE).chmod(0o666)


DAMAGES = [
    cut,
    flipped,
    half_a_plan,
    a_list_as_plan,
    swapped_inputs,
    of_another_key,
    of_another_format,
    of_another_cpu,
    code_for_all,
]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_or_foreign_is_built_again_with_one_warning(folder, stand_in, caplog, damage):
    key = built(folder).key
    damage(folder / key)
    again = built(folder)
    assert again.built
    assert [
        record.message for record in caplog.records if "built again" in record.message and key in record.message
    ] == [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert not built(folder).built
    assert [path.name for path in folder.iterdir()] == [key]


@pytest.mark.parametrize("missing", [PLAN, CODE])
def test_half_an_artefact_is_built_again(folder, missing):
    key = built(folder).key
    (folder / key / missing).unlink()
    assert built(folder).built
    assert not built(folder).built


def test_machine_code_that_cannot_be_loaded_is_built_again(folder, monkeypatch):
    built(folder)
    loads = iter([True, True, False])  # found, found again by the builder, then its own

    def load(path):
        if next(loads):
            raise Damaged("cannot be loaded")
        return lambda inputs: [torch.zeros(5), torch.zeros(32)]

    monkeypatch.setattr(loading, "load", load)
    assert built(folder).built


def test_a_link_in_place_of_an_artefact_is_replaced(folder, tmp_path):
    key = built(folder).key
    (folder / key).rename(tmp_path / "elsewhere")
    (folder / key).symlink_to(tmp_path / "elsewhere")
    assert built(folder).built
    assert not (folder / key).is_symlink()
    assert (tmp_path / "elsewhere" / CODE).exists()  # what the link led to is not ours to remove


def test_a_folder_that_others_can_write_is_not_used(folder, caplog):
    built(folder)
    folder.chmod(0o777)
    made = built(folder)
    assert made.built
    assert "can be written by others" in caplog.text
    assert (cache.private().folder / made.key).is_dir()
    assert cache.private().folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    if os.getuid() == 0:
        os.chown(folder, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert "belongs to another user" in distrust(folder)


def test_a_folder_of_root_is_trusted(folder, monkeypatch):
    if os.getuid() != 0:
        pytest.skip("needs a folder of root")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert distrust(folder) is None


def test_where_no_folder_can_be_made_updates_are_compiled_for_this_process_alone(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    made = built(tmp_path / "file" / "cache")
    assert made.built
    assert "cannot be made" in caplog.text
    assert not built(tmp_path / "file" / "cache").built  # one private folder per process


def test_a_cache_without_room_is_replaced_by_a_private_one_and_told_once(folder, monkeypatch, caplog):
    real = build._compile

    def full(graph, examples, scratch, path, changes):
        if path.is_relative_to(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(graph, examples, scratch, path, changes)

    monkeypatch.setattr(build, "_compile", full)
    assert built(folder).built
    assert caplog.text.count("No space left on device") == 1
    assert list(folder.iterdir()) == []


def test_without_any_room_compiled_is_a_sentence_and_auto_runs_eagerly(folder, monkeypatch):
    def full(graph, examples, scratch, path, changes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(build, "_compile", full)
    with pytest.raises(CompileError, match=r"neither the cache .* nor the temporary folder .* can be written"):
        built(folder)
    it = Learner(Toy(), Streams(0), mode="compiled", cache=folder, fall_back=True)
    it.set_knobs({"lr": 1e-2, "mix": 0.5})
    it.run("update", toy_batch())
    assert it.mode == "eager"
    assert "No space left on device" in it.note


def test_a_cache_that_can_only_be_read_is_read(folder, monkeypatch):
    built(folder)
    monkeypatch.setattr(os, "utime", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only file system")))
    assert not built(folder).built


def test_a_read_only_cache_without_the_artefact_is_replaced(folder, monkeypatch, caplog):
    real = os.open

    def opened(path, flags, *rest, **more):
        if flags & os.O_CREAT and Path(path).parent == folder:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", opened)
    assert built(folder).built
    assert "Read-only file system" in caplog.text


def entry(folder, number, size=1000, days=1.0):
    made = folder / f"{number:032x}"
    made.mkdir()
    (made / PLAN).write_text("{}")
    (made / CODE).write_bytes(bytes(size - 2))
    at = time.time() - DAY * days
    os.utime(made / PLAN, (at, at))
    return made


def numbers(folder):
    return sorted(int(path.name, 16) for path in folder.iterdir() if len(path.name) == 32)


def test_the_longest_unused_go_first_until_the_size_is_kept(folder):
    for number, days in ((1, 5), (2, 9), (3, 1), (4, 7)):
        entry(folder, number, size=1000, days=days)
    assert sorted(int(gone.key, 16) for gone in Cache(folder, most_bytes=2500).trim()) == [2, 4]
    assert numbers(folder) == [1, 3]


def test_what_was_not_used_for_too_long_goes(folder):
    for number, days in ((1, 89), (2, 91)):
        entry(folder, number, days=days)
    Cache(folder).trim()
    assert numbers(folder) == [1]


def test_what_a_run_is_using_stays_and_goes_when_the_run_is_over(folder):
    used = built(folder, most_bytes=0)  # trimmed after the build
    key = used.key
    assert (folder / key).exists()
    assert Cache(folder).clear() == ([], Cache(folder).entries())
    del used
    removed, kept = Cache(folder).clear()
    assert [entry.key for entry in removed] == [key]
    assert removed[0].what == "Toy update"
    assert kept == []
    assert list(folder.iterdir()) == []


def test_a_use_is_remembered(folder):
    key = built(folder).key
    os.utime(folder / key / PLAN, (1e9, 1e9))
    built(folder)
    assert Cache(folder).entries()[0].used > time.time() - 60


def test_files_of_others_in_the_folder_are_left_alone(folder):
    entry(folder, 1, days=1000)
    (folder / "notes.txt").write_text("mine")
    (folder / "folder").mkdir()
    Cache(folder, most_bytes=0).trim()
    Cache(folder).clear()
    assert sorted(path.name for path in folder.iterdir()) == ["folder", "notes.txt"]


def test_what_a_killed_build_left_is_removed_but_not_what_a_living_one_has(folder):
    for name in ("building-dead", "building-alive", "building-new"):
        (folder / name).mkdir()
        (folder / name / "update.pt2").write_bytes(b"half")
    alive = os.open(folder / "building-alive", os.O_RDONLY)
    fcntl.flock(alive, fcntl.LOCK_EX)
    for name in ("building-dead", "building-alive"):
        os.utime(folder / name, (1e9, 1e9))
    Cache(folder).trim()
    os.close(alive)
    assert sorted(path.name for path in folder.iterdir()) == ["building-alive", "building-new"]


def test_what_killed_processes_left_in_the_temporary_folder_is_removed():
    temporary = Path(cache.tempfile.gettempdir())
    (temporary / "rookery-artefacts-dead").mkdir()
    os.utime(temporary / "rookery-artefacts-dead", (1e9, 1e9))
    mine = cache.private().folder
    assert list(temporary.iterdir()) == [mine]
    assert cache.private().folder == mine


def test_a_build_that_never_ends_is_not_waited_for_for_ever(folder, caplog):
    key = built(folder).key
    Cache(folder).clear()
    lock = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    caplog.set_level(logging.INFO, "rookery.learning")
    started = time.monotonic()
    assert built(folder, wait_seconds=0.3).built
    assert 0.3 <= time.monotonic() - started < 10
    os.close(lock)
    assert "being compiled by another run" in caplog.text
    assert "has not ended after 0 s" in caplog.text
    assert (folder / f"{key}.lock").exists()  # it is the other's


def test_a_build_says_what_it_does_and_how_it_ended(folder):
    said = []

    @contextlib.contextmanager
    def busy(text):
        said.append(text)
        yield said.append

    it = learner(Toy(), "compiled", Cache(folder))
    it.busy = busy
    it.run("update", toy_batch())
    assert said[0].startswith("compiling update 'update'")
    assert "seconds" in said[0]
    assert re.fullmatch(r"compiled update 'update' in \d+ s \(0\.0 MB\)", said[1])


BUILDER = """
import sys, time, torch
torch.set_num_threads(1)
from pathlib import Path
from learning.toys import Toy, learner, toy_batch
from rookery.learning.compiled import build, loading
from rookery.learning.compiled.cache import Cache

def compile_(graph, examples, scratch, path, changes):
    (scratch / "update.pt2").write_bytes(b"half")
    print("building", flush=True)
    time.sleep(float(sys.argv[2]))
    path.write_bytes(b"machine code")

build._compile = compile_
loading.load = lambda path: lambda inputs: [torch.zeros(5), torch.zeros(32)]
it = learner(Toy(), "compiled", Cache(Path(sys.argv[1])))
it.run("update", toy_batch())
print(it.compiled["update"].built, flush=True)
"""


def builder(folder, seconds):
    words = [sys.executable, "-c", BUILDER, str(folder), str(seconds)]
    tests = str(Path(__file__).parents[2])
    return subprocess.Popen(words, cwd=tests, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_of_two_processes_one_builds_and_the_other_waits_and_loads(folder, stand_in):
    other = builder(folder, 3)
    assert other.stdout.readline() == "building\n"
    mine = built(folder)
    assert (mine.built, stand_in) == (False, [])
    assert other.stdout.readline() == "True\n"
    assert other.wait(60) == 0
    assert [path.name for path in folder.iterdir()] == [mine.key]


@pytest.mark.slow
def test_a_killed_build_delays_nobody_and_its_files_go(folder):
    other = builder(folder, 600)
    assert other.stdout.readline() == "building\n"
    (left,) = folder.glob("building-*")
    other.send_signal(signal.SIGKILL)
    other.wait(60)
    os.utime(left, (1e9, 1e9))
    started = time.monotonic()
    mine = built(folder)
    assert mine.built
    assert time.monotonic() - started < 30
    assert [path.name for path in folder.iterdir()] == [mine.key]


def test_an_examined_plan_is_that_of_its_key(folder):
    key = built(folder).key
    assert examine(folder / key, key)["what"] == "Toy update"
    with pytest.raises(Damaged, match="another update"):
        examine(folder / key, "0" * 32)
