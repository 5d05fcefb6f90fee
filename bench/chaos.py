"""kill -9 at many random moments, resume, compare bit for bit; for every algorithm, eager and compiled.

    python bench/chaos.py [--points 50] [--algos dqn ppo sac] [--modes eager compiled] [--seed N]

`--points` counts kills per algorithm, shared equally by the modes. The straight run is made once; every killed run is killed
several times on its way and must end with the same weights, evaluation and metrics.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from rookery.testing.resume import differences, killed_and_resumed, outcome, straight  # noqa: E402
from same.cases import CASES, COMMON  # noqa: E402

KILLS_PER_RUN = 5


def attack(name: str, mode: str, points: int, folder: Path, rng: random.Random) -> tuple[int, int, int]:
    """(kills, kills inside a save, failures) of one algorithm in one mode."""
    words = [*CASES[name], *COMMON, f"learning.mode={mode}", f"learning.cache={folder / 'artefacts'}"]
    env = {"PYTHONPATH": str(ROOT / "tests")}
    straight(words, folder / f"{name}-{mode}", env)
    expected = outcome(folder / f"{name}-{mode}")
    kills = inside = failures = runs = 0
    while kills < points:
        runs += 1
        run = folder / f"{name}-{mode}-{runs}"
        told = killed_and_resumed(words, run, rng, kills=min(KILLS_PER_RUN, points - kills), most=0.5, env=env)
        found = differences(expected, outcome(run))
        kills, inside, failures = kills + told.kills, inside + told.inside_save, failures + bool(found)
        for line in found[:5]:
            print(f"  DIFFERENT ({run}): {line}", flush=True)
        if not found:
            shutil.rmtree(run)
        if told.kills == 0 and runs > points:
            raise SystemExit(f"{name} {mode}: the runs are too short to be killed")
    return kills, inside, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--algos", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--modes", nargs="*", default=["eager", "compiled"])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    folder, rng, failed = Path(tempfile.mkdtemp(prefix="rookery-chaos-")), random.Random(args.seed), 0
    for name in args.algos:
        for mode in args.modes:
            started = time.monotonic()
            kills, inside, failures = attack(name, mode, -(-args.points // len(args.modes)), folder, rng)
            failed += failures
            print(
                f"{name} {mode}: {kills} kills, {inside} inside a save, {failures} runs differed ({time.monotonic() - started:.0f} s)",
                flush=True,
            )
    if failed:
        raise SystemExit(f"{failed} resumed runs differed; they are in {folder}")
    shutil.rmtree(folder)
    print("every resumed run equals the straight one, bit for bit")


if __name__ == "__main__":
    main()
