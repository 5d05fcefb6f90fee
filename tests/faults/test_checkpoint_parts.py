"""F37: a checkpoint that lacks a part of the state, or has it in another type or shape; every digest is right."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faults.commands import WALK, Cli, in_process, quick, summary
from rookery import Trainer, load_config
from rookery.core.errors import CheckpointError
from rookery.core.segments import Segments
from rookery.run.checkpoints.checkpoints import Checkpoints
from selection import slow_but

ENVS = {"dqn": "faults.fault_envs:Walk", "ppo": "CartPole-v1", "sac": "Pendulum-v1"}
ALGOS = slow_but(list(ENVS), "dqn")


def words_of(algo: str) -> list[str]:
    return quick(algo, "train.max_steps=100", "checkpoint.every_steps=0")[2:]


def trainer_of(algo: str) -> Trainer:
    return Trainer(load_config(algo=algo, env=ENVS[algo], overrides=words_of(algo)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """algo → the folder of a checkpoint of a trainer, written once."""
    root = tmp_path_factory.mktemp("saved")

    def folder(algo: str) -> Path:
        if not (root / algo).exists():
            with trainer_of(algo) as trainer:
                for _ in range(6):
                    trainer.round()
                while not trainer.updates:
                    trainer.round()
                trainer.save(root / algo)
        return root / algo

    return folder


# --- every part of the state, one after the other, straight into a trainer ---

LOSABLE = (  # what may be missing or of another type, for it is no part of what a run computes
    "meters/time/",
    "callbacks/own/",  # a callback that is new has none
    "players/main/learner/own_draws/draws/",  # seen again when an update runs first
    "run/evaluation",
    "run/pending",
    "run/reason",
    "run/closed_at",
    "run/knobs/",  # written anew before every round
    "run/mode/",  # looked at before there is a trainer
)


def leaves_of(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves_of(value, (*path, key))
    elif path:
        yield path


def changed(state: dict[str, Any], path: tuple[str, ...], change: Callable[[dict[str, Any], str], None]) -> dict:
    """The state with one leaf changed; all else is shared."""
    top = dict(state)
    node = top
    for key in path[:-1]:
        node[key] = dict(node[key])
        node = node[key]
    change(node, path[-1])
    return top


def remove(node: dict[str, Any], key: str) -> None:
    del node[key]


def retype(node: dict[str, Any], key: str) -> None:
    value = node[key]
    if isinstance(value, torch.Tensor):
        node[key] = value.to(torch.float64 if value.dtype != torch.float64 else torch.float32)
    elif isinstance(value, np.ndarray | Segments):
        array = np.zeros(value.shape, value.dtype) if isinstance(value, Segments) else value
        node[key] = array.astype(np.float64 if array.dtype != np.float64 else np.float32)
    else:
        node[key] = {"another": "type"} if not isinstance(value, dict) else "another type"


def reshape(node: dict[str, Any], key: str) -> None:
    value = node[key]
    if isinstance(value, torch.Tensor):
        node[key] = value[None] if value.numel() else torch.zeros(3, device="cpu")
    elif isinstance(value, np.ndarray):
        node[key] = np.concatenate([value, value]) if value.ndim and value.size else np.zeros((2, 2), value.dtype)
    else:
        node[key] = [[]]


@pytest.mark.parametrize("change", [remove, retype, reshape])
@pytest.mark.parametrize("algo", ALGOS)
def test_no_part_of_a_state_can_be_missing_or_another_one_unnoticed(
    saved: Callable[[str], Path], algo: str, change: Callable[[dict[str, Any], str], None]
) -> None:
    state, _ = Checkpoints(saved(algo)).load("last")
    unnoticed, unnamed, tried = [], [], 0
    with trainer_of(algo) as trainer:
        trainer.restore(copy.copy(state))
        assert trainer.exact() is True
        for path in leaves_of(state):
            name = "/".join(path)
            if name.startswith(LOSABLE) or (name.startswith("meters/") and change is not remove):
                continue
            tried += 1
            try:
                trainer.restore(changed(state, path, change))
            except CheckpointError as error:
                if path[-1] not in str(error) and path[0] not in str(error):
                    unnamed.append((name, str(error)))
            else:
                if trainer.exact() is True:
                    unnoticed.append(name)
    assert tried > 40
    assert unnoticed == []
    assert unnamed == []


# --- parts that matter most, through the command ---

PARTS = {  # algo → path of the part, and what the message must name
    "dqn": [
        (("players", "main", "learner", "slots", "q.m"), "q.m"),
        (("players", "main", "learner", "own_draws", "generator"), "generator"),
        (("players", "main", "store", "ring", "meta"), "meta"),
        (("players", "main", "store", "limiter"), "limiter"),
        (("streams", "numpy", "store"), "'store'"),
        (("streams", "torch", "learner"), "'learner'"),
        (("pool", "0", "players", "main", "obs"), "obs"),
        (("meters",), "meters"),
    ],
    "ppo": [(("players", "main", "learner", "slots", "ac.v"), "ac.v"), (("pool", "0"), "'0'")],
    "sac": [(("players", "main", "learner", "slots", "log_alpha.m"), "log_alpha.m"), (("streams", "numpy"), "numpy")],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    from rookery.cli.main import run

    root = tmp_path_factory.mktemp("runs")

    def folder(algo: str) -> Path:
        if not (root / algo).exists():
            env = WALK if algo == "dqn" else ["--env", ENVS[algo]]
            assert run(["train", *quick(algo), *env, "--out", str(root / algo)]) == 0
        return root / algo

    return folder


def rewrite(run: Path, path: tuple[str, ...], change: Callable[[dict[str, Any], str], None]) -> None:
    """The newest checkpoint written again with one part changed: all digests are right."""
    checkpoints = Checkpoints(run / "checkpoints")
    state, manifest = checkpoints.load("last")
    meta = {"exact": True, "config_sha256": manifest.config_sha256, "config": manifest.config}
    checkpoints.save(manifest.step, changed(state, path, change), meta)


CASES = [(algo, path, name) for algo, parts in PARTS.items() for path, name in parts]


@pytest.mark.parametrize(("algo", "path", "name"), slow_but(CASES, *CASES[:2], CASES[4]))
def test_a_missing_part_ends_a_resume_with_exit_code_4_and_its_name(
    cli: Cli, runs: Callable[[str], Path], tmp_path: Path, algo: str, path: tuple[str, ...], name: str
) -> None:
    run = shutil.copytree(runs(algo), tmp_path / "run")
    rewrite(run, path, remove)
    ended = cli("train", "--resume", "run", "train.max_steps=200")
    assert ended.code == 4, ended.err
    assert name in ended.err
    told = summary(run)
    assert told["steps"] <= 128  # nothing was trained
    assert told["status"] != "failed" or told["steps"] == 0 or told["resumed_from"] == []


@pytest.mark.slow
def test_a_worker_process_that_cannot_take_over_its_part_ends_the_run_with_exit_code_4(
    runs: Callable[[str], Path], tmp_path: Path
) -> None:
    run = shutil.copytree(runs("dqn"), tmp_path / "run")
    rewrite(run, ("pool", "0", "players", "main", "obs"), remove)
    ended = in_process("train", "--resume", "run", "train.max_steps=200", "pool.kind=process", folder=tmp_path)
    assert ended.code == 4, ended.err
    assert "obs" in ended.err
    assert "Traceback" not in ended.err
