"""Importing torch, numba and gymnasium without searching them for garbage.

Together they make half a million objects that live as long as the process. While they are made, the
collector would visit all of them several times, and once more whenever it looks at its oldest generation:
a sixth of a short run's start.

It stands alone because it is needed before anything large is imported, and so may import only the standard library.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HEAVY = "torch"  # brings nearly all of them


@contextmanager
def lasting() -> Iterator[None]:
    """Inside, the garbage collector rests;
    afterwards it leaves out what there is by then (`gc.unfreeze()` undoes that).

    If torch is imported already, nothing is changed: what the process has made since may be garbage one day.
    """
    if HEAVY in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if HEAVY in sys.modules:
            gc.freeze()
            atexit.register(gc.unfreeze)  # some libraries count their objects at the end, and complain of what is left
        gc.enable()
