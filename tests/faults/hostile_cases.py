"""The attacks of `make attack`, by row of the list of faults (F31 …). What must happen is what is documented."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from faults.commands import quick
from faults.hostile import GIVEN_UP, Attack, Outcome, edit, ended, reseal, surroundings
from faults.sockets import is_local, knock, listening

VICTIM = (*quick("dqn"), "--env", "CartPole-v1", "--out", "run")
RESUME = ("train", "--resume", "run", "train.max_steps=160")
EVAL = ("eval", "run")
GIB = 1 << 30
NAMES = {31: "edited config", 32: "flipped bits", 33: "code that a config names", 34: "links and pipes", 35: "sockets"}
NAMES |= {36: "bombs", 37: "parts that are missing", 38: "sys.exit in user code", 41: "no time limit"}
NAMES |= {42: "errors in user code", 43: "a signal while compiling", 44: "a signal in a script"}
NAMES |= {45: "odd values of envs", 46: "streams"}


def train(*words: str, algo: str = "dqn", env: str = "CartPole-v1", out: str = "new") -> tuple[str, ...]:
    return ("train", *quick(algo, *words), "--env", env, "--out", out)


def newest(folder: Path) -> Path:
    return max((folder / "run" / "checkpoints").glob("step-*"))


def summary(folder: Path, name: str = "new") -> dict:
    file = folder / name / "summary.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def says(status: str, name: str = "new") -> Callable[[Path], str]:
    """A check of summary.json."""
    return lambda folder: "" if (got := summary(folder, name).get("status")) == status else f"summary.json: {got}"


# --- 31, 32, 37: the run folder is not what it was ---


def edited() -> Iterator[Attack]:
    changes = {"algo.gamma": "0.5", "model.hidden": "[5]", "store.batch_size": "8", "run.seed": "7", "env.num": "2"}
    for key, value in changes.items():
        word = f"{key}={value}"
        yield Attack(31, f"{word}, then --resume", RESUME, lambda f, w=word: edit(f, w), says=key)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def flipped() -> Iterator[Attack]:
    files = ["COMMIT", "manifest.json", "state.json", "streams.safetensors", "pool.safetensors"]
    files += ["players.main.learner.safetensors", "players.main.store.safetensors"]
    for name in files:
        yield Attack(32, f"{name} of the newest", RESUME, lambda f, n=name: flip(newest(f) / n), codes=(0,))

        def all_of_them(folder: Path, n: str = name) -> None:
            for checkpoint in (folder / "run" / "checkpoints").glob("step-*"):
                flip(checkpoint / n)

        yield Attack(32, f"{name} of all", RESUME, all_of_them, codes=(4,))


def without(*path: str) -> Callable[[Path], None]:
    """Take a part of the state out of every checkpoint, with hashes that fit."""

    def change(folder: Path) -> None:
        for checkpoint in (folder / "run" / "checkpoints").glob("step-*"):
            tree = json.loads((checkpoint / "state.json").read_text())
            node = tree
            for key in path[:-1]:
                node = node[key]
            node.pop(path[-1])
            reseal(checkpoint, "state.json", json.dumps(tree).encode())

    return change


def lacking() -> Iterator[Attack]:
    parts = [("streams",), ("pool",), ("meters",), ("experiment",), ("players", "main", "store"), ("run", "steps")]
    parts += [("players", "main", "learner"), ("players", "main", "learner", "tensors"), ("players",), ("run",)]
    for path in parts:
        yield Attack(37, f"no {'/'.join(path)}", RESUME, without(*path), codes=(4,))


# --- 33: code that a config names ---


def untrusted() -> Iterator[Attack]:
    def named(*words: str) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            mark = folder / "outside" / "executed"
            (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef call(*a, **k): pass\n")
            edit(folder, *words)

        return change

    configs = {
        "env.id=yaml:unsafe_load": ["env.id=yaml:unsafe_load", "env.kwargs={stream: x}"],
        "a module in import:": ["import=[evil]"],
        "a module in env.id": ["env.id=evil:CartPole-v1"],
        "a function in env.id": ["env.id=evil:call"],
        "a wrapper": ["env.wrappers=['evil:call']"],
        "an encoder": ["model.encoder=evil:call"],
        "a function of rookery": ["env.id=rookery.core.registry:import_module", "env.kwargs={name: evil}"],
        "gymnasium's recorder": [
            "env.wrappers=[{name: 'gymnasium.wrappers:RecordVideo', kwargs: {video_folder: outside}}]"
        ],
    }
    commands = {"eval": EVAL, "--resume": RESUME, "config show": ("config", "show", "run"), "doctor": ("doctor", "run")}
    for name, words in configs.items():
        for way, command in commands.items():
            yield Attack(33, f"{name}, {way}", command, named(*words), says="--trust")
    for module in ("os:system", "subprocess:Popen", "builtins:exec"):
        yield Attack(33, f"--env {module}", train(env=module), says="standard library")


# --- 34: links, pipes and devices in a run folder ---


def links() -> Iterator[Attack]:
    files = [".lock", "metrics.jsonl", "log.txt", "config.yaml", "spaces.json", "summary.json", "state.json"]

    def replaced(name: str, by: Callable[[Path, Path], None]) -> Callable[[Path], None]:
        def change(folder: Path) -> None:
            path = folder / "run" / name
            if path.is_dir():
                shutil.copytree(path, folder / "outside" / name)
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            by(path, folder / "outside")

        return change

    def unchanged(folder: Path, name: str) -> str:
        return "" if not list((folder / "outside" / name).glob("*new*")) else "wrote outside"

    for name in files:
        to_file = replaced(name, lambda path, outside: path.symlink_to(outside / "canary"))
        pipe = replaced(name, lambda path, _: os.mkfifo(path))
        replaceable = (0, 2, 4) if name in ("summary.json", "state.json") else (2, 4)  # replaced as a whole, unread
        yield Attack(34, f"{name} is a link", RESUME, to_file, codes=replaceable)
        yield Attack(34, f"{name} is a pipe", RESUME, pipe, codes=replaceable)
    for name in ("config.yaml", "spaces.json"):
        yield Attack(34, f"{name} is a pipe, eval", EVAL, replaced(name, lambda path, _: os.mkfifo(path)), codes=(2, 4))

    def folder_linked(folder: Path) -> None:
        (folder / "outside" / "there").mkdir()
        (folder / "run" / "tensorboard").symlink_to(folder / "outside" / "there")

    board = (*RESUME, "log.sinks=[jsonl, tensorboard]")
    yield Attack(34, "tensorboard is a link", board, folder_linked, codes=(2, 4))


# --- 35: strangers at the sockets ---


def strangers(attack: Attack, place: Path) -> Outcome:
    """Connect to whatever listens, as soon as it does, and claim to be one of them."""
    process, notes, held = attack.started(place), [], []
    seen, until = set(), time.monotonic() + GIVEN_UP
    while time.monotonic() < until and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        for address in listening(process.pid) - seen:
            seen.add(address)
            if not is_local(address):
                notes.append(f"listens on {address[0]}")
            held += [knock(address, number) for number in range(4)]
        time.sleep(0.01)
    outcome = ended(process, place)
    for connection in held:
        if connection is not None:
            connection.close()
    outcome.notes += notes
    return outcome


def sockets() -> Iterator[Attack]:
    for name, words in {
        "learning.learners=2": ("learning.learners=2", "train.max_steps=400", "learning.deadline=20"),
        "pool=process": ("pool=process", "pool.workers=2", "train.max_steps=400"),
        "env.workers=subprocess": ("env.workers=subprocess", "env.num=2", "train.max_steps=400"),
    }.items():
        yield Attack(35, name, train(*words), codes=(0,), check=says("finished"), attack=strangers, seconds=90)


# --- 36: bombs ---

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
MERGES = "m0: &m0 {k: v}\n" + "".join(
    f"m{i}: &m{i} {{? !!merge '<<' : [{', '.join([f'*m{i - 1}'] * 10)}]}}\n" for i in range(1, 10)
)
VALUES: dict[str, tuple[str, ...]] = {
    "env.stack=1e9": train("env.stack=1e9"),
    "env.num=1e9": train("env.num=1e9"),
    "eval.num=1e9": train("eval.num=1e9", "eval.episodes=1e9"),
    "eval.episodes=999999937": train("eval.episodes=999999937"),
    "model.hidden=[1e9]": train("model.hidden=[1000000000]"),
    "model.hidden=[2e5, 2e5]": train("model.hidden=[200000, 200000]"),
    "a hundred hidden layers of 30000": train(f"model.hidden={[30000] * 100}"),
    "model.core.size=1e9": train("model.core={size: 1000000000}", algo="ppo"),
    "model.layers of 1e9": train("model.layers=[{type: noisy, size: 1000000000}]", "model.hidden="),
    "algo.rollout=1e9": train("algo.rollout=1000000000", "train.max_steps=1000000000000", algo="ppo"),
    "algo.atoms=1e9": ("train", "cartpole-c51", "algo.atoms=1000000000", "--out", "new"),
    "algo.critics=1e9": ("train", "pendulum-redq", "algo.critics=1000000000", "--out", "new"),
    "algo.samples=1e9": ("train", "cartpole-iqn", "algo.samples=1000000000", "--out", "new"),
    "algo.quantiles=1e9": ("train", "cartpole-qrdqn", "algo.quantiles=1000000000", "--out", "new"),
    "store.capacity=1e12": train("store.capacity=1000000000000"),
    "store.batch_size=1e12": train("store.batch_size=1e12", "store.min_fill=1e12", "store.capacity=1e12"),
    "pool.workers=4096": train("pool=process", "pool.workers=4096", "train.max_steps=1e9"),
    "run.seed=1e400": train("run.seed=1" + "0" * 400),
    "a key of a megabyte": train("x" * 100_000 + "=1"),
    "a value of 100 kB": train("run.name=" + "x" * 100_000),
    "an alias bomb on the command line": train(
        "env.kwargs={" + ", ".join(line for line in ALIASES.splitlines()).replace("\n", "") + "}"
    ),
}


def sparse(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = newest(folder) / name if name in ("state.json", "manifest.json", "COMMIT") else folder / "run" / name
        with path.open("wb") as file:
            file.truncate(8 * GIB)

    return change


def bombs() -> Iterator[Attack]:
    for name, words in VALUES.items():
        yield Attack(36, name, words, check=lambda folder: "made a folder" if (folder / "new").exists() else "")
    for name, text in {"aliases": ALIASES, "merges": MERGES, "depth": "a: " + "[" * 100_000}.items():
        own = ("train", "-c", "bomb.yaml", "--out", "new")
        yield Attack(36, f"YAML {name} by -c", own, lambda f, t=text: _write(f / "bomb.yaml", t.encode()))
        theirs = lambda f, t=text: _write(f / "run" / "config.yaml", t.encode())  # noqa: E731
        for way, words in {"eval": EVAL, "--resume": RESUME}.items():
            yield Attack(36, f"YAML {name} in config.yaml, {way}", words, theirs, codes=(2, 4))
    yield Attack(
        36, "180 MB JSON as spaces.json", EVAL, lambda f: _write(f / "run/spaces.json", json_of_180_mb()), codes=(4,)
    )

    def state(folder: Path) -> None:
        shutil.rmtree(min((folder / "run" / "checkpoints").glob("step-*")))
        reseal(newest(folder), "state.json", json_of_180_mb())

    for way, words in {"eval": EVAL, "--resume": RESUME}.items():
        yield Attack(36, f"180 MB JSON as state.json, {way}", words, state, codes=(4,))
        for name in ("config.yaml", "spaces.json", "state.json", "manifest.json", "COMMIT", "metrics.jsonl"):
            codes = (0, 2, 4)  # eval does not read all of them; a damaged checkpoint is skipped
            yield Attack(36, f"{name} of 8 GB, {way}", words, sparse(name), codes=codes)
    plot = ("plot", "run", "--out", "picture.png")
    yield Attack(36, "metrics.jsonl of 8 GB, plot", plot, sparse("metrics.jsonl"), codes=(4,))
    space = {"kind": "box", "shape": [10**6, 10**6], "dtype": "<f4", "sizes": [], "start": 0, "low": 0, "high": 1}
    action = {"kind": "discrete", "shape": [], "dtype": "<i8", "sizes": [2], "start": 0}
    agents = {"env": "x", "agents": {"agent": {"observation": space, "action": action}}}
    huge = json.dumps(agents).encode()
    yield Attack(36, "a space of 4 TB", EVAL, lambda f: _write(f / "run/spaces.json", huge), codes=(4,))


def json_of_180_mb() -> bytes:
    return b'{"a":[' + b"[]," * 60_000_000 + b"[]]}"


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


# --- 38, 41, 42, 45: code of users ---


def odd(kind: str, row: int, codes: tuple[int, ...] = (3,), **more: object) -> Attack:
    words = train(f"env.kwargs={{kind: {kind}}}", "env.faults.renewals=0", env="faults.hostile_envs:Odd")
    return Attack(row, kind, words, codes=codes, **more)  # type: ignore[arg-type]


def user_code() -> Iterator[Attack]:
    yield odd("exit", 38)
    yield odd("quit", 38)
    for kind, line in {"sys.exit(0)": "import sys; sys.exit(0)", "os._exit(0)": "import os; os._exit(0)"}.items():
        module = lambda f, text=line: _write(f / "leaves.py", text.encode())  # noqa: E731
        yield Attack(38, f"{kind} at import", train("import=[leaves]"), module, codes=(3,))
    endless = train("eval.at_end=true", "eval.max_steps=300", env="faults.hostile_envs:NoLimit")
    yield Attack(41, "evaluation of an env that never ends", endless, codes=(0, 3))
    yield odd("raise", 42, traces=1, check=says("failed"))
    broken = train("model.encoder=faults.hostile_envs:Breaks", env="faults.fault_envs:Walk")
    yield Attack(42, "an encoder that raises", broken, codes=(1, 3), traces=1, check=says("failed"))
    for kind in ("huge", "gradient", "complex", "masked", "text", "none"):
        yield odd(kind, 45)
    for kind in ("flag text", "flag nan", "flag list", "flag none"):
        yield odd(kind, 45)
    for kind in ("close raises", "close hangs"):
        yield odd(kind, 45, codes=(0,), check=says("finished"), seconds=60)


# --- 43, 44: signals ---


def signalled(number: int, due: Callable[[Path], bool], command: list[str] | None = None) -> Callable:
    """Sends a signal as soon as something is true of the folder."""

    def attack(self: Attack, place: Path) -> Outcome:
        if command is None:
            process = self.started(place)
        else:
            with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
                process = subprocess.Popen(
                    command, cwd=place, env=surroundings(place), stdout=out, stderr=err, start_new_session=True
                )
        until = time.monotonic() + 60
        while not due(place) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(process.pid, number)
        return ended(process, place, 60.0)

    return attack


SCRIPT = """
from rookery import Experiment
if __name__ == "__main__":
    Experiment("cartpole-dqn", overrides=[{words}], out="new").train()
    print("and on it goes")
"""


def signals() -> Iterator[Attack]:
    compiling = train("learning.mode=compiled", "train.max_steps=100000", "store.capacity=2000")
    build = signalled(signal.SIGTERM, lambda f: any((f / "home").glob("cache/rookery/artefacts/building-*")))
    yield Attack(43, "SIGTERM", compiling, codes=(143,), check=says("preempted"), attack=build, seconds=60)
    words = ["train.max_steps=10000000", "checkpoint.every_steps=200", "store.capacity=2000", "learning.mode=eager"]
    text = SCRIPT.format(words=", ".join(map(repr, [*words, "log.sinks=[jsonl]"])))
    for number, codes in {signal.SIGTERM: (143, -15), signal.SIGINT: (130, -2)}.items():
        running = signalled(
            number, lambda f: any((f / "new").glob("checkpoints/*/COMMIT")), [sys.executable, "script.py"]
        )
        own = Attack(44, number.name, prepare=lambda f: _write(f / "script.py", text.encode()), codes=codes, traces=1)
        yield replace(own, attack=running, check=_stopped, seconds=60)


def _stopped(folder: Path) -> str:
    went_on = "and on it goes" in (folder / "stdout").read_text()
    return "the script went on" if went_on else says("preempted")(folder)


# --- 46: streams ---


def streams() -> Iterator[Attack]:
    shells = {
        "closed stdout": 'exec "$@" >&-',
        "closed stderr": 'exec "$@" 2>&-',
        "all closed": 'exec "$@" <&- >&- 2>&-',
        "full stdout": 'exec "$@" >/dev/full',
        "full stderr": 'exec "$@" 2>/dev/full',
        "| head -1": '{ "$@"; echo $? >code; } | head -1 >/dev/null; exit $(cat code)',
        "2>&1 | head -1": '{ "$@" 2>&1; echo $? >code; } | head -1 >/dev/null; exit $(cat code)',
        "a deleted working folder": 'mkdir gone && cd gone && rmdir ../gone && exec "$@"',
        "no TERM": 'unset TERM; exec "$@"',
    }
    for name, shell in shells.items():

        def absolute(folder: Path) -> None:
            (folder / "absolute").touch()

        words = train("log.sinks=[console, jsonl]", "log.every_steps=10")
        attack = Attack(46, name, words, absolute, codes=(0,), check=says("finished"), shell=shell)
        yield replace(attack, attack=_elsewhere) if "deleted" in name else attack


def _elsewhere(attack: Attack, place: Path) -> Outcome:
    """--out is absolute where the working folder is gone."""
    words = [str(place / "new") if word == "new" else word for word in attack.words]
    return ended(replace(attack, words=tuple(words)).started(place), place)


def attacks() -> list[Attack]:
    kinds = (edited, flipped, untrusted, links, sockets, bombs, lacking, user_code, signals, streams)
    return [attack for kind in kinds for attack in kind()]
