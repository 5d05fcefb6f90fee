"""UPGO and Retrace: numbers worked out by hand, γ = 1/2."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rookery.equations.returns import lambda_return, retrace, upgo


def col(*numbers: float) -> np.ndarray:
    """One column [T, 1]."""
    return np.array(numbers, np.float32)[:, None]


def flags(*ones: int, rows: int = 3) -> np.ndarray:
    """A bool column [rows, 1], true at the given rows."""
    return np.isin(np.arange(rows), ones)[:, None]


def flat(x: Any) -> list[float]:
    return np.asarray(x)[:, 0].tolist()


NO_END = {"terminated": flags(), "done": flags()}
# δ of rows 1 and 2: 2 + ½·6 − 4 = 1 and 1 + ½·8 − 6 = −1
UP = {"reward": col(1, 2, 1), "value": col(0, 4, 6), "next_value": col(4, 6, 8)}


def test_upgo_goes_on_where_the_next_action_did_better_than_expected_and_bootstraps_where_it_did_worse() -> None:
    # row 2 is the last: 1 + ½·8 = 5; row 1: row 2 did worse, so 2 + ½·6 = 5; row 0: row 1 did better, so 1 + ½·5
    assert flat(upgo(**UP, **NO_END, gamma=0.5)) == [3.5, 5.0, 5.0]


def test_an_action_as_good_as_expected_is_followed() -> None:
    # δ of row 2 is 2 + ½·8 − 6 = 0: row 1 gets 2 + ½·6 = 5 either way, so the reward tells: G2 = 2 + 4 = 6, V' = 60
    fields = UP | {"reward": col(1, 2, 2), "next_value": col(4, 60, 8)}
    assert flat(upgo(**fields, **NO_END, gamma=0.5))[1:] == [2 + 0.5 * 6, 6.0]


def test_upgo_bootstraps_at_a_time_limit_and_not_after_death() -> None:
    cut = upgo(**UP, terminated=flags(), done=flags(1), gamma=0.5)
    assert flat(cut) == [1 + 0.5 * 5, 2 + 0.5 * 6, 5.0]
    dead = upgo(**UP, terminated=flags(1), done=flags(1), gamma=0.5)
    # row 1 is worth 2 and was expected to be worth 4: row 0 bootstraps, 1 + ½·4
    assert flat(dead) == [3.0, 2.0, 5.0]


def test_upgo_skips_a_hole() -> None:
    nan = math.nan
    fields = {"reward": col(1, nan, 2, 1), "value": col(0, nan, 4, 6), "next_value": col(4, nan, 6, 8)}
    masks = {"terminated": flags(rows=4), "done": flags(rows=4), "valid": flags(0, 2, 3, rows=4)}
    assert flat(upgo(**fields, **masks, gamma=0.5)) == [3.5, 0.0, 5.0, 5.0]


# δ = r + ½ V' − Q: 1 + 2 − 2 = 1, 2 + 1 − 1 = 2, 4 + 2 − 2 = 4
Q = {"reward": col(1, 2, 4), "q": col(2, 1, 2), "next_value": col(4, 2, 4)}
RATIOS = np.log(col(9, 0.5, 3))  # min(1, π/μ) = 1, ½, 1


def test_retrace_cuts_the_trace_by_the_ratio_of_the_later_actions() -> None:
    # λ = 1: G2 = 2 + 4 = 6; G1 = 1 + 2 + ½·1·4 = 5; G0 = 2 + 1 + ½·½·2 + ¼·½·1·4 = 4
    assert flat(retrace(RATIOS, **Q, **NO_END, gamma=0.5, lam=1.0)) == pytest.approx([4.0, 5.0, 6.0], rel=1e-6)
    # λ = ½: G1 = 3 + ½·½·4 = 4; G0 = 3 + ½·¼·2 + ¼·¼·½·4 = 3.375
    assert flat(retrace(RATIOS, **Q, **NO_END, gamma=0.5, lam=0.5)) == pytest.approx([3.375, 4.0, 6.0], rel=1e-6)


def test_the_first_action_itself_is_not_corrected() -> None:
    never = np.full((3, 1), -200.0, np.float32)  # the target policy would do none of this
    assert flat(retrace(never, **Q, **NO_END, gamma=0.5)) == [3.0, 3.0, 6.0]  # r + ½ V' of each row
    assert flat(retrace(RATIOS, **Q, **NO_END, gamma=0.5, lam=0.0)) == [3.0, 3.0, 6.0]


def test_retrace_bootstraps_at_a_time_limit_and_not_after_death_and_nothing_crosses_either() -> None:
    assert flat(retrace(RATIOS, **Q, terminated=flags(), done=flags(1), gamma=0.5)) == pytest.approx([3.5, 3.0, 6.0])
    # row 1 dies: G1 = 2, c (G − Q) = ½·1; G0 = 1 + ½·4 + ½·½
    assert flat(retrace(RATIOS, **Q, terminated=flags(1), done=flags(1), gamma=0.5)) == pytest.approx([3.25, 2.0, 6.0])


def test_on_policy_with_q_equal_to_v_retrace_is_the_lambda_return() -> None:
    rng = np.random.default_rng(0)
    value = rng.normal(size=(12, 3)).astype(np.float32)
    reward, done = rng.normal(size=(11, 3)).astype(np.float32), np.zeros((11, 3), bool)
    fields = {"reward": reward, "next_value": value[1:], "terminated": done, "done": done, "gamma": 0.9, "lam": 0.7}
    ours = retrace(np.zeros_like(reward), q=value[:-1], **fields)
    np.testing.assert_allclose(ours, lambda_return(**fields), rtol=1e-5)


def test_tensors_come_back_as_tensors() -> None:
    tensors = {key: torch.from_numpy(array) for key, array in (Q | NO_END).items()}
    assert isinstance(retrace(torch.from_numpy(RATIOS), **tensors, gamma=0.5), torch.Tensor)
