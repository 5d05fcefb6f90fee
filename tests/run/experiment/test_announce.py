"""What a run says of its mode, before it learns and while it builds."""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from rookery.core.errors import ConfigError
from rookery.learning.compiled import artefact, internals, key
from rookery.run.build import build_parts
from rookery.run.config.config import Config
from rookery.run.config.resolve import load_config
from rookery.run.execution import cache_of, choose_mode
from rookery.run.experiment.experiment import announce
from rookery.run.report.sinks import Sink, Sinks
from rookery.run.report.sinks.console import Console


def config(*overrides: str) -> Config:
    return load_config(algo="dqn", env="CartPole-v1", overrides=["model.hidden=[8]", *overrides])


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can compile, whatever this one is."""
    monkeypatch.setattr(internals, "version", lambda: internals.TESTED)
    monkeypatch.setattr(key, "compiler", lambda: "/usr/bin/g++")
    monkeypatch.setattr(artefact, "compiler", key.compiler)


def test_auto_says_what_it_found_and_counted() -> None:
    many = config("train.max_steps=50_000", "store.min_fill=1000", "store.updates_per_step=1")
    mode, reason = choose_mode(many)
    assert mode == "compiled"
    assert reason.startswith("g++ found, ")
    assert reason.endswith(" updates planned ≥ learning.compile_after=20000")
    assert 48_000 <= int(reason.split()[2]) <= 50_000
    mode, reason = choose_mode(config("train.max_steps=5_000", "store.updates_per_step=1"))
    assert mode == "eager"
    assert reason.endswith(" updates planned < learning.compile_after=20000")


def test_without_a_compiler_auto_is_eager_and_compiled_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefact, "compiler", lambda: None)
    assert choose_mode(config("learning.compile_after=0")) == ("eager", "no C++ compiler (g++) was found")
    with pytest.raises(ConfigError, match="no C\\+\\+ compiler"):
        choose_mode(config("learning.mode=compiled"))


def test_another_version_of_torch_is_compiled_for_and_the_line_says_which_was_tested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(internals, "version", lambda: "2.99.0")
    told = f"; torch 2.99.0 is not a tested one: {internals.HINT}"
    mode, reason = choose_mode(config("learning.compile_after=0"))
    assert mode == "compiled"
    assert reason.endswith(told)
    assert choose_mode(config("learning.mode=compiled")) == ("compiled", f"learning.mode=compiled{told}")


def test_a_torch_that_cannot_export_runs_eagerly_and_compiled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "version", lambda: "2.5.1")
    wanted = f"torch 2.5.1 is older than 2.6; {internals.HINT}"
    assert choose_mode(config("learning.compile_after=0")) == ("eager", wanted)
    with pytest.raises(ConfigError, match="pip install torch=="):
        choose_mode(config("learning.mode=compiled"))


def test_the_bounds_of_the_cache_come_from_the_config(tmp_path: Path) -> None:
    made = cache_of(config(f"learning.cache={tmp_path}", "learning.cache_bytes=5", "learning.cache_days=2"))
    assert (made.folder, made.most_bytes, made.most_days) == (tmp_path, 5, 2.0)


def test_one_line_goes_to_the_log_and_to_the_console(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    console = Console(stream=stream)
    parts = build_parts(config("learning.mode=eager"))
    caplog.set_level(logging.INFO, "rookery.run")
    try:
        announce(parts.players, Sinks([Sink(), console]))
        with parts.players.main.learner.busy("compiling") as say:
            say("compiled")
    finally:
        parts.pool.close()
    assert stream.getvalue() == "updates: eager (learning.mode=eager)\ncompiling\ncompiled\n"
    assert "updates: eager (learning.mode=eager)" in caplog.text


def test_without_a_terminal_a_build_is_two_lines() -> None:
    stream = io.StringIO()
    with Console(stream=stream).busy("compiling") as say:
        say("compiled")
    assert stream.getvalue() == "compiling\ncompiled\n"


def test_on_a_terminal_a_build_counts_its_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console = Console(100)
    screen = RichConsole(file=stream, force_terminal=True, width=80, height=10, _environ={})
    monkeypatch.setattr(console, "_screen", lambda: screen)
    console.open(tmp_path, None)
    with console.busy("compiling") as say:
        deadline = time.monotonic() + 20
        while "compiling (1 s)" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        say("compiled")
    before = len(stream.getvalue())
    time.sleep(0.6)
    assert len(stream.getvalue()) == before  # nothing turns any more
    console.close()
    assert "compiling (1 s)" in stream.getvalue()
    assert "compiled\n" in stream.getvalue()


def test_nobody_to_tell_is_no_error() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with Console(stream=Gone()).busy("compiling") as say:
        say("compiled")
