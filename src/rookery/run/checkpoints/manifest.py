"""The manifest of a checkpoint: what it is, which versions wrote it, and the SHA-256 of every file.

A checkpoint counts only with its commit marker, which is written last and holds the SHA-256 of the manifest. So a chain
COMMIT → manifest.json → every file covers all bytes, and whatever was interrupted or damaged is noticed.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError

from rookery import __version__
from rookery.core.config.section import Section
from rookery.core.errors import CheckpointError
from rookery.core.restoring import restoring
from rookery.run.checkpoints.durable import FileInfo, check_name, hash_file, parse_json, read_file
from rookery.run.checkpoints.migrations import MIGRATIONS
from rookery.run.checkpoints.statefile import STATE, Part, files_of, read_state

FORMAT = 4
MANIFEST = "manifest.json"
COMMIT = "COMMIT"
MAX_MANIFEST_BYTES = 1 << 24

Kind = Literal["full", "weights"]


class Unfinished(CheckpointError):
    """A save that was interrupted before its commit marker: nothing is damaged, it never came to be."""


class OtherVersion(CheckpointError):
    """The checkpoint is intact but of a format that this build cannot read."""


class Manifest(Section):
    """Content of manifest.json."""

    format: int  # version of the checkpoint format it was written in
    rookery: str  # version of Rookery that wrote it
    torch: str  # version of torch
    numpy: str  # version of numpy
    python: str  # version of Python
    step: int = Field(ge=0)  # env steps done
    kind: Kind  # full: a run can go on from it; weights: what acting needs
    exact: bool | str  # true, or the reason why a resumed run is only approximate
    config_sha256: str | None  # of the resolved config
    config: dict[str, Any] | None = None  # that config, as config.yaml had it; formats before 4 have only its hash
    created: str  # wall clock, for information only
    meta: dict[str, Any]  # anything else the trainer wants to be able to read without loading the state
    files: dict[str, FileInfo]  # name → SHA-256 and size of every other file


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk whose every byte (of a part: every byte it needs) was compared with its manifest."""

    path: Path
    manifest: Manifest
    part: Part | None = None  # None: all of it

    @property
    def step(self) -> int:
        return self.manifest.step

    def load(self) -> dict[str, Any]:
        """The state tree, brought to the present format."""
        state = read_state(self.path, self.manifest.files, self.part)
        with restoring():
            for version in range(self.manifest.format, FORMAT):
                state = MIGRATIONS[version].state(state)
        return state


def compose(step: int, kind: Kind, meta: dict[str, Any], files: dict[str, FileInfo]) -> bytes:
    """The text of a new manifest; `exact`, `config_sha256` and `config` are taken out of meta."""
    meta = dict(meta)
    manifest = {
        "format": FORMAT,
        "rookery": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "step": step,
        "kind": kind,
        "exact": meta.pop("exact", True),
        "config_sha256": meta.pop("config_sha256", None),
        "config": meta.pop("config", None),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "meta": meta,
        "files": {name: info._asdict() for name, info in files.items()},
    }
    return json.dumps(manifest, indent=1, allow_nan=False).encode("ascii")


def commit_text(manifest: bytes) -> bytes:
    """Content of the commit marker."""
    return hashlib.sha256(manifest).hexdigest().encode() + b"\n"


def readable_versions() -> list[int]:
    """Format versions from which a chain of migrations leads to the present one."""
    versions = [FORMAT]
    while versions[0] - 1 in MIGRATIONS:
        versions.insert(0, versions[0] - 1)
    return versions


def verify(folder: Path, part: Part | None = None) -> Checkpoint:
    """Compare commit marker, manifest and every file (of a part: those it needs); whatever is wrong is a
    CheckpointError that names it."""
    if folder.is_symlink() or not folder.is_dir():
        raise CheckpointError(f"{folder} is not the folder of a checkpoint (links are not followed).")
    manifest = read_manifest(folder)
    files = dict(manifest.files)
    _compare(folder / STATE, files.pop(STATE))
    needed = files if part is None else files_of(folder, part)
    for name, info in files.items():
        if name in needed:
            _compare(folder / name, info)
    return Checkpoint(folder, manifest, part)


def _compare(path: Path, info: FileInfo) -> None:
    actual = hash_file(path, info.bytes)
    if actual.bytes != info.bytes:
        raise CheckpointError(f"{path} has {actual.bytes} bytes instead of {info.bytes}: it was cut or changed.")
    if actual.sha256 != info.sha256:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the one in the manifest.")


def committed(folder: Path) -> bool:
    """Whether the save was finished; cheap, says nothing about damage."""
    try:
        return not folder.is_symlink() and (folder / COMMIT).lstat().st_size > 0
    except OSError:  # not there, or just being removed by the run that writes here
        return False


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a committed checkpoint; the files that it lists are not looked at."""
    if not committed(folder):
        raise Unfinished(f"{folder} has no commit marker: the save was interrupted.")
    marker = read_file(folder / COMMIT, 4096)
    text = read_file(folder / MANIFEST, MAX_MANIFEST_BYTES)
    if marker != commit_text(text):
        raise CheckpointError(f"{folder / MANIFEST} is damaged: its SHA-256 is not the one in {COMMIT}.")
    raw = parse_json(text, folder / MANIFEST)
    version = raw.get("format") if isinstance(raw, dict) else None
    readable = readable_versions()
    if type(version) is not int or version not in readable:
        raise OtherVersion(
            f"{folder} has checkpoint format {version!r} (written by Rookery "
            f"{raw.get('rookery') if isinstance(raw, dict) else '?'}); "
            f"Rookery {__version__} reads {_listed(readable)}. Use the version that wrote it."
        )
    for step in range(version, FORMAT):
        raw = MIGRATIONS[step].manifest(raw)
    return _validated(raw | {"format": version}, folder)


def _validated(raw: dict[str, Any], folder: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(f"{folder / MANIFEST} is not a manifest: '{where}': {first['msg']}.") from error
    for name in manifest.files:
        check_name(name)
    if STATE not in manifest.files:
        raise CheckpointError(f"{folder / MANIFEST} does not list {STATE}.")
    return manifest


def _listed(versions: list[int]) -> str:
    *early, last = [str(version) for version in versions]
    return "format " + " and ".join([", ".join(early)] * bool(early) + [last])
