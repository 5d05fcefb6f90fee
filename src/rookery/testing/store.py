"""What the loop relies on in a store: it says when learning may happen, hands out what was stored with its true
successor, and goes on exactly.

    from rookery.testing.store import StoreContract

    class TestMyStore(StoreContract):
        min_fill, updates_per_step = 20, 0.5  # None: readiness is not checked

        def make(self, rng):  # for observations of `obs_spec`, actions of `action_spec`, `columns` columns of one
                              collector
            return MyStore(self.obs_spec, self.action_spec, self.columns, gamma=self.gamma, rng=rng)

What it is fed with: `rookery.testing.numbered_steps`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

import numpy as np
import torch

from rookery.core.tree import Tree, leaves, tree_map
from rookery.data.store import Store
from rookery.testing.comparing import assert_same, through_checkpoint
from rookery.testing.numbered_steps import CHOICE, HOLE, NUMBER, Fact, Steps

ENDLESS = 1000  # batches in a row from a handful of new steps


@dataclass(frozen=True, slots=True)
class Drawn:
    """One row of a batch: from `obs`, over one step or several, to `successor`."""

    obs: int
    action: int
    reward: float
    successor: int
    discount: float | None = None  # None: the batch has none
    terminated: bool | None = None


class StoreContract:
    """Inherit it, define `make`; the other members are for stores that need something else."""

    obs_spec: Tree = NUMBER
    action_spec: Tree = CHOICE
    columns = 3
    gamma = 0.5
    extras: dict[str, Tree] = {}  # further fields of a row, such as the state of a memory
    rows = 5  # of a chunk
    chunks = 24  # added in the longer tests: more than the store keeps
    rewards_stay = True  # false: the store computes rewards anew
    min_fill: int | None = None
    updates_per_step = 1.0

    def make(self, rng: np.random.Generator) -> Store:
        """A new, empty store that draws from `rng`."""
        raise TypeError(f"{type(self).__name__} must define make(self, rng), which returns a new Store")

    def drawn(self, batch: dict[str, Tree]) -> list[Drawn]:
        """The rows of a batch. Knows transitions [N], sequences [T, B] with `valid`, and rollouts [T, B] with
        `final_at`."""
        return rollout_rows(batch) if "final_at" in batch else transition_rows(batch)

    # --- what must hold ---

    def test_an_empty_store_is_not_ready(self) -> None:
        store = self._new()[0]
        assert store.size == 0
        assert not store.ready(), "a store without a step says that it is ready"

    def test_updates_are_granted_after_min_fill_and_at_the_promised_ratio(self) -> None:
        if self.min_fill is None:
            raise SkipTest("min_fill = None: this store promises no ratio")
        store, steps, inserted, updates = *self._new()[:2], 0, 0
        for _ in range(self.chunks):
            chunk = steps.chunk(self.rows)
            store.add(chunk)
            inserted += chunk.steps
            granted = math.floor(max(0, inserted - self.min_fill) * self.updates_per_step + 1e-9)
            while store.ready() and updates <= granted:
                store.sample()
                updates += 1
            assert updates == granted, f"{inserted} steps grant {granted} updates, the store granted {updates}"
        assert updates > 0, f"{inserted} steps granted no update: set min_fill lower or chunks higher"

    def test_what_is_drawn_was_stored_and_has_its_true_successor(self) -> None:
        seen, facts = self._play()
        assert seen, f"{self.chunks} chunks of {self.rows} rows gave no batch"
        for row in seen:
            self.check(row, facts)

    def test_holes_are_never_drawn(self) -> None:
        seen, _ = self._play(holes=0.6)
        assert seen
        assert all(row.action != HOLE for row in seen), "a row in which nothing was decided was drawn"

    def test_the_arrays_of_a_chunk_may_be_used_again(self) -> None:
        seen, facts = self._play(spoil=True)
        for row in seen:
            self.check(row, facts)

    def test_a_restored_store_goes_on_to_the_bit(self) -> None:
        store, steps, rng = self._new()
        for _ in range(self.chunks // 2):
            store.add(steps.chunk(self.rows))
            self._drain(store)
        other_rng = np.random.default_rng(99)
        other = self.make(other_rng)
        other.restore(through_checkpoint(store.state()))
        other_rng.bit_generator.state = rng.bit_generator.state  # the run owns the generator, not the store
        assert other.size == store.size
        for _ in range(self.chunks // 2):
            chunk = steps.chunk(self.rows)
            for one in (store, other):
                one.add(chunk)
            assert_same(
                self._drain(store), self._drain(other), "batches of a store and of the one restored from its state"
            )
            assert_same(store.metrics(), other.metrics(), "metrics of a store and of the one restored from its state")

    def test_taking_its_state_changes_nothing(self) -> None:
        (store, steps, _), (other, same_steps, _) = self._new(), self._new()
        for _ in range(self.chunks // 2):
            store.add(steps.chunk(self.rows))
            other.add(same_steps.chunk(self.rows))
            through_checkpoint(other.state())
            assert_same(
                self._drain(store),
                self._drain(other),
                "batches of a store whose state is taken and of one whose is not",
            )

    def test_metrics_are_finite_and_counts_only_grow(self) -> None:
        store, steps, _ = self._new()
        before: dict[str, int] = {}
        for _ in range(self.chunks):
            store.add(steps.chunk(self.rows))
            self._drain(store)
            metrics, counts = store.metrics(), store.counts()
            wrong = {name: value for name, value in metrics.items() if not math.isfinite(value)}
            assert not wrong, f"metrics are not finite: {wrong}"
            assert all(counts[name] >= value for name, value in before.items()), f"{before} fell to {counts}"
            before = counts
        assert {"size"} <= set(metrics), f"metrics tell no size: {list(metrics)}"

    # --- how it is looked at ---

    def check(self, row: Drawn, facts: dict[int, Fact]) -> None:
        """One row that was drawn is what was stored."""
        assert row.obs in facts, f"observation {row.obs} was drawn, on which nobody acted"
        path = [facts.get(number) for number in range(row.obs, row.successor)]
        assert path, f"the successor of {row.obs} is said to be {row.successor}"
        assert None not in path, f"from {row.obs} to {row.successor} an episode ends: its successor is another"
        known = [fact for fact in path if fact is not None]
        assert not any(fact.terminated or fact.truncated for fact in known[:-1]), (
            f"{row.obs} to {row.successor}: across an end"
        )
        assert row.action == known[0].action, f"the action on {row.obs} was {known[0].action}, not {row.action}"
        if not self.rewards_stay:
            return
        total = sum(self.gamma**k * fact.reward for k, fact in enumerate(known))
        assert math.isclose(row.reward, total, abs_tol=1e-4), f"the reward of {row.obs} is {row.reward}, it was {total}"
        if row.terminated is not None:
            assert row.terminated == known[-1].terminated, f"terminated of {row.obs}"
        if row.discount is not None:
            wanted = 0.0 if known[-1].terminated else self.gamma ** len(known)
            assert math.isclose(row.discount, wanted, abs_tol=1e-6), (
                f"the discount of {row.obs} is {row.discount}, not {wanted}"
            )

    def feedback(self, batch: dict[str, Tree]) -> dict[str, Any]:
        """What an update answers: a positive priority per row, or per sequence of [T, B]."""
        numbers = number_of(batch["obs"])
        return {"priority": torch.from_numpy(np.abs(numbers[0] if numbers.ndim == 2 else numbers) % 7 + 0.5)}

    def _new(self, holes: float = 0.2) -> tuple[Store, Steps, np.random.Generator]:
        rng = np.random.default_rng(11)
        return self.make(rng), Steps(self.obs_spec, self.columns, extras=self.extras, holes=holes), rng

    def _play(self, holes: float = 0.2, spoil: bool = False) -> tuple[list[Drawn], dict[int, Fact]]:
        store, steps, _ = self._new(holes)
        seen: list[Drawn] = []
        for number in range(self.chunks):
            steps.version = number
            chunk = steps.chunk(self.rows)
            store.add(chunk)
            for array in leaves(chunk.rows) + leaves(chunk.last_obs) + leaves(chunk.final_obs) if spoil else ():
                array[...] = 1  # as a collector does that fills the same arrays again
            for batch in self._drain(store):
                seen += self.drawn(batch)
        return seen, steps.facts

    def _drain(self, store: Store) -> list[dict[str, Tree]]:
        """Copies of all batches that are due, each answered as by an update."""
        batches: list[dict[str, Tree]] = []
        while store.ready():
            assert len(batches) < ENDLESS, f"a store with {store.size} steps is still ready after {ENDLESS} batches"
            batch, keys = store.sample()
            batches.append(tree_map(torch.clone, batch))
            if keys is not None:
                store.feedback(keys, self.feedback(batch))
        return batches


def number_of(obs: Tree) -> np.ndarray:
    """The numbers of observations, whatever their leading shape: the first element of the first leaf, of a goal env
    that of `observation`."""
    leaf = obs["observation"] if isinstance(obs, dict) and "observation" in obs else leaves(obs)[0]
    return np.asarray(leaf)[..., 0]


def transition_rows(batch: dict[str, Tree]) -> list[Drawn]:
    """Rows of a replay: single transitions, or sequences whose padding is not valid."""
    numbers, successors = number_of(batch["obs"]), number_of(batch["next_obs"])
    arrays = {name: np.asarray(part) for name, part in batch.items() if name not in ("obs", "next_obs", "state")}
    valid = arrays.get("valid", np.ones(numbers.shape, bool))
    rows = []
    for at in zip(*np.nonzero(valid)):
        parts: dict[str, Any] = {"discount": float(arrays["discount"][at])} if "discount" in arrays else {}
        parts |= {"terminated": bool(arrays["terminated"][at])} if "terminated" in arrays else {}
        row = int(numbers[at]), int(arrays["action"][at]), float(arrays["reward"][at]), int(successors[at])
        rows.append(Drawn(*row, **parts))
    return rows


def rollout_rows(batch: dict[str, Tree]) -> list[Drawn]:
    """Rows of a rollout, whose successors are the next valid row, the final observation, or what is acted on next."""
    numbers, last = number_of(batch["obs"]), number_of(batch["last_obs"])
    valid, action, reward, terminated = (
        np.asarray(batch[name]) for name in ("valid", "action", "reward", "terminated")
    )
    finals = {tuple(at): int(number) for at, number in zip(batch["final_at"].tolist(), number_of(batch["final_obs"]))}
    rows = []
    for b in range(valid.shape[1]):
        own = np.flatnonzero(valid[:, b]).tolist()
        for t, after in zip(own, [*own[1:], None]):
            following = int(last[b]) if after is None else int(numbers[after, b])
            row = int(numbers[t, b]), int(action[t, b]), float(reward[t, b]), finals.get((t, b), following)
            rows.append(Drawn(*row, terminated=bool(terminated[t, b])))
    return rows
