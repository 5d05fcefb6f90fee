"""Section: the closed, frozen pydantic model behind every part of a config.

One field per line, documented by the comment at its end; `field_comments` reads them for `rookery explain`.
"""

from __future__ import annotations

import inspect
import re

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys, NaN and infinity are errors; values cannot be changed afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=())


_FIELD = re.compile(r"^    (\w+)\s*:[^#]*#\s*(.+?)\s*$")


def field_comments(section: type[BaseModel]) -> dict[str, str]:
    """field → the comment on its line, own fields and inherited ones."""
    comments: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, BaseModel) and cls not in (BaseModel, Section):
            found = (_FIELD.match(line) for line in inspect.getsource(cls).splitlines())
            comments |= {m.group(1): m.group(2) for m in found if m and m.group(1) in section.model_fields}
    return comments
