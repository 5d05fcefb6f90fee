"""Config: the validated sections of a run, and each player's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rookery.core import registry
from rookery.core.config.layers import Merged
from rookery.core.errors import ConfigError, UsageError
from rookery.data.kinds import StoreKind, kind_of
from rookery.run.config.players import PlayerConfig, SeatWeights, dumped_seats

if TYPE_CHECKING:
    from rookery.algos.base import Algorithm
    from rookery.envs.config import EnvConfig
    from rookery.nets.config import ModelConfig
    from rookery.run.config import sections as run_config

_RUN = "rookery.run.config.sections:"
SECTIONS: dict[str, str] = {  # section → its model; those of algo and store depend on the algorithm
    "algo": "",
    "env": "rookery.envs.config:EnvConfig",
    "model": "rookery.nets.config:ModelConfig",
    "store": "",
    "train": f"{_RUN}TrainConfig",
    "eval": f"{_RUN}EvalConfig",
    "checkpoint": f"{_RUN}CheckpointConfig",
    "log": f"{_RUN}LogConfig",
    "run": f"{_RUN}RunConfig",
    "learning": f"{_RUN}LearningConfig",
    "pool": f"{_RUN}PoolConfig",
    "sentinel": f"{_RUN}SentinelConfig",
}
OTHERS = ("import", "players", "seats")  # top-level keys that are no sections


@dataclass(frozen=True, slots=True)
class Config:
    """A validated config. Made by `load_config`; equal configs have equal trees, wherever their values came from."""

    algo: Any  # Config of the algorithm
    env: EnvConfig
    model: ModelConfig
    store: Any  # ReplayConfig or RolloutConfig, as the algorithm's store_kind says
    train: run_config.TrainConfig
    eval: run_config.EvalConfig
    checkpoint: run_config.CheckpointConfig
    log: run_config.LogConfig
    run: run_config.RunConfig
    learning: run_config.LearningConfig
    pool: run_config.PoolConfig
    sentinel: run_config.SentinelConfig
    imports: tuple[str, ...] = ()
    players: dict[str, PlayerConfig] = field(default_factory=dict)  # at least one; `main` if none is written
    seats: SeatWeights | None = None  # None: the only player sits everywhere
    merged: Merged = field(default_factory=lambda: Merged(()), compare=False, repr=False)

    @property
    def algorithm(self) -> type[Algorithm]:
        """The class behind algo.name."""
        return registry.lookup("algo", self.algo.name)

    def dump(self) -> dict[str, Any]:
        """The whole tree as plain values; loading it again gives an equal Config."""
        sections = {name: getattr(self, name).model_dump(mode="json") for name in SECTIONS}
        tree = {"import": list(self.imports), **sections}
        if written := {name: player.dump() for name, player in self.players.items() if player.prefix}:
            tree["players"] = written
        return tree if self.seats is None else tree | {"seats": dumped_seats(self.seats)}

    @property
    def views(self) -> dict[str, Config]:
        """player → the config as it sees it."""
        return {name: self.of(name) for name in self.players}

    @property
    def store_kind(self) -> StoreKind:
        """What it learns from."""
        return kind_of(self.algorithm)

    @property
    def learns(self) -> str:
        """`dqn`, or of several players `dqn+ppo`; the first word of a run's folder."""
        return "+".join(dict.fromkeys(player.algo.name for player in self.players.values()))

    def of(self, player: str) -> Config:
        """The config as one player sees it: algo, model and store are its own."""
        own = self.players[player]
        return replace(self, algo=own.algo, model=own.model, store=own.store)

    def with_player(
        self, name: str, sections: Mapping[str, Any], seats: Mapping[str, float], agents: Iterable[str]
    ) -> dict[str, Any]:
        """The tree with one more player, who may sit for some of the env's agents."""
        if not any(player.prefix for player in self.players.values()):
            raise UsageError("a player is added beside those that `players:` names, but this run names none")
        if name in self.players:
            raise UsageError(f"there is a player {name!r} already: this run has {', '.join(self.players)}")
        tree = self.dump()
        tree["players"][name] = dict(sections)
        known = dict(self.seats or {agent: {next(iter(self.players)): 1.0} for agent in agents})
        for agent, weight in seats.items():
            known[agent] = {**known.get(agent, {}), name: weight}
        return tree | {"seats": known}

    def provenance(self, key: str) -> str:
        """Where the value of a dotted key came from: `default`, `preset cartpole-ppo`, `file my.yaml, line 3`,
        `command line` …"""
        path = tuple(key.split("."))
        node: Any = self.dump()
        for part in path:
            if not isinstance(node, dict) or part not in node:
                if self.merged.has(path):
                    break
                raise ConfigError(f"unknown key {key!r}.{registry.did_you_mean(key, flat(self.dump()))}")
            node = node[part]
        return self.merged.source(path)

    def sha256(self) -> str:
        """Hash of the tree."""
        return tree_sha256(self.dump())


def tree_sha256(tree: Mapping[str, Any]) -> str:
    """Of a tree of plain values, in any order of its keys."""
    text = json.dumps(tree, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def identity(config: Config) -> dict[str, Any]:
    """What a checkpoint keeps of the config of its run, so that a resumed one can be compared key by key."""
    tree = config.dump()
    return {"config_sha256": tree_sha256(tree), "config": tree}


def diff(a: Config | Mapping[str, Any], b: Config | Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """dotted key → (value in a, value in b), where they differ; a value that one of them lacks is `ABSENT`.

    What is one value here and several keys there, as a number and a schedule, is one pair.
    """
    left, right = (flat(side.dump() if isinstance(side, Config) else side) for side in (a, b))
    keys = dict.fromkeys([*left, *right])
    whole = [key for key in keys if any(other.startswith(f"{key}.") for other in keys)]
    left, right = _joined(left, whole), _joined(right, whole)
    keys = dict.fromkeys([*left, *right])
    return {
        key: (left.get(key, ABSENT), right.get(key, ABSENT))
        for key in keys
        if left.get(key, ABSENT) != right.get(key, ABSENT)
    }


def _joined(values: Mapping[str, Any], whole: Sequence[str]) -> dict[str, Any]:
    """Flat values in which each of the keys `whole` stands for all that is below it."""
    joined = dict(values)
    for key in whole:
        parts = {name: joined.pop(name) for name in values if name.startswith(f"{key}.") and name in joined}
        if parts:
            joined[key] = {name.removeprefix(f"{key}."): value for name, value in parts.items()}
    return joined


ABSENT = "(absent)"


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` → `{"a.b": 1}`; an empty mapping stays a value."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        values |= flat(value, f"{key}.") if isinstance(value, Mapping) and value else {key: value}
    return values
