"""From what a store must know to the store: one function per row of the table in `kinds`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rookery.core.errors import ConfigError
from rookery.core.spec import bytes_of
from rookery.core.system.memory import check_room
from rookery.core.tree import Tree
from rookery.data.kinds import NOT_OF_SEQUENCES
from rookery.data.mixture import Mixture
from rookery.data.recorded.demonstrations import Demonstrations
from rookery.data.replay.hindsight import GoalFunctions
from rookery.data.replay.leaf import stored_spec
from rookery.data.replay.sequences import Window
from rookery.data.replay.store import ReplayStore
from rookery.data.rollout import RolloutStore
from rookery.data.shares import rows_of
from rookery.data.store import Store


@dataclass(frozen=True, slots=True)
class StoreNeeds:
    """What a store must know of the player and the run it is made for."""

    section: Any  # `store:` of the player
    algo: str  # its algorithm's name
    obs_spec: Tree  # of one observation: `stack` of them are what networks see
    action_spec: Tree
    columns: int  # of all collectors together
    collectors: int
    apart: bool  # chunks of different collectors come when they like, so each is a batch of its own
    rows: int  # of a rollout
    gamma: float
    n_step: int
    stack: int
    window: Window | None  # the sequences that are learnt from; None: single steps
    memory: Tree  # spec of one seat's hidden state
    goals: GoalFunctions
    paid: str | None  # part of an observation that tells what each member of a team was paid; None: one reward
    from_env: Callable[..., Any] | None  # env's actions → the policy's
    stream: Callable[[str], np.random.Generator]  # random streams of the player, by name
    total_steps: int | None
    folder: Path | None  # of the run


def rollout_store(needs: StoreNeeds) -> Store:
    _check_paid(needs, "rollouts")
    together, step = 1 if needs.apart else needs.collectors, bytes_of(needs.obs_spec) + bytes_of(needs.action_spec)
    check_room(
        2 * needs.rows * needs.columns * step,  # in the collectors and in the store
        f"rollouts of {needs.rows} rows (algo.rollout) in {needs.columns} columns (env.num × pool.workers) need",
        "Lower algo.rollout or env.num.",
    )
    return RolloutStore(needs.rows, needs.columns // needs.collectors * together, together)


def replay_store(needs: StoreNeeds) -> Store:
    _check_sequences(needs)
    if needs.section.demonstrations is not None:
        _check_paid(needs, "store.demonstrations")
    elif needs.window is not None:
        _check_paid(needs, "sequences")
    section, size = needs.section, needs.section.batch_size
    shown = 0
    if section.demonstrations is not None:
        shown = rows_of(size, section.demonstration_share, ("store.batch_size", "store.demonstration_share"))
    store = ReplayStore(
        section.model_copy(update={"batch_size": size - shown}),
        needs.obs_spec,
        needs.action_spec,
        columns=needs.columns,
        gamma=needs.gamma,
        n_step=needs.n_step,
        rng=needs.stream("store"),
        collectors=needs.collectors,
        window=needs.window,
        extras=None if needs.window is None else {"state": needs.memory},
        stack=needs.stack,
        goals=needs.goals,
        paid=needs.paid,
        total_steps=needs.total_steps,
        scratch=needs.folder,
    )
    if not shown:
        return store
    parts = {"replay": store, "demonstrations": _demonstrations(needs, shown)}
    return Mixture(parts, {"replay": 1 - shown / size, "demonstrations": shown / size})


def _demonstrations(needs: StoreNeeds, rows: int) -> Store:
    return Demonstrations(
        needs.section.demonstrations,
        stored_spec(needs.obs_spec, needs.action_spec),
        rows,
        needs.stream("store/demonstrations"),
        n_step=needs.n_step,
        gamma=needs.gamma,
        from_env=needs.from_env,
        stack=needs.stack,
    )


def _check_paid(needs: StoreNeeds, what: str) -> None:
    """Refuse rewards of each member where only the team's are kept."""
    if needs.paid is not None:
        raise ConfigError(
            f"env.teams says reward=own, one reward per member, but algo.name={needs.algo} learns from {what}, which "
            "hold one per step. Set reward=sum, or learn from a replay of single steps without demonstrations."
        )


def _check_sequences(needs: StoreNeeds) -> None:
    """What sequences cannot be combined with; and a column of the replay must hold at least one whole sequence."""
    window, section = needs.window, needs.section
    if window is None:
        return
    chosen = {f"store.{name}": getattr(section, name) is not None for name in NOT_OF_SEQUENCES}
    chosen["env.stack"] = needs.stack > 1
    for key, is_set in chosen.items():
        if is_set:
            raise ConfigError(
                f"{key} is set, but algo.name={needs.algo} learns from sequences, which cannot have it. Remove {key}."
            )
    length, columns = window.burn_in + window.length, needs.columns
    if section.capacity < length * columns:
        raise ConfigError(
            f"store.capacity={section.capacity} is {section.capacity // columns} steps for each of the {columns} "
            f"seats, but a sequence (algo.burn_in + algo.sequence) has {length}: none would ever be complete. Raise "
            f"store.capacity to at least {length * columns}."
        )
