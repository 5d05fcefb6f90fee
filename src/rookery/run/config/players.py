"""`players:` and `seats:` of a config: who learns what, and who sits where.

    players:                                    name → its sections; what it does not say comes from the run's own
      hunter: {algo: {name: dqn, lr: 1e-3}}
      runner: {algo: {name: ppo}, train: false}
    seats:                                      agent → its player, or players with weights
      cat: hunter
      mouse: {runner: 3, hunter: 1}

The run's `algo` is inherited by players with the same `algo.name`, its `store` by those with the same kind of store,
its `model` by all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rookery.core import registry
from rookery.core.chunk import MAIN
from rookery.core.config.check import Checker, Problem
from rookery.core.config.fields import keys_of
from rookery.core.config.layers import Layer, Merged, replacing
from rookery.core.errors import ConfigError
from rookery.data.kinds import kind_of
from rookery.run.config.option_owners import owners

OWN = ("algo", "model", "store")  # sections that a player may have of its own
PLAYERS_SCHEMA: dict[str, Any] = {  # algo and store of a player depend on its own algorithm
    "players": {
        "type": "object",
        "description": "name of a player → its own sections; what it does not say comes from the run's",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                **{name: {"type": "object"} for name in OWN},
                "train": {"type": "boolean", "description": "false: acts, but never learns"},
            },
        },
    },
    "seats": {
        "type": "object",
        "description": "agent → its player, or players with weights, one of whom is drawn for each episode",
        "additionalProperties": {
            "anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"exclusiveMinimum": 0}}]
        },
    },
}
SeatWeights = dict[str, dict[str, float]]  # agent → player → weight


@dataclass(frozen=True, slots=True)
class PlayerConfig:
    """One player's sections, validated by its own algorithm."""

    algo: Any
    model: Any
    store: Any
    train: bool = True  # false: acts, but never learns
    prefix: str = ""  # of its metrics and random streams; empty if `players:` was not written

    def dump(self) -> dict[str, Any]:
        return {name: getattr(self, name).model_dump(mode="json") for name in OWN} | {"train": self.train}


def named_by_players(layers: Sequence[Layer]) -> list[Layer]:
    """A run whose players all say what they learn with needs no algorithm of its own: it is the first player's."""
    tree = Merged(layers).tree
    players, algo = tree.get("players"), tree.get("algo")
    if not isinstance(players, dict) or not players or (isinstance(algo, dict) and "name" in algo):
        return list(layers)
    name, first = next(iter(players.items()))
    own = first.get("algo") if isinstance(first, dict) else None
    if not isinstance(own, dict) or not isinstance(own.get("name"), str):
        return list(layers)
    return [Layer(f"player {name}", {"algo": {"name": own["name"]}}), *layers]


def implied(sections: Mapping[str, Any]) -> dict[str, PlayerConfig]:
    """The one player of a run that names none: the run's own sections are its own."""
    return {MAIN: PlayerConfig(**{name: sections[name] for name in OWN})}


def players_of(layers: Sequence[Layer], merged: Merged, checker: Checker) -> dict[str, PlayerConfig] | None:
    """The players; what is wrong with them is noted in `checker`."""
    raw = merged.tree.get("players")
    if raw is None:
        return None
    if not isinstance(raw, dict) or not raw:
        checker.add(("players",), f"expected a mapping: name → algo, model, store and train of a player, got {raw!r}")
        return None
    players: dict[str, PlayerConfig] = {}
    for name, part in raw.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            checker.add(("players", name), "expected letters, digits and _ as the name of a player")
        elif not isinstance(part, dict):
            checker.add(
                ("players", name), f"expected a mapping with some of algo, model, store and train, got {part!r}"
            )
        elif (player := _player(name, layers, merged, checker)) is not None:
            players[name] = player
    if players and not any(player.train for player in players.values()) and len(players) == len(raw):
        checker.add(("players",), "expected at least one player that learns, but all have train: false")
    return players


def _player(name: str, layers: Sequence[Layer], merged: Merged, checker: Checker) -> PlayerConfig | None:
    own = [_under(layer, ("players", name)) for layer in layers]
    shared = [Layer(layer.source, _part(layer.tree, OWN), layer.lines) for layer in layers]
    try:
        algorithm = registry.lookup("algo", str(_name(Merged([*shared, *own]).tree)))
        main = registry.lookup("algo", str(_name(merged.tree)))
    except ConfigError as error:
        checker.add(("players", name, "algo", "name"), str(error).rstrip("."))
        return None
    if kind_of(main) is not kind_of(algorithm):
        shared = [Layer(layer.source, _part(layer.tree, ("algo", "model")), layer.lines) for layer in shared]
    defaults = Layer(f"algorithm {algorithm.name}", _part(algorithm.defaults, OWN))
    both = Merged(replacing([defaults, *shared, *own], "model", "layers", ("hidden", "convs")))
    mine = Checker(both, partial(owners, algo=algorithm.name))
    models = {"algo": algorithm.Config, "model": registry.load("rookery.nets.config:ModelConfig")}
    models["store"] = kind_of(algorithm).model()
    mine.known = {key.key: key.comment for section, model in models.items() for key in keys_of(model, section)}
    for key in both.tree:
        if key not in (*OWN, "train"):
            mine.unknown((key,), [*OWN, "train"])
    train = both.tree.get("train", True)
    if not isinstance(train, bool):
        mine.add(("train",), f"expected true or false, got {train!r}")
    sections = {section: mine.section(section, model) for section, model in models.items()}
    _tell(name, mine.problems, checker)
    checker.known |= {f"players.{name}.{key}": comment for key, comment in mine.known.items()}
    return PlayerConfig(**sections, train=train, prefix=f"player/{name}/") if not mine.problems else None


def _tell(name: str, problems: Sequence[Problem], checker: Checker) -> None:
    """Problems of a player's own values; inherited ones were told for the run."""
    for problem in problems:
        if problem not in checker.problems:
            message = problem.message if problem.key else renamed(name, problem.message)
            key = f"players.{name}.{problem.key}" if problem.key else ""
            checker.problems.append(replace(problem, key=key, message=message, hint=renamed(name, problem.hint)))


def renamed(player: str, message: str) -> str:
    """A sentence about the sections of a player, whose keys are written in full."""
    return re.sub(r"\b(algo|model|store)\.(?=[a-z])", rf"players.{player}.\1.", message)


def seats_of(merged: Merged, checker: Checker) -> SeatWeights | None:
    """agent → player → weight; None if nothing is said, which is enough for a single player."""
    raw, players = merged.tree.get("seats"), merged.tree.get("players")
    if not isinstance(players, dict):
        if raw is not None and players is None:
            checker.add(("seats",), "seats are given to players, but this run names none: add `players:`")
        return None
    if raw is None:
        if len(players) > 1:
            several = ", ".join(players)
            checker.add(("seats",), f"is missing; expected which of the players ({several}) sits for which agent")
        return None
    if not isinstance(raw, dict) or not raw:
        checker.add(("seats",), f"expected a mapping: agent → player, or agent → {{player: weight}}, got {raw!r}")
        return None
    seats = {agent: _weights(agent, value, players, checker) for agent, value in raw.items()}
    for player in players:
        if not any(player in weights for weights in seats.values()) and all(seats.values()):
            checker.add(("players", player), "has no seat; give it one in `seats`, or remove it")
    return seats


def _weights(agent: str, value: Any, players: Mapping[str, Any], checker: Checker) -> dict[str, float]:
    weights = {value: 1.0} if isinstance(value, str) else value
    if not isinstance(weights, dict) or not weights:
        checker.add(("seats", agent), f"expected a player, or players with weights, got {value!r}")
        return {}
    for player, weight in weights.items():
        if player not in players:
            hint = registry.did_you_mean(player, players)
            problem = f"unknown player {player!r}; the players are {', '.join(players)}"
            checker.add(("seats", agent), problem, hint)
            return {}
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            checker.add(("seats", agent), f"expected positive weights, got {player}: {weight!r}")
            return {}
    single = len(weights) == 1  # its weight means nothing
    return {player: 1.0 if single else float(weight) for player, weight in weights.items()}


def dumped_seats(seats: SeatWeights) -> dict[str, Any]:
    return {agent: next(iter(w)) if len(w) == 1 else dict(w) for agent, w in seats.items()}


def _name(tree: Mapping[str, Any]) -> Any:
    section = tree.get("algo")
    return section.get("name") if isinstance(section, dict) else None


def _part(tree: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: tree[name] for name in names if name in tree} if isinstance(tree, Mapping) else {}


def _under(layer: Layer, path: tuple[str, ...]) -> Layer:
    """What a layer says below a path, as a layer of its own."""
    tree: Any = layer.tree
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    lines = {place[len(path) :]: line for place, line in layer.lines.items() if place[: len(path)] == path}
    return Layer(layer.source, tree if isinstance(tree, Mapping) else {}, lines)
