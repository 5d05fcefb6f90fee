"""Every sink keeps the contract of sinks."""

from __future__ import annotations

import io
import json

import pytest

from rookery.run.report.sinks import Background, JsonLines, Sink, TensorBoard
from rookery.run.report.sinks.console import Console
from rookery.testing.sink import SinkContract


def lines(folder):
    return [json.loads(line)["steps"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


class TestBase(SinkContract):
    def make(self):
        return type("Quiet", (Sink,), {})()


class TestConsole(SinkContract):
    def make(self):
        return Console(max_steps=100, stream=io.StringIO())


class TestJsonLines(SinkContract):
    def make(self):
        return JsonLines()

    def written(self, folder):
        return lines(folder)


class TestBackground(SinkContract):
    def make(self):
        return Background(JsonLines(), grace=30.0)

    def written(self, folder):
        return lines(folder)

    def test_a_resumed_run_takes_back_what_came_after_its_checkpoint(self):
        pytest.skip("in the background a state would be that of another moment, so there is none")


@pytest.mark.slow
class TestTensorBoard(SinkContract):
    def make(self):
        return TensorBoard()


@pytest.mark.slow
class TestTensorBoardInTheBackground(SinkContract):
    def make(self):
        return TensorBoard.from_config(None)
