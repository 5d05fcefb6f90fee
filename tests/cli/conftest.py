"""The command line, called in this process from an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.cli.main import run


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """(exit code, output, errors) of a command line."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
