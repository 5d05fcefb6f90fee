"""Says when numba compiles: on a new machine the first kernels take seconds, afterwards they come from its cache.

It stands alone because whoever asks must not import a kernel first.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import event


class _First(event.Listener):
    """Hears of the first compilation."""

    def __init__(self, say: Callable[[], None]):
        self._say = say

    def on_start(self, event: event.Event) -> None:
        say, self._say = self._say, lambda: None
        say()

    def on_end(self, event: event.Event) -> None:
        pass


def at_first_compile(say: Callable[[], None]) -> None:
    """Call `say` when this process compiles its first kernel; never if the cache has them all."""
    event.register("numba:compile", _First(say))
