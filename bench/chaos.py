"""kill -9 at many random moments, resume, compare bit for bit.

For every algorithm, eager and compiled, in one process and in pools.

    python bench/chaos.py [--points 50] [--algos dqn ppo sac] [--modes eager compiled process ray]
                           [--seed N] [--attacks process ray nodes]

`--points` counts kills per algorithm, shared equally by the modes. The straight run is made once, in one process; every
killed run is killed several times on its way and must end with the same weights, evaluation and metrics. `process` and
`ray` kill the driver of a run whose two collectors live elsewhere.

`--attacks` leaves the driver alone and takes away its workers at random moments (process, ray) or the nodes of a Ray
cluster every few rounds (nodes): CartPole must be solved by PPO nevertheless.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from rookery.testing.resume import differences, killed_and_resumed, outcome, straight  # noqa: E402
from same.cases import CASES, COMMON  # noqa: E402

KILLS_PER_RUN = 5
POOLED = ("dqn-per", "ppo", "sac", "r2d2")  # are killed in pools, too
ATTACKS = {"process": 0.3, "ray": 1.0, "nodes": 3}  # mean seconds between kills; rounds between changes of nodes
TARGET = 475.0


def words_of(name: str, mode: str, folder: Path) -> tuple[list[str], list[str]]:
    """(of the straight run, of the killed ones)."""
    words = [*CASES[name], *COMMON, f"learning.cache={folder / 'artefacts'}"]
    if mode in ("eager", "compiled"):
        return ([*words, f"learning.mode={mode}"],) * 2
    words += ["learning.mode=eager", "pool.workers=2"]
    return words, [*words, f"pool={mode}"]


def attack(name: str, mode: str, points: int, folder: Path, rng: random.Random) -> tuple[int, int, int]:
    """(kills, kills inside a save, failures) of one algorithm in one mode."""
    plain, words = words_of(name, mode, folder)
    env = {"PYTHONPATH": str(ROOT / "tests")}
    straight(plain, folder / f"{name}-{mode}", env)
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


def besieged(kind: str) -> bool:
    """Whether CartPole is solved although its workers or their nodes are taken away."""
    command = [sys.executable, "-m", "faults.attacks", kind, str(TARGET), str(ATTACKS[kind])]
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"attack on {kind} FAILED:\n{done.stderr[-3000:]}", flush=True)
        return False
    told = json.loads(done.stdout.splitlines()[-1])
    taken = f"{told['kills']} kills" if "kills" in told else f"{told['changes']} nodes taken away"
    print(
        f"attack on {kind}: {taken}, {told['renewals']:.0f} workers renewed, {told['reason']} "
        f"({told['seconds']:.0f} s)",
        flush=True,
    )
    return bool(told["best"] >= TARGET and told["renewals"] > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--algos", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--modes", nargs="*", default=["eager", "compiled", "process", "ray"])
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    folder, rng, failed = Path(tempfile.mkdtemp(prefix="rookery-chaos-")), random.Random(args.seed), 0
    for name in args.algos:
        modes = [mode for mode in args.modes if mode in ("eager", "compiled") or name in POOLED]
        for mode in modes:
            started = time.monotonic()
            kills, inside, failures = attack(name, mode, -(-args.points // len(modes)), folder, rng)
            failed += failures
            print(
                f"{name} {mode}: {kills} kills, {inside} inside a save, {failures} runs differed "
                f"({time.monotonic() - started:.0f} s)",
                flush=True,
            )
    beaten = [kind for kind in args.attacks if not besieged(kind)]
    if beaten:
        raise SystemExit(f"CartPole was not learnt under attack: {', '.join(beaten)}")
    if failed:
        raise SystemExit(f"{failed} resumed runs differed; they are in {folder}")
    shutil.rmtree(folder)
    print("every resumed run equals the straight one, bit for bit")


if __name__ == "__main__":
    main()
