"""Ties: layers that players share (`players.b.model.ties: {encoder: a}`).

After the updates of a player, what it has tied is copied to its partners, in the order of players: all of them train
it, each with moments of its own. At the start it is that of the player that is named. Running statistics of
observations are not shared.

It stands alone because it is all that players know of one another.
"""

from __future__ import annotations

from rookery.core.errors import ConfigError
from rookery.core.registry import did_you_mean
from rookery.run.players import Player, Players

Part = tuple[str, str]  # (network, parameter)


def tie(players: Players) -> None:
    """Let every player know the parameters that are its partners', too."""
    sharers: dict[tuple[str, Part], list[str]] = {}  # (who is named, parameter) → all who share it
    for name, player in players.items():
        for part, owner in player.config.model.ties.items():
            for where in _tied(players, name, part, owner):
                sharers.setdefault((owner, where), [owner]).append(name)
    for player in players.values():
        player.ties = []
    for (_, where), names in sharers.items():
        tensors = {name: players[name].learner.nets[where[0]].parameter(where[1]) for name in names}
        for name, own in tensors.items():
            players[name].ties += [(own, tensor) for other, tensor in tensors.items() if other != name]
    for owner, _ in sharers:
        players[owner].share()


def _tied(players: Players, name: str, part: str, owner: str) -> list[Part]:
    """The parameters that a tie names, if both have them."""
    key, others = f"players.{name}.model.ties.{part}={owner}", [other for other in players if other != name]
    if owner not in others:
        raise ConfigError(
            f"{key}: expected one of the other players ({', '.join(others)}).{did_you_mean(owner, others)}"
        )
    if players[name].config.learning.learners > 1:
        raise ConfigError(f"{key} cannot be used with learning.learners > 1. Set learning.learners=1.")
    mine, theirs = _parameters(players[name]), _parameters(players[owner])
    named = [where for where in mine if f"{where[1]}.".startswith(f"{part}.")]
    if not named:
        parts = list(dict.fromkeys(parameter.partition(".")[0] for _, parameter in mine))
        raise ConfigError(f"{key}: there is no such part; {name!r} has {', '.join(parts)}.{did_you_mean(part, parts)}")
    for where in named:
        if theirs.get(where) != mine[where]:
            has = "none" if where not in theirs else f"one of shape {list(theirs[where])}"
            raise ConfigError(
                f"{key}: {name!r} has {where[1]} of shape {list(mine[where])} in its network {where[0]!r}, {owner!r} "
                f"has {has}. Players that share a part must build it alike."
            )
    return named


def _parameters(player: Player) -> dict[Part, tuple[int, ...]]:
    """Of all networks that learn: (network, parameter) → shape."""
    nets = {name: net for name, net in player.learner.nets.items() if not net.is_target}
    return {(name, key): tuple(p.shape) for name, net in nets.items() for key, p in net.params.items()}
