"""What a run says before it learns: how each player's updates are executed and why; and, while one is compiled, that it is."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from rookery.run.players import Players

log = logging.getLogger("rookery.run")


def announce(players: Players, sinks: Iterable[Any]) -> None:
    """One line per player that learns, in the log and wherever people look; builds are shown there too."""
    seen = [sink for sink in sinks if hasattr(sink, "note") and hasattr(sink, "busy")]
    for player in players.values():
        if player.store is None:
            continue
        line = f"{player.prefix}updates: {player.learner.mode} ({player.mode_reason})"
        log.info("%s", line)
        for sink in seen:
            sink.note(line)
        if seen:
            player.learner.busy = seen[0].busy
