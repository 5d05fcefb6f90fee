"""F33: a config may name code. From the folder of a run that this user did not start, only what is Rookery's own."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

import rookery
from faults.commands import DQN, WALK, Cli
from rookery import ConfigError, Experiment, Trainer, evaluate_run, load_policy
from rookery.core.config.layers import Layer, Merged
from rookery.core.config.overrides import parse_overrides
from rookery.core.config.yaml import read_file, write_text
from rookery.run.config import trust
from rookery.run.config.config import tree_sha256
from rookery.run.config.resolve import load_config, load_run_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a run with an env of the user's own, the state folder that knows it)."""
    from rookery.cli.main import run

    place = tmp_path_factory.mktemp("trust")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        assert run(["train", *DQN, *WALK, "--out", str(place / "run")]) == 0
    return place / "run", place / "state"


@pytest.fixture
def own(trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that run, for its owner."""
    shutil.copytree(trained[0], tmp_path / "run")
    shutil.copytree(trained[1], tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "run"


@pytest.fixture
def foreign(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for somebody else; and a module that leaves a mark when it is imported."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    (tmp_path / "leaves_mark.py").write_text("open('executed', 'w').close()\ndef call(**kwargs): pass\n")
    monkeypatch.setenv("FAULTS_MARK", str(tmp_path / "executed"))
    return own


def edit(folder: Path, *words: str) -> None:
    file = folder / "config.yaml"
    file.write_text(write_text(Merged([Layer("file", read_file(file)[0]), parse_overrides(words)]).tree))


def test_the_hash_of_a_config_is_that_of_the_file_that_is_written(trained: tuple[Path, Path]) -> None:
    tree, _ = read_file(trained[0] / "config.yaml")
    assert tree_sha256(tree) == load_config(tree=tree).sha256()


def test_one_s_own_run_is_trusted_and_the_list_is_private(cli: Cli, own: Path, tmp_path: Path) -> None:
    assert cli("eval", "run").code == 0
    assert cli("train", "--resume", "run", "train.max_steps=130").code == 0
    file = tmp_path / "state" / "rookery" / "trusted"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text().splitlines()) == 1  # the longer run names the same
    assert cli("train", *DQN, *WALK, "env.kwargs={length: 9}", "--out", "other").code == 0
    assert len(file.read_text().splitlines()) == 2  # other arguments are something else
    edit(tmp_path / "other", "env.num=3", "algo.gamma=0.5")
    assert cli("eval", "other").code == 0  # of one's own code all else may be edited


COMMANDS = {
    "eval": ["eval", "run"],
    "resume": ["train", "--resume", "run", "train.max_steps=130"],
    "show": ["config", "show", "run"],
    "diff": ["config", "diff", "run", "cartpole-dqn"],
    "doctor": ["doctor", "run"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_that_loads_a_stranger_s_run_imports_nothing_and_asks_for_trust(
    cli: Cli, foreign: Path, tmp_path: Path, words: list[str]
) -> None:
    edit(foreign, "import=[leaves_mark]", "env.id=leaves_mark:call")
    ended = cli(*words)
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    needed = ["config.yaml is not of a run that you have started", "import=leaves_mark", "env.id=leaves_mark:call"]
    assert [text for text in [*needed, "--trust", "-c "] if text not in ended.err] == []
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "load",
    [
        lambda folder, **k: load_policy(folder, "last", **k),
        evaluate_run,
        lambda folder, **k: Experiment(resume=folder, **k),
    ],
    ids=["load_policy", "evaluate_run", "Experiment"],
)
def test_from_python_trust_is_an_argument(foreign: Path, load: Any) -> None:
    with pytest.raises(ConfigError, match=r"env\.id=faults\.fault_envs:Walk.*trust=True"):
        load(foreign)
    load(foreign, trust=True)


def test_trust_is_said_on_the_command_line_or_by_giving_the_config_as_one_s_own(cli: Cli, foreign: Path) -> None:
    assert cli("eval", "run").code == 2
    assert cli("eval", "run", "--trust").code == 0
    assert cli("eval", "run").code == 2  # an evaluation is no start of a run
    assert cli("train", "-c", "run/config.yaml", "--out", "mine").code == 0
    assert cli("eval", "mine").code == 0
    assert cli("train", "--resume", "run", "train.max_steps=130", "--trust").code == 0
    assert cli("eval", "run").code == 0  # it is this user's now, too


def test_the_same_command_in_a_new_home_goes_on_with_its_run(cli: Cli, foreign: Path) -> None:
    """As a job does that is started again in another container."""
    ended = cli("train", *DQN, *WALK, "train.max_steps=130", "--out", "run", "--on-exists", "resume")
    assert ended.code == 2  # given twice
    words = [word for word in DQN if not word.startswith("train.max_steps")]
    ended = cli("train", *words, *WALK, "train.max_steps=130", "--out", "run", "--on-exists", "resume")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["env.id=yaml:unsafe_load", "env.kwargs={stream: x}"], "env.id=yaml:unsafe_load"),
        (["env.wrappers=['numpy:asarray']"], "env.wrappers=numpy:asarray"),
        (["env.eval_wrappers=[{name: 'gymnasium.wrappers:RecordVideo', kwargs: {video_folder: x}}]"], "RecordVideo"),
        (["model.encoder=torch.hub:load"], "model.encoder=torch.hub:load"),
        (["players={a: {model: {encoder: 'torch.hub:load'}}}"], "players.a.model.encoder=torch.hub:load"),
        (["env.kwargs={length: 3}"], "env.id=faults.fault_envs:Walk"),
        (["model.core={kind: 'leaves_mark:Core'}"], "model.core.kind=leaves_mark:Core"),
        (["model.core=leaves_mark:Core"], "model.core.kind=leaves_mark:Core"),
        (["players={a: {model: {core: 'leaves_mark:Core'}}}"], "players.a.model.core.kind=leaves_mark:Core"),
        (["algo.optimiser=leaves_mark:Own"], "algo.optimiser=leaves_mark:Own"),
        (["import=[leaves_mark]"], "import=leaves_mark"),
        (["env.id=leaves_mark:CartPole-v1"], "env.id=leaves_mark:CartPole-v1"),
    ],
)
def test_an_edited_config_of_one_s_own_run_is_a_stranger_s(
    cli: Cli, own: Path, tmp_path: Path, words: list[str], key: str
) -> None:
    (tmp_path / "leaves_mark.py").write_text("open('executed', 'w').close()\n")
    edit(own, *words)
    ended = cli("eval", "run")
    assert (ended.code, key in ended.err) == (2, True), ended.err
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["env.id=rookery.core.registry:import_module", "env.kwargs={name: leaves_mark}"],
        ["env.id=CartPole-v1", "env.wrappers=[{name: 'rookery.core.registry:importlib.import_module'}]"],
        ["env.id=CartPole-v1", "model.encoder=rookery.core.registry:load"],
        ["env.id=rookery.core.registry:Entry"],
    ],
)
def test_of_rookery_s_own_code_a_stranger_s_config_may_name_classes_of_the_right_kind_alone(
    cli: Cli, foreign: Path, tmp_path: Path, words: list[str]
) -> None:
    edit(foreign, *words)
    ended = cli("eval", "run")
    assert ended.code == 2, ended.err
    assert "is a function" in ended.err or "is a class without" in ended.err or "neither defines" in ended.err
    assert not (tmp_path / "executed").exists()


def test_compiled_updates_that_lie_in_a_stranger_s_folder_are_not_loaded(cli: Cli, foreign: Path) -> None:
    edit(foreign, "env.id=CartPole-v1", "learning.cache=run/artefacts")
    ended = cli("train", "--resume", "run", "train.max_steps=130")
    assert (ended.code, "learning.cache=run/artefacts" in ended.err) == (2, True), ended.err


def test_a_class_that_is_reached_through_our_own_modules_is_foreign_still(cli: Cli, foreign: Path) -> None:
    video = "{name: 'rookery.envs.builders.single:gymnasium.wrappers.RecordVideo', kwargs: {video_folder: x}}"
    edit(foreign, "env.id=CartPole-v1", f"env.wrappers=[{video}]")
    ended = cli("eval", "run")
    assert (ended.code, "is defined in gymnasium.wrappers" in ended.err) == (2, True), ended.err


def test_optimisers_of_torch_are_nobody_s_secret(cli: Cli, foreign: Path) -> None:
    edit(foreign, "env.id=CartPole-v1", "algo.optimiser=torch.optim:NAdam")
    assert "--trust" not in cli("config", "show", "run").err


def test_a_folder_without_a_checkpoint_that_a_run_goes_on_in_is_a_stranger_s(
    cli: Cli, foreign: Path, tmp_path: Path
) -> None:
    shutil.rmtree(foreign / "checkpoints")
    edit(foreign, "import=[leaves_mark]")
    ended = cli("train", *DQN, *WALK, "--out", "run", "--on-exists", "resume")
    assert (ended.code, "import=leaves_mark" in ended.err) == (2, True), ended.err
    assert not (tmp_path / "executed").exists()


def test_a_player_that_a_checkpoint_adds_is_a_stranger_s(foreign: Path, tmp_path: Path) -> None:
    words = ["env.api=turns", "players={a: {}}", "learning.mode=eager", "train.max_steps=100"]
    config = load_config(algo="dqn", env="rookery/Verdicts-v0", overrides=words)
    with Trainer(config) as trainer:
        trainer.round()
        state = trainer.state()
    state["run"]["added"] = {"x": {"sections": {"model": {"encoder": "leaves_mark:call"}}, "seats": {}}}
    state["run"]["mode"]["x"] = "eager"
    with Trainer(config) as trainer, pytest.raises(ConfigError, match=r"the player x .*encoder=leaves_mark:call"):
        trainer.restore(state)
    assert not (tmp_path / "executed").exists()


def test_a_stranger_s_run_that_names_no_code_needs_no_trust(cli: Cli, foreign: Path, tmp_path: Path) -> None:
    for words in (["env.id=CartPole-v1"], ["env.id=rookery.envs.tasks.chain:Chain"]):
        edit(foreign, *words)
        assert "--trust" not in cli("config", "show", "run").err
    words = [*DQN, "--env", "CartPole-v1", "--out", "plain"]
    assert cli("train", *words).code == 0
    assert cli("eval", "plain").code == 0
    assert not (tmp_path / "other").exists()  # and nothing is noted of it


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("faults.fault_envs:Poisoned", "is a class without reset and step"),
        ("pathlib:Path", "standard library"),
        ("faults.fault_envs:TESTS", "neither defines nor registers"),
    ],
)
def test_also_what_a_trusted_config_names_is_looked_at_before_it_is_called(
    cli: Cli, tmp_path: Path, name: str, problem: str
) -> None:
    ended = cli("train", *DQN, "--env", name, "--out", "new")
    assert (ended.code, problem in ended.err) == (2, True), ended.err
    assert not (tmp_path / "new").exists()


def test_a_trusted_config_may_name_any_function_and_another_one_marked_functions_of_plugins(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faults import fault_envs

    def made() -> Any:
        return fault_envs.Walk()

    monkeypatch.setattr(fault_envs, "made", made, raising=False)
    edit(foreign, "env.id=faults.fault_envs:made")
    assert load_config(file=foreign / "config.yaml").env.id == "faults.fault_envs:made"
    monkeypatch.setattr(trust, "_plugins", lambda: {"faults"})  # as if it had an entry point
    with pytest.raises(ConfigError, match=r"is a function.*@rookery\.env_factory.*--trust"):
        load_run_config(foreign / "config.yaml")
    assert rookery.env_factory(made) is made
    assert load_run_config(foreign / "config.yaml").env.id == "faults.fault_envs:made"


def test_a_list_that_others_could_have_written_is_not_believed(cli: Cli, own: Path, tmp_path: Path) -> None:
    file = tmp_path / "state" / "rookery" / "trusted"
    file.chmod(0o666)
    ended = cli("eval", "run")
    assert (ended.code, "does not belong to you alone" in ended.log) == (2, True)
    file.chmod(0o600)
    assert cli("eval", "run").code == 0
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cli("eval", "run").code == 2


def test_a_state_folder_that_cannot_be_written_keeps_no_run_from_training(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    ended = cli("train", *DQN, *WALK, "--out", "run")
    assert (ended.code, "will need --trust" in ended.log) == (0, True)
