"""An artefact in the cache: its plan, its machine code, and whether it may be used.

It is not trusted because it is there: it must lie where only the user writes (cache.py), its plan must be whole and
made for this key on this machine, and the machine code must be the one the plan was made with. Anything else is built
again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery.learning.compiled.cache import PLAN, Cache, distrust, shared
from rookery.learning.compiled.key import circumstances

FORMAT = 4  # of plan.json
CODE = "update.so"
Plan = dict[str, Any]


class Damaged(Exception):
    """What lies in the cache is not a whole artefact for this key on this machine."""


@dataclass(slots=True)
class Held:
    """An artefact that was loaded and is not removed from the cache as long as this lives."""

    plan: Plan
    run: Callable[[list[Any]], list[Tensor]]
    lock: int  # descriptor of plan.json, with a shared lock
    built: bool = False

    def __del__(self) -> None:
        os.close(self.lock)


def hold(place: Cache, key: str) -> Held:
    """Lock, examine and load an artefact.

    FileNotFoundError: there is none; Damaged: there is one that must not be used.
    """
    folder = place.folder / key
    for path in (folder, folder / PLAN, folder / CODE):
        if problem := distrust(path, follow=False):
            raise Damaged(f"({path.name}) {problem}")
    lock = os.open(folder / PLAN, os.O_RDONLY)
    try:
        if not shared(lock):
            raise FileNotFoundError(folder)
        plan = examine(folder, key)
        run = load(folder / CODE)
        with contextlib.suppress(OSError):  # a cache that can only be read: nothing is removed from it either
            os.utime(folder / PLAN)
    except BaseException:
        os.close(lock)
        raise
    return Held(plan, run, lock)


def examine(folder: Path, key: str) -> Plan:
    """The plan of a whole artefact for this key and machine."""
    try:
        plan = json.loads((folder / PLAN).read_text())
        if plan.pop("seal") != seal(plan):
            raise Damaged("has a damaged plan")
        if plan["format"] != FORMAT or plan["key"] != key:
            raise Damaged("has the plan of another update or version")
        if plan["circumstances"] != circumstances():
            raise Damaged("was built on another machine or with other versions")
        if plan["sha256"] != sha256_of(folder / CODE):
            raise Damaged("is damaged")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"is incomplete ({type(error).__name__})") from error
    return plan


def seal(plan: Plan) -> str:
    """A checksum of the plan itself: one changed digit in it would hand the machine code other inputs."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load(path: Path) -> Callable[[list[Any]], list[Tensor]]:
    """The raw runner: 0.01 s, where the public `aoti_load_package` imports the compiler for two seconds and leaves a
    folder behind if the process is killed.
    """
    try:
        return torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1).run
    except RuntimeError as error:
        raise Damaged(f"cannot be loaded ({str(error).strip().splitlines()[0]})") from error
