"""`rookery verify`, called in this process; its runs are real child processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.studies.gates import GATES, Gate
from rookery.zoo import Result

Cli = Callable[..., tuple[int, str, str]]
TINY = ["train.max_steps=256", "eval.episodes=2", "eval.num=2"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pole-fak"], "Did you mean 'pole-fake'"),
        (["draft-fake"], "draft-fake has no gate, so there is nothing to verify"),
        (["algo.gamma=0.9"], "name a preset that has a gate"),
        (["pole-fake", "run.seed=3"], "use --first and --seeds"),
        (["pole-fake", "algo.gama=0.9"], "Did you mean 'algo.gamma'"),
        (["pole-fake", "--seeds", "0"], "--seeds"),
        (["pole-fake", "pole-fak"], "Did you mean 'pole-fake'"),  # before the first is trained
    ],
)
@pytest.mark.usefixtures("fake_zoo")
def test_a_mistake_is_told_before_anything_is_trained(
    cli: Cli, tmp_path: Path, arguments: list[str], told: str
) -> None:
    code, _, err = cli("verify", *arguments)
    assert code == 2
    assert told in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_seeds_are_trained_judged_and_compared_and_a_second_call_trains_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the runs are other processes, which know no fake preset: its figures are invented here
    stored = {"cartpole-ppo": Result("gold", {"return_iqm": 499.0, "interval": [481.5, 500.0], "seeds": 5})}
    monkeypatch.setattr("rookery.studies.verify.results", lambda: stored)
    monkeypatch.setitem(GATES, "cartpole-ppo", Gate(5, 475.0))
    words = ["verify", "cartpole-ppo", *TINY, "--first", "4", "--seeds", "2", "--episodes", "4", "--out", "here"]
    code, out, _ = cli(*words)
    assert code == 1  # 256 steps teach nothing
    lines = out.splitlines()
    assert lines[0].startswith("changed: train.max_steps=256")
    assert sorted(line[:20] for line in lines[1:3]) == ["cartpole-ppo seed 4:", "cartpole-ppo seed 5:"]
    assert lines[3].startswith("cartpole-ppo: IQM of the return ")
    below = "cartpole-ppo: DOES NOT HOLD: the new 95 % interval lies BELOW the stored one [481.5, 500]"
    assert lines[4].startswith(below)
    metrics = {path: path.read_bytes() for path in tmp_path.glob("here/*/metrics.jsonl")}
    assert len(metrics) == 2
    code, out, err = cli(*words, "--json")
    told = json.loads(out)
    assert code == 1
    assert told["holds"] is False
    assert [run["seed"] for run in told["presets"]["cartpole-ppo"]["seeds"]] == [4, 5]
    assert told["together"] is None
    assert "seed 4" in err
    assert {path: path.read_bytes() for path in metrics} == metrics
