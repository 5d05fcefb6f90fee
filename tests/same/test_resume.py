"""kill -9 at a random moment, resume: the result is bit for bit that of the uninterrupted run (F1, F5, F19)."""

import collections
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import rookery
from rookery.testing.resume import command, differences, killed_and_resumed, outcome, straight
from same.cases import CASES, COMMON, COMPILED

pytestmark = pytest.mark.slow
TESTS = os.pathsep.join(str(p) for p in (Path(__file__).parent.parent, Path(rookery.__file__).parent.parent))


# killed in every run of the tests; the others in the full matrix, and all of them in `test_resume_short`
KILLED = ["ppo", "sac"]
BUILT = ["dqn"]
MATRIX = [pytest.param((name, "eager"), marks=pytest.mark.matrix) for name in CASES if name not in KILLED]


def words(name, mode, artefacts):
    return [*CASES[name], *COMMON, f"learning.mode={mode}", f"learning.cache={artefacts}"]


@pytest.fixture(
    scope="module",
    params=[(name, "eager") for name in KILLED]
    + MATRIX
    + [
        (name, "compiled") if name in BUILT else pytest.param((name, "compiled"), marks=pytest.mark.matrix)
        for name in COMPILED
    ],
    ids=lambda p: "-".join(p),
)
def pair(request, artefacts, tmp_path_factory):
    """(straight run, killed and resumed run, how it was killed)."""
    folder, (name, mode) = tmp_path_factory.mktemp("resume"), request.param
    run = words(name, mode, artefacts)
    path = {"PYTHONPATH": TESTS}
    straight(run, folder / "straight", path | {"COUNTING_FILE": str(folder / "straight.txt")})
    seed = random.SystemRandom().randrange(10**6)
    print("seed of the kill:", seed)
    told = killed_and_resumed(
        run,
        folder / "killed",
        random.Random(seed),
        kills=2,
        most=0.7,
        env=path | {"COUNTING_FILE": str(folder / "killed.txt")},
    )
    return folder, told


def test_the_resumed_run_equals_the_straight_one(pair):
    folder, told = pair
    assert told.kills > 0, "the run ended before it could be killed"
    assert differences(outcome(folder / "straight"), outcome(folder / "killed")) == []
    assert told.resumed_from
    assert all(step > 0 for step in told.resumed_from)


def test_nothing_before_the_checkpoint_was_collected_again_but_running_episodes(pair, request):
    """A step may be executed again after a kill only if it lies after the checkpoint, or in
    an episode that was running."""
    if not any(word.startswith("--env=same.") for word in CASES[request.node.callspec.params["pair"][0]]):
        pytest.skip("only the envs of these tests write a file of their steps")
    folder, told = pair
    once, again = (
        collections.Counter((folder / f"{name}.txt").read_text().split("\n")[:-1]) for name in ("straight", "killed")
    )
    assert set(once) == set(again), "the killed run met other states"
    every = 150
    span = sum(again.values()) - sum(once.values())
    envs = 6  # training and evaluation envs
    # after each kill: at most one interval between checkpoints, one round, the evaluations in it, and one
    # episode per env are repeated
    allowed = len(told.resumed_from) * (every + 64 + 2 * 2 * 60 + envs * 60) + told.kills * 200
    assert 0 <= span <= allowed
    assert span < sum(once.values())


def test_sigterm_leaves_a_checkpoint_and_exits_with_143(tmp_path, artefacts):
    run, env = words("dqn", "eager", artefacts), os.environ | {"PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1"}
    straight(run, tmp_path / "straight", {"PYTHONPATH": TESTS})
    process = subprocess.Popen(command(run, tmp_path / "run"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not list((tmp_path / "run" / "checkpoints").glob("step-*/COMMIT")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err.decode()
    assert out.decode().strip().splitlines()[-1] == f"run: {tmp_path / 'run'}"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "preempted"
    assert "SIGTERM" in summary["reason"]
    newest = max(
        int(p.parent.name.removeprefix("step-")) for p in (tmp_path / "run" / "checkpoints").glob("step-*/COMMIT")
    )
    assert newest == summary["steps"]
    done = subprocess.run(
        [*command([], tmp_path / "x")[:4], "--resume", str(tmp_path / "run")], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert differences(outcome(tmp_path / "straight"), outcome(tmp_path / "run")) == []


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path, artefacts):
    run, env = [w for w in words("ppo", "eager", artefacts) if "max_steps" not in w], {"PYTHONPATH": TESTS}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        straight([*run, f"--seed={seed}", "train.max_steps=1000"], tmp_path / name, env)
    a, b, c = (outcome(tmp_path / name) for name in "abc")
    assert differences(a, b) == []
    assert a["weights_sha256"] != c["weights_sha256"]
