"""The command line, called in this process: what is printed, and the exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rookery.cli.main import run
from rookery.core import registry

Cli = Callable[..., tuple[int, str, str]]
QUICK = [
    "train.max_steps=300",
    "store.min_fill=100",
    "store.batch_size=64",
    "learning.mode=eager",
    "eval.episodes=2",
    "eval.num=2",
    "log.sinks=[jsonl]",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    assert run(["train", "cartpole-dqn", *QUICK, "--out", str(folder)]) == 0
    return folder


# --- usage ---


def test_help_names_every_command(cli: Cli) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    assert {"train", "eval", "list", "explain", "check-env", "config"} <= set(re.findall(r"^  ([\w-]+)  ", out, re.M))


def test_the_version_is_printed(cli: Cli) -> None:
    import rookery

    assert cli("--version") == (0, f"rookery {rookery.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tran"], "Did you mean 'train'"),
        (["train"], "name a preset"),
        (["train", "cartpole-dqm"], "Did you mean 'cartpole-dqn'"),
        (["train", "cartpole-dqn", "cartpole-ppo"], "at most one preset"),
        (["train", "cartpole-ppo", "CartPole-v1"], "The preset cartpole-ppo has its algorithm and env already"),
        (
            ["train", "ppo"],
            "'ppo' is an algorithm, not a preset. Name an env too: ppo CartPole-v1; or one of its presets",
        ),
        (["train", "cartpole-ppo", "algo.lerning_rate=1"], "In Rookery that is algo.lr: learning rate of Adam"),
        (["train", "ppo", "CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["train", "cartpole"], "Did you mean 'cartpole-"),
        (["train", "cartpole-dqn", "--total-timesteps", "9"], "without dashes: train.max_steps=VALUE"),
        (["train", "cartpole-dqn", "learning_rate=1"], "In Rookery that is algo.lr"),
        (["train", "cartpole-dqn", "--algo.lr=1"], "algo.lr=VALUE"),
        (["train", "cartpole-dqn", "--nonsense"], "No such option"),
        (["train", "cartpole-dqn", "--seed", "x"], "--seed"),
        (["train", "cartpole-dqn", "--seed", "-1"], "run.seed: expected a whole number ≥ 0"),
        (["train", "cartpole-dqn", "--on-exists", "explode"], "fail, resume or new"),
        (["train", "cartpole-dqn", "--seed", "1", "run.seed=2"], "contradict"),
        (["train", "cartpole-dqn", "algo.gama=1"], "Did you mean 'algo.gamma'"),
        (["train", "cartpole-dqn", "algo.gamma=.nan"], "finite"),
        (["train", "cartpole-dqn", "algo.gamma=["], "not valid YAML"),
        (["train", "cartpole-dqn", "env.id=CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["train", "--algo", "dqm", "--env", "CartPole-v1"], "Did you mean 'dqn'"),
        (["train", "--algo", "dqn"], "env.id is missing"),
        (["train", "--algo", "dqn", "--env", "no_such_module:X-v0"], "no module 'no_such_module'"),
        (["train", "-c", "none.yaml"], "cannot read the config file none.yaml"),
        (["train", "-c", "none.py"], "cannot read the config file none.py"),
        (["train", "cartpole-dqn", "--resume", "x"], "PRESET cannot be given too"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (["eval", "nowhere"], "no folder nowhere"),
        (["eval", ".", "--checkpoint", "newest"], "best, last or a number of steps"),
        (["eval", ".", "--episodes", "0"], "--episodes"),
        (["list", "algo"], "Did you mean 'algos'"),
        (["explain", "dqm"], "Did you mean 'dqn'"),
        (["check-env", "CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["config", "show"], "name a preset"),
        (["config", "diff", "cartpole-dqn"], "Missing argument"),
        (["config", "schema", "dqm"], "Did you mean 'dqn'"),
    ],
)
def test_a_mistake_of_the_user_is_one_message_and_exit_2(
    cli: Cli, tmp_path: Path, arguments: list[str], told: str
) -> None:
    code, out, err = cli(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert told in err
    assert "Traceback" not in err
    assert "run: " not in out
    assert not (tmp_path / "runs").exists(), "a folder was made for a run that never began"


def test_an_algorithm_that_cannot_act_in_the_env_exits_2(cli: Cli) -> None:
    code, _, err = cli("train", "--algo", "sac", "--env", "CartPole-v1", "learning.mode=eager", "log.sinks=[jsonl]")
    assert code == 2
    assert "algo.name=sac" in err
    assert "Traceback" not in err


def test_debug_anywhere_shows_the_traceback(cli: Cli) -> None:
    from rookery.core.errors import ConfigError

    for arguments in (["--debug", "explain", "dqm"], ["explain", "dqm", "--debug"]):
        with pytest.raises(ConfigError):
            run(arguments)


def test_every_mistake_in_a_config_is_told_at_once(cli: Cli) -> None:
    code, _, err = cli("train", "cartpole-dqn", "algo.gama=1", "algo.lr=fast", "stor.x=1", "run.device=gpu")
    assert code == 2
    assert "4 problems" in err
    for key in ("algo.gama", "algo.lr", "stor", "run.device"):
        assert f"{key}: " in err


@pytest.mark.parametrize(
    ("preset", "word", "answer"),
    [
        ("cartpole-ppo", "learning_rate", "algo.lr"),
        ("cartpole-ppo", "algo.learning_rate", "algo.lr"),
        ("cartpole-ppo", "algo.n_steps", "algo.rollout: env steps per env"),
        ("cartpole-dqn", "algo.n_steps", "algo.n_step"),
        ("cartpole-ppo", "ent_coef", "algo.entropy_bonus"),
        ("pendulum-sac", "ent_coef", "algo.alpha"),
        ("cartpole-ppo", "total_timesteps", "train.max_steps: env steps; null: no limit"),
        ("cartpole-ppo", "num_workers", "pool.workers: collectors, each with env.num envs"),
        ("cartpole-ppo", "batch_size", "algo.minibatches"),
        ("cartpole-dqn", "buffer_size", "store.capacity: steps kept, over all env columns"),
        ("cartpole-ppo", "buffer_size", "store.capacity. It is for "),
        ("cartpole-dqn", "train.train_freq", "store.updates_per_step: updates granted per inserted step"),
    ],
)
def test_names_of_other_libraries_are_answered_with_our_key_and_its_unit(
    cli: Cli, preset: str, word: str, answer: str
) -> None:
    code, _, err = cli("train", preset, f"{word}=1")
    assert code == 2
    assert f"In Rookery that is {answer}" in err
    assert len(err.splitlines()) == 1


def test_every_synonym_leads_to_a_key_that_exists() -> None:
    from rookery.core.config.fields import keys_of
    from rookery.core.config.synonyms import _WORDS, keys_for
    from rookery.run.config.resolve import models_of

    known = {
        key.key
        for algo in registry.names("algo")
        for section, model in models_of(algo).items()
        for key in keys_of(model, section)
    }
    assert set(_WORDS) <= known
    last = {key.rpartition(".")[2] for key in known if key.count(".") == 1}
    ours = {word for words in _WORDS.values() for word in words.split()} & last
    assert ours <= {"batch_size", "critic_lr"}, f"{ours} are keys of our own"
    assert keys_for("n_steps") == ("algo.n_step", "algo.rollout")
    assert keys_for("nonsense") == ()


def test_an_unknown_preset_suggests_three(cli: Cli) -> None:
    for word, near in (("cartpole", "cartpole-"), ("cartpole-dqm", "'cartpole-dqn'"), ("ppo-cartpole", "cartpole-ppo")):
        code, _, err = cli("train", word)
        assert code == 2
        assert len(re.findall(r"'[a-z0-9-]+'", err.partition("Did you mean")[2])) == 3, err
        assert near in err
        assert len(err) < 300, "all presets were listed"


def test_list_alone_lists_what_can_be_listed(cli: Cli) -> None:
    code, out, _ = cli("list")
    assert code == 0
    for kind in registry.KINDS:
        assert f"rookery list {kind}s " in out
    assert json.loads(cli("list", "--json")[1]) == [f"{kind}s" for kind in registry.KINDS]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["train", "cartp"], "cartpole-ppo"),
        (["train", "pp"], "ppo"),
        (["train", "ppo", "CartP"], "CartPole-v1"),
        (["train", "cartpole-ppo", "tra"], "train.max_steps="),
        (["train", "cartpole-ppo", "algo.cl"], "algo.clip="),
        (["train", "cartpole-dqn", "store.ca"], "store.capacity="),
        (["train", "--algo", "sa"], "sac"),
        (["list", "pre"], "presets"),
        (["explain", "dq"], "dqn"),
        (["ev"], "eval"),
    ],
)
def test_a_shell_completes_commands_presets_and_keys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: list[str], wanted: str
) -> None:
    monkeypatch.setenv("_ROOKERY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["rookery", *line]))
    monkeypatch.setenv("COMP_CWORD", str(len(line)))
    with pytest.raises(SystemExit):
        run([])
    assert wanted in capsys.readouterr().out.split()


# --- train ---


def test_train_prints_the_result_the_next_commands_and_last_the_folder(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("train", "cartpole-dqn", *QUICK, "--seed", "3", "--out", "here")
    assert code == 0
    lines = out.rstrip().splitlines()
    assert lines[-1] == f"run: {tmp_path / 'here'}" or lines[-1] == "run: here"
    assert re.search(r"steps +300\b", out)
    assert re.search(r"evaluation +\d+\.\d\d ± ", out)
    assert "rookery eval " in out
    assert f"rookery train cartpole-dqn {' '.join(QUICK)} --seed 4" in out.replace("'", "")
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("finished", 300)


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("train a --seed 4 x=1 --out here", "train a --seed 5 x=1"),
        ("train --seed=4 --out=here a x=1", "train --seed=5 a x=1"),
        ("train -c f.yaml --on-exists new x=1", "train -c f.yaml x=1 --seed 5"),
        ("train ppo E --trust run.seed=4 --on-exists=new", "train ppo E --trust run.seed=5"),
    ],
)
def test_the_command_with_another_seed_is_the_user_s_own_but_for_seed_and_folder(words: str, again: str) -> None:
    from rookery.cli.train import _again

    assert _again(words.split(), 5) == f"rookery {again}"


def test_algo_and_env_without_a_preset_train(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("train", "--algo", "dqn", "--env=CartPole-v1", *QUICK, "run.seed=2", "algo.lr=1e-3")
    assert code == 0
    words = f"--algo dqn --env=CartPole-v1 {' '.join(QUICK)} run.seed=3 algo.lr=1e-3\n"
    assert f"rookery train {words}" in out.replace("'", ""), "next: repeats the user's own form"
    folder = Path(out.rstrip().splitlines()[-1].removeprefix("run: "))
    assert (tmp_path / folder).resolve().parent == (tmp_path / "runs").resolve()


def test_an_algorithm_and_an_env_are_understood_in_either_order(cli: Cli) -> None:
    for words in (["ppo", "CartPole-v1"], ["CartPole-v1", "ppo"]):
        code, out, err = cli("config", "show", *words, "--json")
        assert code == 0, err
        config = json.loads(out)
        assert (config["algo"]["name"], config["env"]["id"]) == ("ppo", "CartPole-v1")


def test_a_yaml_file_trains_and_its_import_sees_modules_beside_it(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "beside_yaml.py").write_text("import gymnasium\nLOADED = True\n")
    lines = [
        "import: [beside_yaml]",
        "algo: {name: dqn, lr: 1e-3}",
        "env: {id: CartPole-v1}",
        "train: {max_steps: 300}",
    ]
    (folder / "my.yaml").write_text("\n".join([*lines, "store: {min_fill: 100}"]))
    code, _, err = cli("train", "-c", "project/my.yaml", *QUICK[2:], "--out", "here")
    assert (code, "error" in err) == (0, False)


def test_an_env_of_the_user_is_imported_by_its_module(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_env_cli.py").write_text(
        "import gymnasium\ngymnasium.register('OwnCart-v0', 'gymnasium.envs.classic_control:CartPoleEnv', "
        "max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, err = cli("train", "--algo", "dqn", "--env", "own_env_cli:OwnCart-v0", *QUICK, "--out", "here")
    assert (code, "error" in err) == (0, False)


PY_FILE = """
from gymnasium.envs.classic_control import CartPoleEnv
from rookery import Callback, Experiment

class Count(Callback):
    seen = 0
    def report(self, progress):
        Count.seen += 1
        open("reports.txt", "w").write(str(Count.seen))

experiment = Experiment({"algo": {"name": "dqn"}, "train": {"max_steps": 100_000}, "env": {"max_episode_steps": 50}},
                        env=lambda: CartPoleEnv(), callbacks=[Count()])
"""


def test_a_python_file_gives_an_experiment_whose_config_the_command_line_changes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(PY_FILE)
    code, out, _ = cli("train", "-c", "my.py", *QUICK, "log.every_steps=100", "--seed", "5", "--out", "here")
    assert code == 0
    assert re.search(r"steps +300\b", out)
    assert int((tmp_path / "reports.txt").read_text()) >= 3
    assert "seed: 5" in (tmp_path / "here" / "config.yaml").read_text()


def test_a_python_file_may_give_a_plain_dict(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("experiment = {'algo': {'name': 'dqn'}, 'env': {'id': 'CartPole-v1'}}\n")
    assert cli("train", "-c", "plain.py", *QUICK, "--out", "here")[0] == 0


@pytest.mark.parametrize("content", ["x = 1\n", "experiment = 5\n"])
def test_a_python_file_without_an_experiment_is_refused(cli: Cli, tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.py").write_text(content)
    code, _, err = cli("train", "-c", "bad.py")
    assert code == 2
    assert "Experiment, a Config or a dict" in err


def test_a_run_is_resumed_with_a_higher_limit_and_nothing_else_changed(cli: Cli, tmp_path: Path) -> None:
    assert cli("train", "cartpole-dqn", *QUICK, "--out", "here")[0] == 0
    code, _, err = cli("train", "--resume", "here", "algo.gamma=0.5")
    assert code == 2
    assert "so it cannot change algo.gamma: 0.98 in the run, 0.5 now (" in err
    assert len(err.splitlines()) == 1
    code, out, _ = cli("train", "--resume", "here", "train.max_steps=400")
    assert code == 0
    assert re.search(r"steps +400\b", out)
    assert json.loads((tmp_path / "here" / "summary.json").read_text())["resumed_from"] == [300]


def test_an_existing_run_is_not_overwritten(cli: Cli, trained: Path) -> None:
    code, _, err = cli("train", "cartpole-dqn", *QUICK, "--out", str(trained))
    assert code == 2
    assert "--resume" in err


def test_a_run_starts_from_the_weights_of_another(cli: Cli, trained: Path) -> None:
    assert cli("train", "cartpole-dqn", *QUICK, "--init-from", f"{trained}@last", "--out", "here")[0] == 0


# --- exit codes of failures ---

BAD_ENV = """
import gymnasium
import numpy as np

class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        Broken.steps += 1
        return np.full(2, np.nan if Broken.steps > 30 else 0.0, np.float32), 1.0, Broken.steps % 10 == 0, False, {}

gymnasium.register("Broken-v0", "broken_env_cli:Broken")
"""


def test_an_env_that_gives_nan_ends_with_exit_3(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_env_cli.py").write_text(BAD_ENV)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, err = cli("train", "--algo", "dqn", "--env", "broken_env_cli:Broken-v0", *QUICK, "--out", "here")
    assert code == 3
    assert "error: " in err
    assert "Traceback" not in err


def test_a_damaged_checkpoint_ends_with_exit_4(cli: Cli, trained: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    for weights in (copy / "checkpoints").glob("*/players.main.learner.safetensors"):
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    code, _, err = cli("eval", str(copy))
    assert code == 4
    assert err.startswith("error: ")


def test_a_diverging_run_ends_with_exit_5(cli: Cli) -> None:
    code, _, err = cli("train", "cartpole-dqn", *QUICK, "sentinel.max_loss=1e-12", "--out", "here")
    assert code == 5
    assert "diverged" in err


# --- eval ---


def test_eval_plays_the_episodes_asked_for_and_repeats_itself(cli: Cli, trained: Path) -> None:
    code, out, _ = cli("eval", str(trained), "--episodes", "4", "--seed", "7", "--json")
    assert code == 0
    found = json.loads(out)
    assert len(found["returns"]) == 4
    assert found["mean"] == pytest.approx(sum(found["returns"]) / 4)
    assert json.loads(cli("eval", str(trained), "--episodes", "4", "--seed", "7", "--json")[1]) == found
    text = cli("eval", str(trained), "--episodes", "4", "--seed", "7")[1]
    assert f"{found['mean']:.2f} ± {found['std']:.2f}" in text


@pytest.mark.parametrize("which", ["best", "last", "300"])
def test_eval_takes_every_kind_of_checkpoint(cli: Cli, trained: Path, which: str) -> None:
    assert cli("eval", str(trained), "--episodes", "2", "--checkpoint", which)[0] == 0


# --- list, explain, check-env, config ---


@pytest.mark.parametrize(
    ("kind", "name"), [("algos", "dqn"), ("envs", "CartPole-v1"), ("presets", "cartpole-ppo"), ("models", "encoder")]
)
def test_list_gives_name_place_and_summary(cli: Cli, kind: str, name: str) -> None:
    code, out, _ = cli("list", kind, "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert {"name", "where", "summary"} <= set(rows[name])
    assert ":" in rows[name]["where"]
    assert name in cli("list", kind)[1]


def test_list_presets_shows_status_and_measured_figure(cli: Cli) -> None:
    rows = json.loads(cli("list", "presets", "--json")[1])
    assert {row["name"] for row in rows} == set(registry.names("preset"))
    assert all({"status", "measured", "figure"} <= set(row) for row in rows)


@pytest.mark.parametrize("algo", ["dqn", "ppo", "sac"])
def test_explain_shows_equations_every_option_and_every_metric(cli: Cli, algo: str) -> None:
    code, out, _ = cli("explain", algo)
    algorithm = registry.lookup("algo", algo)
    assert code == 0
    assert "γ" in out
    for field in algorithm.Config.model_fields:
        assert f"algo.{field} = " in out or f"algo.{field}." in out
    for metric, sentence in algorithm.metrics.items():
        assert metric in out
        assert sentence in out


def test_check_env_finds_nothing_wrong_with_cartpole(cli: Cli) -> None:
    code, out, _ = cli("check-env", "CartPole-v1", "--json")
    assert code == 0
    assert json.loads(out)["problems"] == []


def test_check_env_tells_what_is_wrong_and_exits_3(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_shape_cli.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Wrong(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n        return np.zeros(3, np.float32), {}\n"
        "    def step(self, action):\n        return np.zeros(3, np.float32), 0.0, False, False, {}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out, _ = cli("check-env", "wrong_shape_cli:Wrong")
    assert code == 3
    assert "(2,)" in out
    code, out, _ = cli("check-env", "wrong_shape_cli:Wrong", "--json")
    assert code == 3
    assert json.loads(out)["problems"]


def test_config_show_prints_what_reloads_to_the_same(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("config", "show", "pendulum-sac", "algo.tau=0.01")
    assert code == 0
    (tmp_path / "shown.yaml").write_text(out)
    assert cli("config", "show", "-c", "shown.yaml")[1] == out
    assert json.loads(cli("config", "show", "-c", "shown.yaml", "--json")[1])["algo"]["tau"] == 0.01


def test_config_show_says_where_each_value_came_from(cli: Cli) -> None:
    out = cli("config", "show", "cartpole-ppo", "algo.gamma=0.5", "--sources")[1]
    assert "algo.gamma = 0.5  # command line" in out
    assert 'algo.name = "ppo"  # preset cartpole-ppo' in out
    assert 'model.init = "orthogonal"  # algorithm ppo' in out
    assert "log.window = 100  # default" in out


def test_config_diff_compares_presets_files_and_runs(cli: Cli, trained: Path) -> None:
    code, out, _ = cli("config", "diff", "cartpole-dqn", str(trained), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["train.max_steps"]["b"] == 300
    assert "algo.gamma" not in found
    assert cli("config", "diff", str(trained / "config.yaml"), str(trained))[1] == "no difference\n"


def test_config_schema_is_json_and_keys_are_all_there(cli: Cli) -> None:
    assert json.loads(cli("config", "schema", "ppo")[1])["additionalProperties"] is False
    out = cli("config", "keys", "ppo")[1]
    for key in (
        "train.max_steps",
        "eval.every_steps",
        "checkpoint.every_steps",
        "log.every_steps",
        "run.threads",
        "run.device",
        "learning.mode",
    ):
        assert f"  {key} = " in out


@pytest.fixture(autouse=True)
def _same_path() -> Iterator[None]:
    """The command line extends the module search path; a test must not leave that behind."""
    import sys

    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.mark.parametrize("name", registry.names("algo"))
def test_explain_tells_paper_equations_options_metrics_presets_and_the_page(cli: Cli, name: str) -> None:
    code, out, _ = cli("explain", name)
    assert code == 0
    assert re.search(r"\(\w[^()]* \d{4}[a-z]?\)", out.split("\n\n")[0]), "no paper in the first paragraph"
    assert re.search(r"^    \S+.* = ", out, re.M), "no equation"
    for part in ("\nOptions\n  algo.name = ", "\nMetrics\n  ", "\nPresets\n  ", f"docs/algorithms/{name}.md"):
        assert part in out
    assert cli("explain", f"algo.{name}") == (0, out, "")
