"""Several players in one run: each learns with its own algorithm and store, or not at
all; saved and restored exactly."""

import json

import numpy as np
import pytest

from rookery import Batch, Callback, ConfigError, Experiment, Trainer, UsageError, load_config, load_policy
from rookery.cli.main import run
from rookery.run.evaluate import evaluate_run

pytestmark = pytest.mark.slow

PAIRING = {
    "env": {"id": "rookery.envs.tasks.games:Pairing", "api": "parallel", "num": 4},
    "model": {"hidden": [32]},
    "players": {
        "thinker": {
            "algo": {"name": "dqn", "lr": 5e-3, "gamma": 0.0, "target_every": 20, "epsilon": 0.3},
            "store": {"min_fill": 100, "capacity": 2000, "updates_per_step": 0.5},
        },
        "doer": {"algo": {"name": "ppo", "rollout": 16, "lr": 1e-2, "gamma": 0.0, "entropy_bonus": 0.01}},
    },
    "seats": {"left": "thinker", "right": "doer"},
    "train": {"max_steps": 2400},
    "eval": {"every_steps": 0, "episodes": 10, "num": 5},
    "log": {"every_steps": 800, "sinks": ["jsonl"]},
    "checkpoint": {"every_steps": 400},
    "learning": {"mode": "eager"},
}
MEMORIES = {
    "env": {"id": "rookery.envs.tasks.games:Visitors", "api": "parallel", "num": 2},
    "model": {"hidden": [8], "core": {"kind": "gru", "size": 4}, "normalise_obs": True},
    "players": {
        "old": {
            "algo": {"name": "r2d2", "sequence": 4, "overlap": 2, "burn_in": 2, "epsilon": 0.3},
            "store": {"min_fill": 50, "batch_size": 8, "capacity": 400, "updates_per_step": 0.25},
        },
        "new": {"algo": {"name": "ppo", "rollout": 12, "minibatches": 2, "epochs": 2}},
    },
    "seats": {"early": {"old": 2, "new": 1}, "steady": {"old": 1, "new": 1}, "late": "new"},
    "train": {"max_steps": 600},
    "eval": {"every_steps": 0, "episodes": 2, "num": 2},
    "learning": {"mode": "eager"},
}
TURNS = {
    "env": {"id": "rookery.envs.tasks.games:Verdicts", "api": "turns", "num": 2},
    "algo": {"name": "dqn", "lr": 5e-3, "gamma": 0.5, "epsilon": 0.2, "n_step": 2, "target_every": 20},
    "model": {"hidden": [32]},
    "store": {"min_fill": 64, "capacity": 4000, "priority": {}},
    "players": {"both": {}},
    "train": {"max_steps": 1200},
    "eval": {"every_steps": 0, "episodes": 4, "num": 4},
    "learning": {"mode": "eager"},
}


def config(tree, *overrides):
    return load_config(tree=tree, overrides=overrides)


def deterministic(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


@pytest.mark.slow
def test_dqn_and_ppo_learn_side_by_side_in_one_env():
    with Trainer(config(PAIRING)) as trainer:
        last = list(trainer)[-1]
        updates = {name: player.learner.updates for name, player in trainer.players.items()}
    assert last.evaluation.mean == 10.0  # five rounds with a common reward of 1, for both
    assert last.evaluation.players == {"thinker": 5.0, "doer": 5.0}
    assert (last.steps, last.episodes) == (2400, 480)
    assert updates == {"thinker": (2400 - 100) // 2, "doer": 2400 // (16 * 4) * 4 * 4}  # each at its own pace
    assert last.updates == sum(updates.values())
    wanted = {"player/thinker/q/loss", "player/doer/ac/loss", "player/thinker/store/size", "player/doer/knob/clip"}
    assert wanted | {"player/thinker/return_mean", "eval/player/doer/return_mean"} <= set(last.metrics)
    assert 2 * last.metrics["player/doer/return_mean"] == pytest.approx(last.metrics["episode/return_mean"])
    assert not {name for name in last.metrics if name.startswith(("q/", "ac/", "store/", "knob/"))}


@pytest.mark.parametrize("learner", ["dqn", "ppo"])
def test_a_reward_that_comes_in_the_opponents_turn_teaches_the_one_who_earned_it(learner):
    """first is frozen and errs; second must still learn that its own answers are right or wrong."""
    ppo = {"algo": {"name": "ppo", "rollout": 24, "lr": 1e-2, "gamma": 0.5}}
    players = {"fixed": {"train": False}, "student": {} if learner == "dqn" else ppo}
    tree = TURNS | {"players": players, "seats": {"first": "fixed", "second": "student"}}
    steps = 1200 if learner == "dqn" else 4800
    with Trainer(config(tree, f"train.max_steps={steps}", "env.num=4")) as trainer:
        before = trainer.policy("fixed").weights()
        last = list(trainer)[-1]
        after = trainer.policy("fixed").weights()
    assert last.evaluation.players["student"] == 3.0  # of 6 moves, 3 are its own
    assert last.evaluation.players["fixed"] < 3.0
    assert all(np.array_equal(before["tensors"][name], after["tensors"][name]) for name in before["tensors"])
    assert not [name for name in last.metrics if name.startswith(("player/fixed/q", "player/fixed/store"))]


def test_one_player_may_sit_for_everybody():
    with Trainer(config(TURNS)) as trainer:
        last = list(trainer)[-1]
    assert last.evaluation.mean == 6.0
    assert last.steps == 1200
    assert last.metrics["player/both/store/size"] == 1200  # one decision per step, and 100 whole episodes in each env


def test_a_replay_keeps_no_row_in_which_its_player_had_no_turn():
    tree = TURNS | {"players": {"one": {}, "two": {}}, "seats": {"first": "one", "second": "two"}}
    with Trainer(config(tree, "store.capacity=200", "store.priority=null", "train.max_steps=1000")) as trainer:
        last = list(trainer)[-1]
        batch, _ = trainer.players["two"].store.sample()
    assert (
        last.metrics["player/one/store/size"] == 200.0
    )  # of 500 decisions; half of them, if the others' turns were kept
    assert last.metrics["player/two/store/fill"] == 1.0
    moved = (batch["next_obs"][:, 1] - batch["obs"][:, 1]) * 6  # its next turns come 2 moves later; n_step = 2
    assert set(moved.round().int().tolist()) <= {4, 3, 1}  # the end is seen after the sixth move
    assert (batch["discount"] > 0).equal(moved.round() == 4)


@pytest.mark.parametrize("tree", [PAIRING, MEMORIES, TURNS], ids=["pairing", "memories", "turns"])
def test_a_saved_and_restored_run_goes_on_bit_for_bit(tree, tmp_path):
    small = config(tree, "train.max_steps=100000", "pool.workers=2")
    one, two = Trainer(small), Trainer(small)
    for _ in range(61):
        one.round()
    one.report()
    one.save(tmp_path)
    two.load(tmp_path)
    for _ in range(70):
        one.round()
        two.round()
    hashes = [{name: p.learner.weights_sha256() for name, p in t.players.items()} for t in (one, two)]
    assert hashes[0] == hashes[1]
    assert min(player.learner.updates for player in one.players.values()) > 0
    assert deterministic(one.report().metrics) == deterministic(two.report().metrics)
    assert one.evaluate().returns == two.evaluate().returns
    for trainer in (one, two):
        trainer.shut()


@pytest.mark.slow
def test_a_run_can_be_evaluated_loaded_and_resumed(tmp_path):
    full = Experiment(config(PAIRING), out=tmp_path / "full").train()
    half = Experiment(config(PAIRING, "train.max_steps=1000"), out=tmp_path / "half").train()
    again = Experiment(config(PAIRING), out=tmp_path / "half", on_exists="resume").train()
    assert half.summary["weights_sha256"] != full.summary["weights_sha256"]
    assert again.summary["resumed_from"] == [1000]
    assert again.summary["weights_sha256"] == full.summary["weights_sha256"]
    assert {name: told["algo"] for name, told in full.summary["players"].items()} == {"thinker": "dqn", "doer": "ppo"}
    for which in ("last", "best"):
        assert evaluate_run(full.folder, checkpoint=which)["players"] == {"thinker": 5.0, "doer": 5.0}
    policy = load_policy(full.folder, player="thinker")  # left sees one of three signs: is it the last one?
    assert policy(Batch(obs=np.eye(3, dtype=np.float32))).action.tolist() == [0, 0, 1]
    with pytest.raises(UsageError, match="there is no player None: this run has 'thinker', 'doer'"):
        load_policy(full.folder)
    started = Experiment(config(PAIRING, "train.max_steps=64"), out=tmp_path / "new", init_from=str(full.folder))
    assert started.train().evaluation.mean == 10.0
    other = config(TURNS, "train.max_steps=100")
    with pytest.raises(
        UsageError, match=f"--init-from {full.folder}: the checkpoint holds the players thinker, doer, but"
    ):
        Experiment(other, out=tmp_path / "other", init_from=str(full.folder)).train()
    alone = ["train.max_steps=100", "store.min_fill=64"]
    with pytest.raises(UsageError, match="holds the players thinker, doer, but this run has main"):
        Experiment(
            algo="dqn", env="CartPole-v1", overrides=alone, out=tmp_path / "x", init_from=str(full.folder)
        ).train()


def test_the_commands_know_several_players(tmp_path, capsys):
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(PAIRING))
    assert run(["train", "-c", str(file), "train.max_steps=400", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert run(["eval", str(tmp_path / "run"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["players"]) == {"thinker", "doer"}
    assert run(["eval", str(tmp_path / "run")]) == 0
    assert "player      doer: " in capsys.readouterr().out


def test_limits_count_env_steps_updates_of_all_players_and_episodes_of_envs():
    for limit, count in (("train.max_updates=333", "updates"), ("train.max_episodes=41", "episodes")):
        with Trainer(config(PAIRING, "train.max_steps=null", limit, "eval.at_end=false")) as trainer:
            assert getattr(list(trainer)[-1], count) == int(limit.partition("=")[2])
    with Trainer(config(PAIRING, "train.max_steps=1001", "eval.at_end=false", "pool.workers=2")) as trainer:
        assert list(trainer)[-1].steps == 1001
        assert sum(trainer.worker_steps) == 1001


class Watcher(Callback):
    def __init__(self):
        self.lengths, self.totals = [], []

    def episode_end(self, episode):
        self.lengths.append(episode.length)
        self.totals.append(episode.total)


def test_callbacks_hear_of_episodes_of_the_env():
    watcher = Watcher()
    with Trainer(config(PAIRING, "train.max_steps=200", "eval.at_end=false"), callbacks=[watcher]) as trainer:
        list(trainer)
    assert watcher.lengths == [5] * 40
    assert set(watcher.totals) <= {0.0, 2.0, 4.0, 6.0, 8.0, 10.0}


def test_a_policy_is_asked_for_by_its_players_name():
    with Trainer(config(PAIRING)) as trainer:
        assert trainer.policy("doer")(Batch(obs=np.eye(2, dtype=np.float32))).action.shape == (2,)
        with pytest.raises(ConfigError, match="there is no player None: this run has 'thinker', 'doer'"):
            trainer.policy()


def test_players_and_seats_survive_dump_and_reload():
    for tree in (PAIRING, MEMORIES, TURNS):
        first = config(tree)
        assert config(first.dump()) == first
        assert config(first.dump()).sha256() == first.sha256()
    assert config(MEMORIES).dump()["seats"]["early"] == {"old": 2.0, "new": 1.0}
    assert config(MEMORIES).dump()["seats"]["late"] == "new"
    plain = load_config(algo="dqn", env="CartPole-v1").dump()
    assert not {"players", "seats"} & set(plain)


def test_what_a_player_does_not_say_comes_from_the_run():
    more = {"algo": {"name": "dqn", "lr": 0.5, "gamma": 0.3}, "store": {"capacity": 4321}}
    found = config(PAIRING | more, "players.third={}", "seats.left={thinker: 1, third: 1}", "model.hidden=[7]")
    third, thinker, doer = (found.players[name] for name in ("third", "thinker", "doer"))
    assert (third.algo.lr.start, third.algo.gamma, third.store.capacity) == (0.5, 0.3, 4321)
    assert (thinker.algo.lr.start, thinker.algo.gamma, thinker.store.capacity) == (5e-3, 0.0, 2000)
    assert doer.algo.lr.start == 1e-2  # another algorithm takes nothing from the run's
    assert third.model.hidden == doer.model.hidden == (7,)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["seats.left=thinkr"], "seats.left: unknown player 'thinkr'; the players are thinker, "
            "doer.*Did you mean 'thinker'"),
        (["seats.left={thinker: 0}"], "seats.left: expected positive weights, got thinker: 0"),
        (["seats.left=3"], "seats.left: expected a player, or players with weights, got 3"),
        (["seats=null"], "seats: is missing; expected which of the players \\(thinker, doer\\) sits for which agent"),
        (["players.extra={}"], "players.extra: has no seat; give it one in `seats`, or remove it"),
        (["players=null"], "seats are given to players, but this run names none"),
        (["players={}"], "players: expected a mapping: name → algo, model, store and train of a player"),
        (["players.doer=7"], "players.doer: expected a mapping with some of algo, model, store and train, got 7"),
        (["players.doer.algo.name=ppoo"], "players.doer.algo.name: .*ppoo.*Did you mean 'ppo'"),
        (["players.doer.algo.rolout=7"],
            "players.doer.algo.rolout: unknown key .*Did you mean 'players.doer.algo.rollout'"),
        (["players.doer.trian=true"], "players.doer.trian: unknown key .*Did you mean 'train'"),
        (["players.doer.train=maybe"], "players.doer.train: expected true or false, got 'maybe'"),
        (["players.doer.algo.minibatches=7"], "players.doer.algo.minibatches=7 must divide"),
        (["players.doer.train=false", "players.thinker.train=false"], "at least one player that learns"),
        (["players.doer.model.encoder=os:system"],
            "players.doer.model.encoder: 'os:system' is part of Python's standard"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_players_and_seats_is_told_in_a_sentence(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        config(PAIRING, *overrides)


GARBAGE = [
    None,
    3,
    "x",
    [],
    {},
    [1],
    {"a": None},
    {"thinker": 3},
    {"thinker": {"algo": 3}},
    {"left": {"thinker": "much"}},
]
GARBAGE += [{"thinker": {"algo": {"name": 3}}}, {"thinker": {"model": {"hidden": "x"}}}, {"left": {"": 1}}, {"a.b": {}}]


@pytest.mark.parametrize("key", ["players", "seats", "players.thinker", "players.thinker.algo", "seats.left"])
@pytest.mark.parametrize("value", GARBAGE, ids=repr)
def test_garbage_is_accepted_or_refused_with_a_config_error(key, value):
    tree = json.loads(json.dumps(PAIRING))
    *parents, last = key.split(".")
    node = tree
    for parent in parents:
        node = node[parent]
    node[last] = value
    try:
        found = load_config(tree=tree)
    except ConfigError:
        return
    assert load_config(tree=found.dump()) == found


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["seats.lefty=thinker"], "seats names an agent 'lefty', but .*Pairing has the agents \\['left', 'right'\\]. "
            "Did you mean 'left'"),
        (["seats={right: {doer: 1, thinker: 1}}"],
            "nobody sits for the agent 'left' of .*Pairing: give it one of the players \\(thinker, doer\\)"),
        (["seats.left={thinker: 1, doer: 1}"], "player 'doer' sits for 'left' and 'right', whose spaces differ"),
        (["players.doer.algo={name: sac}"], "player 'doer': players.doer.algo.name=sac acts in spaces of kind box"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_env_is_told_before_anything_starts(overrides, sentence):
    tree = dict(PAIRING)
    if overrides[0].startswith("seats="):
        del tree["seats"]
    found = config(tree, *overrides)
    with pytest.raises(ConfigError, match=sentence):
        Trainer(found)


def test_masked_games_of_pettingzoo_are_played_by_the_rules():
    pytest.importorskip("pettingzoo")
    tree = {
        "env": {"id": "pettingzoo.classic:tictactoe_v3", "api": "turns", "num": 2},
        "model": {"hidden": [16]},
        "players": {
            "x": {"algo": {"name": "ppo", "rollout": 8, "minibatches": 2}},
            "o": {"algo": {"name": "dqn", "epsilon": 0.5}, "store": {"min_fill": 64}},
        },
        "seats": {"player_1": {"x": 1, "o": 1}, "player_2": {"x": 1, "o": 1}},
        "train": {"max_steps": 300},
        "eval": {"every_steps": 0, "episodes": 2, "num": 1},
        "learning": {"mode": "eager"},
    }
    with Trainer(config(tree)) as trainer:
        last = list(trainer)[-1]
    assert (
        last.metrics["episode/return_mean"] == 0.0
    )  # a zero-sum game; an illegal move would cost its player one alone
    assert last.metrics["episode/length_min"] >= 5
