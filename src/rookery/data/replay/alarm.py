"""Alarm: says once when a monitored number of a store has left its band, and again only after it was back.

It stands alone because it judges a store by its metrics only, and keeps what it has said, not experience.
"""

from __future__ import annotations

import logging
from typing import Any

from rookery.data.config import AlarmConfig

_log = logging.getLogger("rookery.data")
_ADVICE = {
    "reuse": "steps are learnt from so often that the networks may overfit them. "
    "Lower store.updates_per_step or store.batch_size, or collect with more envs.",
    "staleness": "most of the data is of policies long gone. Lower store.capacity, or set store.max_staleness.",
}


class Alarm:
    """Looks at the metrics of a store whenever they are reported."""

    def __init__(self, config: AlarmConfig):
        self._limits = {"reuse": config.max_reuse, "staleness": config.max_staleness}
        self._outside: set[str] = set()  # numbers that are out of their band, and were told of

    def look(self, metrics: dict[str, float]) -> None:
        for name, limit in self._limits.items():
            if limit is None or metrics[name] <= limit:
                self._outside.discard(name)
            elif name not in self._outside:
                self._outside.add(name)
                _log.warning(
                    "store/%s is %.4g, above store.alarm.max_%s=%g: %s", name, metrics[name], name, limit, _ADVICE[name]
                )

    def state(self) -> dict[str, Any]:
        return {"outside": sorted(self._outside)}

    def restore(self, state: dict[str, Any]) -> None:
        self._outside = set(state["outside"])
