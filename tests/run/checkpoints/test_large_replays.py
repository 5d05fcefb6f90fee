"""Whole runs with demonstrations and with the replay on disk, from the command line, killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rookery import Callback, Experiment
from rookery.cli.main import run
from rookery.core.errors import ConfigError
from rookery.data import Replay
from selection import slow_but

WORDS = ["train.max_steps=600", "checkpoint.every_steps=200", "store.min_fill=64", "store.updates_per_step=0.2"]
WORDS += ["learning.mode=eager", "model.hidden=[8]", "log.sinks=[jsonl]", "log.every_steps=100"]
WORDS += ["eval.episodes=2", "eval.num=2", "eval.every_steps=0"]


class Crash(Callback):
    """Dies after the checkpoint of step 400."""

    def checkpoint(self, path: Path) -> None:
        if path.name.endswith("400"):
            raise KeyboardInterrupt


def record(env_id: str, path: Path, steps: int = 100) -> Path:
    env, replay = gym.make(env_id), Replay(steps)
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(steps):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs=obs, action=action, reward=reward, terminated=terminated, truncated=truncated, next_obs=after)
        obs = env.reset()[0] if terminated or truncated else after
    replay.save(path)
    return path


def straight_and_resumed(folder: Path, words: list[str], **what: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    straight = Experiment(**what, overrides=words, out=folder / "straight").train()
    with pytest.raises(KeyboardInterrupt):
        Experiment(**what, overrides=words, out=folder / "broken", callbacks=[Crash()]).train()
    again = Experiment(resume=folder / "broken").train()
    assert again.summary["resumed_from"] == [400]
    return straight.summary, again.summary


@pytest.mark.parametrize(
    ("algo", "env"), slow_but([("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")], ("dqn", "CartPole-v1"))
)
def test_a_run_with_demonstrations_resumes_exactly_and_learns_from_them(tmp_path: Path, algo: str, env: str) -> None:
    file = record(env, tmp_path / "demonstrations")
    words = [*WORDS, f"store.demonstrations={file}", "store.batch_size=32"]
    straight, again = straight_and_resumed(tmp_path, words, algo=algo, env=env)
    assert straight["weights_sha256"] == again["weights_sha256"]
    lines = [json.loads(line) for line in (tmp_path / "broken" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["store/demonstrations_size"] == 100
    assert lines[-1]["store/demonstrations_reuse"] == lines[-1]["updates"] * 8 / 100  # a quarter of 32 rows per update
    without = Experiment(algo=algo, env=env, overrides=[*WORDS, "store.batch_size=32"], out=tmp_path / "none").train()
    assert without.summary["weights_sha256"] != straight["weights_sha256"]


@pytest.mark.matrix
def test_a_compiled_update_learns_from_demonstrations_as_an_eager_one(tmp_path: Path) -> None:
    from rookery.learning.compiled.artefact import unavailable

    if unavailable():
        pytest.skip(str(unavailable()))
    file = record("CartPole-v1", tmp_path / "demonstrations")
    words = [word for word in WORDS if "learning.mode" not in word]
    words += [f"store.demonstrations={file}", "store.batch_size=32", f"learning.cache={tmp_path / 'cache'}"]
    losses = []
    for mode in ("eager", "compiled"):
        run_ = Experiment(
            algo="dqn", env="CartPole-v1", overrides=[*words, f"learning.mode={mode}"], out=tmp_path / mode
        ).train()
        assert run_.summary["learning_mode"] == mode
        losses.append([value for key, value in sorted(run_.metrics.items()) if key.startswith("loss/")])
    np.testing.assert_allclose(*losses, rtol=0.05)


def test_demonstrations_work_from_the_command_line_and_a_wrong_file_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record("CartPole-v1", tmp_path / "cart")
    record("Acrobot-v1", tmp_path / "acro")
    words = ["train", "--algo", "dqn", "--env", "CartPole-v1", *WORDS]
    assert run([*words, "--out", "a", "store.demonstrations=cart", "store.demonstration_share=0.5"]) == 0
    assert run([*words, "--out", "b", "store.demonstrations=acro"]) == 2
    assert "'obs' is float32 (6,), but the env's is box float32 (4,)" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "b").exists()
    assert run([*words, "--out", "c", "store.demonstrations=cart", "store.demonstration_share=0.3"]) == 2
    assert "0.296875 (19 rows) or 0.3125 (20 rows)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_run_on_disk_equals_the_run_in_memory_and_resumes_exactly(tmp_path: Path) -> None:
    what = {"algo": "dqn", "env": "CartPole-v1"}
    memory = Experiment(**what, overrides=WORDS, out=tmp_path / "memory").train()
    straight, again = straight_and_resumed(tmp_path, [*WORDS, "store.mmap=true"], **what)
    assert straight["weights_sha256"] == again["weights_sha256"] == memory.summary["weights_sha256"]
    left = {path.name for path in (tmp_path / "broken").iterdir()}
    assert left == {path.name for path in (tmp_path / "memory").iterdir()}  # no scratch file among them


@pytest.mark.slow
def test_a_run_may_move_from_memory_to_disk_when_it_is_resumed(tmp_path: Path) -> None:
    what = {"algo": "dqn", "env": "CartPole-v1"}
    memory = Experiment(**what, overrides=WORDS, out=tmp_path / "memory").train()
    with pytest.raises(KeyboardInterrupt):
        Experiment(**what, overrides=WORDS, out=tmp_path / "broken", callbacks=[Crash()]).train()
    again = Experiment(resume=tmp_path / "broken", overrides=[f"store.mmap={tmp_path}"]).train()
    assert again.summary["weights_sha256"] == memory.summary["weights_sha256"]


def test_a_replay_too_large_for_the_disk_leaves_no_folder_behind(tmp_path: Path) -> None:
    words = [*WORDS, "store.mmap=true", "store.capacity=1000000000000000"]
    with pytest.raises(ConfigError, match="bytes are free"):
        Experiment(algo="dqn", env="CartPole-v1", overrides=words, out=tmp_path / "run").train()
    assert not (tmp_path / "run").exists()
