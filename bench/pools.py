"""Pools, measured: rounds of PPO with 8 envs whose steps sleep 10 ms, wherever they are stepped.

    python bench/pools.py [--rounds 2] [--repeats 5] [--json FILE]

    local             one process steps all 8 envs, one after the other
    process, k        pool=process with k workers of 8 / k envs each
    subprocess, k     one collector, whose envs are stepped in k processes (env.workers)

A sleeping env needs no CPU, so the gain of k processes does not depend on the machine's cores: it is k, less
the hand-over. The sides take turns, `repeats` times; every side must have done the same number of env steps
and updates, or nothing is shown. Ratios are taken within a turn. Never a pass/fail test: the targets are 1.8 ×
with 2 processes and 3 × with 4.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from rookery import Trainer, load_config

ENVS = 8
WORDS = [
    "env.kwargs={least: 0.01, most: 0.01}",
    "algo.rollout=16",
    "algo.epochs=1",
    "algo.minibatches=1",
    "model.hidden=[16]",
    "learning.mode=eager",
    "log.sinks=[]",
    "train.max_steps=1000000",
]
SIDES = {
    "local": [f"env.num={ENVS}"],
    **{f"process, {k}": ["pool=process", f"pool.workers={k}", f"env.num={ENVS // k}"] for k in (2, 4)},
    **{f"subprocess, {k}": ["env.workers=subprocess", f"env.workers.processes={k}", f"env.num={ENVS}"] for k in (2, 4)},
}


def turn(trainer: Trainer, rounds: int) -> dict[str, float]:
    """Seconds, env steps and updates of so many rounds."""
    steps, updates, started = trainer.steps, trainer.updates, time.perf_counter()
    for _ in range(rounds):
        trainer.round()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "steps": trainer.steps - steps, "updates": trainer.updates - updates}


def measure(rounds: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    with ExitStack() as opened:
        sides = {}
        for name, words in SIDES.items():
            config = load_config(algo="ppo", env="workers:Waiting", overrides=[*WORDS, *words])
            sides[name] = opened.enter_context(Trainer(config))
            sides[name].round()  # starts its processes
        for _ in range(repeats):
            for name, trainer in sides.items():
                found[name].append(turn(trainer, rounds))
    work = {(told["steps"], told["updates"]) for turns in found.values() for told in turns}
    assert work == {(rounds * 16 * ENVS, rounds)}, f"the sides did not do the same work: {sorted(work)}"
    return found


def row(name: str, turns: list[dict[str, float]], base: list[dict[str, float]]) -> dict[str, object]:
    rates = [told["steps"] / told["seconds"] for told in turns]
    ratios = [b["seconds"] / told["seconds"] for told, b in zip(turns, base)]
    return {
        "side": name,
        "median": statistics.median(rates),
        "low": min(rates),
        "high": max(rates),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "n": len(turns),
        "steps": sum(told["steps"] for told in turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args()
    found = measure(given.rounds, given.repeats)
    load = os.getloadavg()[0]
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs, load {load:.1f}, n = {given.repeats} turns")
    print(f"{'side':16} {'steps/s':>8} {'range':>14} {'ratio':>8} {'range':>14} {'steps':>7}")
    rows = [row(name, turns, found["local"]) for name, turns in found.items()]
    for it in rows:
        rates, ratios = f"{it['low']:.0f} – {it['high']:.0f}", f"{it['ratio_low']:.2f} – {it['ratio_high']:.2f}"
        print(
            f"{it['side']:16} {it['median']:>8.0f} {rates:>14} {it['ratio']:>6.2f} × {ratios:>14} {it['steps']:>7.0f}"
        )
    if given.json is not None:
        about = {"date": time.strftime("%Y-%m-%d"), "cpus": os.cpu_count(), "load": load}
        given.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
