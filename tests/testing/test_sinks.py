"""Every sink keeps the contract of sinks."""

from __future__ import annotations

import csv
import io
import json
import math
import os

import pytest

from rookery.run.report.sinks import Background, CsvFile, JsonLines, Sink, TensorBoard
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


class TestCsv(SinkContract):
    def make(self):
        return CsvFile()

    def written(self, folder):
        return [int(row["steps"]) for row in rows_of(folder)]

    def test_a_metric_that_comes_later_gets_a_column_of_its_own(self, tmp_path):
        sink = self.make()
        sink.open(tmp_path, None)
        for record in (
            {"steps": 1, "a": 0.5},
            {"steps": 2, "b": "two, or\nthree"},
            {"steps": 3, "a": math.nan, "b": 1},
        ):
            sink.report(record)
        sink.close()
        assert rows_of(tmp_path) == [
            {"steps": "1", "a": "0.5", "b": ""},
            {"steps": "2", "a": "", "b": "two, or\nthree"},
            {"steps": "3", "a": "", "b": "1"},
        ]


def rows_of(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


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


def test_half_a_row_of_csv_does_not_stay_when_the_disk_is_full(tmp_path, monkeypatch):
    sink = CsvFile()
    sink.open(tmp_path, None)
    sink.report({"steps": 1, "x": 2.5})
    real = io.FileIO.write

    class Full(io.FileIO):
        def write(self, data):
            real(self, data[:2])
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda descriptor, mode, buffering: Full(descriptor, mode))
        with pytest.raises(OSError, match="No space"):
            sink.report({"steps": 2, "x": 3.5})
    sink.report({"steps": 3, "x": 4.5})
    assert (tmp_path / "metrics.csv").read_text().split() == ["steps,x", "1,2.5", "3,4.5"]
