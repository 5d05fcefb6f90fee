"""Memory per seat."""

import numpy as np
import pytest
from gymnasium import spaces

from rookery.acting.actor import Actor
from rookery.acting.memory import Memory
from rookery.acting.noise import OrnsteinUhlenbeck
from rookery.acting.policy import Policy
from rookery.algos.r2d2 import R2D2
from rookery.core.batch.batch import Batch
from rookery.core.errors import UsageError
from rookery.core.rng import Streams
from rookery.core.spec import Leaf, spec_of
from rookery.learning.learner import Learner
from rookery.nets.config import ModelConfig

SPEC = {"h": Leaf("box", (2,), np.dtype(np.float32))}


def actor(large=False):
    size = 512 if large else 8  # a large one is left to torch
    model = ModelConfig(hidden=(8,), core={"kind": "lstm", "size": size})
    obs, action = spec_of(spaces.Box(-1, 1, (3,), np.float32)), spec_of(spaces.Discrete(2))
    algo = R2D2(R2D2.Config(), obs, action, model)
    learner = Learner(algo, Streams(0))
    return Actor(algo.outputs, algo.rule(), learner.eager, memory=algo.memory())


def obs(rows, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)


def test_chosen_seats_are_put_to_chosen_states():
    memory = Memory(SPEC, 3)
    memory.reset([0, 2], {"h": np.array([[1, 2], [3, 4]], np.float32)})
    assert memory.take()["h"].tolist() == [[1, 2], [0, 0], [3, 4]]
    memory.reset(np.array([True, False, False]))
    assert memory.take([0, 2])["h"].tolist() == [[0, 0], [3, 4]]
    with pytest.raises(UsageError, match=r"must have shape \(1, 2\), got shape \(2, 2\)"):
        memory.reset([1], {"h": np.zeros((2, 2))})


@pytest.mark.parametrize("large", [False, True])
def test_the_state_that_is_returned_was_the_input_and_the_next_step_starts_from_its_result(large):
    it = actor(large)
    first = it.act(obs(2), None, np.array([True, True]), greedy=True)
    assert (it._quick is None) == large
    assert not first["state"]["h"].any()
    second = it.act(obs(2, 1), None, np.array([False, True]), greedy=True)
    assert second["state"]["h"][0].any()
    assert not second["state"]["h"][1].any()  # a new episode forgets
    assert (second["state"]["h"][0] == second["state"]["h"][0]).all()


def test_some_seats_can_act_alone_and_the_others_keep_their_state():
    together, apart = actor(), actor()
    everyone = np.ones(3, bool)
    for it in (together, apart):
        it.act(obs(3), None, everyone, greedy=True)
    second = obs(3, 1)
    together.act(second, None, ~everyone, greedy=True)
    for seat in (2, 0, 1):
        apart.act(second[[seat]], None, np.array([False]), greedy=True, seats=[seat])
    for name in ("h", "c"):
        assert apart.memory.take()[name] == pytest.approx(together.memory.take()[name], abs=1e-6)


def test_quick_and_torch_remember_alike():
    quick, slow = actor(), actor()
    for t in range(5):
        first = np.array([t == 0, t in (0, 3)])
        quick.act(obs(2, t), None, first, greedy=True)
        slow._inputs = None
        slow.act(obs(2, t), None, first, greedy=True)
        slow._quick = None
    for name in ("h", "c"):
        assert quick.memory.take()[name] == pytest.approx(slow.memory.take()[name], abs=1e-5)


def test_a_restored_actor_remembers():
    one, two = actor(), actor()
    one.act(obs(2), None, np.ones(2, bool), greedy=True)
    two.restore(one.state())
    a, b = (it.act(obs(2, 1), None, np.zeros(2, bool), greedy=True) for it in (one, two))
    assert (a["state"]["h"] == b["state"]["h"]).all()
    assert a["state"]["h"].any()
    assert (one.memory.take()["c"] == two.memory.take()["c"]).all()


def test_the_noise_of_a_rule_begins_with_the_episode_and_is_restored():
    leaf = spec_of(spaces.Box(-1, 1, (1,), np.float32))
    forward = lambda s, x, state, first: ({"action": x * 0.0}, state)  # noqa: E731
    make = lambda: Actor(forward, OrnsteinUhlenbeck(leaf), None)  # noqa: E731
    rows, knobs = np.zeros((2, 1), np.float32), {"noise": 0.2}

    def run(actor, rng, starts):
        actor.knobs = knobs
        return [actor.act(rows, rng, np.array(first))["action"].ravel().tolist() for first in starts]

    one, rng = make(), np.random.default_rng(0)
    run(one, rng, [[True, True], [False, False]])
    two, again = make(), np.random.default_rng(0)
    again.bit_generator.state = rng.bit_generator.state
    two.restore(one.state())
    assert run(one, rng, [[False, True], [False, False]]) == run(two, again, [[False, True], [False, False]])


def test_reset_makes_chosen_rows_of_a_policy_begin_anew():
    it = actor()
    policy = Policy(it, spec_of(spaces.Box(-1, 1, (3,), np.float32)), spec_of(spaces.Discrete(2)))
    policy(Batch(obs=obs(2)))
    policy.reset([0])
    seen = it.memory.take()["h"]
    policy(Batch(obs=obs(2, 1)[:, ::-1]))  # a reversed array is as good as any
    alone = actor()
    alone.act(np.ascontiguousarray(obs(2, 1)[:, ::-1]), None, np.array([True, True]), greedy=True)
    assert it.memory.take()["h"][0] == pytest.approx(alone.memory.take()["h"][0], abs=1e-6)
    assert seen[1].any()
    assert abs(it.memory.take()["h"][1] - alone.memory.take()["h"][1]).max() > 1e-4
