"""Arrays that torch will compute with, in memory as torch itself aligns it."""

from __future__ import annotations

import numpy as np
import torch


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """Zeros on a 64-byte boundary.

    Matrix products may round differently on other alignments, and numpy's differ from process to process: a resumed run
    would not be bit for bit the same.
    """
    raw = torch.zeros(max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1), dtype=torch.uint8, device="cpu").numpy()
    return raw[: int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
