"""Every algorithm: saved to disk in the middle and loaded into a new process' objects, a
run ends with the same bits."""

import pytest

from rookery import Trainer, load_config
from rookery.core import registry
from same.cases import CASES, COMMON

pytestmark = pytest.mark.slow
SKIPPED = ("checkpoint.", "eval.", "train.max_steps", "log.")
STEPS = 640


def trainer_of(name):
    flags = {word.split("=", 1)[0]: word.split("=", 1)[1] for word in CASES[name] if word.startswith("--")}
    preset = next((word for word in CASES[name] if "=" not in word), None)
    words = [word for word in (*CASES[name], *COMMON) if "=" in word and not word.startswith(("--", *SKIPPED))]
    words += [
        f"train.max_steps={STEPS}",
        "learning.mode=eager",
        "log.sinks=[]",
        "eval.every_steps=0",
        "eval.at_end=false",
    ]
    return Trainer(load_config(preset, algo=flags.get("--algo"), env=flags.get("--env"), overrides=words))


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_was_saved_in_the_middle_ends_with_the_same_bits(name, tmp_path):
    with trainer_of(name) as straight:
        while straight.steps < STEPS // 2:
            straight.round()
        straight.save(tmp_path)
        for _ in straight:
            pass
        assert straight.updates > 0
        with trainer_of(name) as resumed:
            resumed.load(tmp_path)
            assert 0 < resumed.steps < STEPS
            for _ in resumed:
                pass
            assert resumed.steps == straight.steps
            assert resumed.players.weights_sha256() == straight.players.weights_sha256()


def test_every_algorithm_is_among_them():
    known = {entry.name for entry in registry.entries("algo") if entry.where.startswith("rookery.")}
    assert known <= {word.removeprefix("--algo=") for words in CASES.values() for word in words}
