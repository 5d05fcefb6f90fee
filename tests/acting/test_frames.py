"""The last k frames per seat: by hand, across holes and starts, and the same as what the replay stacks."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rookery.acting.frames import Frames, repeated
from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, spec_of, stacked_spec

ONE = Leaf("box", (1,), np.dtype(np.float32))


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def test_the_first_frame_is_repeated_and_then_pushed_out():
    frames = Frames(ONE, 2, 3)
    seen = [frames.push(column(1, 10), np.array([True, True]))[..., 0].tolist()]
    seen += [frames.push(column(n, 10 * n))[..., 0].tolist() for n in (2, 3, 4)]
    assert seen == [
        [[1, 1, 1], [10, 10, 10]],
        [[1, 1, 2], [10, 10, 20]],
        [[1, 2, 3], [10, 20, 30]],
        [[2, 3, 4], [20, 30, 40]],
    ]


def test_an_episode_that_starts_forgets_only_its_own_seat():
    frames = Frames(ONE, 2, 2)
    frames.push(column(1, 10), np.array([True, True]))
    assert frames.push(column(2, 20), np.array([False, True]))[..., 0].tolist() == [[1, 2], [20, 20]]


def test_a_hole_replaces_the_newest_frame():
    frames = Frames(ONE, 2, 2)
    frames.push(column(1, 10), np.array([True, True]))
    frames.push(column(2, 20))
    still = frames.push(column(3, 20), np.array([False, False]), np.array([True, False]))
    assert still[..., 0].tolist() == [[2, 3], [10, 20]]


def test_the_final_observation_is_seen_after_the_frames_before_it():
    frames = Frames({"a": ONE, "action_mask": Leaf("multi_binary", (2,), np.dtype(np.int8), (2, 2))}, 1, 3)
    for n in (1, 2):
        frames.push({"a": column(n), "action_mask": np.array([[1, 0]], np.int8)}, np.array([n == 1]))
    final = frames.after(0, {"a": np.float32([9]), "action_mask": np.array([0, 1], np.int8)})
    assert final["a"][:, 0].tolist() == [1, 2, 9]
    assert final["action_mask"].tolist() == [0, 1]
    assert frames.stacked["a"][0, :, 0].tolist() == [1, 1, 2]
    assert frames.stacked["action_mask"].tolist() == [[1, 0]]


def test_a_restored_memory_goes_on():
    frames, other = Frames(ONE, 1, 3), Frames(ONE, 1, 3)
    for n in range(5):
        frames.push(column(n), np.array([n == 0]))
    other.restore(frames.state())
    assert np.array_equal(frames.push(column(7)), other.push(column(7)))


@pytest.mark.parametrize(
    ("space", "kind", "shape"),
    [
        (spaces.Box(-1, 1, (5,), np.float32), "box", (4, 5)),
        (spaces.Box(0, 255, (84, 84), np.uint8), "box", (4, 84, 84)),
        (spaces.Box(0, 255, (84, 84, 1), np.uint8), "box", (4, 84, 84)),
        (spaces.Box(0, 255, (3, 84, 84), np.uint8), "box", (12, 84, 84)),
        (spaces.Discrete(3), "multi_discrete", (4,)),
        (spaces.MultiBinary(3), "multi_binary", (4, 3)),
    ],
)
def test_networks_see_frames_on_a_first_axis_and_those_of_images_as_channels(space, kind, shape):
    leaf = stacked_spec(spec_of(space), 4)
    assert (leaf.kind, leaf.shape, leaf.dtype) == (kind, shape, spec_of(space).dtype)
    assert leaf.low is None or leaf.low.shape == shape
    assert leaf.is_image == (isinstance(space, spaces.Box) and space.dtype == np.uint8)


@pytest.mark.parametrize("space", [spaces.Box(0, 255, (84, 84, 3), np.uint8), spaces.MultiDiscrete([2, 3])])
def test_what_cannot_be_stacked_is_said(space):
    with pytest.raises(ConfigError, match=r"env\.stack=2 cannot stack"):
        stacked_spec(spec_of(space), 2)


def test_the_mask_is_not_stacked():
    spec = spec_of(spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)}))
    assert stacked_spec(spec, 4)["action_mask"].shape == (3,)
    assert stacked_spec(spec, 1) is spec


def test_channels_of_an_image_are_frames_in_order():
    leaf = Leaf("box", (2, 4, 3), np.dtype(np.uint8))
    frames = Frames(leaf, 1, 2)
    frames.push(np.full((1, 2, 4, 3), 7, np.uint8), np.array([True]))
    seen = frames.push(np.full((1, 2, 4, 3), 9, np.uint8))
    assert seen.shape == (1, 4, 4, 3)
    assert seen[0, :, 0, 0].tolist() == [7, 7, 9, 9]


def test_single_frames_count_for_every_place_in_the_statistics():
    whole = repeated({"a": column(1, 2)}, {"a": stacked_spec(ONE, 3)}, 3)
    assert whole["a"][..., 0].tolist() == [[1, 1, 1], [2, 2, 2]]
