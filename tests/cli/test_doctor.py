"""`rookery doctor`: what is printed, JSON, mistakes, and that nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.cli import doctor
from rookery.doctor.doctor import Diagnosis, Outcome

Cli = Callable[..., tuple[int, str, str]]
QUICK = ["learning.mode=eager", "store.min_fill=128", "env.num=2", "eval.episodes=2", "eval.num=2", "--seconds", "0.3"]
ENGINES = ([], ["env.wrappers=[time_awareness]"], ["env.engine=gymnasium"])  # a wrapper needs single envs


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr("rookery.doctor.suggestions.unavailable", lambda: "building takes longer than these tests may")
    return cli


@pytest.mark.slow
def test_json_is_one_object_and_nothing_is_left_behind(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("doctor", "cartpole-dqn", *QUICK, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["command"] == "rookery train cartpole-dqn " + " ".join(QUICK[:-2])
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert (found["mode"], found["threads"], found["envs"]) == ("eager", 1, 2)
    assert "trying the config" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_table_names_every_share(cli: Cli) -> None:
    code, out, _ = cli("doctor", "cartpole-dqn", *QUICK)
    assert code == 0
    assert "env steps/s" in out
    for name in ("env", "act", "store", "update", "eval", "checkpoint", "log", "other"):
        assert f"\n  {name} " in out
    assert "  threads   1  (run.threads=1)" in out


@pytest.mark.slow
def test_a_file_may_be_named_like_a_preset(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("algo: {name: dqn}\nenv: {id: CartPole-v1}\n")
    code, out, _ = cli("doctor", "mine.yaml", *QUICK, "--json")
    assert code == 0
    assert json.loads(out)["command"].startswith("rookery train -c mine.yaml ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cartpole-dqm"], "Did you mean 'cartpole-dqn'"),
        ([], "name a preset"),
        (["cartpole-dqn", "algo.gama=1"], "Did you mean 'algo.gamma'"),
        (["cartpole-dqn", "--seconds", "0"], "--seconds"),
        (["--algo", "dqn"], "env.id is missing"),
    ],
)
def test_mistakes_are_told_before_anything_is_tried(cli: Cli, arguments: list[str], told: str) -> None:
    code, out, err = cli("doctor", *arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_advice_is_the_whole_command_with_its_changes_in_place() -> None:
    same, rare = (
        Outcome(["run.threads=2"], 1.4, "same learning, other rounding", ""),
        Outcome(["env.num=4"], 1.5, "x", ""),
    )
    same.measured, same.advised, same.resume = 1.3, True, "exact → exact"
    rare.measured, rare.why_not = 1.6, "changes what is learnt"
    found = Diagnosis(1.0, 1.0, 1, "", "eager", "auto", 1, 2, "", outcomes=[same, rare])
    lines = list(doctor._advice(found, "rookery train cartpole-dqn run.threads=1 algo.lr=1e-3"))
    assert lines == [
        "",
        "what to change:",
        "  run.threads=2: predicted 1.40 ×, measured 1.30 ×; same learning, other rounding; resume exact → exact",
        "      rookery train cartpole-dqn algo.lr=1e-3 run.threads=2",
        "not advised, changes what is learnt: env.num=4: predicted 1.50 ×, measured 1.60 ×; x; resume ",
    ]


@pytest.mark.slow
def test_the_engine_that_auto_chose_is_told(cli: Cli) -> None:
    told = [json.loads(cli("doctor", "cartpole-dqn", *QUICK, *more, "--json")[1])["engine"] for more in ENGINES]
    assert told == ["auto: native", "auto: gymnasium", "gymnasium"]
