"""A named update as machine code, kept on disk: key → load → call.

Loading it, and when it is not to be trusted, is in loading.py; building it in build.py, imported only when needed.
The artefact checks nothing about what it is given; `Learner.run` compares every batch with the signature first.
"""

from __future__ import annotations

import logging
import threading
from operator import is_
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery.core.errors import CompileError
from rookery.core.system.portable import stack_limit
from rookery.learning.compiled.cache import Cache, private
from rookery.learning.compiled.changes import in_words
from rookery.learning.compiled.internals import no_export
from rookery.learning.compiled.key import compiler, key_of
from rookery.learning.compiled.loading import FORMAT, Damaged, Held, hold
from rookery.learning.compiled.small_matmul import decompositions
from rookery.learning.update_words import Outputs, Traced

log = logging.getLogger("rookery.learning")
STACK = 4 << 20  # bytes of a stack that small results fit into, whatever their type (stack_buffers.py)
_FILES = ("changes.py", "internals.py", "matmul.h", "matmul.py", "stack_buffers.py")
_TEXTS = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _FILES]
PARTS = [Traced, decompositions, FORMAT, _TEXTS]  # what of us shapes an artefact


class Artefact:
    """`take(batch)`, then a call runs one named update of a learner; the learner's tensors change in place."""

    def __init__(self, learner: Any, name: str, batch: dict[str, Any]):
        if learner.cache is None:
            raise CompileError("compiled mode needs a cache folder (learning.cache)")
        self.key = key_of(learner, name, PARTS)
        self._held = obtain(learner, name, batch, self.key)
        self._run, plan, self.built = self._held.run, self._held.plan, self._held.built
        self.left_out = plan["left_out"]
        if self.left_out and all(self.left_out != other.left_out for other in learner.compiled.values()):
            log.warning("%s", in_words(self.left_out))
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
        numbers, *arrays = self._run(
            self._inputs
        )  # its own (stack_buffers.py): the next call in this thread overwrites them
        return Outputs(dict(zip(self._arrays, map(torch.clone, arrays))), self._names, numbers.numpy().copy())

    def check(self, learner: Any, name: str) -> None:
        """No code and no plain number that went into the machine code has changed since."""
        if key_of(learner, name, PARTS) != self.key:
            raise CompileError(
                f"update {name!r}: code or a plain number that it uses was changed after it was compiled; an eager run "
                "would have noticed, this one cannot. A number that changes during a run must be a knob (a Schedule)."
            )


def obtain(learner: Any, name: str, batch: dict[str, Any], key: str) -> Held:
    """The artefact, from the cache or built: in the cache, or in a private folder if that cannot be written."""
    cache = learner.cache if isinstance(learner.cache, Cache) else Cache(Path(learner.cache))
    place = cache.ready()
    try:
        return hold(place, key)
    except (FileNotFoundError, Damaged):
        pass  # told below, by the one run that builds
    try:
        return _in_turn(place, learner, name, batch, key)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        if place is private():
            raise CompileError(
                f"the temporary folder {place.folder} {problem}: set TMPDIR or learning.cache"
            ) from error
    try:
        return _in_turn(place.replaced(problem), learner, name, batch, key)
    except OSError as error:
        raise CompileError(
            f"neither the cache {place.folder} nor the temporary folder {private().folder.parent} can be written "
            f"({error.strerror or error}): set learning.cache to a folder with room, or learning.mode=eager"
        ) from error


def _in_turn(place: Cache, learner: Any, name: str, batch: dict[str, Any], key: str) -> Held:
    """Build, unless another run is doing it: then wait for it, and after a while build alone."""
    with place.building(key) as turn:
        if not turn.alone:
            text = (
                f"update {name!r} is being compiled by another run: waiting for it, at most {place.wait_seconds:.0f} s"
            )
            log.info("%s", text)
            with learner.busy(text):
                turn.until_alone(place.wait_seconds)
        if not turn.alone:
            place = place.replaced(f"is locked by a build that has not ended after {place.wait_seconds:.0f} s")
        try:
            return hold(place, key)  # built by the one we waited for
        except FileNotFoundError:
            pass
        except Damaged as error:
            log.warning("the compiled update %s %s: it is built again", key, error)
        from rookery.learning.compiled.build import build

        build(learner, name, batch, place, key)
        made = hold(place, key)
    made.built = True
    place.trim()
    return made


def unavailable() -> str | None:
    """Why this machine cannot run compiled updates, or None."""
    if (problem := no_export()) is not None:
        return problem
    if compiler() is None:
        return "no C++ compiler (g++) was found"
    if (room := stack_bytes()) < STACK:
        return f"threads have a stack of {room >> 10} kB, {STACK >> 10} are needed (threading.stack_size, ulimit -s)"
    return None


def stack_bytes() -> int:
    """What a thread that is started now gets."""
    return threading.stack_size() or stack_limit()
