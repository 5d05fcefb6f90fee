"""Layers that players share: all train them, in every mode, and a resumed run goes on to the bit."""

import pytest
import torch

from interrupted import straight_and_resumed
from rookery import Trainer, load_config
from rookery.core.errors import ConfigError

TIED = {
    "algo": {"name": "ppo", "rollout": 16, "lr": 0.01},
    "env": {"id": "rookery/Verdicts-v0", "api": "turns", "num": 4},
    "model": {"hidden": [8]},
    "players": {"a": {}, "b": {"model": {"ties": {"encoder": "a"}}}},
    "seats": {"first": "a", "second": "b"},
    "learning": {"mode": "eager"},
    "train": {"max_steps": 320},
    "log": {"sinks": []},
    "eval": {"at_end": False, "every_steps": 0},
}


def trainer_of(*overrides, tree=TIED):
    return Trainer(load_config(tree=tree, overrides=overrides))


def parts(trainer, name):
    """(what is tied, what is not) of a player."""
    net = trainer.players[name].learner.nets["ac"]
    tensors = dict(zip(net.params, net.views(net.value)))
    shared = torch.cat([x.flatten() for key, x in tensors.items() if key.startswith("encoder.")])
    return shared.clone(), torch.cat(
        [x.flatten() for key, x in tensors.items() if not key.startswith("encoder.")]
    ).clone()


@pytest.mark.parametrize("mode", ["eager", pytest.param("compiled", marks=pytest.mark.matrix)])
def test_tied_layers_are_equal_from_the_start_and_both_players_train_them(mode):
    with trainer_of(f"learning.mode={mode}") as trainer:
        start = parts(trainer, "a")[0]
        assert torch.equal(start, parts(trainer, "b")[0])
        moves = []
        for _ in range(4):
            before = parts(trainer, "a")[0]
            trainer.round()
            (one, own), (two, other) = parts(trainer, "a"), parts(trainer, "b")
            assert torch.equal(one, two)
            assert not torch.equal(own, other)
            moves.append((one - before).norm().item())
        assert min(moves) > 0


@pytest.mark.parametrize("learns", ["a", "b"])
def test_whoever_learns_both_have_it(learns):
    """Only one of the two has a store: what it learns is the other's, too."""
    tree = {**TIED, "players": {name: {**player, "train": name == learns} for name, player in TIED["players"].items()}}
    with trainer_of(tree=tree) as trainer:
        start = parts(trainer, "a")[0]
        for _ in range(3):
            trainer.round()
        assert torch.equal(parts(trainer, "a")[0], parts(trainer, "b")[0])
        assert not torch.equal(start, parts(trainer, "a")[0])


def test_a_run_with_ties_resumes_to_the_bit(tmp_path):
    with straight_and_resumed(trainer_of, tmp_path, rounds=3) as (straight, _):
        assert torch.equal(parts(straight, "a")[0], parts(straight, "b")[0])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "players.b.model.ties={encoder: c}",
            r"players.b.model.ties.encoder=c: expected one of the other players \(a\)",
        ),
        ("players.b.model.ties={encodr: a}", "there is no such part; 'b' has encoder, critic, head, value_head"),
        ("players.b.model={hidden: [9], ties: {encoder: a}}", "Players that share a part must build it alike"),
        ("learning.learners=2", r"cannot be used with learning.learners > 1"),
    ],
)
def test_ties_that_cannot_be_are_refused(change, sentence):
    with pytest.raises(ConfigError, match=sentence):
        trainer_of(change).shut()
