"""Every algorithm: saved to disk in the middle and loaded into a new process' objects, a
run ends with the same bits."""

import pytest

from interrupted import straight_and_resumed
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
    with straight_and_resumed(lambda: trainer_of(name), tmp_path, steps=STEPS // 2):
        pass


def test_every_algorithm_is_among_them():
    known = {entry.name for entry in registry.entries("algo") if entry.where.startswith("rookery.")}
    assert known <= {word.removeprefix("--algo=") for words in CASES.values() for word in words}
