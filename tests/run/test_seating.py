"""Seats by a function of the user's: asked once per episode, where the collector lives."""

import pytest

from rookery import Trainer, load_config
from rookery.core.errors import ConfigError, UsageError

TREE = {
    "algo": {"name": "dqn"},
    "env": {"id": "rookery/Verdicts-v0", "api": "turns", "num": 2},
    "model": {"hidden": [4]},
    "store": {"min_fill": 40, "batch_size": 16, "capacity": 400},
    "players": {"old": {}, "new": {}},
    "seats": {"first": {"old": 1, "new": 1}, "second": {"old": 1, "new": 1}},
    "learning": {"mode": "eager"},
    "train": {"max_steps": 120},
    "log": {"sinks": []},
    "eval": {"at_end": False, "every_steps": 0},
}


def by_turns(agents, episode, env, worker, rng):
    """Even episodes: old against new; odd ones the other way round; in worker 1 a coin decides."""
    first = "old" if (episode % 2 == 0) != (worker == 1 and rng.random() < 0.5) else "new"
    return {"first": first, "second": {"old": "new", "new": "old"}[first]}


def seats_of(config, seating=None):
    """(worker, episode) → its seats, in the order in which they ended."""
    seen = []
    with Trainer(load_config(tree=TREE, overrides=config), seating=seating) as trainer:
        trainer.callbacks.wants_ended = True
        plain = trainer.callbacks.call

        def call(hook, *args):
            if hook == "episodes":
                seen.extend((end.env, end.episode, tuple(end.info["seats"].values())) for end in args[0])
            plain(hook, *args)

        trainer.callbacks.call = call
        for _ in trainer:
            pass
        return seen, trainer.players.weights_sha256()


def test_a_function_seats_everybody_once_per_episode():
    seen, _ = seats_of(["run.seating=run.test_seating:by_turns"])
    assert len(seen) >= 10
    for _, episode, seats in seen:
        assert seats == (("old", "new") if episode % 2 == 0 else ("new", "old"))


@pytest.mark.slow
def test_a_closure_travels_to_other_processes_and_learns_the_same():
    names = ["old", "new"]

    def fn(agents, episode, env, worker, rng):
        return dict(zip(agents, names if rng.random() < 0.5 else names[::-1]))

    workers = ["pool.workers=2"]
    assert seats_of([*workers], fn) == seats_of([*workers, "pool=process"], fn)


def test_whom_seats_does_not_name_cannot_be_seated():
    with pytest.raises(UsageError, match=r"run.seating gave 'nobody' for the agent 'first' in episode 0 of env 0"):
        seats_of([], lambda *_: {"first": "nobody", "second": "new"})


@pytest.mark.parametrize("name", ["run.test_seating:TREE", "run.test_seating:missing"])
def test_what_is_no_function_is_refused(name):
    with pytest.raises(ConfigError, match=r"run\.seating"):
        seats_of([f"run.seating={name}"])
