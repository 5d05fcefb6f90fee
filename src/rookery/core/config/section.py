"""Section: the closed, frozen pydantic model behind every part of a config.

One field per line, documented by the comment at its end; `core.fields.comments_of` reads them for `rookery explain`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys, NaN and infinity are errors; values cannot be changed afterwards."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )
