"""What callbacks may do with a run: save, evaluate, seat, pause; and hear of episodes in every pool."""

import time

import pytest

from rookery import Callback, Experiment, RookeryError, Trainer, UsageError, load_config

TREE = {
    "env": {"id": "rookery/Pairing-v0", "api": "parallel", "num": 2},
    "algo": {"name": "dqn", "epsilon": 0.5},
    "model": {"hidden": [8]},
    "store": {"min_fill": 40, "batch_size": 16, "capacity": 500},
    "players": {"one": {}, "guest": {"train": False}, "right": {}},
    "seats": {"left": {"one": 1, "guest": 1}, "right": "right"},
    "train": {"max_steps": 300},
    "eval": {"every_steps": 0, "at_end": False, "episodes": 2, "num": 1},
    "learning": {"mode": "eager"},
    "log": {"sinks": [], "every_steps": 50},
    "checkpoint": {"every_steps": 0, "at_end": False},
}


class Reseat(Callback):
    """The guest leaves its seat after 100 steps."""

    def report(self, progress):
        if progress.steps == 100:
            progress.seat("left", {"one": 1.0, "guest": 0.0})


class Ends(Callback):
    """Everything that ended, in the order in which it was told."""

    def __init__(self):
        self.ended = []

    def episodes(self, ended):
        for end in ended:
            end.metrics["double"] = 2 * end.total
        self.ended += ended


def trained(callbacks, *overrides):
    trainer = Trainer(load_config(tree=TREE, overrides=overrides), callbacks=callbacks)
    with trainer:
        reports = list(trainer)
    return trainer, reports


def test_whoever_loses_its_seat_sits_no_more_in_episodes_that_begin_later():
    ends = Ends()
    trained([Reseat(), ends])
    sat = [end.info["seats"]["left"] for end in ends.ended]
    early, late = sat[: 100 // 5], sat[100 // 5 + 2 :]  # episodes have 5 steps; two were running
    assert {"one", "guest"} == set(early)
    assert set(late) == {"one"}


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["local", pytest.param("process", marks=pytest.mark.slow)])
def test_a_changed_seating_survives_a_resume(pool, tmp_path):
    config = load_config(tree=TREE, overrides=[f"pool={pool}"])
    with Trainer(config, callbacks=[Reseat()]) as whole:
        for _ in whole:
            pass
        wanted = whole.players.weights_sha256()
    with Trainer(config, callbacks=[Reseat()]) as first:
        for progress in first:
            if progress.steps == 150:
                first.save(tmp_path)
                break
    with Trainer(config, callbacks=[Reseat()]) as second:
        second.load(tmp_path)
        assert second.seating == {"left": {"one": 1.0, "guest": 0.0}}
        for _ in second:
            pass
        assert second.players.weights_sha256() == wanted


@pytest.mark.parametrize(
    ("agent", "weights", "sentence"),
    [
        ("middle", {"one": 1}, "but not 'middle'"),
        ("left", {"right": 1}, "'right' cannot sit for 'left'"),
        ("left", {"one": 0}, "one of them positive"),
        ("left", {"one": -1, "guest": 2}, "not negative"),
    ],
)
def test_a_seating_that_makes_no_sense_is_refused(agent, weights, sentence):
    with Trainer(load_config(tree=TREE)) as trainer, pytest.raises(UsageError, match=sentence):
        trainer.progress().seat(agent, weights)


@pytest.mark.parametrize("pool", ["local", pytest.param("process", marks=pytest.mark.slow)])
def test_episodes_are_heard_of_in_every_pool_and_their_metrics_are_reported(pool):
    ends = Ends()
    trainer, reports = trained([ends], f"pool={pool}")
    assert len(ends.ended) == trainer.episodes == 60
    assert reports[-1].metrics["double_mean"] == pytest.approx(2 * reports[-1].metrics["episode/return_mean"], abs=2.0)


def test_a_pause_counts_for_no_limit_and_no_rate():
    class Sleeper(Callback):
        def report(self, progress):
            if progress.steps == 100:
                with progress.pause():
                    time.sleep(0.6)

    trainer, reports = trained([Sleeper()])
    assert trainer.meters.rates.seconds() < time.monotonic() - trainer.meters.rates._start + 0.001
    whole = sum(trainer.meters.phases.seconds().values())
    assert abs(whole - trainer.meters.rates.seconds()) < 0.3  # neither clock has the 0.6 s
    assert reports[-1].finished


def test_a_callback_can_save_and_evaluate(tmp_path):
    class Asks(Callback):
        def __init__(self):
            self.saved, self.result = [], None

        def report(self, progress):
            if progress.steps == 100:
                progress.save()
                self.result = progress.evaluate()

        def checkpoint(self, path):
            self.saved.append(path.name)

    asks = Asks()
    Experiment(TREE, callbacks=[asks], out=tmp_path / "run").train()
    assert asks.saved == ["step-000000000100"]
    assert asks.result.steps == 100
    assert len(asks.result.returns) == 2


class Add(Callback):
    """Somebody comes after 100 steps."""

    def report(self, progress):
        if progress.steps == 100:
            progress.add_player("late", {"algo": {"name": "dqn", "lr": 0.01}}, {"left": 3.0})


def test_an_added_player_sits_and_learns():
    ends = Ends()
    trainer, reports = trained([Add(), ends])
    assert "late" in {end.info["seats"]["left"] for end in ends.ended[-20:]}
    assert trainer.players["late"].learner.updates > 20
    assert trainer.players["late"].algo.config.lr.start == 0.01
    assert "player/late/return_mean" in reports[-1].metrics


@pytest.mark.parametrize("pool", ["local", pytest.param("process", marks=pytest.mark.slow)])
def test_a_run_with_an_added_player_resumes_to_the_bit_in_every_pool(pool, tmp_path):
    words = [f"pool={pool}", "pool.workers=2"]
    whole, _ = trained([Add()], "pool.workers=2")
    config = load_config(tree=TREE, overrides=words)
    with Trainer(config, callbacks=[Add()]) as first:
        for progress in first:
            if progress.steps >= 200:
                first.save(tmp_path)
                break
    with Trainer(config, callbacks=[Add()]) as second:
        second.load(tmp_path)
        assert list(second.players) == ["one", "guest", "right", "late"]
        for _ in second:
            pass
        assert second.players.weights_sha256() == whole.players.weights_sha256()


@pytest.mark.parametrize(
    ("name", "sections", "seats", "sentence"),
    [
        ("one", {}, {"left": 1}, "a player 'one' already"),
        ("late", {"algo": {"name": "dnq"}}, {"left": 1}, "dnq"),
        ("late", {}, {"middle": 1}, "an agent 'middle'"),
        ("late", {}, {}, "has no seat"),
    ],
)
def test_a_player_that_cannot_be_is_refused_and_nothing_is_changed(name, sections, seats, sentence):
    with Trainer(load_config(tree=TREE)) as trainer:
        with pytest.raises(RookeryError, match=sentence):
            trainer.progress().add_player(name, sections, seats)
        assert list(trainer.players) == ["one", "guest", "right"]
        trainer.round()


WITHOUT = ["players=null", "seats=null", "env.id=rookery/Verdicts-v0", "env.api=turns"]


def test_a_run_that_names_no_player_adds_none():
    with (
        Trainer(
            load_config(
                tree=TREE, overrides=["players=null", "seats=null", "env.id=rookery/Verdicts-v0", "env.api=turns"]
            )
        ) as trainer,
        pytest.raises(UsageError, match="this run names none"),
    ):
        trainer.add_player("late", {}, {"left": 1.0})
