"""Batch (DAT-1): dict-like, array-like, every leaf at once."""

import copy
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rookery.core.batch.batch import Batch

Pair = namedtuple("Pair", "left right")


def nested() -> Batch:
    return Batch(a=[[1, 2], [3, 4], [5, 6]], b={"c": torch.tensor([1.0, 2.0, 3.0]), "d": {"e": np.arange(3)}})


# --- what goes in ---


def test_lists_become_arrays_dicts_become_batches_and_tensors_stay_tensors():
    b = Batch(a=[1, 2], t=torch.ones(2), d={"x": [1.5]}, n=None, s=4)
    assert isinstance(b.a, np.ndarray)
    assert b.a.tolist() == [1, 2]
    assert isinstance(b.t, torch.Tensor)
    assert isinstance(b.d, Batch)
    assert b["d"]["x"] is b.d.x
    assert b.n is None
    assert b.s == 4
    assert b.s.shape == ()


def test_an_array_is_kept_without_a_copy():
    array = np.zeros(3)
    b = Batch(a=array)
    b.a[1] = 7
    assert array.tolist() == [0, 7, 0]


def test_a_list_of_one_observation_adds_the_batch_axis_to_every_leaf():
    obs = {"image": np.zeros((4, 4)), "goal": {"x": 1.0, "y": [1, 2]}, "t": torch.ones(3)}
    b = Batch(obs=[obs])
    assert b.obs.image.shape == (1, 4, 4)
    assert b.obs.goal.x.shape == (1,)
    assert b.obs.goal.y.tolist() == [[1, 2]]
    assert b.obs.t.shape == (1, 3)
    assert len(b) == 1
    assert Batch(obs=[3]).obs.tolist() == [3]
    assert Batch(obs=[np.zeros(2)]).obs.shape == (1, 2)


def test_lists_of_lists_of_dicts_stack_twice():
    b = Batch(x=[[{"a": 1}, {"a": 2}], [{"a": 3}, {"a": 4}]])
    assert b.x.a.tolist() == [[1, 2], [3, 4]]


def test_object_arrays_of_dicts_with_holes_become_a_batch_with_zero_rows():
    holes = np.array([{"x": np.ones(2)}, None], dtype=object)
    assert Batch(final=holes).final.x.tolist() == [[1, 1], [0, 0]]


def test_a_list_of_dicts_or_named_tuples_is_a_batch():
    assert Batch([{"a": 1}, {"a": 2}]).a.tolist() == [1, 2]
    assert Batch(p=Pair(1, [2, 3])).p.right.tolist() == [2, 3]
    assert Batch(p=[Pair(1, 2), Pair(3, 4)]).p.left.tolist() == [1, 3]


def test_ragged_lists_become_arrays_of_objects():
    b = Batch(a=[[1, 2], [3]])
    assert b.a.dtype == object
    assert b.a[0].tolist() == [1, 2]


def test_keys_are_strings():
    with pytest.raises(TypeError, match="keys of a Batch are strings, got 3"):
        Batch({3: 1})
    with pytest.raises(TypeError, match="keys of a Batch are strings"):
        Batch(a={("x",): 1})


# --- like a dict ---


def test_attributes_and_items_are_the_same_thing():
    b = Batch()
    b.a = [1, 2]
    b["b"] = {"c": 1}
    assert b["a"] is b.a
    assert set(b.keys()) == {"a", "b"}
    assert "a" in b
    assert "z" not in b
    assert b.get("z", 5) == 5
    assert b.pop("a").tolist() == [1, 2]
    assert b.pop("a", None) is None
    del b["b"]
    assert not b
    b.x = 1
    del b.x
    assert b.is_empty()


def test_unknown_keys_are_told_with_the_nearest_one():
    b = Batch(reward=[1.0], obs=[2.0])
    for error, ask in (
        (AttributeError, lambda: b.rewrd),
        (KeyError, lambda: b["rewrd"]),
        (KeyError, lambda: b.pop("rewrd")),
    ):
        with pytest.raises(error, match=r"no key 'rewrd'. Did you mean 'reward'\? Keys: obs, reward"):
            ask()
    assert not hasattr(b, "nothing_like_it")


def test_names_of_methods_are_keys_only_as_items():
    b = Batch(shape=[1], keys=[2])
    assert b["shape"].tolist() == [1]
    assert b.shape == (1,)
    with pytest.raises(AttributeError, match=r"write batch\['shape'\]"):
        b.shape = 3


def test_update_dict_and_double_star_see_the_entries():
    b = Batch(a=[1])
    b.update({"a": [2]}, c={"d": [3]})
    assert {**b}.keys() == dict(b).keys() == {"a", "c"}
    plain = b.to_dict()
    assert type(plain["c"]) is dict
    assert plain["c"]["d"] is b.c.d
    assert Batch(b) == b


# --- like an array ---


INDICES = [
    0, -1, np.int64(1), slice(1, None), slice(None, None, -1), [2, 0], np.array([True, False, True]),
    torch.tensor([1]), torch.tensor([True, False, False]), (slice(None), None), ...,
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES)
def test_every_kind_of_index_reaches_every_leaf(index):
    part, as_numpy = nested()[index], index.numpy() if isinstance(index, torch.Tensor) else index
    assert np.array_equal(part.a, nested().a[as_numpy])
    assert isinstance(part.b.c, torch.Tensor)
    assert np.array_equal(part.b.c.numpy(), nested().b.c.numpy()[as_numpy])
    assert np.array_equal(part.b.d.e, nested().b.d.e[as_numpy])


def test_failed_indices_name_the_leaf():
    with pytest.raises(IndexError, match=r"key 'a' of shape \(3, 2\): cannot take \[5\]"):
        nested()[5]
    with pytest.raises(IndexError, match="key 'x/s'"):
        Batch(x={"s": 3.0})[0]
    with pytest.raises(IndexError, match="'name' is a str_"):
        Batch(name="abc")[0]
    with pytest.raises(IndexError, match="empty Batch"):
        Batch()[0]


def test_arithmetic_on_a_column_reaches_every_leaf():
    b = Batch(a=np.zeros((2, 2)), d={"t": torch.zeros(2, 2, dtype=torch.int64)})
    b[:, 1] += 6
    assert b.a.tolist() == [[0, 6], [0, 6]]
    assert b.d.t.tolist() == [[0, 6], [0, 6]]
    b[[0]] *= 2
    assert b.a.tolist() == [[0, 12], [0, 6]]
    b[0] -= 1
    assert b.d.t.tolist() == [[-1, 11], [0, 6]]


def test_rows_are_assigned_from_batches_numbers_and_dicts():
    b = nested()
    b[0] = Batch(a=[9, 9], b={"c": 8.0, "d": {"e": 7}})
    assert b.a[0].tolist() == [9, 9]
    assert b.b.c.tolist() == [8, 2, 3]
    b[1:] = {"a": np.full((2, 2), 5), "b": {"c": np.array([1.0, 1.0]), "d": {"e": torch.tensor([4, 4])}}}
    assert b.b.d.e.tolist() == [7, 4, 4]
    b[2] = 0
    assert b.a.tolist() == [[9, 9], [5, 5], [0, 0]]


def test_keys_missing_in_assigned_rows_become_zero_and_new_ones_are_refused():
    b = nested()
    b[0] = Batch(a=[9, 9])
    assert b.b.c.tolist() == [0, 2, 3]
    assert b.b.d.e.tolist() == [0, 1, 2]
    with pytest.raises(KeyError, match=r"rows cannot bring new keys.*b/z"):
        b[0] = {"b": {"z": 1}}
    with pytest.raises(TypeError, match="'a' holds a ndarray, but the assigned rows hold a nested batch"):
        b[0] = {"a": {"x": 1}}
    with pytest.raises(TypeError, match="'n' holds nothing"):
        Batch(n=None, a=[1])[0] = {"n": 3, "a": 1}
    with pytest.raises(ValueError, match=r"key 'a' of shape \(3, 2\): cannot assign ndarray of shape \(7,\)"):
        b[0] = {"a": np.zeros(7)}


def test_length_is_that_of_all_leaves_or_an_error_that_names_the_leaf():
    assert len(nested()) == 3
    assert len(Batch()) == 0
    assert len(Batch(a=[1, 2], reserved=Batch(), nothing=None)) == 2
    with pytest.raises(TypeError, match="no length: its leaf 'x/s' is a scalar"):
        len(Batch(a=[1, 2], x={"s": 4}))
    with pytest.raises(ValueError, match="'a' has 2, 'b' has 3"):
        len(Batch(a=[1, 2], b=[1, 2, 3]))


def test_shape_is_what_all_leaves_share():
    assert Batch(a=np.zeros((5, 4, 3)), b={"c": torch.zeros(5, 4)}).shape == (5, 4)
    assert Batch(a=np.zeros((5, 4)), b=np.zeros((5, 3))).shape == (5,)
    assert Batch(a=1, b=[1]).shape == ()
    assert Batch().shape == ()


def test_iterating_gives_rows():
    assert [row.a.tolist() for row in nested()] == [[1, 2], [3, 4], [5, 6]]
    assert [int(row.b.d.e) for row in nested()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("size", "merge", "sizes"),
    [(4, False, [4, 4, 2]), (4, True, [4, 6]), (5, True, [5, 5]), (20, True, [10]), (10, False, [10])],
)
def test_split_keeps_the_order_and_merges_the_rest_if_asked(size, merge, sizes):
    parts = list(Batch(a=np.arange(10), b={"c": torch.arange(10)}).split(size, merge_last=merge))
    assert [len(part) for part in parts] == sizes
    assert np.concatenate([part.a for part in parts]).tolist() == list(range(10))
    assert torch.cat([part.b.c for part in parts]).tolist() == list(range(10))


def test_split_refuses_a_size_of_zero_at_once():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        nested().split(0)


# --- stack and cat ---


def test_stack_adds_an_axis_and_cat_extends_the_first():
    one, two = Batch(a=[1, 2], b={"t": torch.tensor([1.0, 2.0])}), Batch(a=[3, 4], b={"t": torch.tensor([3.0, 4.0])})
    assert Batch.stack([one, two]).a.tolist() == [[1, 2], [3, 4]]
    assert Batch.stack([one, two], axis=1).b.t.tolist() == [[1, 3], [2, 4]]
    assert Batch.cat([one, two]).a.tolist() == [1, 2, 3, 4]
    assert isinstance(Batch.cat([one, two]).b.t, torch.Tensor)
    assert Batch.stack([]) == Batch.cat([]) == Batch()


def test_different_keys_are_padded_with_zeros():
    one, two = Batch(a=[1, 2], common={"c": [1.0, 2.0]}), Batch(b=torch.ones(1, 2), common={"c": [4.0], "d": [5]})
    joined = Batch.cat([one, two])
    assert joined.a.tolist() == [1, 2, 0]
    assert joined.b.tolist() == [[0, 0], [0, 0], [1, 1]]
    assert joined.common.c.tolist() == [1, 2, 4]
    assert joined.common.d.tolist() == [0, 0, 5]
    stacked = Batch.stack([{"a": 1, "x": {"y": [1, 1]}}, {"b": 2.5}])
    assert stacked.a.tolist() == [1, 0]
    assert stacked.b.tolist() == [0, 2.5]
    assert stacked.x.y.tolist() == [[1, 1], [0, 0]]
    assert stacked.a.dtype == np.int64


def test_none_and_empty_batches_are_placeholders_when_joining():
    assert Batch.stack([{"a": None}, {"a": None}]).a is None
    assert Batch.stack([{"a": None}, {"a": [1, 2]}]).a.tolist() == [[0, 0], [1, 2]]
    assert Batch.cat([Batch(), {"a": [1]}, None]).a.tolist() == [1]
    assert Batch.cat([{"a": [1], "r": Batch()}, {"a": [2], "r": {"x": [3.0]}}]).r.x.tolist() == [0, 3]
    assert Batch.stack([{"r": Batch()}, {"r": None}]).r == Batch()


def test_objects_and_strings_can_be_stacked_and_padded():
    thing = object()
    b = Batch.stack([{"o": thing, "s": "ab"}, {}])
    assert b.o[0] is thing
    assert b.o[1] is None
    assert b.s.tolist() == ["ab", ""]


def test_joins_that_cannot_work_name_the_key():
    with pytest.raises(ValueError, match=r"key 'x/a': cannot join leaves of shapes \(2,\), \(3,\)"):
        Batch.stack([{"x": {"a": [1, 2]}}, {"x": {"a": [1, 2, 3]}}])
    with pytest.raises(TypeError, match="'a' is a nested batch in some"):
        Batch.stack([{"a": [1]}, {"a": {"b": 1}}])
    with pytest.raises(TypeError, match="no length: its leaf 'a' is a scalar"):
        Batch.cat([{"a": 1}])
    with pytest.raises(TypeError, match="expected a batch, a dict or None to join, got a int"):
        Batch.stack([3])


# --- arithmetic ---


def test_operators_work_with_numbers_arrays_and_batches_on_both_sides():
    b = Batch(a=[1.0, 2.0], d={"t": torch.tensor([3.0, 4.0])}, n=None)
    assert (b + 1).a.tolist() == [2, 3]
    assert (1 - b).d.t.tolist() == [-2, -3]
    assert (b * b).d.t.tolist() == [9, 16]
    assert (2 / b).a.tolist() == [2, 1]
    assert (b / 2).d.t.tolist() == [1.5, 2]
    assert (np.array([10.0, 20.0]) + b).d.t.tolist() == [13, 24]
    assert (np.float64(2) * b).a.tolist() == [2, 4]
    assert (b - {"a": [1.0, 1.0], "d": {"t": np.array([1.0, 1.0])}, "n": None}).d.t.tolist() == [2, 3]
    assert (-b).a.tolist() == [-1, -2]
    assert (b + 1).n is None
    assert b.a.tolist() == [1, 2]


def test_in_place_operators_change_the_arrays_themselves():
    array, tensor = np.array([1.0]), torch.tensor([2.0])
    b = Batch(a=array, d={"t": tensor, "s": 3})
    inner = b.d
    b += 1
    b *= Batch(a=[2.0], d={"t": [3.0], "s": 2})
    assert array.tolist() == [4]
    assert tensor.tolist() == [9]
    assert b.d is inner
    assert inner.s == 8


def test_arithmetic_of_unlike_batches_is_an_error():
    with pytest.raises(KeyError, match=r"different keys below 'x': \['a'\] and \['b'\]"):
        Batch(x={"a": 1}) + Batch(x={"b": 1})
    with pytest.raises(TypeError, match="'a' holds a int64 on one side and nothing"):
        Batch(a=1) + Batch(a=None)


# --- empty, convert, compare, pickle, show ---


def test_empty_sets_rows_to_zero_in_place_or_in_a_copy():
    b = Batch(a=[1, 2, 3], d={"t": torch.ones(3), "o": np.array(["x", None, 3], dtype=object)}, n=None)
    copied = Batch.empty(b, [0, 2])
    assert copied.a.tolist() == [0, 2, 0]
    assert copied.d.o.tolist() == [None, None, None]
    assert b.a.tolist() == [1, 2, 3]
    assert b.empty_(1) is b
    assert b.d.t.tolist() == [1, 0, 1]
    b.empty_()
    assert b.a.tolist() == [0, 0, 0]
    assert Batch(s=4.5).empty_().s == 0


def test_is_empty_looks_inside_only_if_asked():
    assert Batch().is_empty()
    assert not Batch(a=Batch(b={})).is_empty()
    assert Batch(a=Batch(b={})).is_empty(recurse=True)
    assert not Batch(a=None).is_empty(recurse=True)


def test_conversions_share_memory():
    b = nested()
    tensors = b.torch()
    assert isinstance(tensors.b.d.e, torch.Tensor)
    tensors.a[0, 0] = 99
    assert b.a[0, 0] == 99
    arrays = tensors.numpy()
    arrays.b.c[0] = 42
    assert b.b.c[0] == 42
    assert Batch(s=1.5).torch(dtype=torch.float32).s.dtype == torch.float32
    assert Batch(r=np.arange(3)[::-1]).torch().r.tolist() == [2, 1, 0]
    with pytest.raises(TypeError, match="key 'x/name' holds <U2 values"):
        Batch(x={"name": ["ab"]}).torch()


def test_equality_compares_values_not_kinds():
    assert nested() == nested().torch()
    assert nested() != nested() + 1
    assert Batch(a=[float("nan")]) == Batch(a=[float("nan")])
    assert Batch(a=[1.0]).equals({"a": [1.05]}, tolerance=0.1)
    assert not Batch(a=[1.0]).equals({"a": [1.05]}, tolerance=0.01)
    assert Batch(a=[1]) != Batch(a=[[1]])
    assert Batch(a=[1]) != Batch(b=[1])
    assert Batch(a=None) != Batch(a=[1])
    assert Batch(a=[1]) != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Batch())


def test_pickle_copy_and_deepcopy_give_equal_independent_batches():
    b = Batch(a=[1, 2], d={"t": torch.ones(2)}, n=None, e=Batch())
    for twin in (pickle.loads(pickle.dumps(b)), copy.deepcopy(b), b.copy()):
        assert twin == b
        twin.d.t[0] = 5
        twin.new = 1
        assert b.d.t[0] == 1
        assert "new" not in b
    shallow = copy.copy(b)
    shallow.new = 1
    assert "new" not in b
    assert shallow.a is b.a
    assert pickle.loads(pickle.dumps(Batch())) == Batch()


def test_repr_is_sorted_and_indented():
    text = repr(Batch(z=[1, 2], a={"y": 1.5, "x": None}, e=Batch()))
    assert text == (
        "Batch(\n    a: Batch(\n        x: None,\n        y: np.float64(1.5),\n    ),\n    e: Batch(),\n    z: "
        "array([1, 2]),\n)"
    )


# --- properties ---

leaf_values = st.sampled_from(
    [lambda n: np.arange(n * 2.0).reshape(n, 2), lambda n: torch.arange(n), lambda n: np.zeros(n, bool)]
)
tree_of_leaves = st.recursive(
    leaf_values, lambda kids: st.dictionaries(st.sampled_from("abcd"), kids, min_size=1, max_size=3), max_leaves=6
)


def grown(tree, rows):
    return {key: grown(part, rows) for key, part in tree.items()} if isinstance(tree, dict) else tree(rows)


@given(tree=tree_of_leaves, rows=st.integers(1, 7), size=st.integers(1, 9), merge=st.booleans())
def test_cat_of_split_and_stack_of_rows_are_the_batch(tree, rows, size, merge):
    b = Batch(x=grown(tree, rows))
    assert Batch.cat(b.split(size, merge_last=merge)) == b
    assert Batch.stack(list(b)) == b
    assert pickle.loads(pickle.dumps(b)) == b
    assert b.torch().numpy() == b


@given(one=tree_of_leaves, two=tree_of_leaves)
def test_padded_rows_come_back_as_they_went_in_wherever_both_have_the_key(one, two):
    a, b = Batch(x={"p": grown(one, 2)}), Batch(y={"q": grown(two, 3)})
    joined = Batch.cat([a, b])
    assert len(joined) == 5
    assert joined[:2].x == a.x
    assert joined[2:].y == b.y
    assert joined[2:].x == Batch.cat([a, a])[:3].empty_().x
