"""Attacks on the command line: what an attack is, the place it is made in, and whether it ended right.

An attack is a real process `python -m rookery …` in a folder of its own, with a home of its own. It ended right if its
exit code is one of those that are documented, it said what was wrong in one message without a traceback, it took
neither too long nor too much memory, and nothing outside its folders was touched. `hostile_cases` lists the attacks,
`bench/attack.py` makes them all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults.commands import command, environment

MIB = 1 << 20
MOST_BYTES = 500 * MIB  # beyond what the same program needs when nothing is wrong
MOST_SECONDS = 20.0  # beyond its time when nothing is wrong, on a busy machine; alone it is 2
GIVEN_UP = 120.0  # seconds after which an attack has made the program hang


@dataclass(slots=True)
class Outcome:
    """How one process ended."""

    code: int
    err: str
    seconds: float
    bytes: int  # most memory at any time
    folder: Path
    notes: list[str] = field(default_factory=list)  # what an attack of its own found wrong


def nothing(folder: Path) -> None:
    """For attacks by words alone."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One row of the list."""

    row: int  # of the list of faults: F31 …
    name: str
    words: tuple[str, ...] = ()  # of the command line
    prepare: Callable[[Path], None] = nothing  # changes the victim, a finished run in `run`
    codes: tuple[int, ...] = (2,)
    says: str = ""  # a part of what must be said
    check: Callable[[Path], str] = lambda folder: ""  # what else is wrong in the folder afterwards
    traces: int = 0  # tracebacks that may be shown: a user's own error
    seconds: float = MOST_SECONDS
    shell: str = ""  # a shell command line with "$@" in place of the program
    attack: Callable[[Attack, Path], Outcome] | None = None  # a process that is not simply waited for

    def made(self, victim: Path, place: Path) -> Outcome:
        """In a new folder `place`, on a copy of `victim`."""
        place.mkdir(parents=True)
        for name in ("home", "outside"):
            (place / name).mkdir()
        (place / "outside" / "canary").write_text("sings")
        shutil.copytree(victim, place / "run", symlinks=True)
        self.prepare(place)
        return self.attack(self, place) if self.attack else ended(self.started(place), place)

    def started(self, place: Path) -> subprocess.Popen[bytes]:
        words = command(*self.words)
        words = ["sh", "-c", self.shell, "sh", *words] if self.shell else words
        with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
            return subprocess.Popen(
                words, cwd=place, env=surroundings(place), stdout=out, stderr=err, start_new_session=True
            )

    def wrong(self, outcome: Outcome, usual: Outcome) -> list[str]:
        """Why it did not end right; empty if it did. `usual`: the same program when nothing is wrong."""
        err, more = outcome.err, outcome.bytes - usual.bytes
        checks = {
            f"exit code {outcome.code}, expected {' or '.join(map(str, self.codes))}": outcome.code not in self.codes,
            f"{err.count('Traceback (most')} tracebacks": err.count("Traceback (most recent call last)") > self.traces,
            f"{err.count('error: ')} messages": outcome.code in (2, 4) and err.count("error: ") != 1,
            f"does not say {self.says!r}": self.says not in err,
            f"{outcome.seconds:.0f} s": outcome.seconds > usual.seconds + self.seconds,
            f"{more // MIB} MiB more than usual": more > MOST_BYTES,
            "changed something outside": contents(outcome.folder / "outside") != {"canary": b"sings"},
        }
        own = self.check(outcome.folder)
        return [*(problem for problem, bad in checks.items() if bad), *([own] if own else []), *outcome.notes]


def surroundings(place: Path) -> dict[str, str]:
    """A home of its own, so that nothing is known of other runs and nothing of the user's is touched."""
    home = str(place / "home")
    own = {"HOME": home, "XDG_STATE_HOME": f"{home}/state", "XDG_CACHE_HOME": f"{home}/cache"}
    return environment(**own, FAULTS_MARK=str(place / "outside" / "executed"), TERM="dumb")


def ended(process: subprocess.Popen[bytes], place: Path, seconds: float = GIVEN_UP) -> Outcome:
    """Wait for it; what does not end is killed with all that it started."""
    begun, status, usage = time.monotonic(), 0, None
    while usage is None:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not pid:
            usage = None
            if time.monotonic() > begun + seconds:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)
    took = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    text = (place / "stderr").read_text(errors="replace")
    return Outcome(process.returncode, text, took, usage.ru_maxrss * 1024, place)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit(folder: Path, *words: str) -> None:
    """Changes of the victim's config.yaml, by hand."""
    from rookery.core.config.layers import Layer, Merged
    from rookery.core.config.overrides import parse_overrides
    from rookery.core.config.yaml import read_file, write_text

    file = folder / "run" / "config.yaml"
    file.write_text(write_text(Merged([Layer("file", read_file(file)[0]), parse_overrides(words)]).tree))


def reseal(checkpoint: Path, name: str, data: bytes | None) -> None:
    """Put other bytes into a file of a checkpoint (None: those that are there now), with hashes that fit:
    an attacker can write those, too."""
    import json

    from rookery.run.checkpoints.manifest import commit_text

    if data is not None:
        (checkpoint / name).write_bytes(data)
    with (checkpoint / name).open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": sha256, "bytes": (checkpoint / name).stat().st_size}
    text = json.dumps(manifest).encode()
    (checkpoint / "manifest.json").write_bytes(text)
    (checkpoint / "COMMIT").write_bytes(commit_text(text))
