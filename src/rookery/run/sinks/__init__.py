"""Sinks: where reports go. `Sinks([Console(), JsonLines(), Background(TensorBoard())])`."""

from rookery.run.sinks.fanout import Background, Sinks
from rookery.run.sinks.jsonlines import JsonLines
from rookery.run.sinks.tensorboard import TensorBoard
from rookery.run.sinks.values import Histogram, Image, Record, Sink, Table, Value, Video

__all__ = [
    "Background",
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
