"""`rookery cache`: what is kept, and how to be rid of it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from rookery.cli.main import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOKERY_CACHE", str(tmp_path))
    for i, what in enumerate(("DQN update", "PPO update")):
        made = tmp_path / "artefacts" / f"{i:032x}"
        made.mkdir(parents=True)
        (made / "plan.json").write_text(json.dumps({"what": what}))
        (made / "update.so").write_bytes(bytes(2_000_000))
    return tmp_path / "artefacts"


def test_what_is_kept_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert any("DQN update" in line and "2.0 MB" in line for line in lines)
    assert lines[-1] == f"2 compiled updates, 4.0 MB in {folder}"
    assert run(["cache", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {entry["what"] for entry in told["artefacts"]} == {"DQN update", "PPO update"}


def test_clearing_keeps_what_a_run_is_using(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    used = os.open(folder / f"{1:032x}" / "plan.json", os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    assert run(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 compiled updates (2.0 MB) from {folder}; 1 are in use and stay\n"
    os.close(used)
    assert run(["cache", "--clear", "--json", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(folder), "removed": 1, "kept": 0}
    assert list(folder.iterdir()) == []


def test_a_cache_that_is_not_there_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"0 compiled updates, 0.0 MB in {tmp_path / 'none'}\n"
    assert run(["cache", str(tmp_path / "none"), "--clear"]) == 0
    assert not (tmp_path / "none").exists()
