"""Parts of Rookery on their own: replay operations, engines, what a checkpoint costs, and whether
costs grow with what is stored.

Called by rookery_run.py.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rookery.core.chunk import Chunk
from rookery.core.rng import Streams
from rookery.core.spec import Leaf
from rookery.data import ReplayConfig, ReplayStore
from works import WORKS

PAIRS = 60  # windows with few and with many steps stored, in turns
SPACE = Path(__file__).resolve().parents[2] / "runs"  # for checkpoints: a folder for temporary files may be in memory


def measure(args: argparse.Namespace) -> dict[str, Any]:
    kinds = {
        "operation": operation,
        "engine": engine,
        "own": {"checkpoint": checkpoint, "growth": growth}.get(args.work),
    }
    return kinds[WORKS[args.work].kind](args)


def store_of(capacity: int, batch: int, obs: Leaf, columns: int = 1, **options: Any) -> ReplayStore:
    config = ReplayConfig(capacity=capacity, batch_size=batch, min_fill=batch, **options)
    streams = Streams(0)
    action = Leaf("discrete", (), np.dtype(np.int64), (2,))
    return ReplayStore(config, obs, action, columns, 0.99, 1, streams.numpy("store"), total_steps=capacity)


def chunk_of(obs: np.ndarray, last: np.ndarray) -> Chunk:
    """T rows of B columns in the middle of an episode."""
    shape, flag = obs.shape[:2], np.zeros(obs.shape[:2], bool)
    rows = {"obs": obs, "action": np.ones(shape, np.int64), "reward": np.ones(shape, np.float32), "terminated": flag}
    rows |= {"truncated": flag, "first": flag, "valid": ~flag}
    return Chunk(rows, last, obs[:0, 0], np.zeros((0, 2), np.int64))


# --- replay ---


def operation(args: argparse.Namespace) -> dict[str, Any]:
    """Calls of ReplayStore as the trainer makes them; one step of one env per add."""
    s, prioritised = WORKS[args.work].settings, args.work == "replay-prioritised"
    options = {"priority": {"alpha": s["alpha"], "beta": {"start": s["beta"]}}} if prioritised else {}
    store = store_of(s["capacity"], s["batch"], Leaf("box", (s["obs"],), np.dtype(np.float32)), **options)
    rng = np.random.default_rng(args.seed)
    obs = rng.random((1_001, 1, 1, s["obs"]), np.float32)
    chunks = [chunk_of(obs[i], obs[i + 1][0]) for i in range(1_000)]

    def add(count: int) -> None:
        for i in range(count):
            store.add(chunks[i % 1_000])

    add(s["capacity"])
    answer = {"priority": rng.random(s["batch"], np.float32)}
    store.feedback(store.sample()[1], answer)  # kernels come from their cache
    started = time.perf_counter()
    if args.work == "replay-add":
        add(args.steps)
    else:
        for _ in range(args.steps):
            _, keys = store.sample()
            store.feedback(keys, answer)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "steps": args.steps, "updates": 0, "parameters": 0, "network": "", "batch": s["batch"]}


# --- engines ---


def engine(args: argparse.Namespace) -> dict[str, Any]:
    """Env steps (holes not counted) with actions that were drawn before."""
    from rookery import envs
    from rookery.envs.config import EnvConfig

    s = WORKS[args.work].settings
    config = EnvConfig(id=s["env"], num=s["envs"], engine=args.mode)
    vector = envs.make(config, count=s["envs"], purpose="train", streams=Streams(args.seed))
    actions = np.random.default_rng(args.seed).integers(2, size=(1_000, s["envs"]))
    vector.reset()

    def play(wanted: int) -> int:
        steps = i = 0
        while steps < wanted:
            out = vector.step(actions[i % 1_000])
            steps += int(np.count_nonzero(out.valid)) if out.marked else s["envs"]
            i += 1
        return steps

    play(args.warm)
    started = time.perf_counter()
    steps = play(args.steps)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "steps": steps, "updates": 0, "parameters": 0, "network": "", "batch": s["envs"]}


# --- checkpoints ---


def checkpoint(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds and bytes of the first checkpoint of a replay of frames, and of the next
    one after 10 000 more of them."""
    from rookery.run.checkpoints.checkpoints import Checkpoints

    SPACE.mkdir(exist_ok=True)
    capacity, frames, columns = args.steps, 10_000, 8
    if args.steps > 500_000 and shutil.disk_usage(SPACE).free < 3 * capacity * 84 * 84:
        capacity = 100_000
        print(f"{SPACE} has no room for {args.steps} frames: measured with {capacity}")
    store = store_of(capacity, 32, Leaf("box", (84, 84), np.dtype(np.uint8)), columns, max_memory=None)
    rng = np.random.default_rng(args.seed)

    def add(count: int) -> None:
        for _ in range(count // (125 * columns)):
            screens = rng.integers(256, size=(126, columns, 84, 84), dtype=np.uint8)
            store.add(chunk_of(screens[:125], screens[125]))

    add(capacity)
    figures = []
    with tempfile.TemporaryDirectory(dir=SPACE, prefix=".bench-") as folder:
        checkpoints, seen = Checkpoints(Path(folder)), set()
        saves = ("first", "second", "next")  # two chains: from the third on, what has not changed is linked
        for name, steps in zip(saves, range(capacity, capacity + 3 * frames, frames)):
            started = time.perf_counter()
            path = checkpoints.save(steps, {"store": store.state()}, {})
            seconds = time.perf_counter() - started
            files = {file.stat().st_ino: file.stat().st_size for file in path.rglob("*") if file.is_file()}
            written = sum(size for inode, size in files.items() if inode not in seen)
            seen |= set(files)
            figures += [{"name": f"{name}-seconds", "value": seconds, "unit": "s"}]
            figures += [{"name": f"{name}-written", "value": written / 1e6, "unit": "MB"}]
            add(frames)
    if capacity < 1_000_000:
        times = 1_000_000 / capacity
        figures += [{"name": "first-seconds-of-1e6", "value": times * figures[0]["value"], "unit": "s, extrapolated"}]
    return {"figures": figures, "steps": capacity}


# --- growth ---


def growth(args: argparse.Namespace) -> dict[str, Any]:
    """Time per env step with WARM and with STEPS steps stored, in turns, and how resident memory grew from
    a full ring to STEPS steps."""
    few, many = (_reports(args.warm // 4, capacity=2 * args.steps) for _ in range(2))
    for reports, stored in ((few, args.warm), (many, args.steps)):
        next(steps for _, steps, _ in reports if steps >= stored)
    costs = np.array([[next(few)[0], next(many)[0]] for _ in range(PAIRS)])
    marks = list(_reports(args.warm // 4, capacity=args.steps // 10, until=args.steps))
    full = next(memory for _, steps, memory in marks if steps >= args.steps // 10)
    return {
        "steps": args.steps,
        "figures": [
            {"name": f"step-at-{args.warm:.0e}", "value": float(np.median(costs[:, 0])), "unit": "µs"},
            {"name": f"step-at-{args.steps:.0e}", "value": float(np.median(costs[:, 1])), "unit": "µs"},
            {
                "name": "step-ratio",
                "value": float(np.median(costs[:, 1] / costs[:, 0])),
                "unit": "×",
                "target": "0.9 … 1.1",
            },
            {"name": "memory-growth", "value": marks[-1][2] - full, "unit": "MB", "target": "flat"},
        ],
    }


def _reports(every: int, capacity: int, until: int | None = None) -> Iterator[tuple[float, int, float]]:
    """(µs per env step since the last report, env steps, MB resident) of a DQN with few updates, at every report."""
    from rookery.run.config.resolve import load_config
    from rookery.run.trainer import Trainer

    words = ["env.num=8", "env.engine=native", f"store.capacity={capacity}", "store.updates_per_step=0.03125"]
    words += [f"log.every_steps={every}", "eval.every_steps=0", "eval.at_end=false", "algo.epsilon=1.0"]
    words += ["learning.mode=eager", f"train.max_steps={until or 2 * capacity}"]
    with Trainer(load_config(algo="dqn", env="CartPole-v1", overrides=words)) as trainer:
        started, before = time.perf_counter(), 0
        for progress in trainer:
            cost = 1e6 * (time.perf_counter() - started) / max(progress.steps - before, 1)
            yield cost, progress.steps, resident()
            started, before = time.perf_counter(), progress.steps


def resident() -> float:
    """Resident memory in MB."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1024
