"""Returns and advantages: numbers worked out by hand, γ = λ = 1/2 unless said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rookery.core.errors import UsageError
from rookery.equations import returns as module
from rookery.equations.returns import gae, lambda_return, n_step, successor_values, vtrace

HALF = {"gamma": 0.5, "lam": 0.5}


def col(*numbers: float) -> np.ndarray:
    """One column [T, 1]."""
    return np.array(numbers, np.float32)[:, None]


def flags(*ones: int, rows: int = 3) -> np.ndarray:
    """A bool column [rows, 1], true at the given rows."""
    return np.isin(np.arange(rows), ones)[:, None]


def flat(x: Any) -> list[float]:
    return np.asarray(x)[:, 0].tolist()


THREE = {"reward": col(1, 2, 3), "value": col(1, 1, 1), "next_value": col(1, 1, 8)}


def test_gae_adds_discounted_td_errors_and_bootstraps_at_the_end_of_the_rows() -> None:
    # δ = 1 + ½·1 − 1 = 0.5,  2 + ½·1 − 1 = 1.5,  3 + ½·8 − 1 = 6
    # A2 = 6,  A1 = 1.5 + ¼·6 = 3,  A0 = 0.5 + ¼·3 = 1.25
    assert flat(gae(**THREE, terminated=flags(), done=flags(), **HALF)) == [1.25, 3.0, 6.0]


def test_gae_stops_at_a_terminated_row() -> None:
    # δ1 = 2 − 1 = 1 without bootstrap,  A1 = 1,  A0 = 0.5 + ¼·1 = 0.75
    assert flat(gae(**THREE, terminated=flags(1), done=flags(1), **HALF)) == [0.75, 1.0, 6.0]


def test_gae_bootstraps_at_a_truncated_row_but_does_not_look_beyond_it() -> None:
    # δ1 = 2 + ½·4 − 1 = 3,  A1 = 3 (nothing of A2),  A0 = 0.5 + ¼·3 = 1.25
    fields = THREE | {"next_value": col(1, 4, 8)}
    assert flat(gae(**fields, terminated=flags(), done=flags(1), **HALF)) == [1.25, 3.0, 6.0]


def test_truncated_step_bootstraps_but_terminated_does_not() -> None:
    fields = {"reward": col(0, 0), "value": col(0, 0), "next_value": col(9, 5)}
    ends = {"terminated": flags(1, rows=2), "done": flags(0, 1, rows=2)}
    assert flat(gae(**fields, **ends, gamma=0.5, lam=1.0)) == [4.5, 0.0]  # ½·9 survives the time limit, 5 not death


def test_gae_continues_over_a_hole_with_the_next_valid_row() -> None:
    # A2 = 6, the hole gives 0,  A0 = 0.5 + ¼·6 = 2
    fields = THREE | {"reward": col(1, math.nan, 3)}
    valid = flags(0, 2)
    assert flat(gae(**fields, terminated=flags(), done=flags(), **HALF, valid=valid)) == [2.0, 0.0, 6.0]


def test_a_flag_in_a_hole_ends_nothing() -> None:
    both = {"terminated": flags(1), "done": flags(1)}
    assert flat(gae(**THREE, **both, **HALF, valid=flags(0, 2))) == [2.0, 0.0, 6.0]


def test_trailing_holes_leave_the_bootstrap_to_the_last_valid_row() -> None:
    # δ1 = 2 + ½·6 − 1 = 4 = A1,  A0 = 0.5 + ¼·4 = 1.5
    fields = THREE | {"next_value": col(1, 6, 8)}
    assert flat(gae(**fields, terminated=flags(), done=flags(), **HALF, valid=flags(0, 1))) == [1.5, 4.0, 0.0]


def test_terminated_and_truncated_together_is_terminated() -> None:
    one = {"reward": col(1), "value": col(0), "next_value": col(100)}
    assert flat(gae(**one, terminated=flags(0, rows=1), done=flags(0, rows=1), **HALF)) == [1.0]


def test_the_value_of_an_endless_chain_is_not_shortened_by_a_time_limit() -> None:
    # r = 1, γ = 0.9: V = 1 / (1 − 0.9) = 10 is the fixed point, and 1 + 0.9·10 − 10 = 0 also at the cut
    ten = col(10, 10, 10)
    advantage = gae(col(1, 1, 1), ten, ten, flags(), flags(1), gamma=0.9, lam=0.95)
    np.testing.assert_allclose(advantage, 0.0, atol=1e-6)


def test_lambda_return_mixes_the_bootstrap_with_what_follows() -> None:
    # G2 = 3 + ½·8 = 7,  G1 = 2 + ½(½·1 + ½·7) = 4,  G0 = 1 + ½(½·1 + ½·4) = 2.25
    three = {"reward": col(1, 2, 3), "next_value": col(1, 1, 8)}
    assert flat(lambda_return(**three, terminated=flags(), done=flags(), **HALF)) == [2.25, 4.0, 7.0]
    # a hole in the middle: G0 = 1 + ½(½·1 + ½·7) = 3
    assert flat(lambda_return(**three, terminated=flags(), done=flags(), **HALF, valid=flags(0, 2))) == [3.0, 0.0, 7.0]


def test_lambda_return_is_cut_by_truncation_and_ended_by_termination() -> None:
    three = {"reward": col(1, 2, 3), "next_value": col(1, 4, 8)}
    # truncated: G1 = 2 + ½·4 = 4,  G0 = 1 + ½(½·1 + ½·4) = 2.25
    assert flat(lambda_return(**three, terminated=flags(), done=flags(1), **HALF)) == [2.25, 4.0, 7.0]
    # terminated: G1 = 2,  G0 = 1 + ½(½·1 + ½·2) = 1.75
    assert flat(lambda_return(**three, terminated=flags(1), done=flags(1), **HALF)) == [1.75, 2.0, 7.0]


def test_lambda_return_is_advantage_plus_value_when_values_agree() -> None:
    rng = np.random.default_rng(0)
    value, reward = (rng.normal(size=(20, 3)).astype(np.float32) for _ in range(2))
    terminated = rng.random((20, 3)) < 0.1
    done, valid = terminated | (rng.random((20, 3)) < 0.1), rng.random((20, 3)) < 0.8
    at = np.argwhere(done & valid)
    ends = rng.normal(size=(len(at) + 3)).astype(np.float32)
    ahead = successor_values(value, ends[:3], ends[3:], at, valid)
    advantage = gae(reward, value, ahead, terminated, done, 0.9, 0.7, valid)
    target = lambda_return(reward, ahead, terminated, done, 0.9, 0.7, valid)
    np.testing.assert_allclose((advantage + value)[valid], target[valid], atol=1e-6)


FOUR = {"reward": col(1, 2, 3, 4), "next_value": col(10, 20, 30, 40), "gamma": 0.5, "n": 2}


def ends(terminated: tuple[int, ...] = (), truncated: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    return {"terminated": flags(*terminated, rows=4), "done": flags(*terminated, *truncated, rows=4)}


def test_n_step_discounts_the_bootstrap_by_the_steps_really_taken() -> None:
    # 1 + ½·2 + ¼·20 = 7,  2 + ½·3 + ¼·30 = 11,  3 + ½·4 + ¼·40 = 15;  the last row has one step: 4 + ½·40 = 24
    assert flat(n_step(**FOUR, **ends())) == [7.0, 11.0, 15.0, 24.0]


def test_n_step_ends_at_death_and_bootstraps_at_a_time_limit() -> None:
    assert flat(n_step(**FOUR, **ends(terminated=(1,)))) == [2.0, 2.0, 15.0, 24.0]  # 1 + ½·2,  2
    assert flat(n_step(**FOUR, **ends(truncated=(1,)))) == [7.0, 12.0, 15.0, 24.0]  # 2 + ¼·20,  2 + ½·20


def test_n_step_counts_valid_rows_only() -> None:
    # row 0 takes rows 0 and 2: 1 + ½·3 + ¼·30 = 10
    assert flat(n_step(**FOUR, **ends(), valid=flags(0, 2, 3, rows=4))) == [10.0, 0.0, 15.0, 24.0]
    # the last row is a hole, so row 2 has one step: 3 + ½·30 = 18
    assert flat(n_step(**FOUR, **ends(), valid=flags(0, 1, 2, rows=4))) == [7.0, 11.0, 18.0, 0.0]


def test_n_step_refuses_a_window_of_nothing() -> None:
    with pytest.raises(UsageError, match="n=0"):
        n_step(**(FOUR | {"n": 0}), **ends())


TWO = {"reward": col(1, 2), "value": col(1, 1), "next_value": col(1, 4), "gamma": 0.5}
LOG_RHO = np.log(col(2, 0.5))


def two(terminated: tuple[int, ...] = (), truncated: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    return {"terminated": flags(*terminated, rows=2), "done": flags(*terminated, *truncated, rows=2)}


def test_vtrace_clips_the_ratios_and_corrects_backwards() -> None:
    # row 1: ρ = ½, δ = ½(2 + ½·4 − 1) = 1.5, v = 1 + 1.5 = 2.5, A = ½(2 + 2 − 1) = 1.5
    # row 0: ρ = c = min(1, 2) = 1, δ = 1 + ½ − 1 = 0.5, v = 1 + 0.5 + ½·1·1.5 = 2.25, A = 1 + ½·2.5 − 1 = 1.25
    vs, advantage = vtrace(LOG_RHO, **TWO, **two())
    np.testing.assert_allclose(flat(vs), [2.25, 2.5], rtol=1e-6)
    np.testing.assert_allclose(flat(advantage), [1.25, 1.5], rtol=1e-6)
    # rho_max = 2, c_max = 1.5: δ0 = 2·0.5 = 1, v0 = 1 + 1 + ½·1.5·1.5 = 3.125, A0 = 2·1.25 = 2.5
    vs, advantage = vtrace(LOG_RHO, **TWO, **two(), rho_max=2.0, c_max=1.5)
    np.testing.assert_allclose(flat(vs), [3.125, 2.5], rtol=1e-6)
    np.testing.assert_allclose(flat(advantage), [2.5, 1.5], rtol=1e-6)


def test_vtrace_bootstraps_at_a_time_limit_and_not_at_death() -> None:
    fields = TWO | {"next_value": col(4, 4)}
    vs, advantage = vtrace(LOG_RHO, **fields, **two(truncated=(0,)))
    np.testing.assert_allclose([vs[0, 0], advantage[0, 0]], [3.0, 2.0])  # δ = A = 1 + ½·4 − 1 = 2, v = 1 + 2
    vs, advantage = vtrace(LOG_RHO, **fields, **two(terminated=(0,)))
    np.testing.assert_allclose([vs[0, 0], advantage[0, 0]], [1.0, 0.0])  # δ = 1 − 1 = 0


def test_vtrace_of_on_policy_data_is_the_return_to_the_cut() -> None:
    rng = np.random.default_rng(1)
    value, reward = (rng.normal(size=(15, 2)).astype(np.float32) for _ in range(2))
    terminated = rng.random((15, 2)) < 0.1
    done = terminated | (rng.random((15, 2)) < 0.1)
    at = np.argwhere(done)
    tail = rng.normal(size=(len(at) + 2)).astype(np.float32)
    ahead = successor_values(value, tail[:2], tail[2:], at)
    vs, advantage = vtrace(np.zeros_like(value), reward, value, ahead, terminated, done, 0.9)
    full = lambda_return(reward, ahead, terminated, done, 0.9, 1.0)
    np.testing.assert_allclose(vs, full, atol=1e-5)
    np.testing.assert_allclose(advantage, full - value, atol=1e-5)


VALUES = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
LAST = np.array([7, 8], np.float32)


def test_the_successor_is_the_final_observation_of_an_ended_row_and_else_the_next_row() -> None:
    at, final = np.array([[1, 0]]), np.array([9], np.float32)
    assert successor_values(VALUES, LAST, final, at).tolist() == [[3, 4], [9, 6], [7, 8]]


def test_the_successor_of_an_ended_last_row_is_not_the_reset_observation() -> None:
    at, final = np.array([[2, 1]]), np.array([9], np.float32)
    assert successor_values(VALUES, LAST, final, at).tolist() == [[3, 4], [5, 6], [7, 9]]


def test_the_successor_skips_holes() -> None:
    valid = np.array([[1, 1], [1, 0], [0, 1]], bool)
    nothing = np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
    # column 0 ends with a hole: row 1 is followed by what is acted on next (7); column 1: row 0 by row 2 (6)
    for at, final in (
        (nothing[0], nothing[1]),
        (np.array([[1, 1]]), np.array([9], np.float32)),
    ):  # a hole has no end either
        assert successor_values(VALUES, LAST, final, at, valid).tolist() == [[3, 6], [7, 0], [0, 8]]


@pytest.mark.parametrize("at", [[[3, 0]], [[0, 2]], [[-1, 0]], [[0, -1]]], ids=str)
def test_a_final_row_outside_the_chunk_is_an_error(at: list[list[int]]) -> None:
    with pytest.raises(UsageError, match="3 rows and 2 columns"):
        successor_values(VALUES, LAST, np.zeros(1, np.float32), np.array(at))


def test_successor_values_of_the_wrong_shape_are_an_error() -> None:
    at, final = np.array([[1, 0]]), np.array([9], np.float32)
    for wrong in (
        (VALUES, LAST[:1], final, at),
        (VALUES, LAST, final.repeat(2), at),
        (VALUES, LAST, final, at[:, :1]),
        (VALUES[0], LAST[:0], final, at),
        (VALUES, LAST, final, at, np.ones((3, 1), bool)),
    ):
        with pytest.raises(UsageError, match="expects value"):
            successor_values(*wrong)


def test_tensors_give_tensors_and_arrays_give_arrays_of_float32() -> None:
    fields = THREE | {"terminated": flags(), "done": flags(1)}
    expected = gae(**fields, **HALF)
    tensors = {key: torch.from_numpy(array) for key, array in fields.items()}
    result = gae(**tensors, **HALF)
    assert isinstance(expected, np.ndarray)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float32
    assert result.tolist() == expected.tolist()
    for vs in vtrace(torch.zeros(3, 1), **tensors, gamma=0.5):
        assert isinstance(vs, torch.Tensor)
    at = torch.tensor([[1, 0]])
    assert successor_values(tensors["value"], torch.ones(1), torch.ones(1), at).tolist() == [[1.0], [1.0], [1.0]]


def test_cpu_tensors_reach_the_kernel_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    kernel = module.kernels.gae
    monkeypatch.setattr(module.kernels, "gae", lambda *args: seen.extend(args[2:]) or kernel(*args))
    fields = {key: torch.rand(6, 4) for key in ("reward", "value", "next_value")}
    fields |= {key: torch.zeros(6, 4, dtype=torch.bool) for key in ("terminated", "done", "valid")}
    gae(**fields, **HALF)
    assert len(seen) == 6
    for array, tensor in zip(seen, fields.values(), strict=True):
        assert array.__array_interface__["data"][0] == tensor.data_ptr()


def test_inputs_are_neither_changed_nor_differentiated() -> None:
    fields = {key: torch.rand(6, 4, requires_grad=True) for key in ("reward", "value", "next_value")}
    before = {key: tensor.detach().clone() for key, tensor in fields.items()}
    ended = torch.zeros(6, 4, dtype=torch.bool)
    result = gae(**fields, terminated=ended, done=ended, **HALF)
    assert not result.requires_grad
    for key, tensor in fields.items():
        assert torch.equal(tensor.detach(), before[key])
        assert tensor.grad is None


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.float64),
        lambda x: np.asfortranarray(np.tile(x, 2))[:, :1],
        lambda x: torch.from_numpy(x).double(),
        lambda x: torch.from_numpy(x).to(torch.bfloat16),
        lambda x: torch.from_numpy(x).expand(3, 2)[:, :1],
        lambda x: np.broadcast_to(x, x.shape),  # read-only
    ],
    ids=["float64", "strided", "double", "bfloat16", "expanded", "read-only"],
)
def test_other_dtypes_and_layouts_are_converted(convert: Any) -> None:
    fields = THREE | {"terminated": flags(), "done": flags(1)}
    expected = gae(**fields, **HALF)
    result = gae(**{key: convert(array) for key, array in fields.items()}, **HALF)
    assert np.asarray(result).tolist() == expected.tolist()
    assert str(result.dtype).removeprefix("torch.") == "float32"


def test_one_compiled_form_serves_every_input() -> None:
    """Read-only arrays, views, ints for γ: each would be another type to numba, to be compiled anew."""
    fields = {key: array.copy() for key, array in (THREE | {"terminated": flags(), "done": flags(1)}).items()}
    gae(**fields, **HALF)
    gae(**fields, gamma=1, lam=np.float32(0.5))
    gae(**{key: array[:, 0] for key, array in fields.items()}, **HALF)
    for array in fields.values():
        array.flags.writeable = False
    gae(**fields, **HALF)
    assert len(module.kernels.gae.signatures) == 1


def test_time_leads_whatever_dimensions_follow() -> None:
    rng = np.random.default_rng(0)
    shape = (9, 2, 3)  # [T, B, agents]
    fields = {key: rng.normal(size=shape).astype(np.float32) for key in ("reward", "value", "next_value")}
    fields |= {"terminated": rng.random(shape) < 0.1, "done": np.ones(shape, bool), "valid": rng.random(shape) < 0.7}
    whole = gae(**fields, **HALF)
    assert whole.shape == shape
    one_agent = gae(**{key: array[:, :, 1] for key, array in fields.items()}, **HALF)
    np.testing.assert_array_equal(whole[:, :, 1], one_agent)
    one_column = gae(**{key: array[:, 0, 1] for key, array in fields.items()}, **HALF)
    assert one_column.shape == (9,)
    np.testing.assert_array_equal(one_column, one_agent[:, 0])


def test_a_field_of_another_shape_is_an_error_that_names_it() -> None:
    with pytest.raises(UsageError, match=r"next_value has shape \(2, 1\), but reward has \(3, 1\)"):
        gae(**(THREE | {"next_value": col(1, 1)}), terminated=flags(), done=flags(), **HALF)
    with pytest.raises(UsageError, match="first dimension"):
        gae(*[np.float32(0.0)] * 5, **HALF)


def test_no_rows_give_no_rows() -> None:
    none = np.zeros((0, 4), np.float32)
    assert gae(none, none, none, none, none, **HALF).shape == (0, 4)
    assert n_step(none, none, none, none, 0.9, 3).shape == (0, 4)
