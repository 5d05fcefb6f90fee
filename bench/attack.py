"""Attacks on the command line: hostile configs, run folders, values, envs, sockets, streams and signals.

    python bench/attack.py [--rows 33 36] [--only TEXT] [--jobs N] [--keep]

Every attack is a real process in a folder and a home of its own, and talks to nobody but this machine. It must end as
documented: exit code, one message without a traceback, in time, within memory, and with nothing touched outside. Prints
how many were tried and how many ended right; exit code 1 if any did not. `tests/faults/hostile_cases.py` lists them.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from faults.hostile import MIB, Attack, Outcome  # noqa: E402
from faults.hostile_cases import EVAL, NAMES, VICTIM, attacks  # noqa: E402
from rookery.core.system.cpus import cpu_quota  # noqa: E402


def victim(place: Path) -> tuple[Path, Outcome]:
    """(a finished run to attack, how the command ends when nothing is wrong)."""
    empty = place / "empty"
    empty.mkdir()
    trained = Attack(0, "the victim", ("train", *VICTIM)).made(empty, place / "trained")
    run = place / "trained" / "run"
    usual = Attack(0, "nothing wrong", EVAL).made(run, place / "usual")
    for outcome in (trained, usual):
        if outcome.code:
            raise SystemExit(f"without any attack it failed:\n{outcome.err}")
    return run, max(trained, usual, key=lambda outcome: outcome.bytes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--only", default="", help="attacks whose name holds this text")
    parser.add_argument("--jobs", type=int, default=cpu_quota())
    parser.add_argument("--keep", action="store_true", help="keep the folders of attacks that did not end right")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs in the background ignore it
    chosen = [attack for attack in attacks() if attack.row in options.rows and options.only in attack.name]
    place, begun = Path(tempfile.mkdtemp(prefix="rookery-attack-")), time.monotonic()
    run, usual = victim(place)
    tried: Counter[int] = Counter()
    right: Counter[int] = Counter()

    def one(numbered: tuple[int, Attack]) -> None:
        number, attack = numbered
        folder = place / f"attack-{number}"
        outcome = attack.made(run, folder)
        problems = attack.wrong(outcome, usual)
        tried[attack.row] += 1
        right[attack.row] += not problems
        if problems:
            told = outcome.err.strip().splitlines()[-1:] or ["(nothing)"]
            print(f"WRONG  F{attack.row} {attack.name}: {'; '.join(problems)}. It said: {told[0][:200]}", flush=True)
        if not (problems and options.keep):
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, enumerate(chosen)))
    for row in sorted(tried):
        print(f"F{row}  {NAMES[row]:<28} {tried[row]:>4} tried {right[row]:>4} ended right")
    print(
        f"{tried.total()} attacks tried, {right.total()} ended right, in {time.monotonic() - begun:.0f} s", flush=True
    )
    print(f"usual: {usual.seconds:.1f} s, {usual.bytes // MIB} MiB")
    if not options.keep:
        shutil.rmtree(place, ignore_errors=True)
    return 0 if right == tried else 1


if __name__ == "__main__":
    sys.exit(main())
