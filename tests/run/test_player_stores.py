"""The stores of several players: the same refusals as with one, β over the run's steps, nothing learnt from nothing."""

import pytest
import torch

from rookery import ConfigError, Trainer, load_config

VERDICTS = {
    "env": {"id": "rookery.envs.tasks.games:Verdicts", "api": "turns", "num": 2},
    "algo": {"name": "dqn", "epsilon": 0.2},
    "model": {"hidden": [8]},
    "store": {"min_fill": 40, "batch_size": 8, "capacity": 2000},
    "players": {"both": {}},
    "train": {"max_steps": 400},
    "eval": {"every_steps": 0, "at_end": False},
    "learning": {"mode": "eager"},
}
R2D2 = ["players.both.algo={name: r2d2, sequence: 4, overlap: 0, burn_in: 2}"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["players.both.store.max_reuse=3"], "players.both.store.max_reuse is set, but players.both.algo.name=r2d2"),
        (["players.both.store.max_staleness=3"], "players.both.store.max_staleness is set"),
        (["players.both.store.capacity=40", "env.num=4"], "is 5 steps for each of the 8 seats"),
    ],
)
def test_what_sequences_cannot_have_is_refused_for_a_player_too(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence.replace(".", r"\.")):
        Trainer(load_config(tree=VERDICTS, overrides=[*R2D2, *overrides]))


@pytest.mark.slow
def test_a_ring_with_room_for_one_sequence_per_seat_is_enough():
    with Trainer(load_config(tree=VERDICTS, overrides=[*R2D2, "players.both.store.capacity=40"])) as trainer:
        *_, progress = trainer  # 40 steps for 2 envs × 2 agents: 10 each, a sequence has 6
    assert progress.updates > 0


@pytest.mark.parametrize("seats", [{"first": "one", "second": "one"}, {"first": "one", "second": "other"}])
def test_beta_of_a_player_follows_the_steps_of_the_run_however_many_rows_it_has(seats):
    """From 0 to 1 over 400 env steps. One seat of two has half of the rows, and both of a parallel
    env would have twice as many."""
    players = {name: {} for name in dict.fromkeys(seats.values())}
    store = {**VERDICTS["store"], "priority": {"beta": {"kind": "linear", "start": 0.0, "end": 1.0}}}
    tree = {**VERDICTS, "players": players, "seats": seats, "store": store, "log": {"every_steps": 100}}
    with Trainer(load_config(tree=tree)) as trainer:
        found = [(progress.steps, progress.metrics["player/one/store/beta"]) for progress in trainer]
    wanted = [(steps, steps / 400) for steps in (100, 200, 300, 400)]
    assert found == [(steps, pytest.approx(beta)) for steps, beta in wanted]


def test_a_rollout_in_which_a_player_never_sat_teaches_it_nothing():
    """Adam would otherwise go on in the direction of its old gradients. Episodes have 6 steps, as many as a rollout."""
    tree = {
        **VERDICTS,
        "players": {"rare": {"algo": {"name": "ppo", "rollout": 6, "minibatches": 2}}, "other": {}},
        "seats": {"first": {"rare": 1e9, "other": 1.0}, "second": "other"},
    }
    with Trainer(load_config(tree=tree)) as trainer:
        for _ in range(6):
            trainer.round()
        learner, before = trainer.players["rare"].learner, weights(trainer)
        assert learner.updates == 8
        seats = trainer.pool.collectors[0].seats
        seats.rng, seats._now["first"][:] = None, 1  # from now on the other one sits everywhere
        for _ in range(20):
            trainer.round()
        assert learner.updates == 8
        assert torch.equal(weights(trainer), before)


def weights(trainer):
    return trainer.policy("rare").weights()["tensors"]["ac.value"].clone()
