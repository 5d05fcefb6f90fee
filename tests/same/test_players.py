"""What works with one player works with two: frame stacks, goals in hindsight, demonstrations; saved and resumed to
the bit."""

import numpy as np
import pytest

from rookery import Replay, Trainer, load_config
from selection import matrix_but, slow_but

SMALL = {"min_fill": 40, "batch_size": 16, "capacity": 600}
QUIET = {
    "model": {"hidden": [8]},
    "store": SMALL,
    "train": {"max_steps": 400},
    "eval": {"every_steps": 0, "at_end": False},
    "learning": {"mode": "eager"},
    "log": {"sinks": []},
}
GOALS = {
    **QUIET,
    "env": {"id": "same.pairs:TwoBits", "api": "parallel", "num": 2},
    "algo": {"name": "dqn"},
    "store": {**SMALL, "hindsight": {"strategy": "future", "k": 4}},
    "players": {"one": {}, "two": {}},
    "seats": {"left": "one", "right": {"two": 3, "one": 1}},
}
STACKED = {
    **QUIET,
    "env": {"id": "same.pairs:Numbered", "api": "dict", "num": 2, "stack": 3},
    "algo": {"name": "dqn"},
    "players": {"one": {}, "two": {"algo": {"name": "ppo", "rollout": 8, "minibatches": 2}}},
    "seats": {"a": "one", "b": "two"},
}
MEMORY = {
    **STACKED,
    "env": {**STACKED["env"], "stack": 1},
    "model": {"hidden": [8], "core": {"kind": "gru", "size": 4}},
}
MEMORY["players"] = {
    "one": {"algo": {"name": "ppo", "rollout": 8, "minibatches": 1}},
    "two": {"algo": {"name": "a2c", "rollout": 8}},
}


def run(tree, *overrides):
    trainer = Trainer(load_config(tree=tree, overrides=overrides))
    for _ in trainer:
        pass
    trainer.shut()
    return trainer.players.weights_sha256(), trainer.updates


def halves(tree, folder, *overrides):
    """The same run, saved in the middle and gone on with in new objects."""
    config = load_config(tree=tree, overrides=overrides)
    with Trainer(config) as first:
        while first.steps < 200:
            first.round()
        first.save(folder)
    with Trainer(config) as second:
        second.load(folder)
        for _ in second:
            pass
        return second.players.weights_sha256(), second.updates


@pytest.mark.parametrize("name", slow_but(["hindsight", "stack", "memory"], "stack"))
def test_two_players_saved_in_the_middle_end_with_the_same_bits(name, tmp_path):
    tree = {"hindsight": GOALS, "stack": STACKED, "memory": MEMORY}[name]
    whole = run(tree)
    assert whole[1] > 20
    assert halves(tree, tmp_path) == whole


PLACES = [(name, where) for name in ("hindsight", "stack") for where in ("pool=process", "env.workers=subprocess")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "where"), matrix_but(PLACES, PLACES[0], PLACES[-1]))
def test_in_processes_two_players_learn_the_same_to_the_bit_and_resume_so(name, where, tmp_path):
    tree = {"hindsight": GOALS, "stack": STACKED}[name]
    workers = ["pool.workers=2"] if where.startswith("pool") else []
    assert run(tree, where, *workers) == run(tree, *workers) == halves(tree, tmp_path, where, *workers)


@pytest.mark.slow
def test_a_named_player_called_main_resumes_to_the_bit_in_processes(tmp_path):
    """Its streams have its name: which they have follows from the config, not from what the player is called."""
    tree = {**GOALS, "players": {"main": {}}, "seats": None}
    assert halves(tree, tmp_path, "pool=process") == run(tree, "pool=process") == run(tree)


def test_a_stack_holds_what_this_agent_saw_last_in_this_episode():
    with Trainer(load_config(tree=STACKED)) as trainer:
        for _ in range(80):
            trainer.round()
        batch, _ = trainer.players["one"].store.sample()
    frames = batch["obs"][..., 0].numpy()  # [N, 3], oldest first
    assert len(np.unique(frames[:, -1])) > 5
    for oldest, middle, newest in frames:
        start = 100 * (newest // 100) + 1  # the first observation of the episode stands in for those before it
        assert (oldest, middle) == (max(newest - 2, start), max(newest - 1, start))


def test_a_rollout_of_a_player_has_the_same_stacks():
    with Trainer(load_config(tree=STACKED)) as trainer:
        trainer.pool.submit(trainer._messages(), 40)
        ((_, chunks),) = trainer.pool.gather()
    rows = chunks["two"].rows
    frames = rows["obs"][..., 0][rows["valid"]]
    assert len(frames) > 20
    for oldest, middle, newest in frames:
        start = 100 * (newest // 100) + 1
        assert (oldest, middle) == (max(newest - 2, start), max(newest - 1, start))


def test_hindsight_of_a_player_gives_rewards_for_the_goals_it_reached():
    with Trainer(load_config(tree=GOALS)) as trainer:
        for _ in range(100):
            trainer.round()
        batches = [trainer.players["one"].store.sample()[0] for _ in range(8)]
    for batch in batches:
        reached = (batch["next_obs"]["achieved_goal"] == batch["obs"]["desired_goal"]).all(-1)
        assert ((batch["reward"] == 0.0) == reached).all()  # −1 until the goal is reached
    assert sum(int((batch["reward"] == 0.0).sum()) for batch in batches) > 8


def test_rewards_in_hindsight_go_through_the_wrappers_of_rewards():
    scaled = {**GOALS, "env": {**GOALS["env"], "wrappers": [{"name": "reward_scale", "kwargs": {"factor": 10.0}}]}}
    with Trainer(load_config(tree=scaled)) as trainer:
        for _ in range(60):
            trainer.round()
        batches = [trainer.players["one"].store.sample()[0] for _ in range(8)]
    assert {float(reward) for batch in batches for reward in batch["reward"]} == {-10.0, 0.0}


@pytest.mark.slow
def test_a_player_learns_from_demonstrations_beside_its_own_steps(tmp_path):
    record, rng = Replay(200), np.random.default_rng(0)
    for step in range(60):
        obs = np.array([step % 7], np.float32)
        record.add(
            obs=obs,
            action=int(rng.integers(2)),
            reward=1.0,
            next_obs=obs + 1,
            terminated=step % 7 == 6,
            truncated=False,
        )
    record.save(tmp_path / "shown")
    tree = {**STACKED, "env": {**STACKED["env"], "stack": 1}}
    words = [f"players.one.store.demonstrations={tmp_path / 'shown'}", "players.one.store.demonstration_share=0.25"]
    with Trainer(load_config(tree=tree, overrides=words)) as trainer:
        for _ in trainer:
            pass
        batch, _ = trainer.players["one"].store.sample()
        assert trainer.players["one"].learner.updates > 20
    assert len(batch["reward"]) == 16


@pytest.mark.slow
def test_the_only_player_of_an_env_with_several_agents_need_not_be_named():
    tree = {**GOALS, "players": None, "seats": None}
    with Trainer(load_config(tree=tree)) as trainer:
        *_, last = trainer
        assert list(trainer.players) == ["main"]
        assert trainer.players["main"].columns == 4  # two envs with two agents
        assert last.updates > 20
        assert "q/loss" in last.metrics  # without a prefix
    assert not any(name.startswith("player/") for name in last.metrics)


def test_an_env_with_one_agent_may_have_named_players():
    tree = {**QUIET, "env": {"id": "CartPole-v1", "num": 2}, "algo": {"name": "dqn"}}
    tree |= {"players": {"one": {}, "two": {"train": False}}, "seats": {"agent": {"one": 1, "two": 1}}}
    with Trainer(load_config(tree=tree)) as trainer:
        *_, last = trainer
    assert last.metrics["player/one/return_mean"] > 0
    assert last.metrics["player/two/return_mean"] > 0
    assert trainer.players["one"].learner.updates > 20
    assert trainer.players["two"].learner.updates == 0
    assert trainer.players["one"].store.metrics()["fill"] < 0.9  # rows in which it did not sit are not kept
