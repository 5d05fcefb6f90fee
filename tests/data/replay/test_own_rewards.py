"""Rewards of each member of a team: sums over n steps by hand, over ends, holes and the write head."""

import numpy as np
import pytest

from rookery.core.chunk import Chunk
from rookery.core.spec import Leaf
from rookery.data.config import ReplayConfig
from rookery.data.replay.store import ReplayStore

FLOATS, SIGNS = np.dtype(np.float32), np.dtype(np.int8)
SEEN = {
    "agents": Leaf("box", (2, 1), FLOATS),
    "present": Leaf("multi_binary", (2,), SIGNS),
    "rewards": Leaf("box", (2,), FLOATS),
}
CHOICES = Leaf("multi_discrete", (2,), np.dtype(np.int64), (2, 2))


def seen(rewards):
    """What the team saw [T, 1], and with it what its members were paid for the row before."""
    rewards = np.float32(rewards)
    lead = rewards.shape[:-1]
    return {"agents": np.zeros((*lead, 2, 1), np.float32), "present": np.ones((*lead, 2), np.int8), "rewards": rewards}


def store_of(n_step, told, last, finals=(), ended=(), holes=()):
    config = ReplayConfig(batch_size=64, min_fill=64, capacity=100, max_memory=None)
    rng = np.random.default_rng(0)
    store = ReplayStore(config, SEEN, CHOICES, columns=1, gamma=0.5, n_step=n_step, rng=rng, paid="rewards")
    rows = len(told)
    flags = {name: np.zeros((rows, 1), bool) for name in ("terminated", "truncated", "first")}
    flags["first"][0] = True
    for t in ended:
        flags["terminated"][t] = True
        flags["first"][t + 1 : t + 2] = True
    valid = np.ones((rows, 1), bool)
    valid[list(holes)] = False
    told = np.float32(told)[:, None]
    step = {"obs": seen(told), "action": np.zeros((rows, 1, 2), np.int64), "reward": np.zeros((rows, 1), np.float32)}
    step["reward"][:, 0] = np.arange(rows)  # the team's own, by which a row is recognised where n_step is 1
    at = np.array([[t, 0] for t in ended], np.int64).reshape(-1, 2)
    final = seen(np.float32(finals).reshape(-1, 2))
    store.add(Chunk(step | flags | {"valid": valid}, seen(np.float32([last])), final, at))
    batch, keys = store.sample()
    return {int(key): (row.tolist(), float(d)) for key, row, d in zip(keys, batch["reward"], batch["discount"])}


def test_sums_of_two_steps_end_with_the_episode_and_at_the_write_head():
    # rows 0, 1, 2 pay (1, 10), (2, 20), (3, 30), the last of them ends; row 3 of the next episode pays (4, 40); γ = ½
    found = store_of(2, [[0, 0], [1, 10], [2, 20], [0, 0]], [4, 40], finals=[[3, 30]], ended=[2])
    assert found == {
        0: ([2.0, 20.0], 0.25),
        1: ([3.5, 35.0], 0.0),
        2: ([3.0, 30.0], 0.0),
        3: ([4.0, 40.0], 0.5),
    }


@pytest.mark.parametrize(("n_step", "wanted"), [(1, ([1.0, 10.0], 0.5)), (3, ([2.0, 20.0], 0.25))])
def test_holes_are_stepped_over(n_step, wanted):
    # between row 0 and row 2, which pay (1, 10) and (2, 20), the team waited: the hole holds what it acts on next
    found = store_of(n_step, [[0, 0], [1, 10], [1, 10]], [2, 20], holes=[1])
    assert found == {0: wanted, 2: ([2.0, 20.0], 0.5)}
