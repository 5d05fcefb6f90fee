"""Every kind of observation space reaches the buffers as its spec says."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.sample_envs import Faulty
from rookery.core.tree import flatten
from rookery.envs import FromVector, InProcess

NESTED = spaces.Dict(
    {
        "vector": spaces.Box(-1.0, 1.0, (2,), np.float64),
        "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
        "scalar": spaces.Box(-1.0, 1.0, (), np.float32),
        "pair": spaces.Tuple((spaces.Discrete(5, start=-2), spaces.Dict({"bits": spaces.MultiBinary(3)}))),
        "many": spaces.MultiDiscrete([3, 4]),
    }
)
SPACES = {
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "discrete": spaces.Discrete(4, start=3),
    "multi_discrete": spaces.MultiDiscrete([2, 5]),
    "multi_binary": spaces.MultiBinary((2, 2)),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,), np.float32))),
    "nested": NESTED,
}


def seed_of(i, episode):
    return 10 * i + episode


def expected(space, obs):
    """The observation by hand: float32, counted from 0, tuples as dicts."""
    if isinstance(space, spaces.Dict):
        return {key: expected(part, obs[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return {str(i): expected(part, obs[i]) for i, part in enumerate(space.spaces)}
    array = np.asarray(obs)
    if isinstance(space, spaces.Discrete):
        return array.astype(np.int64) - space.start
    return array.astype(np.float32) if array.dtype == np.float64 else array


@pytest.mark.parametrize("name", SPACES)
def test_observations_arrive_as_the_spec_says(name):
    space = SPACES[name]
    env = InProcess([Faulty(space=space)], seed_of)
    first = env.reset()
    wanted = flatten(expected(space, Faulty(space=space).reset(seed=0)[0]))
    found = flatten(first)
    assert found.keys() == wanted.keys()
    for path, leaf in found.items():
        assert np.array_equal(leaf[0], wanted[path]), path
        assert leaf.dtype == wanted[path].dtype, path


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_batches_of_vector_envs_arrive_alike(name, mode):
    def build():
        return Faulty(space=SPACES[name], length=2)

    vector = FromVector(SyncVectorEnv([build], autoreset_mode=mode), lambda i, e: 0)
    single = InProcess([build()], lambda i, e: 0)
    for path, leaf in flatten(vector.reset()).items():
        assert np.array_equal(leaf, flatten(single.reset())[path])
    ends = [env.step(np.zeros(1, np.int64)) and env.step(np.zeros(1, np.int64)) for env in (vector, single)]
    finals = [flatten(out.final[0][1]) for out in ends]
    assert finals[0].keys() == finals[1].keys()
    for path, leaf in finals[0].items():
        assert np.array_equal(leaf, finals[1][path]), path
