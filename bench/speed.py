"""Speed side by side with other libraries, interleaved in one run: ratios, not seconds,
are what such a machine can tell.

    python bench/speed.py                      the whole table, 5 rounds
    python bench/speed.py --quick              a part of it in 1 or 2 rounds of fewer steps: under 10 minutes
    python bench/speed.py --works solve-ppo    only these; their rows replace the older ones in the results
    python bench/speed.py --all-peers          TorchRL, RLlib and DI-engine as well

Peers live in venvs of their own ($ROOKERY_PEERS, else the user's cache folder) and are installed on first use. Writes
bench/results/latest.json and the tables that are made from it. Never a pass/fail test.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import rows as table
import venvs
from works import NOT_QUICK, WORKS, Work

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Contender:
    """Whose script is run, and how."""

    peer: str  # peers/PEER_run.py, in the venv of that name if there is one
    mode: str = ""


CONTENDERS = {
    "stable-baselines3": Contender("sb3"),
    "single file": Contender("single"),
    "tianshou": Contender("tianshou"),
    "torchrl": Contender("torchrl"),
    "rllib": Contender("rllib"),
    "di-engine": Contender("diengine"),
    "benchmarl": Contender("benchmarl"),
    "gymnasium SyncVectorEnv": Contender("single"),
    "rookery": Contender("rookery", "compiled"),
    "rookery eager": Contender("rookery", "eager"),
    "rookery compiled": Contender("rookery", "compiled"),
    "rookery compiled, native engine": Contender("rookery", "compiled, native engine"),
    "rookery native": Contender("rookery", "native"),
    "rookery gymnasium": Contender("rookery", "gymnasium"),
}


def command(name: str, contender: Contender, size: tuple[int, int], seed: int) -> list[str]:
    script = HERE / "peers" / f"{contender.peer}_run.py"
    words = [str(venvs.python_of(contender.peer)), str(script), name, *map(str, size), "--seed", str(seed)]
    return [*words, "--mode", contender.mode] if contender.mode else words


def run(words: list[str]) -> dict[str, Any]:
    """What the contender printed last."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "ROOKERY_BENCH_START": repr(time.time())}
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(name: str, work: Work, peers: Iterable[str], size: tuple[int, int], rounds: int) -> list[table.Row]:
    """Rows of one work; every contender once per round, in turn."""
    chosen, seen = {peer: CONTENDERS[peer] for peer in peers}, {}
    for contender in chosen.values():  # installing is not part of the race
        venvs.python_of(contender.peer)
    compiled = [c for c in chosen.values() if c.mode.startswith("compiled")]
    if compiled and work.kind in ("train", "solve", "process"):  # nor is building artefacts, which all of them share
        run(command(name, compiled[0], work.quick or size, seed=0))
    for seed in range(rounds):
        for peer, contender in chosen.items():
            seen.setdefault(peer, []).append(run(command(name, contender, size, seed)))
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit()}
    found = (
        table.own_rows(name, seen["rookery"], about) if work.kind == "own" else table.rows_of(name, work, seen, about)
    )
    for row in found:
        print(table.line(row), flush=True)
    return found


@cache
def commit() -> str:
    """Of the tree that is measured, asked once: the results make it dirty."""
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def machine() -> str:
    """The name of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(peers: set[str]) -> dict[str, str]:
    ours = Path(sys.executable)
    found = {name: venvs.version(ours, name) for name in ("rookery", "torch", "gymnasium")}
    used = {CONTENDERS[peer].peer for peer in peers} & set(venvs.LIBRARIES)
    modules = {name: venvs.LIBRARIES[name].module for name in sorted(used)}
    return found | {m.replace("_", "-"): venvs.version(venvs.python_of(name), m) for name, m in modules.items()}


def write(found: list[table.Row], peers: set[str]) -> None:
    """Merge the new rows into the results; called after every work, so that a broken run keeps what it measured."""
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": [], "versions": {}}
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "cores": os.cpu_count(),
        "versions": old["versions"] | versions(peers),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    rows = table.merged(old["rows"], found, WORKS)
    rows = table.merged(rows, table.checkpoint_share(rows), WORKS)
    RESULTS.write_text(json.dumps({**about, "rows": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tables() -> None:
    """The tables in README.md and docs/speed.md, which are made from the results and from nothing else."""
    sys.path.insert(0, str(ROOT / "docs"))
    import build

    others = tuple(name for name in build.PARTS if name not in ("speed", "speed-all"))
    for page, text in build.out_of_date(skip=others):
        page.write_text(text, encoding="utf-8")
        print(f"written: {page.relative_to(ROOT)}")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", choices=list(WORKS), help="only these")
    parser.add_argument("--peers", nargs="+", choices=list(CONTENDERS), help="only these, and whoever is the base")
    parser.add_argument(
        "--rounds", type=int, help="runs of every contender [5; quick: 2 of training loops, 1 of the rest]"
    )
    parser.add_argument("--steps", type=int, help="measured steps instead of the work's own: to try something out")
    parser.add_argument(
        "--quick", action="store_true", help="fewer works, contenders, steps and rounds: under 10 minutes"
    )
    parser.add_argument("--all-peers", action="store_true", help="TorchRL, RLlib and DI-engine as well")
    parser.add_argument("--dry", action="store_true", help="print only, write nothing")
    return parser.parse_args()


def contenders_of(work: Work, args: argparse.Namespace) -> list[str]:
    optional = {
        peer for peer, c in CONTENDERS.items() if c.peer in venvs.LIBRARIES and not venvs.LIBRARIES[c.peer].always
    }
    usual = [peer for peer in work.peers if args.all_peers or peer not in optional]
    if args.quick and not args.all_peers:
        usual = [peer for peer in usual if peer not in NOT_QUICK]
    asked = args.peers or usual
    return [peer for peer in work.peers if peer in asked or peer == work.base]


def main() -> None:
    args = options()
    for name, work in WORKS.items():
        if name not in args.works if args.works else args.quick and work.quick is None:
            continue
        if work.needs and importlib.util.find_spec(work.needs) is None:
            print(f"{name}: left out, {work.needs} is not installed")
            continue
        size = work.quick if args.quick and work.quick is not None else (work.warm, work.steps)
        size = size if args.steps is None else (size[0], args.steps)
        usual = (2 if work.kind == "train" else 1) if args.quick else 5
        rounds = 1 if work.kind == "own" else args.rounds or usual
        peers = contenders_of(work, args)
        found = measure(name, work, peers, size, rounds)
        if not args.dry:
            write(found, set(peers))
    if not args.dry:
        write_tables()


if __name__ == "__main__":
    main()
