"""Collate: B samples become one batch of torch tensors, and back; B sequences of T steps become tensors [T, B, …].

    collate           [{"x": 1.0, "heads": [[0, 1], [2]]}, …]  →  {"x": f32 [B], "heads": [i64 [B, 2], i64 [B, 1]]}
    decollate         the inverse: B samples whose leaves are views of the batch
    time_collate  [[step, step, …], …], or [{"obs": [T, …], …}, …]  →  {"obs": [T, B, …], …}

Dicts, lists, tuples and named tuples keep their kind (so several heads stay a list of [B, ·]); strings become a list of
B; a field that is None in every sample stays None. float64 becomes float32, integers narrower than 64 bits int64; bool,
uint8 (bytes of images) and half precision stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.core.batch.batch import Batch
from rookery.core.batch.leaf import below

STATES = ("state", "prev_state")  # recurrent states: None means "no state yet", which is a state of zeros
_WIDENED = {torch.float64: torch.float32} | dict.fromkeys((torch.int8, torch.int16, torch.int32), torch.int64)
_NARROW = ("int8", "int16", "int32", "uint16", "uint32", "uint64")
_NUMPY: dict[str, type[np.generic]] = {"float64": np.float32} | dict.fromkeys(_NARROW, np.int64)


def collate(samples: Sequence[Any]) -> Any:
    """One batch of B samples of equal structure; a new first dimension B in every leaf.

    `collate([{"obs": [0.0, 1.0], "action": 2}, {"obs": [3.0, 4.0], "action": 5}])` has `action` [2, 5], and `obs` as a
    list of two heads; an observation that is one array is given as an array. Samples that differ in keys, parts or
    shapes are a ValueError that names the place.
    """
    if not samples:
        raise ValueError("collate needs at least one sample, got an empty list")
    return _collate(list(samples), "")


def _collate(samples: list[Any], path: str) -> Any:
    first = samples[0]
    if first is None or isinstance(first, str | bytes):
        if any(type(sample) is not type(first) for sample in samples):
            raise TypeError(f"{_at(path)} is a {type(first).__name__} in some samples and something else in others")
        return None if first is None else samples
    if isinstance(first, Tensor):
        return _stacked(samples, path)
    if isinstance(first, np.ndarray | np.generic | bool | int | float):
        return _from_numpy(samples, path)
    if isinstance(first, Mapping | Batch):
        return _collate_dicts(samples, path)
    if isinstance(first, list | tuple):
        parts = [_collate(list(part), below(path, str(i))) for i, part in enumerate(_columns(samples, path))]
        return _like(first, parts)
    raise TypeError(
        f"{_at(path)} is a {type(first).__name__}; "
        "dicts, lists, tuples, numbers, arrays, tensors and strings can be collated"
    )


def _at(path: str) -> str:
    return f"key {path!r}" if path else "a sample"


def _like(container: Any, parts: list[Any]) -> Any:
    if isinstance(container, tuple):
        return type(container)(*parts) if hasattr(container, "_fields") else tuple(parts)
    return parts


def _columns(samples: list[Any], path: str) -> Any:
    if wrong := [
        sample for sample in samples if not isinstance(sample, list | tuple) or len(sample) != len(samples[0])
    ]:
        raise ValueError(f"{_at(path)} has {len(samples[0])} parts in the first sample and {wrong[0]!r:.60} in another")
    return zip(*samples)


def _collate_dicts(samples: list[Any], path: str) -> Any:
    keys = samples[0].keys()
    for i, sample in enumerate(samples):
        if not isinstance(sample, Mapping | Batch):
            raise TypeError(f"{_at(path)} is a dict in sample 0 and a {type(sample).__name__} in sample {i}")
        if sample.keys() != keys:
            raise ValueError(
                f"{_at(path)} has the keys {sorted(keys)} in sample 0 and {sorted(sample.keys())} in sample {i}"
            )
    result = {key: _collate([sample[key] for sample in samples], below(path, str(key))) for key in keys}
    return Batch(result) if isinstance(samples[0], Batch) else result


def _stacked(tensors: list[Any], path: str, dim: int = 0) -> Tensor:
    try:
        stacked = torch.stack(tensors, dim)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{_at(path)} cannot be stacked: {_differing(tensors)} ({error})") from None
    return stacked.to(_WIDENED.get(stacked.dtype, stacked.dtype))


def _from_numpy(values: list[Any], path: str, axis: int = 0) -> Tensor:
    arrays = [np.asarray(value) for value in values]
    dtype = np.result_type(*arrays)
    if dtype.kind not in "biuf":
        raise TypeError(f"{_at(path)} holds {dtype} values, which torch cannot hold")
    try:
        return torch.from_numpy(np.stack(arrays, axis, dtype=_NUMPY.get(dtype.name, dtype), casting="unsafe"))
    except ValueError as error:
        raise ValueError(f"{_at(path)} cannot be stacked: {_differing(arrays)} ({error})") from None


def _differing(values: list[Any]) -> str:
    shapes = [tuple(getattr(value, "shape", ())) for value in values]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), 0)
    return f"sample 0 has shape {shapes[0]}, sample {other} has {shapes[other]}"


def decollate(batch: Any) -> list[Any]:
    """The B samples of a batch, as a list: the inverse of `collate`.

    Leaves are views, numbers are tensors without dimensions.

    Leaves of different lengths are a ValueError that names them.
    """
    length = _length(batch, "", None)
    if length is None:
        raise ValueError(f"a batch without tensors has no samples to take apart, got {batch!r:.60}")
    return _decollate(batch, length)


def _is_column(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str | bytes)


def _length(batch: Any, path: str, known: int | None) -> int | None:
    if isinstance(batch, Tensor | np.ndarray) or _is_column(batch):
        if isinstance(batch, Tensor | np.ndarray) and not batch.ndim:
            raise ValueError(f"{_at(path)} is a scalar, so it cannot be taken apart into samples")
        if known not in (None, len(batch)):
            raise ValueError(f"{_at(path)} holds {len(batch)} samples, other leaves {known}")
        return len(batch)
    parts = (
        batch.items()
        if isinstance(batch, Mapping | Batch)
        else enumerate(batch if isinstance(batch, list | tuple) else ())
    )
    for key, part in parts:
        known = _length(part, below(path, str(key)), known)
    return known


def _decollate(batch: Any, length: int) -> list[Any]:
    if batch is None:
        return [None] * length
    if isinstance(batch, Tensor):
        return list(batch.unbind(0))
    if isinstance(batch, Mapping | Batch):
        columns = [_decollate(part, length) for part in batch.values()]
        rows = [dict(zip(batch.keys(), row)) for row in zip(*columns)] if columns else [{} for _ in range(length)]
        return [Batch(row) for row in rows] if isinstance(batch, Batch) else rows
    if isinstance(batch, np.ndarray) or _is_column(batch):
        return list(batch)
    if isinstance(batch, list | tuple):
        columns = [_decollate(part, length) for part in batch]
        return (
            [_like(batch, list(row)) for row in zip(*columns)] if columns else [_like(batch, []) for _ in range(length)]
        )
    raise TypeError(f"a {type(batch).__name__} cannot be taken apart into samples")


def time_collate(sequences: Sequence[Any]) -> Any:
    """B sequences of T steps each as one batch with leaves [T, B, …].

    A sequence is a list of T steps, or a dict whose values run over time (lists of T, or arrays [T, …]). Recurrent
    states (keys `state`, `prev_state`) are stacked like everything else, keeping their structure, so
    `batch["state"][0]` starts the sequences; a state of None counts as zeros.
    """
    if not sequences:
        raise ValueError("time_collate needs at least one sequence, got an empty list")
    return _over_time(list(sequences), "")


def _over_time(sequences: list[Any], path: str) -> Any:
    first = sequences[0]
    if isinstance(first, Mapping | Batch):
        keys = first.keys()
        if wrong := [sorted(other.keys()) for other in sequences if other.keys() != keys]:
            raise ValueError(f"{_at(path)} has the keys {sorted(keys)} in one sequence and {wrong[0]} in another")
        parts = {key: _over_time([each[key] for each in sequences], below(path, str(key))) for key in keys}
        return Batch(parts) if isinstance(first, Batch) else parts
    lengths = {_steps(sequence, path) for sequence in sequences}
    if len(lengths) > 1 or 0 in lengths:
        fix = "Pad the short ones and mark the padding in `valid`."
        raise ValueError(f"{_at(path)}: sequences must have one common length ≥ 1, got {sorted(lengths)}. {fix}")
    if isinstance(first, Tensor):
        return _stacked(sequences, path, 1)
    if isinstance(first, np.ndarray):
        return _from_numpy(sequences, path, 1)
    steps = [step for at_time in zip(*sequences) for step in at_time]  # T · B, time outermost
    return _unfolded(_collate(_with_states(steps, path), path), len(first), len(sequences))


def _steps(sequence: Any, path: str) -> int:
    if isinstance(sequence, list | tuple) or (isinstance(sequence, Tensor | np.ndarray) and sequence.ndim > 0):
        return len(sequence)
    wanted = "a list of steps, an array [T, …], or a dict of these"
    raise TypeError(f"{_at(path)} does not run over time: expected {wanted}, got {sequence!r:.60}")


def _with_states(steps: list[Any], path: str) -> list[Any]:
    if path.rpartition("/")[2] in STATES:
        return _zero_filled(steps)
    if not isinstance(steps[0], Mapping | Batch):
        return steps
    states = {key: _zero_filled([step[key] for step in steps]) for key in STATES if all(key in step for step in steps)}
    if not states:
        return steps
    kind = Batch if isinstance(steps[0], Batch) else dict
    filled = [{key: column[i] for key, column in states.items()} for i in range(len(steps))]
    return [kind({key: step[key] for key in step.keys()} | state) for step, state in zip(steps, filled)]  # noqa: SIM118


def _zero_filled(states: list[Any]) -> list[Any]:
    known = next((state for state in states if state is not None), None)
    return [_zeros(known) if state is None else state for state in states]


def _zeros(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {key: _zeros(part) for key, part in state.items()}
    if isinstance(state, list | tuple):
        return _like(state, [_zeros(part) for part in state])
    return state if state is None else torch.zeros_like(state) if isinstance(state, Tensor) else np.zeros_like(state)


def _unfolded(batch: Any, time: int, samples: int) -> Any:
    if isinstance(batch, Tensor):
        return batch.unflatten(0, (time, samples))
    if isinstance(batch, Mapping | Batch):
        parts = {key: _unfolded(part, time, samples) for key, part in batch.items()}
        return Batch(parts) if isinstance(batch, Batch) else parts
    if _is_column(batch):
        return [batch[t * samples : (t + 1) * samples] for t in range(time)]
    return batch if batch is None else _like(batch, [_unfolded(part, time, samples) for part in batch])
