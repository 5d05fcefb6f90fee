"""`rookery cache`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer


def cache(
    folder: Path = typer.Argument(None, help="The value of learning.cache, if it is not the default."),
    clear: bool = typer.Option(False, "--clear", help="Remove every compiled update that no run is using."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Show compiled updates kept on disk, or remove them.

    They are built again when they are needed; a run that is using one keeps it.
    """
    import time

    from rookery.learning.compiled.cache import Cache, default_folder

    there = Cache(folder.expanduser().absolute() if folder else default_folder())
    if clear:
        removed, kept = there.clear()
        if as_json:
            typer.echo(json.dumps({"folder": str(there.folder), "removed": len(removed), "kept": len(kept)}))
            return
        left = f"; {len(kept)} are in use and stay" if kept else ""
        size = sum(entry.bytes for entry in removed) / 1e6
        typer.echo(f"removed {len(removed)} compiled updates ({size:.1f} MB) from {there.folder}{left}")
        return
    entries = there.entries()
    if as_json:
        typer.echo(json.dumps({"folder": str(there.folder), "artefacts": [asdict(entry) for entry in entries]}))
        return
    for entry in reversed(entries):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        typer.echo(f"{entry.key[:12]}  {entry.what:<24}  {entry.bytes / 1e6:6.1f} MB  used {used}")
    typer.echo(f"{len(entries)} compiled updates, {sum(e.bytes for e in entries) / 1e6:.1f} MB in {there.folder}")
