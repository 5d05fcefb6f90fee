"""Two grey screens → one small one: the brighter of each pair of pixels, then the mean over areas.

    out[i, j] = round( Σ_r Σ_c |row r ∩ i| · |column c ∩ j| · max(first, second)[r, c] / (H · W) )

where the screen is cut into h · w equal rectangles and a pixel counts with the share of it that lies in the rectangle.
All sums are of integers, so the result is the same on every machine; halves are rounded up.

It stands alone because it is a kernel: arithmetic on arrays, which knows no emulator.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def shrink(first: np.ndarray, second: np.ndarray, between: np.ndarray, out: np.ndarray) -> None:
    """Fill out [h, w] from two screens [H, W]; `between` int32 [h, W] is room for the means over rows."""
    height, width = first.shape
    rows, columns = out.shape
    for i in range(rows):
        between[i] = 0
        for r in range(i * height // rows, ((i + 1) * height - 1) // rows + 1):
            share = min((r + 1) * rows, (i + 1) * height) - max(r * rows, i * height)
            for c in range(width):
                between[i, c] += np.int32(share) * max(first[r, c], second[r, c])
    total = height * width
    for j in range(columns):
        begin, end = j * width // columns, ((j + 1) * width - 1) // columns + 1
        for i in range(rows):
            mean = np.int64(0)
            for c in range(begin, end):
                share = min((c + 1) * columns, (j + 1) * width) - max(c * columns, j * width)
                mean += share * between[i, c]
            out[i, j] = np.uint8(
                (mean + total // 2) / total
            )  # a float division: exact here, and faster than an integer one
