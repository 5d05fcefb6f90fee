"""Teams and central critics: in processes, on a Ray cluster and with env workers they learn what one process does, to
the bit, also when a run changes over in the middle; two learners repeat and resume."""

import pytest

from rookery import Trainer, load_config
from same.cases import COMMON
from same.team_cases import TEAMS
from selection import matrix_but

pytestmark = pytest.mark.slow

SKIPPED = ("--", "checkpoint.", "eval.", "train.max_steps", "log.", "learning.")
QUIET = ["learning.mode=eager", "log.sinks=[]", "log.every_steps=80", "eval.every_steps=0", "eval.num=2"]
STEPS = 240
PLACES = {
    "local": ["pool.workers=2"],
    "process": ["pool=process", "pool.workers=2"],
    "ray": ["pool=ray", "pool.workers=2"],
    "env workers": ["env.workers=subprocess", "env.workers.processes=2", "env.workers.start=fork"],
    "inline": [],
}
POOLED = ("qmix", "mappo", "maddpg", "maddpg-choices")


def trainer_of(name, *words):
    flags = dict(word.removeprefix("--").split("=", 1) for word in TEAMS[name] if word.startswith("--"))
    own = [word for word in (*TEAMS[name], *COMMON) if not word.startswith(SKIPPED)]
    small = [f"train.max_steps={STEPS}", "eval.at_end=true", "eval.episodes=2", *QUIET]
    last = {word.partition("=")[0]: word for word in (*own, *small, *words)}
    if name in ("mappo", "coma", "coma-stack", "maddpg", "maddpg-choices", "maddpg-own"):
        last |= {"algo.rollout": "algo.rollout=8"}
    return Trainer(load_config(algo=flags["algo"], env=flags["env"], overrides=list(last.values())))


def ended(trainer):
    """Weights, and every number that no clock and no place decides."""
    told = [report.metrics for report in trainer]
    assert trainer.exact() is True
    assert trainer.updates > 5
    assert trainer.steps == STEPS
    numbers = [{key: x for key, x in line.items() if not key.startswith(("time/", "pool/"))} for line in told]
    assert any("eval/return_mean" in line for line in numbers)
    return trainer.players.weights_sha256(), numbers[-1], trainer.worker_steps


def straight(name, place):
    with trainer_of(name, *PLACES[place]) as trainer:
        return ended(trainer)


def resumed(name, before, after, folder):
    """The same run, saved in the middle in one place and gone on with in another."""
    with trainer_of(name, *PLACES[before]) as first, trainer_of(name, *PLACES[after]) as second:
        while first.steps < STEPS // 2:
            first.round()
        first.save(folder)
        second.load(folder)
        return ended(second)


@pytest.mark.parametrize("name", matrix_but(POOLED, "qmix"))
def test_processes_learn_the_same_and_a_run_may_change_over_in_the_middle(name, tmp_path):
    expected = straight(name, "local")
    assert straight(name, "process") == expected
    for before, after in (("local", "process"), ("process", "local"), ("process", "process")):
        found = resumed(name, before, after, tmp_path / f"{before}-{after}")
        assert found[0] == expected[0]


@pytest.mark.parametrize("name", matrix_but(POOLED, "mappo"))
def test_ray_learns_the_same_with_a_resume_in_the_middle(name, cluster, tmp_path):
    expected = straight(name, "local")
    assert straight(name, "ray") == expected
    assert resumed(name, "ray", "ray", tmp_path)[0] == expected[0]


@pytest.mark.parametrize("name", matrix_but(list(TEAMS), "maddpg-choices"))
def test_env_workers_give_the_same_and_a_run_may_change_over_in_the_middle(name, tmp_path):
    expected = straight(name, "inline")
    assert straight(name, "env workers") == expected
    assert resumed(name, "inline", "env workers", tmp_path)[0] == expected[0]


@pytest.mark.matrix
@pytest.mark.parametrize("name", TEAMS)
def test_a_run_with_two_learners_repeats_and_resumes_bit_for_bit(name, tmp_path):
    two = PLACES["two learners"] = ["learning.learners=2"]
    with trainer_of(name, *two) as trainer:
        expected = ended(trainer)
        assert len(trainer.players.main.learner_pids) == 1
        trainer.players.check(deep=True)
    assert straight(name, "two learners") == expected
    assert resumed(name, "two learners", "two learners", tmp_path)[0] == expected[0]
