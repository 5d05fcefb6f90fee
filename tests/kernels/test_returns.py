"""Each numba kernel of `kernels/returns.py` equals its plain twin, on random rows with holes, ends and cuts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels import plain
from rookery.kernels import returns

# The twins sum in another order, in float64 like the kernels; both round to float32 once. So they differ by at most
# that rounding (6e-8 relative, each); the absolute part is for sums that cancel to almost nothing.
TOLERANCE = {"rtol": 2e-7, "atol": 1e-9}

SHAPES = [(1, 1), (1, 5), (7, 1), (2, 2), (33, 4), (128, 8)]
HOLES = {"no holes": 0.0, "some holes": 0.3, "mostly holes": 0.9, "only holes": 1.0}
KERNELS = {
    "gae": ("reward", "value", "next_value"),
    "lambda_return": ("reward", "next_value"),
    "n_step": ("reward", "next_value"),
    "vtrace": ("log_rho", "reward", "value", "next_value"),
    "upgo": ("reward", "value", "next_value"),
    "retrace": ("log_rho", "reward", "value", "next_value"),  # `value` stands for Q(s, a)
}
NUMBERS = {
    "gae": [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.9)],
    "lambda_return": [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.9)],
    "n_step": [(0.99, 1), (0.9, 3), (1.0, 5), (0.97, 1000)],
    "vtrace": [(0.99, 1.0, 1.0), (0.9, 2.0, 1.5), (1.0, 0.5, 0.1)],
    "upgo": [(0.99,), (1.0,), (0.0,)],
    "retrace": [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.9)],
}


def rows(shape: tuple[int, int], holes: float, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    fields = {name: rng.normal(size=shape).astype(np.float32) for name in ("reward", "value", "next_value", "log_rho")}
    terminated, truncated = rng.random(shape) < 0.1, rng.random(shape) < 0.1
    fields |= {"terminated": terminated, "done": terminated | truncated, "valid": rng.random(shape) >= holes}
    for name in ("reward", "value", "next_value", "log_rho"):
        fields[name][~fields["valid"]] = np.nan  # whatever stands in a hole must not matter
    fields["next_value"][terminated] = np.nan  # nor what stands behind death
    if shape[1] > 2:
        fields["valid"][:, 1] = False  # a column of holes among others
    return fields


def call(module: Any, name: str, numbers: tuple[float, ...], fields: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    arrays = [fields[key] for key in (*KERNELS[name], "terminated", "done", "valid")]
    result = getattr(module, name)(*numbers, *arrays)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("holes", HOLES.values(), ids=HOLES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_equals_its_plain_twin(name: str, shape: tuple[int, int], holes: float) -> None:
    for seed in range(3):
        fields = rows(shape, holes, seed)
        for numbers in NUMBERS[name]:
            for fast, slow in zip(
                call(returns, name, numbers, fields), call(plain, name, numbers, fields), strict=True
            ):
                assert fast.dtype == slow.dtype == np.float32
                assert fast.shape == slow.shape == shape
                np.testing.assert_allclose(fast, slow, **TOLERANCE)
                assert np.isfinite(fast).all()
                assert not fast[~fields["valid"]].any()


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_leaves_its_inputs_untouched(name: str) -> None:
    fields = rows((16, 4), 0.3, 0)
    before = {key: array.copy() for key, array in fields.items()}
    call(returns, name, NUMBERS[name][0], fields)
    for key, array in fields.items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize("name", KERNELS)
def test_a_column_with_holes_gives_what_the_same_column_gives_without_them(name: str) -> None:
    full = rows((64, 1), 0.5, 3)
    keep = full["valid"][:, 0]
    dense = {key: np.ascontiguousarray(array[keep]) for key, array in full.items()}
    for with_holes, without in zip(
        call(returns, name, NUMBERS[name][0], full), call(returns, name, NUMBERS[name][0], dense), strict=True
    ):
        np.testing.assert_array_equal(with_holes[keep], without)


@pytest.mark.parametrize("name", KERNELS)
def test_terminated_ends_an_episode_even_if_the_caller_forgot_it_in_done(name: str) -> None:
    fields = rows((40, 6), 0.2, 5)
    forgotten = fields | {"done": fields["done"] & ~fields["terminated"]}
    numbers = NUMBERS[name][1]
    for a, b in zip(call(returns, name, numbers, forgotten), call(returns, name, numbers, fields), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", KERNELS)
def test_a_nan_in_a_valid_row_is_not_hidden(name: str) -> None:
    for field in KERNELS[name]:
        fields = {key: np.zeros((3, 1), np.float32) for key in KERNELS[name]}
        fields |= {key: np.zeros((3, 1), bool) for key in ("terminated", "done")} | {"valid": np.ones((3, 1), bool)}
        fields["reward"][:] = 1.0
        fields[field][1, 0] = np.nan
        numbers = (0.9, 2) if name == "n_step" else NUMBERS[name][0]
        outputs = call(returns, name, numbers, fields)
        assert any(np.isnan(out[:2]).any() for out in outputs), f"NaN in {field} vanished"


def test_vtrace_survives_a_ratio_that_overflows() -> None:
    fields = rows((5, 2), 0.0, 0) | {"terminated": np.zeros((5, 2), bool)}
    fields["next_value"][:] = 0.5
    fields["log_rho"][:] = 1000.0  # e^1000 is inf even in float64; clipped at 1 it is on-policy data
    clipped = call(returns, "vtrace", (0.9, 1.0, 1.0), fields)
    fields["log_rho"][:] = 0.0
    for a, b in zip(clipped, call(returns, "vtrace", (0.9, 1.0, 1.0), fields), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("holes", HOLES.values(), ids=HOLES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_successor_values_equal_their_plain_twin(shape: tuple[int, int], holes: float) -> None:
    for seed in range(3):
        fields, rng = rows(shape, holes, seed), np.random.default_rng(seed)
        final_at = np.argwhere(fields["done"] & fields["valid"]).astype(np.int64)
        final_value = rng.normal(size=len(final_at)).astype(np.float32)
        last_value = rng.normal(size=shape[1]).astype(np.float32)
        arrays = (fields["value"], last_value, final_value, final_at, fields["valid"])
        fast, slow = returns.successor_values(*arrays), plain.successor_values(*arrays)
        assert fast.dtype == np.float32
        np.testing.assert_array_equal(fast, slow)  # nothing is computed, so nothing may differ
        assert np.isfinite(fast).all()


def test_n_step_of_one_equals_lambda_return_of_zero() -> None:
    fields = rows((40, 6), 0.3, 1)
    (one,), (zero,) = call(returns, "n_step", (0.9, 1), fields), call(returns, "lambda_return", (0.9, 0.0), fields)
    np.testing.assert_array_equal(one, zero)


def test_kernels_call_nothing_outside_their_file() -> None:
    """numba's cache notices changes in the file of the outermost function only."""
    for name in (*KERNELS, "successor_values"):
        function = getattr(returns, name).py_func
        for global_name in function.__code__.co_names:
            used = function.__globals__.get(global_name)
            if hasattr(used, "py_func"):
                assert used.py_func.__module__ == returns.__name__
