"""Whether somebody looks at torch's operations: a trace, quick acting's recorder, a function transform.

Shorter ways step aside for them.
"""

from __future__ import annotations

import torch

_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack


def watched() -> bool:
    return bool(_modes()) or _transforms() is not None
