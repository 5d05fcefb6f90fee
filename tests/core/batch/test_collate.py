"""collate, decollate and time-major collate (DAT-2, DAT-3)."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rookery.core.batch.batch import Batch
from rookery.core.batch.collate import collate, decollate, time_collate

Step = namedtuple("Step", "obs action")


@pytest.mark.parametrize(("values", "dtype"), [
    ([1.5, 2.5], torch.float32), ([1, 2], torch.int64), ([True, False], torch.bool),
    ([np.float64(1), np.float64(2)], torch.float32),
    ([np.int32(1), np.int32(2)], torch.int64), ([np.bool_(True)], torch.bool), ([1, 2.5], torch.float32),
])  # fmt: skip
def test_scalars_become_a_vector_of_the_learning_dtype(values, dtype):
    batch = collate(values)
    assert batch.dtype == dtype
    assert batch.tolist() == [pytest.approx(value) for value in values]


@pytest.mark.parametrize(("given_dtype", "dtype"), [
    (np.float64, torch.float32), (np.float32, torch.float32), (np.int32, torch.int64), (np.int8, torch.int64),
    (np.int64, torch.int64),
    (np.uint8, torch.uint8), (np.bool_, torch.bool), (np.float16, torch.float16),
])  # fmt: skip
def test_arrays_and_tensors_widen_alike_and_image_bytes_stay_bytes(given_dtype, dtype):
    arrays = [np.ones((2, 3), given_dtype), np.zeros((2, 3), given_dtype)]
    for samples in (arrays, [torch.from_numpy(array) for array in arrays]):
        batch = collate(samples)
        assert batch.shape == (2, 2, 3)
        assert batch.dtype == dtype
        assert batch[0].sum() == 6


def test_containers_keep_their_kind_and_heads_stay_a_list():
    samples = [
        {
            "obs": Step(np.ones(3), i),
            "logit": [np.zeros(2), torch.ones(4)],
            "pair": (1, 2.0),
            "name": f"s{i}",
            "none": None,
        }
        for i in range(5)
    ]
    batch = collate(samples)
    assert isinstance(batch["obs"], Step)
    assert batch["obs"].obs.shape == (5, 3)
    assert batch["obs"].action.tolist() == [0, 1, 2, 3, 4]
    assert [head.shape for head in batch["logit"]] == [(5, 2), (5, 4)]
    assert isinstance(batch["pair"], tuple)
    assert batch["name"] == ["s0", "s1", "s2", "s3", "s4"]
    assert batch["none"] is None


def test_decollate_gives_the_samples_back():
    samples = [
        {
            "obs": Step(np.full(3, i), i),
            "logit": [np.full(2, i), torch.ones(1)],
            "name": str(i),
            "none": None,
            "e": {},
            "l": [],
        }
        for i in range(4)
    ]
    back = decollate(collate(samples))
    assert len(back) == 4
    for i, sample in enumerate(back):
        assert isinstance(sample["obs"], Step)
        assert sample["obs"].obs.tolist() == [i, i, i]
        assert sample["obs"].action == i
        assert [head.tolist() for head in sample["logit"]] == [[i, i], [1]]
        assert (sample["name"], sample["none"], sample["e"], sample["l"]) == (str(i), None, {}, [])


def test_decollated_leaves_are_views_of_the_batch():
    batch = {"x": torch.zeros(2, 3)}
    decollate(batch)[1]["x"][0] = 5
    assert batch["x"][1, 0] == 5


def test_batches_stay_batches():
    batch = collate([Batch(a=1, d={"x": [1.0]}), Batch(a=2, d={"x": [2.0]})])
    assert isinstance(batch, Batch)
    assert batch.d.x.tolist() == [[1], [2]]
    assert [row.a.item() for row in decollate(batch)] == [1, 2]


json_like = st.recursive(
    st.sampled_from(["float", "int", "bool", "array", "tensor"]),
    lambda kids: st.one_of(
        st.dictionaries(st.sampled_from("abc"), kids, min_size=1),
        st.lists(kids, min_size=1, max_size=3),
        st.tuples(kids, kids),
    ),
    max_leaves=6,
)
MAKE = {
    "float": lambda i: 0.5 * i,
    "int": lambda i: i,
    "bool": lambda i: i % 2 == 0,
    "array": lambda i: np.full((2, 2), i),
    "tensor": lambda i: torch.full((3,), float(i)),
}


def grown(form, i):
    if isinstance(form, dict):
        return {key: grown(part, i) for key, part in form.items()}
    return type(form)(grown(part, i) for part in form) if isinstance(form, list | tuple) else MAKE[form](i)


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(np.asarray(a), np.asarray(b))


@given(form=json_like, count=st.integers(1, 4))
def test_there_and_back_is_the_identity(form, count):
    samples = [grown(form, i) for i in range(count)]
    batch = collate(samples)
    assert same(decollate(batch), samples)
    assert same(collate(decollate(batch)), batch)


@given(form=json_like, time=st.integers(1, 3), count=st.integers(1, 3))
def test_entry_t_b_of_time_major_is_step_t_of_sequence_b(form, time, count):
    sequences = [[grown(form, 10 * t + b) for t in range(time)] for b in range(count)]
    batch = time_collate(sequences)
    for t, row in enumerate(decollate(batch)):
        assert same(decollate(row), [sequences[b][t] for b in range(count)])


def test_sequences_of_steps_become_time_major():
    sequences = [
        [{"obs": np.full(2, 10 * b + t), "reward": float(t), "first": t == 0, "name": f"{t}{b}"} for t in range(3)]
        for b in range(2)
    ]
    batch = time_collate(sequences)
    assert batch["obs"].shape == (3, 2, 2)
    assert batch["obs"][2, 1].tolist() == [12, 12]
    assert batch["reward"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch["first"].dtype == torch.bool
    assert batch["name"] == [["00", "01"], ["10", "11"], ["20", "21"]]


def test_dicts_that_run_over_time_become_time_major():
    sequences = [
        {
            "obs": {"x": np.full((3, 4), b)},
            "reward": [0.0, 1.0, 2.0],
            "t": torch.arange(3),
            "logit": [[torch.zeros(2), torch.ones(5)]] * 3,
        }
        for b in range(2)
    ]
    batch = time_collate(sequences)
    assert batch["obs"]["x"].shape == (3, 2, 4)
    assert batch["obs"]["x"][:, 1].unique().tolist() == [1]
    assert batch["reward"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch["t"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert [head.shape for head in batch["logit"]] == [(3, 2, 2), (3, 2, 5)]


@pytest.mark.parametrize("key", ["state", "prev_state"])
@pytest.mark.parametrize("by_step", [True, False])
def test_recurrent_states_are_carried_with_none_as_zeros(key, by_step):
    states = [[None if t == 0 else (torch.full((4,), 10.0 * b + t), torch.ones(1)) for t in range(3)] for b in range(2)]
    if by_step:
        batch = time_collate([[{"obs": 1.0, key: state} for state in column] for column in states])
    else:
        batch = time_collate([{"obs": [1.0] * 3, key: column} for column in states])
    hidden, cell = batch[key]
    assert hidden.shape == (3, 2, 4)
    assert cell.shape == (3, 2, 1)
    assert hidden[0].abs().sum() == 0
    assert hidden[2, 1].tolist() == [12] * 4


def test_states_that_are_none_throughout_stay_none():
    assert time_collate([[{"obs": 1.0, "state": None}] * 2])["state"] is None


@pytest.mark.parametrize(("function", "value", "error", "message"), [
    (collate, [], ValueError, "at least one sample"),
    (collate, [{"a": 1}, {"b": 1}], ValueError, r"keys \['a'\] in sample 0 and \['b'\] in sample 1"),
    (collate, [{"x": {"y": np.zeros(2)}}, {"x": {"y": np.zeros(3)}}], ValueError,
        r"key 'x/y' cannot be stacked: sample 0 has shape \(2,\), sample 1 has \(3,\)"),
    (collate, [torch.zeros(2), torch.zeros(3)], ValueError, r"sample 0 has shape \(2,\)"),
    (collate, [[1, 2], [1]], ValueError, "has 2 parts in the first sample"),
    (collate, [None, 1], TypeError, "NoneType in some samples"),
    (collate, [{"a": object()}], TypeError, "key 'a' is a object"),
    (collate, [np.array(["x"])], TypeError, "holds <U1 values"),
    (collate, [{"a": 1}, 3], TypeError, "dict in sample 0 and a int in sample 1"),
    (decollate, {"a": torch.zeros(2), "b": {"c": torch.zeros(3)}}, ValueError,
        "key 'b/c' holds 3 samples, other leaves 2"),
    (decollate, {"a": torch.tensor(1.0)}, ValueError, "key 'a' is a scalar"),
    (decollate, {"a": None}, ValueError, "without tensors"),
    (time_collate, [[1, 2], [1]], ValueError, r"common length ≥ 1, got \[1, 2\]. Pad the short ones"),
    (time_collate, [], ValueError, "at least one sequence"),
    (time_collate, [{"a": 3.0}], TypeError, "key 'a' does not run over time"),
    (time_collate, [{"a": [1]}, {"b": [1]}], ValueError, "in one sequence and"),
])  # fmt: skip
def test_what_cannot_be_collated_is_told_with_its_place(function, value, error, message):
    with pytest.raises(error, match=message):
        function(value)


def test_sequences_of_batches_become_a_batch_with_states_or_without():
    over_time = [Batch(obs=np.zeros((3, 2))), Batch(obs=np.ones((3, 2)))]
    assert isinstance(time_collate(over_time), Batch)
    assert time_collate(over_time).obs.shape == (3, 2, 2)
    steps = [[Batch(obs=np.zeros(2), state=np.ones(1))] * 3] * 4
    batch = time_collate(steps)
    assert isinstance(batch, Batch)
    assert batch.state.shape == (3, 4, 1)
