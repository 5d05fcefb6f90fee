"""Shares of a batch as whole rows."""

from __future__ import annotations

from rookery.core.errors import ConfigError

NEARLY = 1e-6  # 0.1 of 10 rows is one row, although 0.1 is not a float


def rows_of(batch_size: int, share: float, keys: tuple[str, str]) -> int:
    """The rows that a share of a batch is: a whole number, so that the share is exact in every batch.

    keys: of the two numbers, for messages.
    """
    rows = round(batch_size * share)
    if abs(batch_size * share - rows) <= NEARLY * batch_size and 0 < rows < batch_size:
        return rows
    low = min(max(int(batch_size * share), 1), batch_size - 1)
    near = " or ".join(f"{n / batch_size:g} ({n} rows)" for n in dict.fromkeys((low, min(low + 1, batch_size - 1))))
    advice = f"Set {keys[1]} to {near}, or change {keys[0]}" if batch_size > 1 else f"Raise {keys[0]}"
    raise ConfigError(
        f"{keys[1]}={share:g} of {keys[0]}={batch_size} is {batch_size * share:g} rows: "
        f"every batch must have a whole number of rows of either kind. {advice}."
    )
