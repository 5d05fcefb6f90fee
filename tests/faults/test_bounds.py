"""F36: what is too large is refused with a sentence, before memory or time are spent on it."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from pathlib import Path

import pytest

from faults.commands import DQN
from faults.hostile import MIB, MOST_BYTES, reseal
from faults.hostile_cases import ALIASES, MERGES, VALUES, json_of_180_mb
from rookery import ConfigError
from rookery.cli.main import run
from rookery.core.config.yaml import MOST_VALUES, read_file, read_value
from rookery.core.system.memory import check_room

ROOM = 3 * MOST_BYTES  # of addresses, which are cheaper than memory
SECONDS = 30.0  # alone it is less than 2; a busy machine has its own


def forked(words: list[str], folder: Path) -> tuple[int, str, float, int]:
    """(exit code, what it said, seconds, bytes beyond what was there before) of a command in a child of this process,
    which has imported everything already."""
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # a child begins with all that its parent has
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    begun, child = time.monotonic(), os.fork()
    if not child:
        code = 70
        try:
            resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
            resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
            file = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.stdout = sys.stderr = os.fdopen(file, "w")
            os.chdir(folder)
            code = run(words)
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    more = (usage.ru_maxrss - before) * 1024
    return os.waitstatus_to_exitcode(status), (folder / "said").read_text(), time.monotonic() - begun, more


def refused(words: list[str], folder: Path, *codes: int) -> str:
    code, said, seconds, more = forked(words, folder)
    assert code in (codes or (2,)), said[-2000:]
    assert "Traceback" not in said
    assert said.count("error: ") == 1, said[-2000:]
    assert more < MOST_BYTES, f"{more // MIB} MiB"
    assert seconds < SECONDS
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_too_large_is_refused_before_anything_is_allocated(tmp_path: Path, name: str) -> None:
    refused(list(VALUES[name]), tmp_path)
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bounds")
    assert run(["train", *DQN, "--env", "CartPole-v1", "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def victim(finished: Path, tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.slow
@pytest.mark.parametrize("text", [ALIASES, MERGES, "a: " + "[" * 100_000], ids=["aliases", "merges", "depth"])
def test_a_small_yaml_file_that_stands_for_an_enormous_one_is_refused(victim: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "bomb.yaml").write_text(text)
    (victim / "config.yaml").write_text(text)
    refused(["train", "-c", "bomb.yaml"], tmp_path)
    refused(["eval", "run"], tmp_path)


@pytest.mark.slow
def test_180_megabytes_of_json_are_not_read(victim: Path, tmp_path: Path) -> None:
    data, spaces = json_of_180_mb(), (victim / "spaces.json").read_bytes()
    (victim / "spaces.json").write_bytes(data)
    assert "spaces.json is damaged" in refused(["eval", "run"], tmp_path, 4)
    (victim / "spaces.json").write_bytes(spaces)
    for checkpoint in victim.glob("checkpoints/step-*"):
        reseal(checkpoint, "state.json", data)
    assert "state.json is larger than" in refused(["eval", "run"], tmp_path, 4)
    data = b'{"a":[' + b"[]," * 5_000_000 + b"[]]}"  # 15 MB that would become 500
    for checkpoint in victim.glob("checkpoints/step-*"):
        reseal(checkpoint, "state.json", data)
    assert "state.json holds more than" in refused(["train", "--resume", "run", "train.max_steps=130"], tmp_path, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [("config.yaml", ["eval", "run"]), ("spaces.json", ["eval", "run"]), ("metrics.jsonl", ["plot", "run"])],
)
def test_a_file_of_8_gigabytes_is_not_read(victim: Path, tmp_path: Path, name: str, words: list[str]) -> None:
    with (victim / name).open("wb") as file:
        file.truncate(8 << 30)  # takes no room on the disk
    refused(words, tmp_path, 2, 4)


def test_aliases_are_counted_with_all_that_they_stand_for(tmp_path: Path) -> None:
    some = "a: &a [1, 2, 3]\nb: [*a, *a]\n"
    (tmp_path / "some.yaml").write_text(some)
    assert read_file(tmp_path / "some.yaml")[0] == {"a": [1, 2, 3], "b": [[1, 2, 3], [1, 2, 3]]}
    many = "a: &a [" + "1, " * 1000 + "1]\nb: [" + "*a, " * (MOST_VALUES // 1000) + "*a]\n"
    (tmp_path / "many.yaml").write_text(many)
    with pytest.raises(ConfigError, match=r"many\.yaml, line 1: more than 20000 keys and values"):
        read_file(tmp_path / "many.yaml")
    with pytest.raises(ConfigError, match="more than 20000 keys and values"):
        read_value("[" + "1, " * MOST_VALUES + "1]", "command line")
    (tmp_path / "long.yaml").write_text("# " + "x" * (1 << 19))
    with pytest.raises(ConfigError, match="more than 524288 bytes"):
        read_file(tmp_path / "long.yaml")


def test_what_does_not_fit_is_told_with_the_numbers() -> None:
    check_room(1, "nothing needs", "")
    with pytest.raises(
        ConfigError, match=r"^x=1 needs at least 1024\.0 TiB of memory \(.* bytes\) are available\. Lower"
    ):
        check_room(1 << 50, "x=1 needs", "Lower x.")
