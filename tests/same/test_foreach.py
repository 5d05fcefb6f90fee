"""`foreach_env` and `foreach_worker`: functions of a script, and the same mistake in the same words,
wherever envs live."""

import os
import signal
import sys
import threading

import pytest

from rookery.core.errors import EnvError, RookeryError, UsageError
from same.test_pools import rounds, trainer_of

LOCAL, PROCESS = ("local",), ("process", "env.faults.backoff_seconds=0")
PLACES = {"process": PROCESS, "subprocess": ("local", "env.workers=subprocess", "env.workers.processes=2")}


def mistakes(trainer):
    """(type, sentence) of what goes wrong in each of them."""

    def stuck(env):
        raise ValueError("no such knob")

    def refused(call, *args):
        with pytest.raises(RookeryError) as caught:
            call(*args)
        return type(caught.value), str(caught.value).partition("\nTraceback")[0]

    asked = [("pidd",), ("pidd", 2), (stuck,), (lambda env: sys.exit(0),), ("pid", "too", "many")]
    found = [refused(trainer.foreach_env, *args) for args in asked]
    return [*found, refused(trainer.foreach_worker, stuck), refused(trainer.foreach_worker, "index")]


def asked_and_mistaken(words):
    """What functions answer, without the processes they were called in, and the mistakes; the run goes on."""
    kind, *others = words
    with trainer_of("ppo", kind, *others) as trainer:
        trainer.round()
        told = mistakes(trainer)
        assert trainer.pool.metrics() == {}, "a mistake costs no worker"
        if (kind, *others) != LOCAL:
            with pytest.raises(UsageError, match=r"cannot be sent back .*lock.* Answer with what can be pickled"):
                trainer.foreach_env(lambda env: threading.Lock())
        more = 10
        workers = trainer.foreach_worker(lambda collector: collector.index + more)
        envs = trainer.foreach_env(lambda env, by, *, to: (env.unwrapped.pid(), by * to * more), 2, to=3)
        assert {pid for pid, _ in envs} == set(trainer.foreach_env("pid"))
        assert "foreach_env" in str(trainer.exact())
        rounds(trainer, 96)
        if kind == "process":  # what failed is not told again to another in its place (on Ray the same code)
            os.kill(trainer.pool.pids()[1][0], signal.SIGKILL)
            rounds(trainer, 160)
            assert trainer.pool.metrics() == {"pool/renewals": 1.0}
        return told, workers, [number for _, number in envs]


def test_the_same_mistake_is_the_same_sentence_and_says_what_and_where():
    told, workers, numbers = asked_and_mistaken(LOCAL)
    name, given, function, leaves, method, worker, word = told
    sentence = "foreach_env: same.telling:Telling-v0 has no method or attribute 'pidd'. Did you mean 'pid'?"
    assert name == given == (UsageError, sentence)
    assert function[0] is worker[0] is leaves[0] is UsageError
    assert function[1].startswith(f"stuck raised ValueError: no such knob ({__file__}:")
    assert worker[1] == function[1]
    assert leaves[1].startswith("<lambda> raised SystemExit: 0 (")
    assert method[0] is EnvError
    assert method[1].startswith("pid raised TypeError: ")
    assert word == (UsageError, "expected a function that takes what it is called with, got 'index'")
    assert (workers, numbers) == ([10, 11], [60] * 4)


@pytest.mark.slow
@pytest.mark.parametrize("place", list(PLACES))
def test_functions_and_mistakes_in_other_processes_are_those_of_one(place):
    assert asked_and_mistaken(PLACES[place]) == asked_and_mistaken(LOCAL)


@pytest.mark.slow
def test_functions_and_mistakes_on_ray_are_those_of_one_process(cluster):
    assert asked_and_mistaken(("ray", "env.faults.backoff_seconds=0")) == asked_and_mistaken(LOCAL)
