"""Cell: the live view as the output of a notebook's cell, replaced in place.

It stands alone because only here IPython is known.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from rich.console import Console as RichConsole
from rich.console import RenderableType

_WIDTH = 100
_HTML = '<pre style="line-height:1.2">{code}</pre>'


class Cell:
    """What the console needs of rich's `Live`, on IPython's display."""

    def __init__(self) -> None:
        self.console = RichConsole(file=sys.stderr, width=_WIDTH, highlight=False)  # for lines that stay
        self._handle: Any = None

    @staticmethod
    def here() -> bool:
        """Whether this process is the kernel of a notebook."""
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
        return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"

    def update(self, picture: RenderableType, *, refresh: bool = True) -> None:
        from IPython.display import display  # it is there: this is its kernel

        paper = RichConsole(
            file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, color_system="truecolor"
        )
        paper.print(picture)
        text = paper.export_text(clear=False)
        content = {"text/plain": text, "text/html": paper.export_html(inline_styles=True, code_format=_HTML)}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def stop(self) -> None:
        """The last picture stays."""
