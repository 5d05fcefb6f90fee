"""Sinks: where reports go. `Sinks([Console(), JsonLines(), Background(TensorBoard())])`."""

from rookery.run.report.sinks.base import Sink
from rookery.run.report.sinks.csvfile import CsvFile
from rookery.run.report.sinks.fanout import Background, Sinks
from rookery.run.report.sinks.jsonlines import JsonLines
from rookery.run.report.sinks.tensorboard import TensorBoard
from rookery.run.report.sinks.values import Histogram, Image, Record, Table, Value, Video

__all__ = [
    "Background",
    "CsvFile",
    "Histogram",
    "Image",
    "JsonLines",
    "Record",
    "Sink",
    "Sinks",
    "Table",
    "TensorBoard",
    "Value",
    "Video",
]
