"""Players: named policies in a run, each with all that it learns with. A run whose config names none has one,
`main`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from rookery.acting.actor import Actor, Message
from rookery.acting.frames import repeated
from rookery.acting.policy import Policy
from rookery.algos.base import Algorithm
from rookery.core.chunk import Chunk
from rookery.core.errors import UsageError
from rookery.core.restoring import check_restored, restoring
from rookery.core.rng import Streams
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree, tree_take
from rookery.data.store import Store
from rookery.learning.group.leader import Leader
from rookery.learning.learner import Learner
from rookery.learning.reward_normaliser import RewardNormaliser
from rookery.run.collect.chunks import apart, decided
from rookery.run.config.config import Config

MOST_ROWS = 16  # of a replay's round: more would hardly be faster, and scheduled numbers are set once per round


@dataclass(slots=True)
class Player:
    """One policy and its learning."""

    name: str
    config: Config  # as this player sees it
    streams: Streams
    algo: Algorithm
    learner: Learner
    knobs: dict[str, Schedule]
    mode_reason: str
    frame_spec: Tree  # of one observation; networks see `env.stack` of them
    prefix: str = ""  # of its metrics
    store: Store | None = None  # None: it does not learn
    columns: int = 1  # seats over all collectors
    knob_values: dict[str, float] = field(default_factory=dict)
    gaps: set[int] = field(
        default_factory=set
    )  # collectors whose next chunk does not follow what the store has of them
    rests: bool = False  # it has a store, but does not learn now (`Progress.train`)
    ties: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # (own parameter, that of who shares it)
    rng: np.random.Generator = field(init=False)  # of the algorithm's `learn`
    rewards: RewardNormaliser | None = field(init=False)  # None: rewards are learnt from as they are
    _names: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = self.streams.numpy("learn")
        self.rewards = RewardNormaliser(self.config.algo.gamma) if self.config.algo.normalise_reward else None

    @property
    def rows(self) -> int:
        """Env steps per env and round: a rollout, or as many as an update of a replay waits for, which see the same
        weights anyway."""
        if self.algo.rows is not None:
            return self.algo.rows
        return min(max(1, int(1 / (self.config.store.updates_per_step * self.columns))), MOST_ROWS)

    def actor(self, first: int = 0, columns: int | None = None) -> Actor:
        """An actor on the learner's live weights, for the collector whose first of `columns` columns is `first`."""
        algo, learner = self.algo, self.learner
        actor = Actor(algo.outputs, algo.rule(first, columns), learner.eager, learner.device, algo.memory())
        actor.stack = self.config.env.stack
        return actor

    def policy(self, knobs: Mapping[str, float]) -> PlayerHandle:
        """A callable policy on the live weights."""
        actor = self.actor()
        actor.knobs = knobs
        seed, critic = self.streams.seed_of("policy"), self.algo.expected_return
        handle = PlayerHandle(actor, self.frame_spec, self.algo.action_spec, seed, critic)
        handle.learner = self.learner
        return handle

    def knobs_now(self, steps: int) -> dict[str, float]:
        return {name: schedule.at(steps) for name, schedule in self.knobs.items()}

    def message(self, steps: int) -> Message:
        """Scheduled numbers for learner and actors, at this step."""
        self.knob_values = self.knobs_now(steps)
        self.learner.set_knobs(self.knob_values)
        self.learner.resample()
        return Message(self.learner.updates, self.knob_values)

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Its metrics in the run's report; the same object every time, as the meters want it."""
        if not self.prefix:
            return names
        if names not in self._names:
            self._names[names] = tuple(self.prefix + name for name in names)
        return self._names[names]

    def store_chunk(self, chunk: Chunk) -> None:
        """Into the store, which keeps no row in which this player only waited, unless rollouts must be whole."""
        store = self.store
        if store is None:
            return
        if chunk.collector in self.gaps and chunk.steps:
            self.gaps.remove(chunk.collector)
            chunk = apart(chunk)
        if self.rewards is not None:
            self.rewards.observe(chunk)
        if self.config.pool.mode == "async" and store.once:
            if len(chunk.rows["valid"]) < (self.algo.rows or 1):
                return  # the last one of the run, cut off: it must not be joined to another worker's
            chunk = replace(chunk, collector=0)  # each is a batch of its own
        dense = decided(chunk) if chunk.waits and not store.once else chunk
        if dense is not None:
            store.add(dense)

    def learnt_from(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        """A batch of the store as the algorithm sees it."""
        return batch if self.rewards is None else batch | {"reward": self.rewards.scaled(batch["reward"])}

    @property
    def learning(self) -> Store | None:
        """Its store, if it learns now."""
        return None if self.rests else self.store

    def share(self) -> None:
        """What it has learnt in tied layers is its partners', too."""
        for own, partners in self.ties:
            partners.copy_(own)

    def kept(self) -> dict[str, Any]:
        """What a run that starts from this one takes over."""
        rewards = {} if self.rewards is None else {"rewards": self.rewards.state()}
        return {"learner": self.learner.weights(), **rewards}

    def decided(self, batch: dict[str, Tree]) -> bool:
        """False for a rollout in which the player never had a turn: an update would only follow its old gradients'
        moments."""
        return self.store is None or not self.store.once or bool(batch["valid"].any())

    def observe(self, chunk: Chunk) -> None:
        """Normalisers learn the statistics of what was just learnt from, so a rollout is judged as it was acted."""
        if not self.config.model.normalise_obs or self.store is None or not chunk.steps:
            return
        obs, stack = tree_take(chunk.rows["obs"], chunk.rows["valid"]), self.config.env.stack
        if stack > 1 and not self.config.store_kind.stacked:
            obs = repeated(obs, self.algo.obs_spec, stack)
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
        metrics = {f"knob/{name}": value for name, value in self.knob_values.items()}
        if self.store is not None:
            metrics |= {f"store/{name}": value for name, value in self.store.metrics().items()}
        return {self.prefix + name: value for name, value in metrics.items()} if self.prefix else metrics


class PlayerHandle(Policy):
    """A player from outside: a policy on its live weights, `handle(obs).action`, and these weights.

    A player with memory remembers from call to call of one handle: keep it.
    """

    learner: Learner

    def weights(self) -> dict[str, Any]:
        return self.learner.weights()

    def set_weights(self, weights: dict[str, Any]) -> None:
        self.learner.set_weights(weights)


class Players(dict[str, Player]):
    """All players of a run."""

    @property
    def main(self) -> Player:
        """The first that learns; of players that only act, the first."""
        return next((player for player in self.values() if player.store is not None), next(iter(self.values())))

    @property
    def updates(self) -> int:
        return sum(player.learner.updates for player in self.values())

    def named(self, name: str | None) -> Player:
        """The player of that name; None: the only one."""
        if name is None and len(self) == 1:
            return self.main
        if name is None or name not in self:
            known = ", ".join(repr(known) for known in self)
            raise UsageError(f"there is no player {name!r}: this run has {known}. Name one of them (player=…)")
        return self[name]

    @property
    def hurried(self) -> str | None:
        """What was not done as it should be, for the run is ending."""
        return next((player.learner.hurried for player in self.values() if player.learner.hurried), None)

    def knob_values(self) -> dict[str, dict[str, float]]:
        return {name: player.knob_values for name, player in self.items()}

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

    @property
    def saved_bytes(self) -> int:
        """What their stores take in a checkpoint when they are full."""
        return sum(player.store.saved_bytes for player in self.values() if player.store is not None)

    def modes(self) -> dict[str, str]:
        """player → how its updates are executed."""
        return {name: player.learner.mode for name, player in self.items()}

    def weights(self) -> dict[str, Any]:
        """The part of a checkpoint that acting needs."""
        return {"players": {name: player.kept() for name, player in self.items()}}

    def set_weights(self, state: dict[str, Any]) -> None:
        """Those of a checkpoint, of the players that it knows."""
        known = state["players"]
        if not set(known) & set(self):
            raise UsageError(f"the checkpoint holds the players {', '.join(known)}, but this run has {', '.join(self)}")
        for name in set(known) & set(self):
            self[name].learner.set_weights(known[name]["learner"])
            if (rewards := self[name].rewards) is not None and "rewards" in known[name]:
                rewards.restore(known[name]["rewards"] | {"running": {}})  # its columns begin anew

    def weights_sha256(self) -> str:
        """Of one player its own, of several that of theirs."""
        first, *rest = [player.learner.weights_sha256() for player in self.values()]
        return hashlib.sha256(" ".join([first, *rest]).encode()).hexdigest() if rest else first

    def summary(self) -> dict[str, Any]:
        """What summary.json says of each."""
        return {
            name: {
                "algo": player.algo.name,
                "train": player.store is not None,
                "updates": player.learner.updates,
                "learning_mode": player.learner.mode,
                "weights_sha256": player.learner.weights_sha256(),
            }
            for name, player in self.items()
        }

    def state(self) -> dict[str, Any]:
        return {
            name: {"learner": player.learner.state()}
            | ({} if player.store is None else {"store": player.store.state()})
            | ({} if player.rewards is None else {"rewards": player.rewards.state()})
            for name, player in self.items()
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, player in self.items():
            parts: dict[str, Any] = {"learner": player.learner, "store": player.store, "rewards": player.rewards}
            for part, thing in parts.items():
                if thing is not None:
                    path = f"players/{name}/{part}"
                    with restoring(path):
                        thing.restore(state[name][part])
                        check_restored(state[name][part], thing.state(), path)
