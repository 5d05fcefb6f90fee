"""What an env is given for an action of the algorithm."""

import numpy as np
import pytest
from gymnasium import spaces

from rookery.envs.actions import batched, split


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_a_box_of_whole_numbers_gets_the_nearest_one_within_its_bounds(dtype):
    low = 0 if dtype is np.uint8 else -2
    given = batched(spaces.Box(low, 2, (5,), dtype))(np.array([[-0.9, 0.6, 1.4, 1.6, 9.0]], np.float32))
    assert given.dtype == dtype
    assert given.tolist() == [[max(low, -1), 1, 1, 2, 2]]  # cut off, tanh of anything would be 0 between −1 and 1


def test_a_box_of_fractions_keeps_them():
    (given,) = split(spaces.Box(-1, 1, (2,), np.float32))(np.array([[0.6, -1.5]], np.float32))
    assert given.tolist() == [pytest.approx(0.6), -1.0]
