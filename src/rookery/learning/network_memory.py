"""Networks that cannot fit into memory are refused before they are made.

It stands alone because it knows torch's way to look at every call, and nothing of learners.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from rookery.core.system.memory import check_networks

_MAKERS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)


class WithinMemory(TorchFunctionMode):
    """Around the making of networks: counts every tensor, whoever makes it, before it is there."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes, self._checked = 0, 1 << 24  # bytes made so far; as much as was known to fit

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS:
            self._count(args, kwargs)
        return func(*args, **kwargs)

    def _count(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        size = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else args)
        self._bytes += math.prod(size) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
        if self._bytes > self._checked:
            check_networks(self._bytes)
            self._checked = self._bytes * 5 // 4  # asking costs more than making a small tensor
