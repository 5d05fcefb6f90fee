"""Every metric that a run writes has its sentence on the metrics page."""

import json
import re

import pytest

from docs.pages import DOCS, build
from rookery import Experiment
from selection import matrix_but

TINY = {
    "dqn": ["env.id=CartPole-v1", "train.max_steps=600", "store.min_fill=100"],
    "ppo": ["env.id=CartPole-v1", "train.max_steps=512", "algo.rollout=32", "env.num=4"],
    "c51": ["env.id=CartPole-v1", "train.max_steps=300", "store.min_fill=100", "algo.atoms=5"],
    "rainbow": ["env.id=CartPole-v1", "train.max_steps=300", "store.min_fill=100", "algo.atoms=5"],
    "qrdqn": ["env.id=CartPole-v1", "train.max_steps=300", "store.min_fill=100", "algo.quantiles=4"],
    "iqn": ["env.id=CartPole-v1", "train.max_steps=300", "store.min_fill=100", "algo.samples=4", "algo.cosines=4"],
    "fqf": ["env.id=CartPole-v1", "train.max_steps=300", "store.min_fill=100", "algo.fractions=4", "algo.cosines=4"],
    "mdqn": ["env.id=CartPole-v1", "train.max_steps=300", "store.min_fill=100"],
    "pqn": ["env.id=CartPole-v1", "train.max_steps=512", "algo.rollout=32", "env.num=4"],
    "r2d2": ["env.id=CartPole-v1", "train.max_steps=600", "store.min_fill=100", "algo.sequence=4", "algo.overlap=2"],
    "sac": ["env.id=Pendulum-v1", "train.max_steps=300", "store.min_fill=256", "algo.warmup=100", "model.hidden=[16]"],
}
TINY |= {
    "a2c": ["env.id=CartPole-v1", "train.max_steps=600", "algo.curiosity={kind: icm}"],
    "impala": ["env.id=CartPole-v1", "train.max_steps=600"],
    "appo": ["env.id=CartPole-v1", "train.max_steps=600", "algo.rollout=32", "env.num=4"],
    "reinforce": ["env.id=CartPole-v1", "train.max_steps=600", "algo.rollout=32", "env.num=4"],
    "trpo": ["env.id=CartPole-v1", "train.max_steps=600", "algo.rollout=32", "env.num=4"],
    "ppg": ["env.id=CartPole-v1", "train.max_steps=600", "algo.rollout=32", "env.num=4", "algo.phase=2"],
}
_BOX = ["env.id=Pendulum-v1", "train.max_steps=300", "store.min_fill=256", "algo.warmup=100", "model.hidden=[16]"]
TINY |= dict.fromkeys(("ddpg", "td3", "redq", "tqc", "crossq"), _BOX)
TINY["sac-discrete"] = ["env.id=CartPole-v1", "train.max_steps=600", "store.min_fill=256", "model.hidden=[16]"]
_TEAM = ["env.id=rookery/TwoStep-v0", "env.api=parallel", "train.max_steps=600"]
_REPLAYED = [*_TEAM, "store.min_fill=256"]
TINY |= dict.fromkeys(("vdn", "qmix", "collaq", "maddpg", "atoc"), _REPLAYED) | {"coma": _TEAM}
ALWAYS = [
    "log.every_steps=100",
    "eval.every_steps=200",
    "eval.episodes=2",
    "eval.num=2",
    "log.sinks=[jsonl]",
    "learning.mode=eager",
]


def documented(page):
    """Names in the first column of the page's tables."""
    return set(re.findall(r"^\| `([^`]+)` \|", page.read_text(), re.MULTILINE))


def test_every_algorithm_is_tried():
    assert set(TINY) == set(build.algorithms())


@pytest.mark.slow
@pytest.mark.parametrize("algo", matrix_but(TINY, "dqn", "ppo", "sac", "a2c", "r2d2"))
def test_every_metric_of_a_run_is_documented(algo, tmp_path):
    result = Experiment(algo=algo, overrides=[*TINY[algo], *ALWAYS], out=tmp_path / "run").train()
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    seen = {key for line in lines for key in line}
    assert seen - documented(DOCS / "metrics.md") == set()
    assert {"steps", "eval/return_mean", "time/update", "knob/lr"} <= seen


@pytest.mark.slow
def test_every_metric_of_a_prioritised_replay_is_documented(tmp_path):
    words = [*TINY["dqn"], *ALWAYS, "store.priority={}"]
    result = Experiment(algo="dqn", overrides=words, out=tmp_path / "run").train()
    seen = set(json.loads((result.folder / "metrics.jsonl").read_text().splitlines()[-1]))
    assert {"store/priority_mean", "store/beta", "time/samples_per_second"} <= seen
    assert seen - documented(DOCS / "metrics.md") == set()


def test_the_page_explains_no_metric_twice():
    rows = re.findall(r"^\| `([^`]+)` \|", (DOCS / "metrics.md").read_text().split("## Algorithms")[0], re.MULTILINE)
    general = [name for name in rows if not name.startswith("knob/")]
    assert len(general) == len(set(general))
