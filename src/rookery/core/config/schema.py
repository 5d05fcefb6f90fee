"""JSON schema of a whole config, for editors and other tools.

It stands alone because it knows JSON Schema and pydantic, and nothing of how a config comes about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from rookery.core.config.fields import annotations_at, comments_of, members


def schema_of(title: str, sections: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """One closed schema over all sections; comments of fields become descriptions."""
    fields: dict[str, Any] = {name: (model, ...) for name, model in sections.items()}
    root = create_model("Config", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
    schema = root.model_json_schema()
    schema["properties"] = {"import": {"type": "array", "items": {"type": "string"}}} | schema["properties"]
    schema["title"] = title
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    # Every section may be left out: each has defaults, or its required key is asked for by the section itself.
    schema["required"] = [
        name for name, model in sections.items() if any(info.is_required() for info in model.model_fields.values())
    ]
    for model in _models(sections):
        definition = schema["$defs"].get(model.__name__, {})
        for name, comment in comments_of(model).items():
            definition.get("properties", {}).get(name, {}).setdefault("description", comment)
    return schema


def _models(sections: Mapping[str, type[BaseModel]]) -> list[type[BaseModel]]:
    """The sections' models and those inside them."""
    models: list[type[BaseModel]] = []
    waiting = list(sections.values())
    while waiting:
        model = waiting.pop()
        if model in models:
            continue
        models.append(model)
        for name in model.model_fields:
            parts = [part for annotation in annotations_at(model, (name,)) for part in members(annotation)]
            waiting += [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return models
