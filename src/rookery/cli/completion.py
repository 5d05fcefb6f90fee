"""What a shell may complete: presets, algorithms, envs, and the keys of a config. `rookery --install-completion`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from rookery.core import registry
from rookery.core.errors import RookeryError

Choice = tuple[str, str]  # what is completed, and what it is


def words(ctx: typer.Context, incomplete: str) -> list[Choice]:
    """Presets, `ALGO ENV`, and `key=`; keys of the algorithm that the command line names so far."""
    said = [word for word in ctx.params.get("words") or () if "=" not in word]
    if "=" in incomplete:
        return []
    names = [*names_of("preset", incomplete), *names_of("algo", incomplete)] if not said else []
    if said and said[0] in registry.names("algo"):
        names += envs(incomplete)
    return [*names, *_keys(_algo(ctx, said), incomplete)]


def names_of(kind: str, incomplete: str) -> list[Choice]:
    return [(entry.name, entry.summary) for entry in registry.entries(kind) if entry.name.startswith(incomplete)]


def algos(incomplete: str) -> list[Choice]:
    return names_of("algo", incomplete)


def envs(incomplete: str) -> list[Choice]:
    import gymnasium

    ids = [(name, "") for name in sorted(gymnasium.registry) if name.startswith(incomplete)]
    return [*names_of("env", incomplete), *ids]


def kinds(incomplete: str) -> list[str]:
    return [f"{kind}s" for kind in registry.KINDS if f"{kind}s".startswith(incomplete)]


def _algo(ctx: typer.Context, said: list[str]) -> str | None:
    if ctx.params.get("algo"):
        return str(ctx.params["algo"])
    if said and said[0] in registry.names("preset"):
        return str(registry.lookup("preset", said[0])["algo"]["name"])
    return next((word for word in said if word in registry.names("algo")), None)


def _keys(algo: str | None, incomplete: str) -> Iterator[Choice]:
    """Sections first: reading the keys themselves takes a second, for torch comes with them."""
    from rookery.run.config.config import SECTIONS

    sections = [name for name in SECTIONS if f"{name}.".startswith(incomplete)]
    if "." not in incomplete and len(sections) != 1:
        yield from ((f"{name}.", "section of the config") for name in sections)
        return
    from rookery.core.config.fields import keys_of
    from rookery.run.config.resolve import models_of

    section = incomplete.partition(".")[0] if "." in incomplete else sections[0]
    try:
        models: dict[str, Any] = models_of(algo or "ppo")
    except RookeryError:  # no such algorithm: said when the command runs
        return
    if section in models:
        yield from ((f"{k.key}=", k.comment) for k in keys_of(models[section], section) if k.key.startswith(incomplete))
