"""A run folder that was changed: F31, config.yaml edited by hand; F32, a bad disk; F34, links, pipes and sockets."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.commands import DQN, WALK, Cli, checkpoint, in_process, quick, summary
from rookery.core.errors import UsageError
from rookery.core.system import files
from rookery.data.replay import changed_pieces
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.manifest import commit_text
from rookery.run.experiment import folder
from rookery.run.experiment.folder import RunFolder
from rookery.run.experiment.logs import TextLog
from rookery.run.experiment.reader import RunReader
from rookery.run.report.sinks.jsonlines import JsonLines
from rookery.run.report.sinks.tensorboard import TensorBoard


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 120 steps with checkpoints at 100 and 120."""
    from rookery.cli.main import run

    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run(["train", *quick("dqn"), *WALK, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage, called `run`."""
    return shutil.copytree(finished, tmp_path / "run")


# --- F31: config.yaml ---


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert text.count(old) == 1
    (run / "config.yaml").write_text(text.replace(old, new))


def rewrite_manifests(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """As another version would have written them: the commit markers are right."""
    for file in (run / "checkpoints").glob("*/manifest.json"):
        manifest = json.loads(file.read_text())
        change(manifest)
        text = json.dumps(manifest).encode()
        file.write_bytes(text)
        file.with_name("COMMIT").write_bytes(commit_text(text))


def test_an_edited_config_is_refused_like_a_change_on_the_command_line(cli: Cli, copy: Path) -> None:
    edit(copy, "  gamma: 0.99\n", "  gamma: 0.5\n")
    edit(copy, "  batch_size: 16\n", "  batch_size: 8\n")
    ended = cli("train", "--resume", "run", "train.max_steps=150")
    assert ended.code == 2
    err = " ".join(ended.err.split())
    assert "algo.gamma: 0.99 in the run, 0.5 now" in err
    assert "store.batch_size: 16 in the run, 8 now" in err
    assert "config.yaml, line " in err  # where it was set
    assert summary(copy)["steps"] == 120


def test_what_may_be_changed_may_be_changed_by_hand(cli: Cli, copy: Path) -> None:
    edit(copy, "  max_steps: 120\n", "  max_steps: 150\n")
    assert cli("train", "--resume", "run").code == 0
    assert (summary(copy)["steps"], summary(copy)["exact"]) == (150, True)


def test_a_key_that_a_newer_version_added_counts_as_its_default(cli: Cli, copy: Path) -> None:
    rewrite_manifests(copy, lambda manifest: manifest["config"]["learning"].pop("compile_after"))
    edit(copy, "  compile_after: 20000\n", "  compile_after: 30000\n")
    ended = cli("train", "--resume", "run", "train.max_steps=150")
    assert ended.code == 2
    assert "learning.compile_after: 20000 in the run, 30000 now" in " ".join(ended.err.split())
    edit(copy, "  compile_after: 30000\n", "")
    assert cli("train", "--resume", "run", "train.max_steps=150").code == 0
    assert summary(copy)["exact"] is True


def test_a_manifest_with_a_hash_alone_makes_an_edited_run_inexact(cli: Cli, copy: Path) -> None:
    def older(manifest: dict[str, Any]) -> None:
        manifest["format"] = 3
        del manifest["config"]

    rewrite_manifests(copy, older)
    shutil.copytree(copy, copy.parent / "edited")
    assert cli("train", "--resume", "run", "train.max_steps=150").code == 0
    assert summary(copy)["exact"] is True
    edit(copy.parent / "edited", "  gamma: 0.99\n", "  gamma: 0.5\n")
    assert cli("train", "--resume", "edited", "train.max_steps=150").code == 0
    assert "config.yaml is not the one" in summary(copy.parent / "edited")["exact"]


# --- F34: links, pipes, sockets ---

FILES = [
    ".lock",
    "config.yaml",
    "spaces.json",
    "state.json",
    "state.tmp",
    "metrics.jsonl",
    "metrics.csv",
    "summary.json",
    "log.txt",
]
FOLDERS = ["tensorboard", "checkpoints", "offending"]


def to_outside(path: Path) -> None:
    """A link to what it was, elsewhere."""
    outside = path.parent.parent / f"outside-{path.name}"
    if path.name in FOLDERS:
        shutil.move(path, outside) if path.exists() else outside.mkdir()
    else:
        outside.write_bytes(path.read_bytes() if path.exists() else b"theirs\n")
        path.unlink(missing_ok=True)
    path.symlink_to(outside)


def dangling(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(path.parent.parent / "nowhere")


def pipe(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    os.mkfifo(path)


def outside_of(run: Path) -> dict[str, str]:
    """Every file beside the run's folder, with its hash."""
    paths = [path for path in run.parent.rglob("*") if path.is_file() and run not in path.parents]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


CASES = [(harm, name) for harm in (to_outside, dangling, pipe) for name in FILES + FOLDERS]


@pytest.mark.parametrize(("harm", "name"), CASES)
def test_what_is_no_plain_file_of_the_run_is_refused_and_nothing_outside_is_touched(
    cli: Cli, copy: Path, harm: Callable[[Path], None], name: str
) -> None:
    harm(copy / name)
    before = outside_of(copy)
    commands = [["train", "--resume", "run", "train.max_steps=150"], ["eval", "run"]]
    commands += [["train", *DQN, *WALK, "--out", "run", "--on-exists", "resume"]]
    for words in commands:
        ended = cli(*words)
        assert ended.code == 2, (words, ended.err)
        assert name in ended.err
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        RunReader(copy)
    assert outside_of(copy) == before
    assert not (copy.parent / "nowhere").exists()


@pytest.mark.slow
def test_a_new_run_is_not_begun_in_a_folder_that_was_prepared(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "theirs")
    os.mkfifo(tmp_path / "run" / "log.txt")
    ended = in_process("train", *DQN, *WALK, "--out", "run", folder=tmp_path)
    assert ended.code == 2
    assert ".lock is a symbolic link, log.txt is a pipe" in " ".join(ended.err.split())
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_the_folder_itself_may_lie_behind_a_link(cli: Cli, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(copy)
    assert cli("train", "--resume", "link", "train.max_steps=150").code == 0
    assert summary(copy)["steps"] == 150


def test_a_file_that_is_exchanged_after_the_folder_was_looked_at_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look sees nothing wrong, as if the link came a moment later."""
    for module in (files, folder):
        monkeypatch.setattr(module, "in_place_of", lambda path, kind=0: None)
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in ("metrics.jsonl", "log.txt", ".lock"):
        (tmp_path / name).symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic links"):
        JsonLines().open(tmp_path, None)
    with pytest.raises(UsageError, match=r"log\.txt cannot be opened"):
        TextLog(tmp_path / "log.txt")
    with pytest.raises(UsageError, match="cannot be written"):
        RunFolder.create(tmp_path, "x", "resume", tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="no regular file"):
        JsonLines().open(tmp_path, None)
    assert theirs.read_text() == "theirs"


def test_without_the_flag_of_the_system_the_first_look_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FLAGS", 0)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)
        server.bind("socket")
        for name, what in (("link", "a symbolic link"), ("pipe", "a pipe"), ("socket", "a socket")):
            with pytest.raises(OSError, match=what):
                files.open_regular(tmp_path / name, os.O_RDWR | os.O_CREAT)
    assert not (tmp_path / "theirs").exists()


def test_a_sink_does_not_write_into_a_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="a symbolic link"):
        TensorBoard().open(tmp_path / "run", None)
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.parametrize("harm", [to_outside, dangling, pipe])
def test_links_and_pipes_in_place_of_a_checkpoint_are_neither_followed_nor_written_through(
    cli: Cli, copy: Path, harm: Callable[[Path], None]
) -> None:
    newest = checkpoint(copy, 120)
    outside = copy.parent / "elsewhere"
    shutil.move(newest, outside)
    if harm is pipe:
        os.mkfifo(newest)
    else:
        newest.symlink_to(outside if harm is to_outside else copy.parent / "nowhere")
    best = copy / "checkpoints" / "best"
    best.symlink_to(copy.parent / "nowhere")
    before = outside_of(copy)
    assert cli("train", "--resume", "run", "train.max_steps=150", "eval.at_end=true").code == 0
    told = summary(copy)
    assert (told["steps"], told["resumed_from"], told["exact"]) == (150, [100], True)
    assert outside_of(copy) == before
    assert best.is_dir()
    assert not best.is_symlink()
    assert Checkpoints(copy / "checkpoints").load("last")[1].step == 150


@pytest.mark.parametrize("name", ["COMMIT", "manifest.json", "state.json"])
def test_a_pipe_among_the_files_of_a_checkpoint_is_not_waited_for(cli: Cli, copy: Path, name: str) -> None:
    (checkpoint(copy, 120) / name).unlink()
    os.mkfifo(checkpoint(copy, 120) / name)
    ended = cli("train", "--resume", "run")
    assert ended.code == 0, ended.err
    assert summary(copy)["resumed_from"] == [100]


# --- F32: one bit of the replay ---


@pytest.mark.slow
def test_a_flipped_bit_in_a_linked_piece_costs_one_checkpoint_and_not_the_run(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_pieces, "PIECE_BYTES", 800)
    words = quick("dqn", "train.max_steps=300", "store.capacity=1000")
    assert cli("train", *words, *WALK, "--out", "straight").code == 0
    expected = summary(tmp_path / "straight")["weights_sha256"]
    run = shutil.copytree(tmp_path / "straight", tmp_path / "run", copy_function=os.link)
    for piece in sorted(checkpoint(run, 300).glob("players.main.store.*.0000*.safetensors")):
        data = piece.read_bytes()
        piece.unlink()
        piece.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    ended = cli("eval", "run", "--json")  # needs no replay
    assert ended.code == 0, ended.err
    assert cli("train", *words, *WALK, "--init-from", "run", "--out", "new").code == 0
    ended = cli("train", "--resume", "run")
    assert ended.code == 0, ended.err
    assert (summary(run)["resumed_from"], summary(run)["exact"]) == ([250], True)
    assert summary(run)["weights_sha256"] == expected


def test_a_policy_is_not_loaded_from_damaged_weights(cli: Cli, copy: Path) -> None:
    for weights in (copy / "checkpoints").glob("*/players.main.learner.safetensors"):
        data = weights.read_bytes()
        weights.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    assert cli("eval", "run").code == 4
