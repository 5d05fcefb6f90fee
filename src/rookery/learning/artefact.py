"""A named update as machine code, kept on disk: key → load → call. Building it is in build.py, imported only when needed.

The artefact checks nothing about what it is given; `Learner.run` compares every batch with the signature first.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from operator import is_
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery.core.errors import CompileError
from rookery.learning.key import key_of
from rookery.learning.learner import Outputs
from rookery.learning.words import Traced

log = logging.getLogger("rookery.learning")
FORMAT = 2  # of plan.json
TESTED_TORCH = ("2.13.",)


class Artefact:
    """`take(batch)`, then a call runs one named update of a learner; the learner's tensors change in place."""

    def __init__(self, learner: Any, name: str, batch: dict[str, Any]):
        if learner.cache is None:
            raise CompileError("compiled mode needs a cache folder (learning.cache)")
        self.key = key_of(learner, name, [Traced, FORMAT])
        folder = Path(learner.cache) / self.key
        plan = read_plan(folder)
        self.built = plan is None
        if plan is None:
            from rookery.learning.build import build

            plan = build(learner, name, batch, folder)
        self._run = load(folder / plan["file"])
        self._names, self._arrays = tuple(plan["metrics"]), list(plan["arrays"])
        self._noise = [(kind, torch.zeros(shape, device="cpu")) for kind, shape in plan["noise"]]
        table = learner.tensors | {f"noise{i}": t for i, (_, t) in enumerate(self._noise)}
        self._inputs = [table.get(key) for key in plan["inputs"]]
        self._fields = [
            (i, key.removeprefix("batch.")) for i, key in enumerate(plan["inputs"]) if key.startswith("batch.")
        ]
        self._generator = learner.generator
        self._last: dict[str, Tensor] = {}  # the last batch, which was checked

    def knows(self, batch: dict[str, Any]) -> bool:
        """Whether these are the very tensors of the last batch: a store fills the same ones again and again."""
        last = self._last
        return len(last) == len(batch) and all(map(is_, batch.values(), last.values())) and list(batch) == list(last)

    def take(self, batch: dict[str, Any], flat: dict[str, Tensor]) -> None:
        """Use this batch, which must have been checked, in the next calls; flat: its leaves by path."""
        for i, key in self._fields:
            self._inputs[i] = flat[key]
        # a tensor on numpy's memory, as those of a store are, keeps its size; any other is checked each time
        fixed = flat is batch and not any(t.untyped_storage().resizable() for t in flat.values())
        self._last = dict(batch) if fixed else {}

    def __call__(self) -> Outputs:
        for kind, t in self._noise:
            if kind == "normal":
                t.normal_(generator=self._generator)
            else:
                t.uniform_(generator=self._generator)
        numbers, *arrays = self._run(self._inputs)
        return Outputs(dict(zip(self._arrays, arrays)), self._names, numbers.numpy())

    def check(self, learner: Any, name: str) -> None:
        """No code and no plain number that went into the machine code has changed since."""
        if key_of(learner, name, [Traced, FORMAT]) != self.key:
            raise CompileError(
                f"update {name!r}: code or a plain number that it uses was changed after it was compiled; an eager run would "
                "have noticed, this one cannot. A number that changes during a run must be a knob (a Schedule)."
            )


def read_plan(folder: Path) -> dict[str, Any] | None:
    """The plan of a complete artefact, or None if it must be built (again)."""
    try:
        plan = json.loads((folder / "plan.json").read_text())
        whole = plan["format"] == FORMAT and plan["sha256"] == sha256_of(folder / plan["file"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not whole:
        log.warning("the compiled update in %s is damaged or of another version: it is built again", folder.name)
        return None
    return plan


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load(path: Path) -> Callable[[list[Any]], list[Tensor]]:
    """The raw loader: 0.01 s, where the public `aoti_load_package` imports the compiler for two seconds."""
    try:
        return torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1).run
    except AttributeError:
        return torch._inductor.aoti_load_package(str(path)).loader.run


def unavailable() -> str | None:
    """Why this machine cannot run compiled updates, or None."""
    from rookery.learning.key import compiler

    if not torch.__version__.startswith(TESTED_TORCH):
        return f"torch {torch.__version__} is not a tested version ({', '.join(v + '*' for v in TESTED_TORCH)})"
    if compiler() is None:
        return "no C++ compiler (g++) was found"
    return None
