"""The learning gates: does the last policy at the step budget reach its return (or share of successes), over many seeds?

    python bench/learn.py [PRESET …] [--seeds N] [--first SEED] [--jobs J] [--out DIR] [key=value …]

Every seed is a run of its own; its *last* policy is judged greedily on 100 episodes whose seeds no run has used for selection.
The gate is on the interquartile mean over the seeds, with a bootstrap interval. With the gold seeds and no overrides the
figures go to src/rookery/zoo/results.json and the curves to docs/curves/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "src" / "rookery" / "zoo" / "results.json"
CURVES = ROOT / "docs" / "curves"


@dataclass(frozen=True, slots=True)
class Gate:
    """What a preset must reach."""

    seeds: int
    wanted: float  # for the interquartile mean over the seeds
    figure: str = "return"  # of the greedy episodes: "return" (mean) or "success" (share of successes)


GATES = {
    "cartpole-dqn": Gate(10, 475.0),
    "cartpole-ppo": Gate(10, 475.0),
    "pendulum-sac": Gate(10, -200.0),
    "pendulum-ppo": Gate(10, -200.0),
    "acrobot-dqn": Gate(5, -85.0),
    "bitflip8-dqn-her": Gate(5, 0.9, "success"),
    "cartpole-novel-r2d2": Gate(10, 450.0),
    "cartpole-novel-ppo-lstm": Gate(10, 450.0),
    "cartpole-dqn-per": Gate(10, 475.0),
    "cartpole-a2c": Gate(10, 475.0),
    "cartpole-reinforce": Gate(10, 475.0),
    "cartpole-trpo": Gate(10, 475.0),
    "cartpole-ppg": Gate(10, 475.0),
    "acrobot-ppo": Gate(5, -85.0),
    "pendulum-a2c": Gate(10, -200.0),
    "mountaincar-ppo": Gate(5, -110.0),
    "chain20-ppo-rnd": Gate(5, 0.9, "success"),
    "cartpole-c51": Gate(10, 475.0),
    "cartpole-rainbow": Gate(10, 475.0),
    "cartpole-qrdqn": Gate(10, 475.0),
    "cartpole-iqn": Gate(10, 475.0),
    "cartpole-fqf": Gate(10, 475.0),
    "cartpole-mdqn": Gate(10, 475.0),
    "cartpole-pqn": Gate(10, 475.0),
    "cartpole-novel-drqn": Gate(10, 450.0),
    "acrobot-qrdqn": Gate(5, -85.0),
    "pendulum-ddpg": Gate(10, -200.0),
    "pendulum-td3": Gate(10, -200.0),
    "pendulum-tqc": Gate(10, -200.0),
    "pendulum-redq": Gate(10, -200.0),
    "pendulum-crossq": Gate(10, -200.0),
    "cartpole-sac-discrete": Gate(10, 475.0),
    "mountaincar-continuous-sac": Gate(5, 93.0),
}
EPISODES, TEST_SEED = 100, 1_000_003


def iqm(values: np.ndarray) -> float:
    """Mean of the middle half: a quarter of the values is left out at either end, fractions of a value weighted."""
    ordered = np.sort(values)
    edges = np.arange(len(ordered) + 1) / len(ordered)
    share = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return float((ordered * share).sum() / share.sum())


def interval(values: np.ndarray, draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the interquartile mean."""
    rng = np.random.Generator(np.random.PCG64(0))
    means = [iqm(rng.choice(values, len(values))) for _ in range(draws)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def one(preset: str, seed: int, out: Path, overrides: list[str]) -> dict:
    """Train one seed, judge its last policy."""
    folder = out / f"{preset}-{seed}"
    python = [sys.executable, "-m", "rookery"]
    started = time.monotonic()
    train = [
        *python,
        "train",
        preset,
        *overrides,
        "log.sinks=[jsonl]",
        f"--seed={seed}",
        f"--out={folder}",
        "--on-exists=resume",
    ]
    done = subprocess.run(train, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(train)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    judge = [
        *python,
        "eval",
        str(folder),
        "--json",
        f"--episodes={EPISODES}",
        f"--seed={TEST_SEED}",
        "--checkpoint=last",
    ]
    judged = subprocess.run(judge, capture_output=True, text=True, cwd=ROOT, check=True)
    result = json.loads(judged.stdout)
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figure = GATES[preset].figure
    value = result["mean" if figure == "return" else figure]
    curve = [(m["eval/steps"], m[f"eval/{figure}_mean"]) for m in lines if f"eval/{figure}_mean" in m]
    print(
        f"{preset} seed {seed}: {figure} {value:.4g}, returns {result['mean']:.1f} ± {result['std']:.1f}  ({time.monotonic() - started:.0f} s, {summary['learning_mode']})",
        flush=True,
    )
    return {
        "seed": seed,
        "mean": value,
        "steps": summary["steps"],
        "mode": summary["learning_mode"],
        "curve": curve,
    }


def gate(preset: str, seeds: range, out: Path, jobs: int, overrides: list[str]) -> dict:
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda seed: one(preset, seed, out, overrides), seeds))
    means = np.array([run["mean"] for run in runs])
    low, high = interval(means)
    wanted, figure = GATES[preset].wanted, GATES[preset].figure
    passed = iqm(means) >= wanted
    print(
        f"{preset}: IQM of the {figure} {iqm(means):.4g} [{low:.4g}, {high:.4g}] over {len(runs)} seeds, gate {wanted}: {'met' if passed else 'MISSED'}",
        flush=True,
    )
    found = {"iqm": iqm(means), "low": low, "high": high, "gate": wanted, "met": bool(passed), "runs": runs}
    return found if figure == "return" else found | {"figure": figure}


def store(preset: str, result: dict) -> None:
    """Figure into the zoo, curve into the docs."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    runs, figure = result["runs"], result.get("figure", "return")
    measured = {
        f"{figure}_iqm": round(result["iqm"], 2),
        "interval": [round(result["low"], 2), round(result["high"], 2)],
        "steps": runs[0]["steps"],
        "seeds": len(runs),
        "episodes": EPISODES,
        "mode": runs[0]["mode"],
        "gate": result["gate"],
    }
    results[preset] = {"status": "gold" if result["met"] and len(runs) >= 5 else "silver", "measured": measured}
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    CURVES.mkdir(parents=True, exist_ok=True)
    (CURVES / f"{preset}.json").write_text(json.dumps({"preset": preset, **result}, indent=None) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="presets and key=value overrides")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "learn")
    args = parser.parse_args()
    overrides = [word for word in args.words if "=" in word]
    presets = [word for word in args.words if "=" not in word] or list(GATES)
    failed = []
    for preset in presets:
        count = args.seeds or GATES[preset].seeds
        result = gate(preset, range(args.first, args.first + count), args.out, args.jobs, overrides)
        if not overrides and args.first == 0 and count >= GATES[preset].seeds:
            store(preset, result)
        if not result["met"]:
            failed.append(preset)
    if failed:
        raise SystemExit(f"gates missed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
