"""`s` and `b` of an update, as types: what an editor offers, and a type checker knows, inside `update(self, s, b)`.

Networks and knobs have names that only the algorithm knows, so `s.q` and `s.knob.lr` are not listed but allowed.
They stand alone so that an algorithm's file need not import what executes its updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor

from rookery.core.tree import Tree


class Knobs(Protocol):
    """Scheduled numbers of this moment, 0-d tensors by name: `s.knob.lr`."""

    def __getattr__(self, name: str) -> Tensor: ...


class UpdateState(Protocol):
    """`s`: the words of an update (`learning.update_words`); any other attribute is a network to read: `s.q(obs)`."""

    @property
    def knob(self) -> Any:
        """Scheduled numbers (`Knobs`): always inputs, never constants of an artefact."""
        ...

    def minimise(self, name: str, loss: Callable[[Any], Any], by: str | None = None) -> Any:
        """One step down the gradient of `loss(network)`, which gives a value or (value, aux); returns aux, detached.

        `by`: with the moments of another optimiser of this network. The loss and the gradient's norm become metrics.
        """
        ...

    def follow(self, target: str, source: str, tau: float) -> None:
        """target ← (1 − τ) target + τ source."""
        ...

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers of this shape: drawn here when eager, inputs when compiled."""
        ...

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1) of this shape."""
        ...

    def __getattr__(self, name: str) -> Any: ...


class UpdateBatch(Protocol):
    """`b`: rows of a batch by name, `b.obs` or `b["obs"]`. Those of a replay are named here; of a rollout there is what
    `prepare` makes of it (advantage, target, logp, valid …).
    """

    @property
    def obs(self) -> Tree:
        """Observations [N, …]; a dict where the space is one."""
        ...

    @property
    def action(self) -> Tensor:
        """As the policy chose it, [N, …]."""
        ...

    @property
    def reward(self) -> Tensor:
        """[N]; the discounted sum of n_step rewards."""
        ...

    @property
    def next_obs(self) -> Tree:
        """The true successor, also at a time limit."""
        ...

    @property
    def discount(self) -> Tensor:
        """γ^k (1 − terminated), [N]: what multiplies the successor's value."""
        ...

    @property
    def weight(self) -> Tensor:
        """Importance weights of prioritised replay, else 1, [N]."""
        ...

    def __getattr__(self, name: str) -> Any: ...
    def __getitem__(self, name: str, /) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def keys(self) -> Any: ...
