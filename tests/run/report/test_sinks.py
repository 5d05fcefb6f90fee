"""Reports reach every sink that works; those that do not are told of once and never disturb the run."""

from __future__ import annotations

import io
import itertools
import json
import logging
import math
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console as RichConsole

from rookery.core import registry
from rookery.core.errors import UsageError
from rookery.run.config.resolve import load_config
from rookery.run.experiment import logs
from rookery.run.experiment.experiment import Experiment, make_sink
from rookery.run.experiment.logs import TextLog
from rookery.run.report.sinks import Background, Histogram, Image, JsonLines, Sink, Sinks, Table, TensorBoard, Video
from rookery.run.report.sinks.console import LINE_SECONDS, REFRESH_SECONDS, Console
from rookery.run.report.sinks.sparkline import Sparkline


def lines_of(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# --- metrics.jsonl ---


def test_every_report_is_a_line_that_is_there_at_once(tmp_path: Path) -> None:
    sink = JsonLines()
    sink.open(tmp_path, None)
    sink.report({"steps": 1000, "q/loss": 0.1, "nothing": math.nan, "f32": np.float32(0.5), "time/env": 0.25})
    assert lines_of(tmp_path) == [{"steps": 1000, "q/loss": 0.1, "nothing": None, "f32": 0.5, "time/env": 0.25}]
    sink.report({"steps": 2000})
    assert len(lines_of(tmp_path)) == 2
    sink.close()


def test_typed_values_are_written_where_json_can_show_them(tmp_path: Path) -> None:
    sink = JsonLines()
    sink.open(tmp_path, None)
    picture = np.zeros((2, 2, 3), np.uint8)
    table = Table(("map", "wins"), (("a", 1), ("b", 2)))
    sink.report(
        {
            "steps": 1,
            "h": Histogram(np.array([0.0, 1.0, math.nan])),
            "t": table,
            "i": Image(picture),
            "v": Video(picture[None]),
        }
    )
    sink.close()
    (line,) = lines_of(tmp_path)
    assert list(line) == ["steps", "h", "t"]
    assert sum(line["h"]["counts"]) == 2
    assert line["t"] == {"columns": ["map", "wins"], "rows": [["a", 1], ["b", 2]]}


def test_a_resumed_run_cuts_off_exactly_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    sink = JsonLines()
    sink.open(tmp_path, None)
    for step in (1, 2):
        sink.report({"steps": step})
    saved = sink.state()
    text = (tmp_path / "metrics.jsonl").read_bytes()
    for step in (3, 4):
        sink.report({"steps": step})
    sink.close()
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"steps": 5, "q/lo')  # killed while it wrote
    sink = JsonLines()
    sink.open(tmp_path, 2)
    sink.restore(saved)
    assert (tmp_path / "metrics.jsonl").read_bytes() == text
    sink.report({"steps": 3})
    sink.close()
    assert [line["steps"] for line in lines_of(tmp_path)] == [1, 2, 3]


def test_a_new_run_starts_with_an_empty_file_and_a_rollback_to_nothing_empties_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"steps": 9}\n')
    sink = JsonLines()
    sink.open(tmp_path, None)
    assert sink.offset() == 0
    sink.report({"steps": 1})
    sink.rollback(0)
    sink.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


@pytest.mark.parametrize("size", [0, 5, 14, 20])
def test_a_file_that_is_shorter_than_the_checkpoint_says_keeps_its_whole_lines_and_the_loss_is_logged(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    sink = JsonLines()
    sink.open(tmp_path, None)
    for step in (1, 2, 3):
        sink.report({"steps": step})
    offset = sink.offset()  # 3 lines of 12 bytes
    assert offset == 36
    os.truncate(tmp_path / "metrics.jsonl", size)
    with caplog.at_level(logging.WARNING, "rookery"):
        sink.rollback(offset)
    assert f"expected 36 bytes, kept the {size // 12 * 12} bytes" in caplog.text
    sink.report({"steps": 4})
    sink.close()
    assert [line["steps"] for line in lines_of(tmp_path)] == [1, 2, 3][: size // 12] + [4]


def test_no_half_line_stays_when_the_disk_is_full(tmp_path: Path) -> None:
    child = os.fork()  # the limit is the child's own
    if child == 0:
        code = 1
        try:
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            sink = JsonLines()
            sink.open(tmp_path, None)
            sink.report({"steps": 1})
            try:
                sink.report({"steps": 2, "text": "x" * 200})
            except OSError:
                sink.report({"steps": 3})
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert [line["steps"] for line in lines_of(tmp_path)] == [1, 3]


# --- TensorBoard ---


def events(folder: Path) -> list[tuple[int, str]]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = []
    for file in sorted((folder / "tensorboard").iterdir()):
        for event in EventFileLoader(str(file)).Load():
            found += [(event.step, value.tag) for value in event.summary.value]
            if event.session_log.status:
                found.append((event.step, "purge"))
    return found


def test_tensorboard_gets_scalars_histograms_pictures_and_tables(tmp_path: Path) -> None:
    sink = TensorBoard()
    sink.open(tmp_path, None)
    rng = np.random.Generator(np.random.PCG64(0))
    picture = rng.integers(0, 255, (4, 4, 3)).astype(np.uint8)
    record = {"steps": 7, "q/loss": 0.5, "word": "ignored", "h": Histogram(rng.normal(size=9)), "i": Image(picture)}
    sink.report(
        record | {"t": Table(("a",), ((1,),)), "v": Video(picture[None]), "empty": Histogram(np.array([math.nan]))}
    )
    sink.close()
    assert {(step, tag.split("/text_summary")[0]) for step, tag in events(tmp_path)} == {
        (7, "q/loss"),
        (7, "h"),
        (7, "i"),
        (7, "t"),
    }


def test_tensorboard_hides_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    sink = TensorBoard()
    sink.open(tmp_path, 50)
    sink.report({"steps": 60, "x": 1.0})
    sink.close()
    assert events(tmp_path) == [(51, "purge"), (60, "x")]


def test_tensorboard_hides_an_attempt_that_was_killed_before_its_first_checkpoint(tmp_path: Path) -> None:
    for _ in range(2):
        sink = TensorBoard()
        sink.open(tmp_path, None)
        sink.report({"steps": 10, "x": 1.0})
        sink.close()
    assert sorted(events(tmp_path)) == [(0, "purge"), (10, "x"), (10, "x")]


# --- fan-out ---


class Recorder(Sink):
    name = "recorder"

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.closed = False

    def open(self, folder: Path, resume_step: int | None) -> None:
        self.seen.append(("open", resume_step))

    def report(self, record: dict[str, Any]) -> None:
        self.seen.append(record["steps"])

    def close(self) -> None:
        self.closed = True


class Failing(Recorder):
    """Raises in the given calls of `report` (None: always) or in `open`."""

    name = "failing"

    def __init__(self, reports: set[int] | None = None, opens: int = 0):
        super().__init__()
        self.fails, self.opens, self.calls = reports, opens, 0

    def open(self, folder: Path, resume_step: int | None) -> None:
        if self.opens > 0:
            self.opens -= 1
            raise ConnectionError("no server")
        super().open(folder, resume_step)

    def report(self, record: dict[str, Any]) -> None:
        self.calls += 1
        if self.fails is None or self.calls in self.fails:
            raise ConnectionError("server is down")
        super().report(record)


def run(sinks: Sinks, folder: Path, reports: int) -> None:
    sinks.open(folder)
    for step in range(1, reports + 1):
        sinks.report({"steps": step})
    sinks.close()


def test_a_sink_that_fails_is_told_of_once_tried_again_switched_off_and_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Failing(), Recorder()
    with caplog.at_level(logging.WARNING, "rookery"):
        run(Sinks([bad, good]), tmp_path, 10)
    assert good.seen == [("open", None), *range(1, 11)]
    assert bad.calls == 3
    assert bad.closed
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "sink failing failed: ConnectionError: server is down; the run goes on",
        "sink failing failed 3 times in a row and is switched off",
    ]


def test_a_sink_that_recovers_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flaky = Failing(reports={2, 3, 5, 6, 8})
    with caplog.at_level(logging.WARNING, "rookery"):
        run(Sinks([flaky]), tmp_path, 9)
    assert flaky.seen == [("open", None), 1, 4, 7, 9]
    assert len(caplog.records) == 1


def test_a_sink_that_cannot_be_opened_at_first_is_opened_later(tmp_path: Path) -> None:
    late = Failing(reports=set(), opens=2)
    run(Sinks([late]), tmp_path, 3)  # fails in open() and before the first report, works before the second
    assert late.seen == [("open", None), 2, 3]
    never = Failing(reports=set(), opens=100)
    run(Sinks([never]), tmp_path, 10)
    assert never.opens == 97
    assert not never.closed


def test_ctrl_c_in_a_sink_is_not_swallowed(tmp_path: Path) -> None:
    class Interrupted(Recorder):
        def report(self, record: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    sinks = Sinks([Interrupted()])
    sinks.open(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        sinks.report({"steps": 1})


def test_the_state_of_the_sinks_rolls_the_metrics_back(tmp_path: Path) -> None:
    sinks = Sinks([JsonLines(), Recorder()])
    sinks.open(tmp_path)
    sinks.report({"steps": 1})
    state = sinks.state()
    assert state == {"jsonl": {"bytes": 12}}
    sinks.report({"steps": 2})
    sinks.close()
    resumed = Sinks([JsonLines(), Recorder()])
    resumed.open(tmp_path, 1)
    resumed.restore(state)
    resumed.close()
    assert lines_of(tmp_path) == [{"steps": 1}]


def test_a_slow_sink_in_the_background_neither_blocks_nor_is_waited_for_longer_than_its_grace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    class Stuck(Recorder):
        name = "stuck"

        def report(self, record: dict[str, Any]) -> None:
            gate.wait(30)
            super().report(record)

    stuck = Stuck()
    background = Background(stuck, size=4, grace=0.2)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "rookery"):
        run(Sinks([background]), tmp_path, 50)
    assert time.monotonic() - started < 5.0  # 30 s if anyone had waited
    gate.set()
    assert background.dropped >= 45
    assert "slower than the reports" in caplog.text
    assert "did not finish within 0.2 s" in caplog.text


def test_a_background_sink_gets_everything_in_order_and_its_errors_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = Recorder(), Failing()
    with caplog.at_level(logging.WARNING, "rookery"):
        run(Sinks([Background(good), Background(bad)]), tmp_path, 20)
    assert good.seen == [("open", None), *range(1, 21)]
    assert good.closed
    assert [r.getMessage() for r in caplog.records if "server is down" in r.getMessage()] == [
        "sink failing failed: ConnectionError: server is down; the run goes on"
    ]


# --- a sink of one's own ---


class OnlyReports(Sink):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def report(self, record: dict[str, Any]) -> None:
        self.seen.append(record["steps"])


def test_a_sink_that_only_reports_works_from_the_first_report_to_a_resumed_run(tmp_path: Path) -> None:
    sink = OnlyReports()
    sinks = Sinks([sink])
    sinks.open(tmp_path)
    sinks.report({"steps": 1})
    assert sinks.state() == {}  # nothing of it is kept in checkpoints
    assert sinks.ticks() == []  # nothing is called after every round
    sinks.restore({"OnlyReports": {"from": "another version"}})
    sinks.note("a line")
    with sinks.busy("compiling") as say:
        say("compiled")
    sinks.report({"steps": 2})
    sinks.close()
    sinks.close()
    assert sink.seen == [1, 2]


def test_an_experiment_takes_a_sink_that_only_reports(tmp_path: Path) -> None:
    sink, words = OnlyReports(), ["train.max_steps=64", "algo.rollout=16", "env.num=2", "eval.every_steps=0"]
    words += [
        "model.hidden=[8]",
        "log.every_steps=32",
        "algo.minibatches=1",
        "learning.mode=eager",
        "eval.episodes=1",
        "eval.num=1",
    ]
    Experiment(algo="ppo", env="CartPole-v1", overrides=words, sinks=[sink], out=tmp_path / "run").train()
    assert sink.seen[-1] == 64
    assert 32 in sink.seen


class HalfOld:
    """As sinks could be written before they had a base."""

    def open(self, folder: Path, resume_step: int | None) -> None: ...
    def report(self, record: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(("given", "called"), [(HalfOld(), "an object of HalfOld"), (JsonLines, "the class JsonLines")])
def test_what_is_no_sink_is_refused_before_anything_starts_and_the_base_is_named(given: Any, called: str) -> None:
    said = rf"{called} is no sink. Inherit rookery\.run\.report\.sinks\.Sink and override what you need of .*report"
    with pytest.raises(UsageError, match=said):
        Sinks([given])
    with pytest.raises(UsageError, match=said):
        Experiment(algo="ppo", env="CartPole-v1", sinks=[given])


def test_a_name_in_the_config_that_stands_for_no_sink_is_refused() -> None:
    registry.register("sink", "half-old", HalfOld)
    try:
        config = load_config(algo="ppo", env="CartPole-v1", overrides=["log.sinks=[half-old]"])
        with pytest.raises(
            UsageError, match=r"log\.sinks: 'half-old' is the class HalfOld, which is no class of sinks"
        ):
            make_sink("half-old", config)
        assert isinstance(make_sink("jsonl", config), JsonLines)  # the default of from_config
        assert isinstance(make_sink("tensorboard", config), Background)
    finally:
        registry.unregister("sink", "half-old")


def test_a_tick_a_note_or_a_busy_that_fails_never_stops_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Nervous(Recorder):
        def tick(self, steps: int) -> None:
            raise ConnectionError("tick")

        def note(self, text: str) -> None:
            raise ConnectionError("note")

    nervous, good = Nervous(), Recorder()
    sinks = Sinks([nervous, good])
    sinks.open(tmp_path)
    with caplog.at_level(logging.WARNING, "rookery"), sinks.busy("compiling") as say:
        say("compiled")
        sinks.report({"steps": 1})
        (tick,) = sinks.ticks()
        for step in range(5):
            tick(step)
    assert nervous.seen == good.seen == [("open", None), 1]
    assert len(caplog.records) == 2  # the first failure, and that it is switched off
    sinks.report({"steps": 2})
    assert nervous.seen[-1] == 1


# --- console ---

RECORD = {
    "steps": 1000, "updates": 250, "episodes": 9, "episode/return_mean": 21.5, "eval/return_mean": 30.0,
    "q/loss": 0.125, "knob/epsilon": 0.5,
    "time/steps_per_second": 500.0, "time/env": 0.25, "time/update": 0.75,
}  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_there_is_one_plain_line_per_two_seconds_and_always_the_last(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(10_000, stream=stream, now=clock)
    console.open(tmp_path, None)
    for i in range(33):  # 4 s of reports, eight per second
        console.report(RECORD | {"steps": 100 * i})
        clock.now += LINE_SECONDS / 16
    console.report(RECORD | {"steps": 5000})
    console.close()
    lines = stream.getvalue().splitlines()
    assert [int(line.split("/")[0]) for line in lines] == [0, 1600, 3200, 5000]
    assert len({len(line) for line in lines}) == 1  # aligned
    assert all(word in lines[-1] for word in ("return", "21.5", "eval", "30", "q/loss", "0.125"))
    assert "\x1b" not in stream.getvalue()


def test_a_knob_is_shown_from_its_first_change_on(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(10_000, stream=stream, now=clock)
    console.open(tmp_path, None)
    for epsilon in (0.5, 0.5, 0.4):
        console.report(RECORD | {"knob/epsilon": epsilon, "knob/lr": 0.001})
        clock.now += LINE_SECONDS
    lines = stream.getvalue().splitlines()
    assert ["epsilon" in line for line in lines] == [False, False, True]
    assert "lr" not in stream.getvalue()


def test_between_two_reports_the_numbers_are_those_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    console, stream = live_console(80, clock, monkeypatch)
    console.open(tmp_path, None)
    returns = iter([1.0, 37.25])
    console.watch(lambda: {"episode/return_mean": next(returns)})
    console.report(RECORD)  # a report is shown as it stands at the moment of the picture
    clock.now += 1
    stream.truncate(0)
    console.tick(1500)
    assert "37.25" in stream.getvalue()
    assert "1 500 / 10 000 steps" in stream.getvalue()


def test_in_a_dumb_terminal_there_are_lines_and_no_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    console = Console(10_000, stream=stream)
    console.open(tmp_path, None)
    console.report(RECORD)
    console.close()
    assert stream.getvalue().startswith(" 1000/10000 steps")
    assert "\x1b" not in stream.getvalue()


def test_a_sparkline_rises_with_its_numbers_and_forgets_none() -> None:
    line = Sparkline()
    for value in range(8):
        line.add(value)
    assert line.drawn(80) == "▁▂▃▄▅▆▇█"
    assert line.drawn(2) == "▁█"  # 1.5 and 5.5
    assert line.range() == (0, 7)
    line.add(math.nan)
    assert len(line) == 8
    for value in range(8, 10_000):
        line.add(value)
    assert len(line) <= 512
    assert line.values()[0] == 15.5  # the mean of 0 … 31
    assert line.range()[1] == 9991.5  # the mean of 9984 … 9999, which is not complete yet
    flat = Sparkline()
    flat.add(3.0)
    flat.add(3.0)
    assert flat.drawn(10) == "▁▁"


def test_in_a_notebook_the_output_of_the_cell_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython's display is a stand-in here: what it must be called with is shown."""
    shown: list[tuple[str, dict[str, str]]] = []

    class ZMQInteractiveShell: ...

    class Handle:
        def update(self, content: dict[str, str], raw: bool) -> None:
            shown.append(("update", content))

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(("display", content))
        return Handle()

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, module.display = ZMQInteractiveShell, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    clock = Clock()
    console = Console(10_000, now=clock)
    console.open(tmp_path, None)
    for steps in (1000, 2000):
        console.report(RECORD | {"steps": steps})
        clock.now += 1
    console.close()
    assert [kind for kind, _ in shown][:2] == ["display", "update"]
    assert "2 000 / 10 000 steps" in shown[1][1]["text/plain"]
    assert shown[1][1]["text/html"].startswith("<pre")
    assert "2 000 / 10 000 steps" in shown[1][1]["text/html"]


def live_console(width: int, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    screen = RichConsole(file=stream, force_terminal=True, width=width, height=10, _environ={})
    console = Console(10_000, now=clock)
    monkeypatch.setattr(console, "_screen", lambda: screen)
    return console, stream


@pytest.mark.parametrize("width", [1, 2, 7, 20, 80, 300])
def test_the_live_view_survives_every_width_and_gives_the_terminal_back(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sys.stdout, sys.stderr
    clock = Clock()
    console, stream = live_console(width, clock, monkeypatch)
    console.open(tmp_path, None)
    console.tick(0)
    clock.now += 1
    console.report(RECORD)
    clock.now += 1
    console.report(RECORD | {"steps": 20_000, "time/env": math.nan if width == 80 else 0.5})  # beyond the end
    console.close()
    assert (sys.stdout, sys.stderr) == before
    if width == 300:
        text = stream.getvalue()
        assert all(
            word in text
            for word in ("1 000 / 10 000 steps", "10 %", "21.5", "q/loss", "env 25 %", "update 75 %", "left")
        )


def test_the_live_view_draws_at_most_four_times_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    console, _ = live_console(80, clock, monkeypatch)
    drawn = []
    picture = console.picture
    monkeypatch.setattr(console, "picture", lambda: drawn.append(clock.now) or picture())
    console.open(tmp_path, 500)
    for step in range(1000):
        console.tick(step)
        clock.now += 0.01  # 10 s
    console.close()
    assert 30 <= len(drawn) <= 41
    assert min(b - a for a, b in itertools.pairwise(drawn)) >= REFRESH_SECONDS


def test_a_closed_pipe_stops_the_lines_and_not_the_run(tmp_path: Path) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    clock = Clock()
    console = Console(stream=Gone(), now=clock)
    console.open(tmp_path, None)
    for _ in range(5):
        console.report(RECORD)
        clock.now += 10
    console.close()


def test_the_closing_screen_shows_the_result() -> None:
    stream = io.StringIO()
    summary = {
        "status": "finished", "reason": "train.max_steps=50000 reached", "steps": 50_000, "updates": 12_000,
        "episodes": 300, "return_mean": None,
        "eval": {"mean": 499.5, "std": 0.5, "returns": []}, "exact": "the env is opaque",
        "time": {"wall_seconds": 3725.0},
    }  # fmt: skip
    Console(stream=stream).finish(summary)
    text = stream.getvalue()
    assert all(
        word in text
        for word in ("finished (train.max_steps", "50 000", "499.5 ± 0.5", "approximate: the env is opaque", "1:02:05")
    )
    assert "return" not in text
    Console(stream=stream).finish({"status": "failed"})


# --- log.txt ---


def test_the_log_file_has_the_level_of_the_config_and_the_console_only_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("rookery.test")
    handlers, level = list(logging.getLogger("rookery").handlers), logging.getLogger("rookery").level
    with TextLog(tmp_path / "log.txt", "INFO"):
        logger.debug("too small")
        logger.info("for the file")
        logger.warning("for both")
    logger.warning("too late")
    text = (tmp_path / "log.txt").read_text()
    assert ["too small" in text, "for the file" in text, "for both" in text, "too late" in text] == [
        False,
        True,
        True,
        False,
    ]
    screen = capsys.readouterr().err
    assert "WARNING: for both\n" in screen
    assert "for the file" not in screen
    assert logging.getLogger("rookery").handlers == handlers
    assert logging.getLogger("rookery").level == level
    with TextLog(tmp_path / "log.txt", "ERROR", console=False):
        logger.warning("not serious enough")
        logger.error("serious")
    text = (tmp_path / "log.txt").read_text()
    assert "for both" in text  # a resumed run adds to the log
    assert "not serious enough" not in text
    assert "serious" in text


def test_a_bad_level_or_place_of_the_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="DEBUG, INFO, WARN or ERROR"):
        TextLog(tmp_path / "log.txt", "LOUD")
    with pytest.raises(UsageError, match="cannot be opened"):
        TextLog(tmp_path / "nowhere" / "log.txt")


def test_a_log_file_that_can_no_longer_be_written_is_given_up_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    monkeypatch.setattr(logs, "open_regular", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
    logger = logging.getLogger("rookery.test")
    with TextLog(tmp_path / "log.txt", "INFO"):
        for _ in range(3):
            logger.info("the disk is full")
    assert capsys.readouterr().err.count("can no longer be written") == 1
