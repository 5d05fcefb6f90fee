"""Kinds of stores: what an algorithm names as its `store_kind`,
the section of the config behind it, and how one is made.

Whatever must be known of a store before there is one is a fact of its kind; everything else the store answers itself.
Names of modules only, so that a config can be read without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rookery.core import registry

NOT_OF_SEQUENCES = ("hindsight", "demonstrations", "max_reuse", "max_staleness")  # keys of a replay of single steps


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One row of the table."""

    config: str  # section of the config, as `module:Class`
    builder: str  # function of `StoreNeeds`, likewise
    once: bool  # as of its stores
    stacked: bool  # chunks hold stacked observations: a rollout is read once, so nothing is saved by stacking it later

    def model(self) -> Any:
        """The model of `store:`."""
        return registry.load(self.config)

    def build(self, needs: Any) -> Any:
        """A store for these `StoreNeeds`."""
        return registry.load(self.builder)(needs)


KINDS: dict[str, StoreKind] = {
    "replay": StoreKind(
        "rookery.data.config:ReplayConfig", "rookery.data.build:replay_store", once=False, stacked=False
    ),
    "rollout": StoreKind(
        "rookery.data.config:RolloutConfig", "rookery.data.build:rollout_store", once=True, stacked=True
    ),
}


def kind_of(algorithm: Any) -> StoreKind:
    """What an algorithm (or its class) learns from."""
    return KINDS[algorithm.store_kind]
