"""`cli`: the command, called in this process, in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.commands import Cli, Ended
from rookery.cli.main import run


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Cli]:
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        caplog.clear()
        code = run(arguments)
        captured = capsys.readouterr()
        assert "Traceback (most recent call last)" not in captured.err  # of a crash; that of an env's own code is told
        return Ended(code, captured.out, captured.err, caplog.text)

    yield call
    sys.path[:] = path  # the command line extends it
