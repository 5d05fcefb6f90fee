"""Speed side by side with Stable-Baselines3, interleaved in one run: ratios, not seconds, are what such a machine can tell.

    python bench/speed.py [--works dqn-1env-1/1 …] [--rounds 5] [--quick]

The peer lives in a venv of its own ($ROOKERY_PEERS, else the user's cache folder), installed with the same constraints.
Writes bench/results/latest.json. Never a pass/fail test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "latest.json"
SIZES = {  # work → (warm-up steps, measured steps)
    "dqn-1env-1/1": (2_000, 6_000),
    "dqn-1env-1/4": (2_000, 16_000),
    "dqn-8env-1/1": (2_000, 6_000),
    "dqn-8env-1/4": (2_000, 16_000),
    "ppo-8x128": (4_096, 32_768),
    "sac-256": (400, 1_200),
}


def peer_python() -> Path:
    """The interpreter with Stable-Baselines3, installed on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(os.environ.get("ROOKERY_PEERS", cache / "rookery" / "peers")) / "sb3"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        print(f"installing stable-baselines3 into {folder} …", flush=True)
        venv.create(folder, with_pip=True)
        wanted = ["-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), "stable-baselines3"]
        subprocess.run([str(python), *wanted], check=True)
        (folder / "installed").touch()
    return python


def run(command: list[str]) -> dict:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def contenders(work: str, peer: Path) -> dict[str, list[str]]:
    warm, steps = map(str, SIZES[work])
    ours = [sys.executable, str(HERE / "peers" / "rookery_run.py"), work]
    return {
        "stable-baselines3": [str(peer), str(HERE / "peers" / "sb3_run.py"), work, warm, steps],
        "rookery eager": [*ours, "eager", warm, steps],
        "rookery compiled": [*ours, "compiled", warm, steps],
    }


def measure(work: str, rounds: int, peer: Path) -> list[dict]:
    """Rows of one work; every contender once per round, in turn."""
    commands, seen = contenders(work, peer), {}
    run(commands["rookery compiled"])  # builds the artefact and the kernels: not part of the race
    for _ in range(rounds):
        for name, command in commands.items():
            seen.setdefault(name, []).append(run(command))
    check_same_work(work, seen)
    speed = {name: [r["steps"] / r["seconds"] for r in results] for name, results in seen.items()}
    rows = []
    for name, values in speed.items():
        ratios = [a / b for a, b in zip(values, speed["stable-baselines3"])]
        last = seen[name][-1]
        row = {"work": work, "peer": name, "median": statistics.median(values), "low": min(values), "high": max(values)}
        row |= {
            "ratio_to_sb3": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "n": rounds,
        }
        rows.append(row | {"env_steps": last["steps"], "updates": last["updates"], "parameters": last["parameters"]})
        print(
            f"{work:14} {name:18} {row['median']:9.0f} steps/s  [{row['low']:.0f} … {row['high']:.0f}]  {row['ratio_to_sb3']:5.2f} × [{row['ratio_low']:.2f} … {row['ratio_high']:.2f}]",
            flush=True,
        )
    return rows


def check_same_work(work: str, seen: dict[str, list[dict]]) -> None:
    """Both sides must have done the same: updates per step within 2 %, networks within 2 % of the parameters."""
    base = seen["stable-baselines3"][0]
    for name, results in seen.items():
        for result in results:
            share, expected = result["updates"] / result["steps"], base["updates"] / base["steps"]
            if abs(share - expected) > 0.02 * expected:
                raise SystemExit(f"{work}: {name} made {share:.3f} updates per step, Stable-Baselines3 {expected:.3f}")
            if abs(result["parameters"] - base["parameters"]) > 0.02 * base["parameters"]:
                raise SystemExit(
                    f"{work}: {name} has {result['parameters']} parameters, Stable-Baselines3 {base['parameters']}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--works", nargs="*", default=["dqn-1env-1/1", "ppo-8x128", "sac-256"], choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    peer = peer_python()
    rows = [row for work in args.works for row in measure(work, args.rounds, peer)]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    versions = {
        name: _version(python, module)
        for name, python, module in (
            ("rookery", sys.executable, "rookery"),
            ("torch", sys.executable, "torch"),
            ("stable-baselines3", str(peer), "stable_baselines3"),
        )
    }
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": versions,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def _version(python: str, module: str) -> str:
    code = f"import {module}; print({module}.__version__)"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
