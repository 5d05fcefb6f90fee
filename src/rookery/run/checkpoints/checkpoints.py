"""Checkpoints of one run: folders that either count completely or not at all.

    checkpoints/step-000000050000/{*.safetensors, state.json, manifest.json, COMMIT}        best/ likewise, weights only

Order of a save: files into a temporary folder, each fsynced → fsync of that folder → rename → fsync of the parent →
COMMIT, fsynced. Where a folder of that name exists it is first renamed to `.old-<name>` and removed only after the
commit; whoever looks for `<name>` and finds it uncommitted takes `.old-<name>`. So a kill at any point leaves what was
valid before, or what is valid now.

Pieces of large arrays that the checkpoint before the one before holds already are hard-linked from it instead of
written (`links.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

from rookery.core.errors import CheckpointError
from rookery.core.system.portable import fsync_folder
from rookery.run.checkpoints.durable import NewFiles, write_file
from rookery.run.checkpoints.links import Earlier
from rookery.run.checkpoints.manifest import (
    COMMIT,
    MANIFEST,
    Checkpoint,
    Kind,
    Manifest,
    OtherVersion,
    Unfinished,
    commit_text,
    committed,
    compose,
    read_manifest,
    verify,
)
from rookery.run.checkpoints.statefile import Encoded, Part, encode

BEST = "best"
MENTIONED = 1 << 26  # bytes of experience above which the disk that they take is told

_TEMPORARY = ".tmp-"
_OLD = ".old-"
_STEP = re.compile(r"(?:\.old-)?step-(\d{12,18})")
_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints in a folder, which is made by the first save.

    One process writes (the lock of the run folder sees to it), any number may read meanwhile.
    """

    def __init__(self, folder: Path, keep: int | None = 2):
        self.folder = Path(folder)
        self.keep = keep  # newest full checkpoints to keep; None: all
        self._broken: set[Path] = set()
        self._shares = False  # whether neighbours share files, for want of room

    def expect(self, data: int) -> None:
        """Say beforehand what checkpoints with so many bytes of experience take, and warn if there is no room."""
        if data < MENTIONED:
            return
        copies = 1 if self.keep == 1 else 2
        free = shutil.disk_usage(_existing(self.folder)).free
        level = logging.WARNING if copies * data > free else logging.INFO
        _log.log(
            level,
            "checkpoints take %d MB when the replay is full (%d MB, %d times: neighbours share no file), %d are free",
            copies * data // 10**6, data // 10**6, copies, free // 10**6,
        )  # fmt: skip

    def save(self, step: int, state: dict[str, Any], meta: dict[str, Any], kind: Kind = "full") -> Path:
        """Write a checkpoint, commit it, and only then prune older ones.

        Anything the disk refuses is a CheckpointError with the bytes needed and free; what was there before is
        untouched.
        """
        path = self._write(f"step-{step:012d}", step, state, meta, kind)
        self.prune(protect=path)
        return path

    def save_best(self, step: int, state: dict[str, Any], meta: dict[str, Any]) -> Path:
        """Replace `best`, which holds only what acting needs."""
        return self._write(BEST, step, state, meta, "weights")

    def latest(self, part: Part | None = None) -> Checkpoint | None:
        """The newest full checkpoint that is whole (of a part: in what it needs); None if no save was ever finished.

        Damaged newer ones are logged and skipped. If all are damaged that is an error, not None: a run that silently
        starts again from nothing would be worse. So is an intact one of a format that this build cannot read.
        """
        reasons = []
        for folder in self._folders():
            try:
                checkpoint = verify(folder, part)
            except OtherVersion:
                raise
            except Unfinished as error:
                _log.info("checkpoint skipped: %s", error)
            except CheckpointError as error:
                if folder.exists():  # else pruned by the run that writes here
                    _log.warning("checkpoint skipped: %s", error)
                    self._broken.add(folder)
                    reasons.append(str(error))
            else:
                if checkpoint.manifest.kind == "full":
                    return checkpoint
        if reasons:
            raise CheckpointError(f"no checkpoint in {self.folder} is whole. " + " ".join(reasons))
        return None

    def find(self, which: Path | str | int, part: Part | None = None) -> Checkpoint:
        """Verify one checkpoint, or what a part of it needs: "last", "best", a step, or the path of its folder."""
        if isinstance(which, Path):
            return verify(which, part)
        if which == "last":
            if (latest := self.latest(part)) is None:
                raise CheckpointError(f"there is no checkpoint in {self.folder}.")
            return latest
        if which == BEST:
            return self._verify_named(BEST, part)
        if isinstance(which, int) or which.isdecimal():
            return self._verify_named(f"step-{int(which):012d}", part)
        raise CheckpointError(
            f"{which!r} names no checkpoint; expected 'last', 'best' or a step: {self._steps_text()}."
        )

    def load(self, which: Path | str | int, part: Part | None = None) -> tuple[dict[str, Any], Manifest]:
        """(state, manifest) of `find(which)`; `weights_of` is the part that acting needs."""
        checkpoint = self.find(which, part)
        return checkpoint.load(), checkpoint.manifest

    def steps(self) -> list[int]:
        """Steps of the committed checkpoints, oldest first."""
        return sorted({_step_of(folder) for folder in self._folders() if committed(folder)})

    def prune(self, protect: Path | None = None) -> None:
        """Remove what is damaged or unfinished and, beyond the newest `keep`, what is old; never `protect`."""
        if self.keep is None:
            return
        spared = {protect, *self._whole()[: max(self.keep, 1)]}
        for folder in self._folders():
            if folder not in spared:
                self._discard(folder)
                self._broken.discard(folder)

    def clean_orphans(self) -> None:
        """Remove what interrupted saves left and finish interrupted replacements; for the process that holds the
        lock."""
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(_OLD):
                self._settle(path.name.removeprefix(_OLD))
            elif path.name.startswith(_TEMPORARY):
                with contextlib.suppress(OSError):
                    _remove(path)

    def _write(self, name: str, step: int, state: dict[str, Any], meta: dict[str, Any], kind: Kind) -> Path:
        encoded = encode(state)
        temporary = self.folder / f"{_TEMPORARY}{name}-{secrets.token_hex(4)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            with NewFiles(temporary) as files:
                earlier = self._earlier(name, encoded) if encoded.pieces else None
                text = compose(step, kind, meta, encoded.write(files, earlier))
                files.write(MANIFEST, [text])
            self._publish(temporary, name, commit_text(text))
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(self._refused(name, encoded, error)) from error
        finally:
            if temporary.exists():
                shutil.rmtree(temporary, ignore_errors=True)
        self._broken.discard(self.folder / name)
        return self.folder / name

    def _earlier(self, name: str, encoded: Encoded) -> Earlier | None:
        """What may be linked to: no file of the neighbour, to which a resume goes back if the new one is damaged.

        If only one is kept, or the disk has no room for two copies, it is the neighbour's files nevertheless.
        """
        whole = self._whole()
        neighbour = next((folder for folder in whole if folder.name != name and self.keep != 1), None)
        other = next((folder for folder in whole if folder != neighbour), None)
        try:
            apart = None if other is None else Earlier(other, read_manifest(other).files, neighbour)
            if neighbour is None:
                return apart
            needed = encoded.bytes if apart is None else encoded.bytes_beside(apart)
            if needed <= (free := shutil.disk_usage(self.folder).free):
                return apart
            shared = Earlier(neighbour, read_manifest(neighbour).files)
        except (CheckpointError, OSError):  # unfinished, damaged or removed by somebody: everything is written
            return None
        if not self._shares:
            self._shares = True
            _log.warning(
                "%s has %d bytes left, %d are needed for a second copy of the replay: checkpoints share its files, and "
                "one that is damaged makes both useless",
                self.folder, free, needed,
            )  # fmt: skip
        return shared

    def _publish(self, temporary: Path, name: str, commit: bytes) -> None:
        target, old = self.folder / name, self.folder / (_OLD + name)
        self._settle(name)
        done = False
        try:
            if os.path.lexists(target):
                os.rename(target, old)
            os.rename(temporary, target)
            fsync_folder(self.folder)
            write_file(target / COMMIT, commit)
            fsync_folder(target)
            done = True
        finally:
            if not done:
                if not temporary.exists():
                    os.rename(target, temporary)
                if os.path.lexists(old):
                    os.rename(old, target)
        self._discard(old)

    def _settle(self, name: str) -> None:
        """Finish a replacement that was interrupted: keep the new one if it was committed, else bring the old one
        back."""
        target, old = self.folder / name, self.folder / (_OLD + name)
        if not os.path.lexists(old):
            return
        if committed(target):
            self._discard(old)
            return
        self._discard(target)
        os.rename(old, target)

    def _discard(self, folder: Path) -> None:
        """Remove a folder; renamed first, so that no half-removed checkpoint ever carries a name that counts."""
        if not os.path.lexists(folder):
            return
        try:
            gone = self.folder / f"{_TEMPORARY}gone-{secrets.token_hex(4)}"
            os.rename(folder, gone)
            _remove(gone)
        except OSError as error:
            _log.warning("%s could not be removed: %s", folder, error)

    def _whole(self) -> list[Path]:
        """Those that were committed and are not known to be damaged, newest first."""
        return [folder for folder in self._folders() if committed(folder) and folder not in self._broken]

    def _folders(self) -> list[Path]:
        """Folders of full checkpoints, newest first; of one step the replaced one comes after its replacement."""
        if not self.folder.is_dir():
            return []
        folders = [path for path in self.folder.iterdir() if _STEP.fullmatch(path.name) and path.is_dir()]
        return sorted(folders, key=lambda path: (-_step_of(path), path.name.startswith(_OLD)))

    def _verify_named(self, name: str, part: Part | None) -> Checkpoint:
        target, old = self.folder / name, self.folder / (_OLD + name)
        for path in (target, old, target, old):  # twice: a reader may come while the run replaces it
            if committed(path):
                return verify(path, part)
        known = self._steps_text()
        raise CheckpointError(f"there is no checkpoint '{name}' in {self.folder}; there are: {known}.")

    def _steps_text(self) -> str:
        names = [str(step) for step in self.steps()]
        return ", ".join(names + [BEST] * committed(self.folder / BEST)) or "none"

    def _refused(self, name: str, encoded: Encoded, error: OSError) -> str:
        try:
            free: object = shutil.disk_usage(_existing(self.folder)).free
        except OSError:
            free = "unknown"
        return (
            f"checkpoint {name} could not be written to {self.folder}: {error.strerror or error}. "
            f"Needed: {encoded.bytes} bytes, free: {free} bytes. Earlier checkpoints are untouched."
        )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _remove(path: Path) -> None:
    """A folder and all that is in it; of a link that somebody put in its place, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _step_of(folder: Path) -> int:
    match = _STEP.fullmatch(folder.name)
    assert match is not None  # only called on what _folders() selected
    return int(match.group(1))
