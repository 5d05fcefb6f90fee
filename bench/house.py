"""The house measured: folders, cycles, walks, branches, lines; and whether a change of the house changed bits or speed.

    python bench/house.py                          what the tree looks like now
    python bench/house.py --tree PATH              what another checkout looks like
    python bench/house.py golden --against COMMIT  short runs of both trees in one go on this machine: equal weights?
    python bench/house.py speed --against COMMIT   CPU seconds of both trees, in interleaved pairs: ratio, interval
    python bench/house.py dict                     one agent through env.api=dict: CPU seconds beside gymnasium's API
    python bench/house.py resume --against COMMIT  runs killed in the old tree go on in this one, to the old tree's end

files      distinct files under src/rookery that `sys.setprofile` sees in one warm round
changes    consecutive calls in different files
cycles     strongly connected modules, imports inside functions and `if TYPE_CHECKING` counted
lines      of code, without docstrings, comments and blank lines
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COMMON = ["log.every_steps=200", "log.sinks=[jsonl]", "eval.every_steps=500", "eval.episodes=2", "eval.num=2"]
SMALL = ["store.min_fill=100", "store.batch_size=32", "store.capacity=1000"]
WALK = "--env=same.counting:Counting-v0"
PPO = ["--algo=ppo", WALK, "env.num=4", "algo.rollout=16", "train.max_steps=1500", "model.hidden=[16,16]"]
DQN = ["--algo=dqn", WALK, "env.num=2", *SMALL, "train.max_steps=1200", "model.hidden=[16,16]"]
CASES = [
    "dqn",
    "dqn-per",
    "dqn-her",
    "dqn-native",
    "dqn-stack",
    "rainbow",
    "r2d2",
    "iqn",
    "ppo",
    "ppo-lstm",
    "ppg",
    "trpo",
    "impala",
    "appo",
    "sac",
    "td3",
    "ddpg-drift",
    "crossq",
    "tqc",
    "ppo-rnd",
    "a2c-icm",
    "two-players",
]
MORE = {  # what the cases leave out
    "ppo-process": [*PPO, "pool=process", "pool.workers=2"],
    "dqn-process": [*DQN, "pool=process", "pool.workers=2"],
    "dqn-env-workers": [*DQN, "env.workers=subprocess"],
    "ppo-two-learners": [*PPO, "learning.learners=2"],
    "dqn-drop": [
        "--algo=dqn", "--env=bench.house_envs:Failing", "env.on_bad=drop", *SMALL, "train.max_steps=1200",
        "model.hidden=[16,16]",
    ],
    "dqn-compiled": [*DQN, "learning.mode=compiled"],
    "ppo-compiled": [*PPO, "learning.mode=compiled"],
    "sac-compiled": [
        "--algo=sac", "--env=same.counting:CountingContinuous-v0", *SMALL, "algo.warmup=100", "train.max_steps=800",
        "model.hidden=[16,16]", "learning.mode=compiled",
    ],
}  # fmt: skip
SPEED = {
    "dqn 1/1": ["cartpole-dqn", "env.num=1", "store.updates_per_step=1", "train.max_steps=12000"],
    "dqn 8 envs 1/4": ["cartpole-dqn", "env.num=8", "store.updates_per_step=0.25", "train.max_steps=60000"],
    "ppo": ["cartpole-ppo", "train.max_steps=150000"],
    "sac": ["pendulum-sac", "train.max_steps=2500"],
}
QUIET = [
    "learning.mode=compiled",  # where the loop around the updates weighs most
    "eval.every_steps=0",
    "eval.at_end=false",
    "train.stop={}",
    "log.sinks=[]",
    "checkpoint.every_steps=0",
    "checkpoint.at_end=false",
]


CLI = "from rookery.cli.main import main; main()"


# --- what the tree looks like ---


def modules(tree: Path) -> dict[str, Path]:
    source = tree / "src"
    found = {}
    for path in sorted((source / "rookery").rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports_of(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Every module of the package that this one imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {module if module in known else node.module for module in below}
    return (found & set(known)) - {name}


def cycles(tree: Path) -> list[list[str]]:
    known = modules(tree)
    del known["rookery"]  # its public names are imported when first used
    graph = {name: imports_of(name, path, known) for name, path in known.items()}
    order: list[str] = []
    seen: set[str] = set()

    def visit(node: str, edges: dict[str, set[str]], out: list[str]) -> None:
        stack = [(node, iter(sorted(edges[node])))]
        seen.add(node)
        while stack:
            _here, rest = stack[-1]
            for following in rest:
                if following not in seen:
                    seen.add(following)
                    stack.append((following, iter(sorted(edges[following]))))
                    break
            else:
                out.append(stack.pop()[0])

    for node in graph:
        if node not in seen:
            visit(node, graph, order)
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    seen.clear()
    components = []
    for node in reversed(order):
        if node not in seen:
            component: list[str] = []
            visit(node, back, component)
            components.append(component)
    return sorted((sorted(c) for c in components if len(c) > 1), key=len, reverse=True)


def code_lines(path: Path) -> int:
    """Lines with code on them: no docstring, no comment, no blank line."""
    text = path.read_text()
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docs |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if number not in docs and line.strip() and not line.strip().startswith("#"))


BRANCHES = {  # what is counted, and how a line that does it looks
    "single or several": r"players is (not )?None|players\.single\b|\.several\b|self\.prefix\b(?! \+)"
    r"|player\.prefix\b(?! \+)"
    r"|len\(.*players\) [=>]"
    r"|\"players\" (not )?in |several=|MultiCollector\(|\bseveral:",
    "store_kind outside data": r"store_kind (==|!=)|\[[\w.]*store_kind\]",
    "isinstance of a store outside data": r"isinstance\(.*(Replay|Rollout|Mixture|Demonstrations)",
    "probes of an algorithm's fields": r"(getattr|hasattr)\((self\.|view\.|player\.)?(config\.)?"
    r"(algo|algorithm|store)\b",
    "constructions of an algorithm": r"\.algorithm\((config|view|self|player)",
}


def branches(tree: Path) -> dict[str, int]:
    counts = dict.fromkeys(BRANCHES, 0)
    for name, path in modules(tree).items():
        for what, pattern in BRANCHES.items():
            if "outside data" in what and (name.startswith(("rookery.data", "rookery.algos"))):
                continue
            counts[what] += sum(1 for line in path.read_text().splitlines() if re.search(pattern, line))
    return counts


def folders(tree: Path) -> Counter[str]:
    """Modules per folder, `__init__` apart."""
    paths = [path for path in modules(tree).values() if path.name != "__init__.py"]
    return Counter(str(path.parent.relative_to(tree / "src")) for path in paths)


WALK_CODE = """
import os, sys, tempfile
os.environ.setdefault("OMP_NUM_THREADS", "1")
from rookery import Trainer, load_config
root = os.path.join(sys.argv[1], "src", "rookery") + os.sep
seen, changes, last = set(), 0, None
def tell(frame, event, arg):
    global changes, last
    if event == "call" and frame.f_code.co_filename.startswith(root):
        name = frame.f_code.co_filename
        seen.add(name); changes += name != last; last = name
config = load_config(preset="cartpole-dqn", overrides=["learning.mode=eager", "store.min_fill=100",
    "store.batch_size=64", "store.updates_per_step=1", "env.num=1"])
sys.setprofile(tell)
trainer = Trainer(config)
sys.setprofile(None)
built = len(seen)
for _ in range(300): trainer.round()
seen, changes, last = set(), 0, None
sys.setprofile(tell)
trainer.round()
sys.setprofile(None)
trainer.shut()
print("WALK", built, len(seen), changes)
"""


def environment(tree: Path) -> dict[str, str]:
    paths = [str(tree / "src"), str(tree / "tests"), str(HERE)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def walks(tree: Path) -> tuple[int, int, int]:
    """(files of Trainer(config), files of a warm DQN round, changes of file in it)."""
    run = subprocess.run(
        [sys.executable, "-c", WALK_CODE, str(tree)], env=environment(tree), capture_output=True, text=True, check=False
    )
    line = next((line for line in run.stdout.splitlines() if line.startswith("WALK")), None)
    if line is None:
        raise SystemExit(f"the walk failed:\n{run.stderr[-2000:]}")
    built, files, changes = (int(n) for n in line.split()[1:])
    return built, files, changes


def describe(tree: Path) -> None:
    counted, looped = folders(tree), cycles(tree)
    built, files, changes = walks(tree)
    print(f"largest folders            {', '.join(f'{name} {n}' for name, n in counted.most_common(6))}")
    print(f"cycles with late imports   {', '.join(str(len(cycle)) for cycle in looped) or 'none'}")
    for cycle in looped:
        print(f"                           {' · '.join(cycle)}")
    print(f"Trainer(config)            {built} files")
    print(f"one warm DQN round         {files} files, {changes} changes of file")
    for what, count in branches(tree).items():
        print(f"{what:<26} {count}")
    paths = modules(tree).values()
    print(
        f"lines of src               {sum(map(code_lines, paths))} of code, "
        f"{sum(len(p.read_text().splitlines()) for p in paths)} in all"
    )
    print(
        f"modules under 60 lines     "
        f"{sum(1 for p in paths if p.name != '__init__.py' and len(p.read_text().splitlines()) < 60)}"
    )


# --- whether bits are the same ---


def checkout(commit: str) -> Path:
    """The files of a commit, outside the tree; made once, so that numba compiles its kernels once."""
    sha = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", commit], capture_output=True, text=True, check=True
    ).stdout.strip()
    into = Path(tempfile.gettempdir()) / f"rookery-house-{sha[:12]}"
    if not (into / "pyproject.toml").exists():
        into.mkdir(exist_ok=True)
        archive = subprocess.run(["git", "-C", str(HERE), "archive", sha], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(into)], input=archive.stdout, check=True)
    return into


def arguments_of(case: str) -> list[str]:
    if case in MORE:
        return [*MORE[case], *COMMON]
    sys.path.insert(0, str(HERE / "tests"))
    from same.cases import CASES as KNOWN
    from same.cases import COMMON as SHORT

    return [*KNOWN[case], *SHORT]


def train(tree: Path, arguments: list[str], out: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CLI, "train", *arguments, f"--out={out}"]
    return subprocess.run(
        command, env=environment(tree) | more, capture_output=True, text=True, check=False, cwd=out.parent
    )


def weights_of(tree: Path, case: str, folder: Path, cache: Path) -> str:
    """Of a run's end. Those of a commit's checkout are kept beside it: the same machine gives the same bits."""
    arguments = [*arguments_of(case), *([] if case.endswith("compiled") else ["learning.mode=eager"])]
    kept = tree / "golden" / f"{case}-{hashlib.sha256(repr(arguments).encode()).hexdigest()[:12]}"
    if tree != HERE and kept.exists():
        return kept.read_text()
    run = train(tree, [*arguments, f"learning.cache={cache}"], folder / case)
    summary = folder / case / "summary.json"
    if run.returncode or not summary.exists():
        return f"failed: {(run.stderr or run.stdout).strip().splitlines()[-1:]}"
    weights = str(json.loads(summary.read_text())["weights_sha256"])
    if tree != HERE:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(weights)
    return weights


def golden(against: str, only: list[str]) -> int:
    """1 if any run of this tree has other weights than the same run of the commit."""
    cases = only or [*CASES, *MORE]
    with tempfile.TemporaryDirectory(prefix="house-") as name:
        top = Path(name)
        trees = {"old": checkout(against), "new": HERE}
        jobs = {(side, case): (tree, case) for case in cases for side, tree in trees.items()}
        for side in trees:
            (top / side).mkdir()
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = {
                key: threads.submit(weights_of, tree, case, top / key[0], top / f"cache-{key[0]}")
                for key, (tree, case) in jobs.items()
            }
            different = 0
            for case in cases:
                old, new = found["old", case].result(), found["new", case].result()
                same = old == new and not old.startswith("failed")
                different += not same
                print(f"{'equal    ' if same else 'DIFFERENT'}  {case:<18} {old[:60]}  {new[:60]}", flush=True)
    print(f"{len(cases) - different} of {len(cases)} equal")
    return int(different > 0)


def resume(against: str, only: list[str]) -> int:
    """Runs that the old tree began and this one ends have the weights of the old tree's uninterrupted run."""
    cases = only or ["dqn", "dqn-per", "ppo", "sac", "dqn-stack", "r2d2", "ppo-lstm", "dqn-her"]
    different = 0
    with tempfile.TemporaryDirectory(prefix="house-") as name:
        top = Path(name)
        old = checkout(against)
        for case in cases:
            arguments = [*arguments_of(case), "learning.mode=eager", f"learning.cache={top / 'cache'}"]
            whole = next(int(a.partition("=")[2]) for a in arguments if a.startswith("train.max_steps"))
            # schedules over the whole run must not see the shorter limit, so the run is killed by a
            # signal at its second checkpoint
            train(old, arguments, top / f"{case}-whole")
            killed = top / f"{case}-killed"
            code = (
                "import os, signal, sys\nfrom rookery import Callback, Experiment\n"
                "class Kill(Callback):\n    def checkpoint(self, path):\n"
                f"        if path.name.startswith('step-') and int(path.name[5:]) * 2 >= {whole}: "
                f"os.kill(os.getpid(), signal.SIGKILL)\n"
                "from rookery.cli import main\n"
                "import rookery\nEx = rookery.Experiment\ninit = Ex.__init__\n"
                "def patched(self, *a, **k):\n    init(self, *a, **k); self.callbacks.append(Kill())\n"
                "Ex.__init__ = patched\nmain.main()\n"
            )
            command = [sys.executable, "-c", code, "train", *arguments, f"--out={killed}"]
            subprocess.run(command, env=environment(old), capture_output=True, text=True, check=False, cwd=top)
            run = subprocess.run(
                [sys.executable, "-c", CLI, "train", f"--resume={killed}"],
                env=environment(HERE), capture_output=True, text=True, check=False, cwd=top,
            )  # fmt: skip
            summaries = [folder / "summary.json" for folder in (top / f"{case}-whole", killed)]
            ends = [json.loads(path.read_text()) if path.exists() else {} for path in summaries]
            same = (
                bool(ends[0])
                and ends[0].get("weights_sha256") == ends[1].get("weights_sha256")
                and bool(ends[1].get("resumed_from"))
            )
            different += not same
            told = f"resumed from {ends[1].get('resumed_from')} exact {ends[1].get('exact')}"
            problem = "" if same else run.stderr[-300:]
            print(f"{'equal    ' if same else 'DIFFERENT'}  {case:<12} {told} {problem}", flush=True)
    return int(different > 0)


# --- whether it is as fast ---

SPEED_CODE = """
import os, resource, sys
from rookery import Experiment
import tempfile
def seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
preset, cache, *overrides = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    experiment = Experiment(preset, overrides=[*overrides, f"learning.cache={cache}"], out=folder + "/run")
    from rookery import Callback
    class Clock(Callback):
        def run_start(self, progress): self.start = seconds()
        def run_end(self, progress): print("CPU", seconds() - self.start)
    experiment.callbacks.append(Clock())
    experiment.train()
"""


SLICE = 0.25  # seconds


def cpu_seconds(runs: dict[str, tuple[Path, list[str]]]) -> dict[str, float]:
    """What scripts that end with a line `CPU seconds` measured: side → (tree, code and arguments).

    They take turns on one core, a slice each, so that whatever slows the machine for a while slows them all.
    """
    core = max(os.sched_getaffinity(0))
    started = {}
    for side, (tree, words) in runs.items():
        started[side] = subprocess.Popen(
            [sys.executable, "-c", *words],
            env=environment(tree),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.sched_setaffinity(started[side].pid, {core})
        started[side].send_signal(signal.SIGSTOP)
    while alive := [run for run in started.values() if run.poll() is None]:
        for run in alive:
            run.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                run.wait(SLICE)
            if run.poll() is None:
                run.send_signal(signal.SIGSTOP)
    return {side: _measured(run) for side, run in started.items()}


def _measured(run: subprocess.Popen[str]) -> float:
    out, err = run.communicate()
    line = next((line for line in out.splitlines() if line.startswith("CPU")), None)
    if line is None:
        raise SystemExit(f"a timed run failed:\n{err[-2000:]}")
    return float(line.split()[1])


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """(geometric mean, lower and upper end of its 95 % bootstrap interval)."""
    import numpy as np

    logs = np.log(ratios)
    drawn = np.random.default_rng(0).choice(logs, (4000, len(logs))).mean(1)
    low, high = np.exp(np.quantile(drawn, (0.025, 0.975)))
    return float(np.exp(logs.mean())), float(low), float(high)


def ratios(runs: dict[str, tuple[Path, list[str]]], pairs: int, label: str) -> None:
    """Ratio first / second of CPU seconds over so many pairs; who begins alternates."""
    cpu_seconds(runs)  # what is built and cached is not measured
    times: dict[str, list[float]] = {side: [] for side in runs}
    for turn in range(pairs):
        sides = list(runs) if turn % 2 == 0 else list(reversed(runs))
        for side, seconds in cpu_seconds({side: runs[side] for side in sides}).items():
            times[side].append(seconds)
        print(f"{label}: {[round(seconds[-1], 2) for seconds in times.values()]}", file=sys.stderr, flush=True)
    first, second = times
    mean, low, high = interval([a / b for a, b in zip(times[first], times[second])])
    medians = [statistics.median(values) for values in times.values()]
    print(
        f"{label:<16} {first} / {second} {mean:.3f} [{low:.3f}, {high:.3f}]  {pairs} pairs, medians "
        f"{medians[0]:.2f} and {medians[1]:.2f} s",
        flush=True,
    )


def speed(against: str, only: list[str], pairs: int) -> int:
    """Ratio old / new of CPU seconds: above 1 this tree is faster."""
    with tempfile.TemporaryDirectory(prefix="house-") as name:
        trees = {"old": checkout(against), "new": HERE}
        for label, (preset, *words) in SPEED.items():
            if not only or label in only:
                runs = {
                    side: (tree, [SPEED_CODE, preset, f"{name}/cache-{side}", *words, *QUIET])
                    for side, tree in trees.items()
                }
                ratios(runs, pairs, label)
    return 0


DICT_CODE = """
import sys
from time import process_time
from rookery import Trainer, load_config
kind = sys.argv[1]
there = "bench.house_envs:DictCartPole" if kind == "dict" else "gymnasium.envs.classic_control:CartPoleEnv"
env = [f"env.id={there}", "env.max_episode_steps=500", *["env.api=dict"] * (kind == "dict")]
config = load_config(algo="dqn", overrides=[*env, "env.num=8", "learning.mode=eager",
    "train.max_steps=1000000", "store.capacity=100000"])
trainer = Trainer(config)
collector = trainer.pool.collectors[0]
collector.load({name: player.message(0) for name, player in trainer.players.items()})
for rows in (200, 12000):  # the first is for warming up
    start = process_time()
    for _ in range(rows // 4): collector.collect(4)
    used = process_time() - start
trainer.shut()
print("CPU", used)
"""


def dicts(pairs: int) -> int:
    """Ratio of CPU seconds of collecting one agent: env.api=dict / gymnasium's API, of the same env."""
    ratios({kind: (HERE, [DICT_CODE, kind]) for kind in ("dict", "gymnasium")}, pairs, "96 000 steps")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", nargs="?", default="describe", choices=["describe", "golden", "speed", "dict", "resume"]
    )
    parser.add_argument("--tree", type=Path, default=HERE)
    parser.add_argument("--against", default="79e6854")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--pairs", type=int, default=15)
    given = parser.parse_args()
    if given.what == "golden":
        return golden(given.against, given.only)
    if given.what == "speed":
        return speed(given.against, given.only, given.pairs)
    if given.what == "dict":
        return dicts(given.pairs)
    if given.what == "resume":
        return resume(given.against, given.only)
    describe(given.tree.resolve())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
