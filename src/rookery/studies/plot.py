"""Pictures of learning curves: one panel per task, in it one line with a band per curve.

Needs matplotlib, which is imported late.

Figures are made without pyplot, so no window system is asked for and no global state is changed;
the same curves give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.core.errors import UsageError
from rookery.studies.curves import Curve

COLOURS = ("#1b3a57", "#c8702a", "#3d7f4c", "#8a4a8f", "#5b6670", "#a38a1f", "#2f8f9d", "#b0413e")
GATE = "#b0413e"
KINDS = (".png", ".svg", ".pdf")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "rookery",  # ids in the file are not drawn by chance
    "svg.fonttype": "none",  # text stays text: a tenth of the size
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True)
class Words:
    """What is written at the axes."""

    x: str = "env steps"
    y: str = "eval/return_mean"
    note: str = ""  # kept in the file's metadata, not shown


def draw(panels: Mapping[str, Sequence[Curve]], file: Path, words: Words, columns: int = 3) -> None:
    """Write one picture; the kind is told by the file's ending."""
    if file.suffix not in KINDS:
        raise UsageError(f"cannot draw {file}: expected a name that ends with {', '.join(KINDS)}")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError("drawing needs matplotlib: pip install 'rookery[plot]'") from error
    width = min(len(panels), columns)
    rows = -(-len(panels) // width)
    size = (3.1 * width, 2.3 * rows) if len(panels) > 1 else (4.6, 3.0)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = list(figure.subplots(rows, width, squeeze=False).flat)
        for axis, (title, curves) in zip(axes, panels.items()):
            _panel(axis, title, curves, words)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata=_metadata(file, words.note), facecolor="white", dpi=150)


def _panel(axis: Any, title: str, curves: Sequence[Curve], words: Words) -> None:
    for colour, curve in zip(_endless(len(curves)), curves):
        if curve.runs > 1:
            axis.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
        axis.plot(curve.x, curve.centre, color=colour, linewidth=1.4, label=f"{curve.label} ({curve.runs})")
    for gate in dict.fromkeys(curve.gate for curve in curves if curve.gate is not None):
        axis.axhline(gate, color=GATE, linestyle="--", linewidth=0.9)
    axis.set_title(title, fontsize=8)
    axis.set_xlabel(words.x)
    axis.set_ylabel(words.y)
    axis.xaxis.set_major_formatter(lambda value, _: short(value))
    axis.margins(x=0.01)
    if len(curves) > 1:
        axis.legend(frameon=False, fontsize=7)


def short(value: float) -> str:
    """1500 → 1.5k, 2e6 → 2M."""
    for factor, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g}{sign}"
    return f"{value:g}"


def _endless(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _metadata(file: Path, note: str) -> dict[str, Any]:
    """Without the date, so that the same curves are the same file."""
    if file.suffix == ".svg":
        return {"Date": None, "Description": note}
    return {"Description": note} if file.suffix == ".png" else {"CreationDate": None, "Subject": note}
