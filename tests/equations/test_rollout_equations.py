"""From a rollout to rows: successors, advantages, sequences and minibatches, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery.equations.rollouts import as_rows, as_sequences, corrected, judged, shuffled, successors, values_of


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).unsqueeze(1)


def rollout() -> dict[str, Tensor]:
    """One column of four rows: it ends by a time limit after row 1, the true last observation is 20."""
    none = torch.zeros(4, 1, dtype=torch.bool)
    truncated = none.clone()
    truncated[1] = True
    return {
        "obs": column(10, 11, 12, 13),
        "action": torch.zeros(4, 1, dtype=torch.int64),
        "reward": column(1, 2, 3, 4),
        "terminated": none,
        "truncated": truncated,
        "valid": ~none,
        "first": none,
        "last_obs": torch.tensor([14.0]),
        "final_obs": torch.tensor([20.0]),
        "final_at": torch.tensor([[1, 0]]),
        "state": {"h": column(0, 1, 2, 3)},
    }


def test_the_successor_of_an_ended_row_is_its_final_observation_and_not_the_next_start() -> None:
    assert successors(rollout()).flatten().tolist() == [11, 20, 13, 14]


def test_successors_are_found_in_every_leaf_and_the_rollout_is_left_as_it_was() -> None:
    b = rollout()
    nested = b | {name: {"a": b[name], "b": b[name] + 1} for name in ("obs", "last_obs", "final_obs")}
    found = successors(nested)
    assert found["b"].flatten().tolist() == [12, 21, 14, 15]
    assert b["obs"].flatten().tolist() == [10, 11, 12, 13]


def test_advantages_and_targets_by_hand() -> None:
    # V(s) = s / 10, γ = 0.5, λ = 0.5:   V = 1, 1.1, 1.2, 1.3;  V(s') = 1.1, 2, 1.3, 1.4
    # δ = 1 + 0.55 − 1 = 0.55;  2 + 1 − 1.1 = 1.9;  3 + 0.65 − 1.2 = 2.45;  4 + 0.7 − 1.3 = 3.4
    # A = 0.55 + ¼ 1.9 = 1.025;  1.9 (the episode ends);  2.45 + ¼ 3.4 = 3.3;  3.4
    b = rollout()
    rows = judged(b, values_of(lambda obs: obs / 10, b), 0.5, 0.5)
    assert rows["advantage"].flatten().tolist() == pytest.approx([1.025, 1.9, 3.3, 3.4])
    assert rows["target"].flatten().tolist() == pytest.approx([2.025, 3.0, 4.5, 4.7])
    assert rows["value"].flatten().tolist() == pytest.approx([1.0, 1.1, 1.2, 1.3])


def test_a_rollout_of_another_policy_is_corrected_by_hand() -> None:
    # V and V(s') as above, γ = ½; π/μ = ½, 2, ½, 1, cut off at 1: ρ = c = ½, 1, ½, 1
    # ρδ = 0.275, 1.9, 1.225, 3.4;   v − V, from the end: 3.4;  1.225 + ½ ½ 3.4 = 2.075;  1.9 (an
    # end);  0.275 + ½ ½ 1.9 = 0.75
    # A = ρ (r + γ v' − V):  ½ (1 + ½ 3 − 1) = 0.75;  2 + ½ 2 − 1.1 = 1.9;  ½ (3 + ½ 4.7 − 1.2) =
    # 2.075;  4 + ½ 1.4 − 1.3 = 3.4
    # G: row 3: 4 + 0.7 = 4.7;  row 2 goes on, as 4.7 ≥ 1.3: 3 + ½ 4.7 = 5.35;  row 1: 2 + ½ 2 = 3;
    # row 0 goes on: 1 + ½ 3 = 2.5
    b = rollout() | {"logp": column(0, 0, 0, 0)}
    logp = column(0.5, 2.0, 0.5, 1.0).log()
    rows = corrected(b, values_of(lambda obs: obs / 10, b), logp, 0.5, 1.0, 1.0)
    assert rows["target"].flatten().tolist() == pytest.approx([1.75, 3.0, 3.275, 4.7])
    assert rows["advantage"].flatten().tolist() == pytest.approx([0.75, 1.9, 2.075, 3.4])
    assert rows["upgoing"].flatten().tolist() == pytest.approx([0.75, 1.9, 0.5 * 4.15, 3.4])
    assert rows["ratio"].flatten().tolist() == pytest.approx([0.5, 2.0, 0.5, 1.0])


def test_a_hole_is_skipped() -> None:
    # the middle of three rows is a hole: row 0 goes on with row 2.  V = 0, γ = 0.5, λ = 1:  A = 1 + ½ 4, (0), 4
    none = torch.zeros(3, 1, dtype=torch.bool)
    b = rollout() | {"terminated": none, "truncated": none, "reward": column(1, 9, 4), "valid": ~none}
    b |= {
        "obs": column(0, 0, 0),
        "action": torch.zeros(3, 1),
        "final_obs": torch.zeros(0),
        "final_at": torch.zeros(0, 2).long(),
    }
    b["valid"][1] = False
    rows = judged(b, values_of(torch.zeros_like, b), 0.5, 1.0)
    assert rows["advantage"].flatten().tolist() == [3.0, 0.0, 4.0]
    assert rows["valid"].flatten().tolist() == [1.0, 0.0, 1.0]


def test_rows_are_flat_and_sequences_start_from_their_recorded_state() -> None:
    b = rollout()
    rows = {"obs": torch.cat([b["obs"], b["obs"] + 100], 1)}
    assert as_rows(rows)["obs"].tolist() == [10, 110, 11, 111, 12, 112, 13, 113]
    two = {
        "first": b["first"].expand(4, 2),
        "state": {"h": column(0, 1, 2, 3).expand(4, 2)},
        "valid": b["valid"].expand(4, 2),
    }
    cut = as_sequences(rows, two, 2)
    assert cut["obs"].tolist() == [[10, 110, 12, 112], [11, 111, 13, 113]]
    assert cut["state"]["h"].tolist() == [[0, 0, 2, 2]]
    assert as_sequences(rows, two)["obs"].shape == (4, 2)


def test_a_pass_sees_every_row_once() -> None:
    rows = {"a": torch.arange(12), "b": torch.arange(12) * 2}
    parts = list(shuffled(rows, 3, np.random.default_rng(0)))
    assert [len(part["a"]) for part in parts] == [4, 4, 4]
    assert sorted(torch.cat([part["a"] for part in parts]).tolist()) == list(range(12))
    assert all(torch.equal(part["b"], 2 * part["a"]) for part in parts)
    assert parts[0]["a"].tolist() != [0, 1, 2, 3]
    sequences = list(shuffled({"a": torch.arange(8).reshape(2, 4)}, 2, np.random.default_rng(0), axis=1))
    assert all(torch.equal(part["a"][1] - part["a"][0], torch.full((2,), 4)) for part in sequences)
