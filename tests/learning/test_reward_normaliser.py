"""`algo.normalise_reward`: rewards in units of the running deviation of the return, where it is learnt only."""

import math

import numpy as np
import pytest
import torch

from interrupted import straight_and_resumed
from rookery import ConfigError, Trainer, load_config
from rookery.core.chunk import Chunk
from rookery.learning.reward_normaliser import RewardNormaliser


def chunk(reward, first, valid=None, collector=0):
    reward = np.array(reward, np.float32)
    rows = {"reward": reward, "first": np.array(first, bool), "valid": np.ones(reward.shape, bool)}
    rows |= {} if valid is None else {"valid": np.array(valid, bool)}
    return Chunk(rows, None, None, np.zeros((0, 2), np.int64), collector=collector)


def test_the_deviation_of_the_running_return_by_hand():
    it = RewardNormaliser(gamma=0.5)
    assert it.factor == 1.0
    it.observe(chunk([[1.0], [2.0], [4.0]], [[1], [0], [1]]))  # R: 1, 0.5 · 1 + 2 = 2.5, 4 (an episode begins)
    returns = np.array([1.0, 2.5, 4.0])
    assert it.factor == pytest.approx(1 / math.sqrt(returns.var()))
    it.observe(chunk([[2.0]], [[0]]))  # goes on: 0.5 · 4 + 2 = 4
    it.observe(chunk([[9.0], [2.0]], [[0], [0]], valid=[[0], [1]]))  # a hole counts nothing: 0.5 · 4 + 2 = 4
    it.observe(chunk([[6.0]], [[1]], collector=1))  # another collector's column: 6
    returns = np.array([1.0, 2.5, 4.0, 4.0, 4.0, 6.0])
    assert it.factor == pytest.approx(1 / math.sqrt(returns.var()))
    assert it.mean == pytest.approx(returns.mean())


def test_only_what_is_far_off_is_clipped_and_the_batch_itself_stays():
    it = RewardNormaliser(gamma=0.0)
    it.observe(chunk([[0.0], [4.0]], [[1], [1]]))  # deviation 2
    raw = torch.tensor([1.0, -2.0, 100.0])
    assert it.scaled(raw).tolist() == [0.5, -1.0, 10.0]
    assert raw.tolist() == [1.0, -2.0, 100.0]


def test_a_restored_one_goes_on():
    one, two = RewardNormaliser(0.9), RewardNormaliser(0.9)
    parts = [chunk([[1.0, 2.0]], [[1, 1]]), chunk([[3.0, 5.0]], [[0, 0]])]
    one.observe(parts[0])
    two.restore(one.state())
    for it in (one, two):
        it.observe(parts[1])
    assert one.factor == two.factor != 1.0


def config(algo, *words):
    more = {
        "ppo": ["env.num=2", "algo.rollout=8", "algo.minibatches=2"],
        "dqn": ["store.min_fill=32", "store.batch_size=8", "algo.n_step=2"],
    }
    short = ["model.hidden=[8]", "train.max_steps=96", "eval.every_steps=0", "eval.at_end=false", "log.sinks=[]"]
    overrides = [*short, *more[algo], "learning.mode=eager", *words]
    return load_config(algo=algo, env="CartPole-v1", overrides=overrides)


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_run_with_it_is_resumed_exactly_and_evaluation_tells_the_envs_rewards(algo, tmp_path):
    make = lambda: Trainer(config(algo, "algo.normalise_reward=true"))  # noqa: E731
    with straight_and_resumed(make, tmp_path, steps=60) as (straight, resumed):
        (mine,), (other,) = resumed.players.values(), straight.players.values()
        assert mine.rewards.state()["count"] == other.rewards.state()["count"] == straight.steps
        assert all(total == int(total) > 5 for total in straight.evaluate().returns)  # one per step of CartPole
        with Trainer(config(algo)) as without:
            for _ in without:
                pass
            assert without.players.weights_sha256() != straight.players.weights_sha256()


def test_scaling_all_rewards_changes_nothing_that_is_learnt(tmp_path):
    found = []
    for scale in (1.0, 4.0):  # a power of two: equal up to the smallest rounding
        words = [f"env.wrappers=[{{name: reward_scale, kwargs: {{factor: {scale}}}}}]", "algo.normalise_reward=true"]
        with Trainer(config("ppo", *words)) as trainer:
            for _ in trainer:
                pass
            found.append(trainer.learner.tensors["ac.value"].clone())
    assert torch.allclose(*found, rtol=1e-3, atol=1e-5)


def test_a_run_that_starts_from_another_takes_over_its_units(tmp_path):
    words = ["algo.normalise_reward=true"]
    with Trainer(config("dqn", *words)) as first, Trainer(config("dqn", *words)) as second:
        for _ in first:
            pass
        second.players.set_weights(first.players.weights())
        assert second.players.main.rewards.factor == first.players.main.rewards.factor != 1.0
        assert second.players.main.rewards.running == {}


def test_actors_do_not_judge_in_other_units():
    with pytest.raises(ConfigError, match=r"store\.priority\.initial=actor .*algo\.normalise_reward=true"):
        config("dqn", "algo.normalise_reward=true", "store.priority.initial=actor")
