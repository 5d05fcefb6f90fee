"""Specs: what one step contains, from gymnasium spaces."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, bytes_of, describe, spec_of, without_mask, zeros


def test_a_box_keeps_shape_dtype_and_bounds() -> None:
    leaf = spec_of(spaces.Box(-2.0, 3.0, (4,), np.float32))
    assert (leaf.kind, leaf.shape, leaf.dtype, leaf.sizes) == ("box", (4,), np.float32, ())
    assert leaf.low.tolist() == [-2.0] * 4
    assert leaf.high.tolist() == [3.0] * 4


def test_float64_becomes_float32_with_its_bounds() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leaf = spec_of(spaces.Box(-1e300, 1.5, (2,), np.float64))
    assert leaf.dtype == leaf.low.dtype == leaf.high.dtype == np.float32
    assert leaf.low.tolist() == [-np.inf, -np.inf]  # beyond float32 is beyond every bound
    assert leaf.high.tolist() == [1.5, 1.5]


def test_the_bounds_are_copies() -> None:
    space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    leaf = spec_of(space)
    space.low[:] = 5
    assert leaf.low.tolist() == [-1.0, -1.0]


def test_discrete_spaces_keep_their_choices() -> None:
    leaf = spec_of(spaces.Discrete(3, start=-1))
    assert (leaf.kind, leaf.shape, leaf.dtype, leaf.sizes, leaf.start) == ("discrete", (), np.int64, (3,), -1)
    leaf = spec_of(spaces.MultiDiscrete([2, 5], dtype=np.int32))
    assert (leaf.kind, leaf.shape, leaf.dtype, leaf.sizes) == ("multi_discrete", (2,), np.int64, (2, 5))
    leaf = spec_of(spaces.MultiBinary((2, 3)))
    assert (leaf.kind, leaf.shape, leaf.dtype, leaf.sizes) == ("multi_binary", (2, 3), np.int8, (2,) * 6)


def test_dict_and_tuple_become_nested_dicts() -> None:
    space = spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))])})
    spec = spec_of(space)
    assert set(spec) == {"a", "b"}
    assert list(spec["a"]) == ["0", "1"]
    assert spec["a"]["0"].sizes == (3,)
    assert spec["a"]["1"].shape == (2,)


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (spaces.Text(5), "is a Text, which is not supported"),
        (spaces.MultiDiscrete([[2, 2], [3, 3]]), "one dimension"),
        (spaces.MultiDiscrete([3, 3], start=[0, 1]), "starts at 0"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named_with_its_place(space: spaces.Space, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        spec_of(spaces.Dict({"deep": spaces.Tuple([space])}), "the action space")
    assert str(error.value).startswith("the action space['deep'][0] is")


def test_zeros_have_the_leading_dimensions_first() -> None:
    spec = spec_of(spaces.Dict({"a": spaces.Box(0, 255, (3, 2), np.uint8), "b": spaces.Discrete(4)}))
    arrays = zeros(spec, 5, 7)
    assert (arrays["a"].shape, arrays["a"].dtype) == ((5, 7, 3, 2), np.uint8)
    assert (arrays["b"].shape, arrays["b"].dtype) == ((5, 7), np.int64)
    assert not arrays["a"].any()


def test_bytes_are_those_of_one_step() -> None:
    spec = spec_of(spaces.Dict({"a": spaces.Box(0, 255, (3, 2), np.uint8), "b": spaces.Discrete(4)}))
    assert bytes_of(spec) == 3 * 2 * 1 + 8
    assert bytes_of(spec_of(spaces.Box(0, 1, (), np.float32))) == 4


def test_only_three_dimensional_bytes_are_an_image() -> None:
    assert spec_of(spaces.Box(0, 255, (84, 84, 1), np.uint8)).is_image
    assert not spec_of(spaces.Box(0, 255, (84,), np.uint8)).is_image
    assert not spec_of(spaces.Box(0, 1, (84, 84, 1), np.float32)).is_image


def test_describe_is_readable() -> None:
    space = spaces.Dict({"a": spaces.Dict({"x": spaces.Discrete(4)}), "b": spaces.Box(0, 1, (2,), np.float32)})
    assert describe(spec_of(space)) == "{a/x: discrete of 4 int64 (), b: box float32 (2,)}"
    assert describe(spec_of(spaces.MultiDiscrete([2, 3]))) == "multi_discrete of 2×3 int64 (2,)"


def test_networks_do_not_see_the_action_mask() -> None:
    box, mask = spaces.Box(0, 1, (2,), np.float32), spaces.MultiBinary(3)
    alone = without_mask(spec_of(spaces.Dict({"obs": box, "action_mask": mask})))
    assert isinstance(alone, Leaf)
    assert alone.shape == (2,)
    several = without_mask(spec_of(spaces.Dict({"a": box, "b": box, "action_mask": mask})))
    assert list(several) == ["a", "b"]
    nested = spec_of(spaces.Dict({"a": spaces.Dict({"action_mask": mask, "x": box}), "b": box}))
    assert without_mask(nested) == nested  # only the top level is special
    assert without_mask(alone) is alone


def test_equal_specs_are_equal_and_different_ones_are_not() -> None:
    box = spaces.Box(0, 1, (2,), np.float32)
    assert spec_of(box) == spec_of(spaces.Box(0, 1, (2,), np.float32))
    assert spec_of(box) != spec_of(spaces.Box(0, 1, (3,), np.float32))
    assert spec_of(spaces.Discrete(2)) != spec_of(spaces.Discrete(2, start=1))
