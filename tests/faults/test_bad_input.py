"""Bad input, through the command: each mistake ends with its exit code and a sentence that names cause and
remedy (F9-F11, F20, F21, F24)."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from faults.commands import DQN, FAULTY, WALK, Cli, checkpoint, quick, summary
from faults.fault_envs import marked
from rookery.core import registry
from rookery.run.checkpoints.manifest import commit_text
from rookery.run.config.config import flat
from rookery.run.config.resolve import load_config
from selection import slow_but

# --- the config ---


def nothing_left(folder: Path) -> bool:
    """No run folder; an empty `runs` may be there."""
    return not [path for path in folder.rglob("*") if path != folder / "runs"]


@pytest.mark.slow
def test_a_typo_in_any_key_is_told_with_the_right_name_and_leaves_no_folder(cli: Cli, tmp_path: Path) -> None:
    keys = [key for key in flat(load_config("cartpole-dqn").dump()) if "." in key]
    assert len(keys) > 60
    for key in keys:
        section, _, name = key.partition(".")
        word = f"{section}.{name[:-1]}_{name[-1]}"
        ended = cli("train", "cartpole-dqn", f"{word}=1", "--out", "here")
        assert ended.code == 2, word
        assert f"{word}: unknown key" in ended.err, word
        assert f"'{section}.{name.partition('.')[0]}" in ended.err, word  # the hint, or the list of known keys
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["algo.lr=fast"], ["algo.lr: expected", "'fast'", "command line"]),
        (["env.num=2.5"], ["env.num: expected a whole number", "2.5"]),
        (["train.max_steps=[1]"], ["train.max_steps: expected", "[1]"]),
        (["algo.double=maybe"], ["algo.double: expected", "'maybe'"]),
        (["model.hidden=64"], ["model.hidden: expected", "64"]),
        (["env=CartPole-v1"], ["env: expected"]),
        (["algo.gamma=.nan"], ["algo.gamma", "finite", "nan"]),
        (["algo.lr=.inf"], ["algo.lr", "finite", "inf"]),
        (["env.kwargs={x: .nan}"], ["env.kwargs", "finite", "nan"]),
        (["train.stop={eval/return_mean: .nan}"], ["train.stop", "finite"]),
        (["algo.gamma=0.9", "algo.gamma=0.8"], ["algo.gamma", "contradict"]),
        (["--algo", "ppo", "algo.name=dqn"], ["algo.name", "contradict"]),
        (["store.batch_size=64", "store.min_fill=32"], ["store.batch_size=64", "store.min_fill=32", "Raise min_fill"]),
        (["train.max_steps=200", "store.min_fill=200"], ["train.max_steps=200", "store.min_fill=200", "first update"]),
        (
            ["train.max_steps=209", "store.min_fill=200", "store.updates_per_step=0.1"],
            ["train.max_steps=209", "store.updates_per_step=0.1", "first update"],
        ),
        (["eval.episodes=5", "eval.num=2"], ["eval.episodes=5", "eval.num=2", "Set eval.num="]),
        (["sentinel.on_nan=rollback", "checkpoint.every_steps=0"], ["sentinel.on_nan", "checkpoint.every_steps"]),
        (["train.stop={eval/return_mean: 9}", "eval.every_steps=0"], ["train.stop", "eval.every_steps"]),
        (["run.device=cuda:9"], ["run.device=cuda:9", "run.device=cpu"]),
    ],
)
def test_wrong_types_nan_and_contradictions_name_their_fields(
    cli: Cli, tmp_path: Path, words: list[str], told: list[str]
) -> None:
    ended = cli("train", "cartpole-dqn", *words, "--out", "here")
    assert ended.code == 2
    assert [text for text in told if text not in ended.err] == [], ended.err
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cartpole-dqnn"], ["unknown preset 'cartpole-dqnn'", "Did you mean 'cartpole-dqn' or "]),
        (["--algo", "zzz", "--env", "CartPole-v1"], ["unknown algo 'zzz'", "Known: ", "dqn, ", "r2d2"]),
        (["--algo", "dqn", "--env", "CartPol-v1"], ["unknown env 'CartPol-v1'", "Did you mean 'CartPole-v1'?"]),
        (["--algo", "dqn", "--env", "faults.fault_envs:Wal"], ["'Wal'", "Did you mean 'Walk'?"]),
        (["--algo", "dqn", *WALK, "env.kwargs={lenght: 3}"], ["env.kwargs={'lenght': 3}", "lenght"]),
        (["--algo", "sac", "--env", "CartPole-v1"], ["algo.name=sac", "kind box", "discrete", "list algos"]),
        (["--algo", "dqn", "--env", "Pendulum-v1"], ["algo.name=dqn", "kind discrete", "box", "list algos"]),
        (["cartpole-dqn", "import=[no_such_thing]"], ["no module 'no_such_thing'"]),
        (["cartpole-dqn", "--init-from", "nowhere"], ["--init-from nowhere", "is not a folder"]),
    ],
)
def test_names_that_do_not_exist_and_algorithms_that_do_not_fit(
    cli: Cli, tmp_path: Path, words: list[str], told: list[str]
) -> None:
    for place in (["--out", "here"], []):
        ended = cli("train", *words, "learning.mode=eager", *place)
        assert ended.code == 2
        assert [text for text in told if text not in ended.err] == [], ended.err
    assert nothing_left(tmp_path)


def test_an_unknown_algorithm_is_told_with_all_that_there_are(cli: Cli) -> None:
    ended = cli("train", "--algo", "zzz", "--env", "CartPole-v1", "--out", "here")
    assert f"Known: {', '.join(registry.names('algo'))}" in ended.err


def test_a_replay_larger_than_the_memory_is_refused_with_the_numbers_before_anything_starts(
    cli: Cli, tmp_path: Path
) -> None:
    ended = cli("train", "cartpole-dqn", "store.capacity=1e12", "learning.mode=eager", "--out", "here")
    assert ended.code == 2
    told = ended.err
    assert "store.capacity=1000000000000 needs" in told
    needed, available = (int(told.split(word)[0].split("(")[-1]) for word in (" bytes: observations", " bytes) are"))
    assert needed > 40 * 10**12  # CartPole: 16 bytes of observation, 8 of action, 16 of the rest per step
    assert 0 < available < needed
    fits = int(told.split("that fits is ")[1].split(".")[0])
    assert 0 < fits < 10**12
    assert "Lower store.capacity" in told
    assert nothing_left(tmp_path)


# --- the env ---

TOLD = {
    "nan_obs": ["the observation[0] is nan", "env.on_bad=drop"],
    "nan_reward": ["the reward is nan", "env.on_bad=drop"],
    "shape": ["the observation has shape (1,), expected (2,)"],
    "dtype": ["int64", "expected float32", "dtype=np.float32"],
    "raise_reset": ["reset failed: ZeroDivisionError: the simulator did not start"],
    "raise_step": ["step failed: ZeroDivisionError: the simulator broke", "Last action: "],
}


@pytest.mark.parametrize("fault", TOLD)
@pytest.mark.parametrize("at", [0, 60])
def test_a_faulty_env_ends_the_run_with_exit_3_and_is_named(cli: Cli, tmp_path: Path, fault: str, at: int) -> None:
    kwargs = f"env.per_env=[{{fault: none}}, {{fault: {fault}, at: {at}}}]"
    changes = [kwargs, "env.num=2", "train.max_steps=400", "env.faults.renewals=0"]
    ended = cli("train", *quick("dqn", *changes), *FAULTY, "--out", "here")
    assert ended.code == 3
    sentence = next(line for line in ended.err.splitlines() if line.startswith("error: "))
    assert sentence.startswith("error: env 1 of worker 0 (faults.fault_envs:Faulty), episode ")
    assert [text for text in [*TOLD[fault], ", seed ", ", step ", "check-env"] if text not in ended.err] == []
    told = summary(tmp_path / "here")
    assert told["status"] == "failed"
    assert told["reason"] == sentence.removeprefix("error: ")
    good = (
        63 if (fault, at) == ("raise_reset", 60) else at
    )  # episodes of 8: the first reset after step 60 is that of step 64
    assert told["steps"] == 2 * good  # what two envs collected before it, and nothing after
    if fault.startswith("raise"):  # where in the user's code it happened
        assert "in step" in (log := (tmp_path / "here" / "log.txt").read_text()) or "in reset" in log
        assert "fault_envs.py" in log


@pytest.mark.parametrize("fault", ["nan_obs", "nan_reward"])
def test_bad_episodes_can_be_dropped_and_the_summary_says_that_the_run_is_not_exact(
    cli: Cli, tmp_path: Path, fault: str
) -> None:
    words = [*DQN, *FAULTY, f"env.kwargs={{fault: {fault}, at: 60, times: 1}}", "env.on_bad=drop"]
    ended = cli("train", *words, "--out", "here")
    assert ended.code == 0
    assert "the episode was dropped" in ended.err
    told = summary(tmp_path / "here")
    assert (told["status"], told["steps"]) == ("finished", 120)
    assert "is nan (env 0 of worker 0" in told["exact"]
    assert (
        told["episodes"] == 14
    )  # lives of 8: 7 episodes in 56 steps, 4 good steps and a dropped one, then 60 // 8 = 7
    resumed = cli("train", "--resume", "here", "train.max_steps=160", "env.on_bad=drop")
    assert resumed.code == 0
    assert summary(tmp_path / "here")["exact"] == told["exact"]  # not forgotten by a resume


def test_an_env_whose_every_step_is_bad_is_given_up_even_if_bad_episodes_are_dropped(cli: Cli) -> None:
    ended = cli("train", *DQN, *FAULTY, "env.kwargs={fault: nan_reward, at: 0}", "env.on_bad=drop", "--out", "here")
    assert ended.code == 3
    assert "100 episodes in a row had to be dropped" in ended.err


@pytest.mark.parametrize("algo", slow_but(["dqn", "ppo", "sac"], "dqn"))
def test_an_env_that_reuses_its_array_trains_to_the_same_weights_as_one_that_does_not(
    cli: Cli, tmp_path: Path, algo: str
) -> None:
    continuous = str(algo == "sac").lower()
    found = []
    for reuse in ("false", "true"):
        kwargs = f"env.kwargs={{reuse: {reuse}, continuous: {continuous}}}"
        words = quick(algo, kwargs, "env.num=2", "eval.at_end=true", "train.max_steps=160")
        assert cli("train", *words, *WALK, "--out", reuse).code == 0
        found.append(summary(tmp_path / reuse))
    assert found[0]["updates"] > 0
    for key in ("weights_sha256", "return_mean", "eval", "episodes"):
        assert found[0][key] == found[1][key], key


# --- malicious files ---


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at 100 and 120."""
    from rookery.cli.main import run

    folder = tmp_path_factory.mktemp("malicious") / "run"
    assert run(["train", *DQN, *WALK, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def victim(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it with one checkpoint, and a mark that any executed code would leave."""
    folder = tmp_path / "victim"
    shutil.copytree(finished, folder)
    shutil.rmtree(checkpoint(folder, 100))
    monkeypatch.setenv("FAULTS_MARK", str(tmp_path / "executed"))
    return folder


class Bomb:
    def __reduce__(self) -> Any:
        return marked, ()


def resealed(folder: Path, change: Any) -> None:
    """An attacker can also write the hashes."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    text = json.dumps(manifest).encode()
    path.write_bytes(text)
    (folder / "COMMIT").write_bytes(commit_text(text))


def replaced(folder: Path, name: str, data: bytes) -> None:
    import hashlib

    (folder / name).write_bytes(data)
    info = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    resealed(folder, lambda manifest: manifest["files"].__setitem__(name, info))


def linked(folder: Path) -> None:
    shutil.move(folder / "players.main.learner.safetensors", folder.parent / "elsewhere")
    os.symlink("../elsewhere", folder / "players.main.learner.safetensors")


def folder_linked(folder: Path) -> None:
    shutil.move(folder, folder.parent / "elsewhere")
    os.symlink("elsewhere", folder)


def escaping(folder: Path) -> None:
    shutil.copy(folder / "players.main.learner.safetensors", folder.parent / "outside.safetensors")
    resealed(
        folder,
        lambda m: m["files"].__setitem__("../outside.safetensors", m["files"].pop("players.main.learner.safetensors")),
    )


ATTACKS = {
    "a link in place of a file": (linked, "cannot be read as a regular file"),
    "a link in place of the folder": (folder_linked, "links are not followed"),
    "a path that leads out of the folder": (escaping, "'../outside.safetensors' is not a plain file name"),
    "a header of four gigabytes": (
        lambda folder: replaced(folder, "players.main.learner.safetensors", (2**32).to_bytes(8, "little") + b"{}"),
        "claims a header of 4294967296 bytes",
    ),
    "a pickle called safetensors": (
        lambda folder: replaced(folder, "players.main.learner.safetensors", pickle.dumps(Bomb()) + bytes(64)),
        "claims a header of",
    ),
    "a pickle behind a plausible header": (
        lambda folder: replaced(
            folder, "players.main.learner.safetensors", (40).to_bytes(8, "little") + pickle.dumps(Bomb()) * 2
        ),
        "is not a readable safetensors file",
    ),
    "a pickle as state": (lambda folder: replaced(folder, "state.json", pickle.dumps(Bomb())), "is not valid JSON"),
    "a state that holds nothing": (lambda folder: replaced(folder, "state.json", b"{}"), "is whole but holds no "),
    "weights without a layout": (
        lambda folder: replaced(
            folder, "state.json", (folder / "state.json").read_bytes().replace(b'"layout"', b'"lay-out"')
        ),
        "is whole but holds no 'layout'",
    ),
    "a state that nests a million deep": (
        lambda folder: replaced(folder, "state.json", b'{"a":' * 10**6),
        "is not valid JSON",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_checkpoint_is_refused_with_exit_4_and_nothing_is_executed(
    cli: Cli, victim: Path, tmp_path: Path, attack: str
) -> None:
    change, told = ATTACKS[attack]
    change(checkpoint(victim, 120))
    for words in (["eval", "victim"], ["train", "--resume", "victim", "train.max_steps=130"]):
        ended = cli(*words)
        assert ended.code == 4, ended.err
        assert told in ended.err
    ended = cli("train", *DQN, *WALK, "--init-from", "victim", "--out", "new")
    assert (ended.code, told in ended.err, (tmp_path / "new").exists()) == (4, True, False)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("env.id", ["env.id=os:system", "env.kwargs={command: touch executed}"]),
        ("env.id", ["env.id=subprocess:run", "env.kwargs={args: [touch, executed]}"]),
        ("env.wrappers", ["env.wrappers=[{name: 'subprocess:Popen', kwargs: {args: [touch, executed]}}]"]),
        ("env.wrappers", ["env.eval_wrappers=['builtins:exec']"]),
        ("model.encoder", ["model.encoder=builtins:exec"]),
        ("model.encoder", ["model.encoder=importlib.util:find_spec"]),
    ],
)
def test_a_config_cannot_call_the_standard_library_in_place_of_an_env_a_wrapper_or_an_encoder(
    cli: Cli, victim: Path, tmp_path: Path, key: str, words: list[str]
) -> None:
    from rookery.core.config.layers import Layer, Merged
    from rookery.core.config.overrides import parse_overrides
    from rookery.core.config.yaml import read_file, write_text

    config = victim / "config.yaml"
    tree = Merged([Layer("file", read_file(config)[0]), parse_overrides(words)]).tree
    config.write_text(write_text(tree))
    for command in (["eval", "victim"], ["train", "--resume", "victim"]):
        assert "--trust" in cli(*command).err  # test_trust.py
    for command in (
        ["eval", "victim", "--trust"],
        ["train", "--resume", "victim", "--trust"],
        ["train", "-c", str(config), "--out", "new"],
    ):
        ended = cli(*command)
        assert ended.code == 2, ended.err
        assert f"{key}: '" in ended.err
        assert "is part of Python's standard library" in ended.err
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:faults.fault_envs.marked []",
        "!!python/object/new:faults.fault_envs.marked []",
        "!!python/name:faults.fault_envs.marked",
        "!<tag:yaml.org,2002:python/object/apply:faults.fault_envs.marked> []",
    ],
)
def test_a_config_file_with_a_python_tag_is_refused_and_nothing_is_executed(
    cli: Cli, victim: Path, tmp_path: Path, text: str
) -> None:
    config = victim / "config.yaml"
    config.write_text(config.read_text() + f"extra: {text}\n")
    line = len(config.read_text().splitlines())
    for words in (["eval", "victim"], ["train", "--resume", "victim"], ["train", "-c", str(config), "--out", "new"]):
        ended = cli(*words)
        assert ended.code == 2
        assert f"config.yaml, line {line}: this is not valid YAML: could not determine a constructor" in ended.err
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "new").exists()
