"""What a run says before it learns: how each player's updates are executed and why; and, while one is compiled, that it is."""

from __future__ import annotations

import logging

from rookery.run.players import Players
from rookery.run.report.sinks import Sinks

log = logging.getLogger("rookery.run")


def announce(players: Players, sinks: Sinks) -> None:
    """One line per player that learns, in the log and wherever people look; builds are shown there too."""
    for player in players.values():
        if player.store is None:
            continue
        line = f"{player.prefix}updates: {player.learner.mode} ({player.mode_reason})"
        log.info("%s", line)
        sinks.note(line)
        player.learner.busy = sinks.busy
