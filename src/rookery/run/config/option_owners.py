"""Which algorithms have an option: for somebody who gave it to one that has not. They are imported only when somebody
is told."""

from __future__ import annotations

from typing import Any

from rookery.algos.choice import algorithm_of, listed
from rookery.core import registry
from rookery.core.config.yaml import KeyPath
from rookery.data.kinds import NOT_OF_SEQUENCES, kind_of


def owners(path: KeyPath, algo: str) -> str:
    """` It is for a, b or c, not for dqn.` of a key of `algo` or `store`; empty if nobody has it."""
    section, word = path[0], path[-1]
    if section not in ("algo", "store") or len(path) != 2:
        return ""
    able = [name for name in registry.names("algo") if _has(name, section, word)]
    return f" It is for {listed(able)}, not for {algo}." if able else ""


def _has(name: str, section: str, word: str) -> bool:
    algorithm = algorithm_of(name)
    if algorithm is None:
        return False
    if section == "store" and word in NOT_OF_SEQUENCES and algorithm.recurrent == "must":
        return False
    model: Any = algorithm.Config if section == "algo" else kind_of(algorithm).model()
    return word in model.model_fields
