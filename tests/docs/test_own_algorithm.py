"""The worked example of an algorithm outside the package: its equation, a probe, the command line, and exact resume."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch

from docs.pages import ROOT
from learn.test_probes import GAMMA, QUIET, REPLAY, greedy_return
from rookery.cli.main import run
from rookery.core import registry
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer

FILE = ROOT / "examples" / "own_algorithm.yaml"
TINY = ["store.min_fill=100", "store.batch_size=32", "algo.lr=1e-3", "learning.mode=eager", "eval.episodes=2"]
TINY += ["eval.num=2", "log.sinks=[jsonl]", "log.every_steps=100", "model.hidden=[16]"]


@pytest.fixture
def example(monkeypatch):
    """The module, as `import:` finds it; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield registry.import_module("own_algorithm")
    registry.unregister("algo", "expected-sarsa")
    sys.modules.pop("own_algorithm", None)


class Words:
    """Q' = [ln 3, 0] in every state, and a network whose Q is [1, 2]; keeps what was minimised."""

    def q_target(self, obs):
        return torch.tensor([[math.log(3.0), 0.0]])

    def minimise(self, name, loss):
        self.loss, out = loss(lambda obs: torch.tensor([[1.0, 2.0]]))
        return out

    def follow(self, target, source, tau):
        self.followed = (target, source, tau)


def batch(reward, discount, mask=None):
    obs = torch.zeros(1, 1)
    next_obs = obs if mask is None else {"obs": obs, "action_mask": torch.tensor([mask])}
    numbers = {"reward": reward, "discount": discount, "weight": 2.0}
    return SimpleNamespace(
        obs=obs, next_obs=next_obs, action=torch.tensor([1]), **{k: torch.tensor([v]) for k, v in numbers.items()}
    )


def test_the_target_is_the_value_of_the_soft_policy(example):
    algorithm = object.__new__(example.ExpectedSarsa)
    algorithm.config = example.ExpectedSarsaConfig()
    words = Words()
    out = algorithm.update(words, batch(reward=1.5, discount=0.5))
    y = 1.5 + 0.5 * 0.75 * math.log(3.0)  # softmax([ln 3, 0]) = [3/4, 1/4]
    assert out["target_mean"].item() == pytest.approx(y)
    assert out["greedy_mean"].item() == pytest.approx(0.75)
    assert out["priority"].item() == pytest.approx(abs(y - 2.0))  # Q(s, a) = 2
    assert words.loss.item() == pytest.approx(2.0 * 0.5 * (y - 2.0) ** 2, rel=1e-5)  # weight 2; y − 2 in float32
    assert words.followed == ("q_target", "q", 0.01)
    ended = algorithm.update(Words(), batch(reward=1.5, discount=0.0))
    assert ended["target_mean"].item() == 1.5
    masked = algorithm.update(Words(), batch(reward=1.5, discount=0.5, mask=[0, 1]))
    assert masked["target_mean"].item() == 1.5  # only the second action is legal, and its value is 0


def test_it_is_a_whole_algorithm_in_less_than_a_hundred_lines(example):
    assert len((ROOT / "examples" / "own_algorithm.py").read_text().splitlines()) < 100
    from rookery.core.config.fields import comments_of

    assert set(comments_of(example.ExpectedSarsaConfig)) >= set(example.ExpectedSarsaConfig.model_fields)


@pytest.mark.slow
def test_it_learns_which_action_an_observation_asks_for(example):
    tree = {
        "algo": {"name": "expected-sarsa", "gamma": GAMMA, "lr": 5e-3, "temperature": 0.5, "tau": 0.1},
        "env": {"id": "rookery/ProbeObsAction-v0"},
        "model": {"hidden": [32]},
        "store": REPLAY,
        "train": {"max_steps": 500},
        **QUIET,
    }
    trainer = Trainer(load_config(tree=tree))
    for _ in trainer:
        pass
    assert greedy_return(trainer) == 1.0


@pytest.mark.slow
def test_the_command_line_trains_it_and_a_resumed_run_ends_with_the_same_bits(example, tmp_path, capsys):
    words = ["train", "-c", str(FILE), *TINY, "checkpoint.every_steps=100"]
    assert run([*words, "train.max_steps=400", "--out", str(tmp_path / "straight")]) == 0
    assert run([*words, "train.max_steps=250", "--out", str(tmp_path / "resumed")]) == 0
    assert run(["train", "--resume", str(tmp_path / "resumed"), "train.max_steps=400"]) == 0
    straight, resumed = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("straight", "resumed"))
    assert resumed["resumed_from"] == [250]
    assert straight["weights_sha256"] == resumed["weights_sha256"]
    assert straight["eval"] == resumed["eval"]
    assert straight["updates"] == 300
    lines = (tmp_path / "straight" / "metrics.jsonl").read_text().splitlines()
    assert {"target_mean", "greedy_mean", "q/loss", "q/grad_norm"} <= set(json.loads(lines[-1]))


def test_it_can_be_explained_like_those_of_the_package(example, capsys):
    assert run(["explain", "own_algorithm:ExpectedSarsa"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Expected SARSA (van Seijen 2009)")
    assert "algo.temperature = 1.0" in out
    assert "greedy_mean" in out
