"""Player: a named policy in a run, with all that it learns with. A run with one agent has one, MAIN, and its metrics have no prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from rookery.acting.actor import Actor, Message
from rookery.acting.frames import repeated
from rookery.acting.initial_priority import Judge
from rookery.acting.players import MAIN
from rookery.algos.base import Algorithm
from rookery.core.chunk import Chunk
from rookery.core.errors import UsageError
from rookery.core.rng import Streams
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree, tree_take
from rookery.data.replay.store import ReplayStore
from rookery.data.store import Store
from rookery.learning.group.leader import Leader
from rookery.learning.learner import Learner
from rookery.run.collect.chunks import apart, decided
from rookery.run.config.resolve import Config

MOST_ROWS = 16  # of a replay's round: more would hardly be faster, and scheduled numbers are set once per round


@dataclass(slots=True)
class Player:
    """One policy and its learning."""

    name: str
    config: Config  # as this player sees it
    streams: Streams
    algo: Algorithm
    learner: Learner
    store: Store | None  # None: it does not learn
    knobs: dict[str, Schedule]
    mode_reason: str
    frame_spec: Tree  # of one observation
    prefix: str = ""  # of its metrics
    knob_values: dict[str, float] = field(default_factory=dict)
    gaps: set[int] = field(
        default_factory=set
    )  # collectors whose next chunk does not follow what the store has of them
    rng: np.random.Generator = field(init=False)  # of the algorithm's `learn`
    _names: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = self.streams.numpy("learn")

    @property
    def rows(self) -> int:
        """Env steps per env and round: a rollout, or as many as an update of a replay waits for, which see the same weights anyway."""
        if self.algo.rows is not None or self.prefix:
            return self.algo.rows or 1
        columns = self.config.env.num * self.config.pool.workers
        return min(max(1, int(1 / (self.config.store.updates_per_step * columns))), MOST_ROWS)

    def actor(self, first: int = 0, columns: int | None = None) -> Actor:
        """An actor on the learner's live weights, for the collector whose first of `columns` columns is `first`."""
        return actor_of(self.algo, self.algo.rule(first, columns), self.learner, self.config.env.stack)

    def knobs_now(self, steps: int) -> dict[str, float]:
        return {name: schedule.at(steps) for name, schedule in self.knobs.items()}

    def message(self, steps: int) -> Message:
        """Scheduled numbers for learner and actors, at this step."""
        self.knob_values = self.knobs_now(steps)
        self.learner.set_knobs(self.knob_values)
        self.learner.resample()
        if self.prefix and isinstance(self.store, ReplayStore):
            self.store.steps = steps  # its rows are not the env's steps
        return Message(self.learner.updates, self.knob_values)

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Its metrics in the run's report; the same object every time, as the meters want it."""
        if not self.prefix:
            return names
        if names not in self._names:
            self._names[names] = tuple(self.prefix + name for name in names)
        return self._names[names]

    def take(self, chunk: Chunk) -> None:
        """Into the store; of several players a replay keeps no row in which this one had no turn at all."""
        if self.store is None:
            return
        if chunk.collector in self.gaps and chunk.steps:
            self.gaps.remove(chunk.collector)
            chunk = apart(chunk)
        if self.config.pool.mode == "async" and self.algo.store_kind == "rollout":
            if len(chunk.rows["valid"]) < (self.algo.rows or 1):
                return  # the last one of the run, cut off: it must not be joined to another worker's
            chunk = replace(chunk, collector=0)  # each is a batch of its own
        dense = decided(chunk) if self.prefix and self.algo.store_kind == "replay" else chunk
        if dense is not None:
            self.store.add(dense)

    def decided(self, batch: dict[str, Tree]) -> bool:
        """False for a rollout in which one of several players never had a turn: an update would only follow its old gradients' moments."""
        return not self.prefix or self.algo.store_kind != "rollout" or bool(batch["valid"].any())

    def observe(self, chunk: Chunk) -> None:
        """Normalisers learn the statistics of what was just learnt from, so a rollout is judged as it was acted."""
        if not self.config.model.normalise_obs or self.store is None:
            return
        obs, stack = tree_take(chunk.rows["obs"], chunk.rows["valid"]), self.config.env.stack
        if stack > 1 and self.algo.store_kind == "replay":
            obs = repeated(obs, self.algo.obs_spec, stack)
        if chunk.steps or not self.prefix:  # one of several players may not have had a turn
            self.learner.observe(obs)

    @property
    def learner_pids(self) -> list[int]:
        """Of processes that learn with this one; they start with the first update."""
        return self.learner.pids if isinstance(self.learner, Leader) else []

    def close(self) -> None:
        """End the processes that learn with this one."""
        if isinstance(self.learner, Leader):
            self.learner.close()

    def metrics(self) -> dict[str, float]:
        found = {f"knob/{name}": value for name, value in self.knob_values.items()}
        if self.store is not None:
            found |= {f"store/{name}": value for name, value in self.store.metrics().items()}
        return {self.prefix + name: value for name, value in found.items()} if self.prefix else found


def actor_of(algo: Algorithm, rule: Any, learner: Learner, stack: int = 1) -> Actor:
    """An actor on the learner's live weights, for observations of `stack` frames."""
    actor = Actor(algo.outputs, rule, learner.eager, learner.device, algo.memory())
    actor.stack = stack
    return actor


def collecting(actor: Actor, config: Config) -> Actor:
    """An actor whose rows go into a store, with what that store wants to be told."""
    priority = getattr(config.store, "priority", None)
    if priority is not None and priority.initial == "actor":
        actor.judge = Judge(actor, config.algo.gamma, getattr(config.algo, "rescale", None))
    return actor


class Players(dict[str, Player]):
    """All players of a run. The only one of an env with one agent speaks for itself: its state and metrics are the run's own."""

    @property
    def single(self) -> bool:
        return not next(iter(self.values())).prefix

    @property
    def main(self) -> Player:
        """The first that learns."""
        return next(player for player in self.values() if player.store is not None)

    @property
    def updates(self) -> int:
        return sum(player.learner.updates for player in self.values())

    def knob_values(self) -> dict[str, Any]:
        return self.main.knob_values if self.single else {name: player.knob_values for name, player in self.items()}

    def learned(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that learns, by name."""
        for player in self.values():
            for name, tensor in player.learner.learned():
                yield player.prefix + name, tensor

    def check(self, deep: bool = False) -> None:
        for player in self.values():
            player.learner.check(deep=deep)

    def counts(self) -> dict[str, int]:
        """Of all stores together."""
        total: dict[str, int] = {}
        for player in self.values():
            for name, n in player.store.counts().items() if player.store is not None else ():
                total[name] = total.get(name, 0) + n
        return total

    def metrics(self) -> dict[str, float]:
        return {name: value for player in self.values() for name, value in player.metrics().items()}

    def modes(self) -> Any:
        """How updates are executed: a word, or one per player."""
        return self.main.learner.mode if self.single else {name: p.learner.mode for name, p in self.items()}

    def weights(self) -> dict[str, Any]:
        """The part of a checkpoint that acting needs."""
        if self.single:
            return {"learner": self.main.learner.weights()}
        return {"players": {name: {"learner": player.learner.weights()} for name, player in self.items()}}

    def set_weights(self, state: dict[str, Any]) -> None:
        """Those of a checkpoint; of several players, those that it knows."""
        if self.single:
            return self.main.learner.set_weights(learner_states(state, several=False)[MAIN])
        known = learner_states(state, several=True)
        if not set(known) & set(self):
            raise UsageError(f"the checkpoint holds the players {', '.join(known)}, but this run has {', '.join(self)}")
        for name in set(known) & set(self):
            self[name].learner.set_weights(known[name])
        return None

    def weights_sha256(self) -> str:
        if self.single:
            return self.main.learner.weights_sha256()
        return hashlib.sha256(" ".join(p.learner.weights_sha256() for p in self.values()).encode()).hexdigest()

    def summary(self) -> dict[str, Any]:
        """What summary.json says of several players."""
        if self.single:
            return {}
        told = {
            name: {
                "algo": player.algo.name,
                "train": player.store is not None,
                "updates": player.learner.updates,
                "weights_sha256": player.learner.weights_sha256(),
            }
            for name, player in self.items()
        }
        return {"players": told}

    def state(self) -> dict[str, Any]:
        """Of several players."""
        return {
            name: {"learner": player.learner.state()}
            | ({} if player.store is None else {"store": player.store.state()})
            for name, player in self.items()
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, player in self.items():
            player.learner.restore(state[name]["learner"])
            if player.store is not None:
                player.store.restore(state[name]["store"])


def learner_states(state: dict[str, Any], several: bool) -> dict[str, Any]:
    """player → what a checkpoint holds of its learner."""
    if several and "players" not in state:
        raise UsageError("the checkpoint is that of a run with one agent, this run has several players")
    if not several and "players" in state:
        raise UsageError(f"the checkpoint holds the players {', '.join(state['players'])}, this run has one agent")
    return {name: part["learner"] for name, part in state["players"].items()} if several else {MAIN: state["learner"]}
