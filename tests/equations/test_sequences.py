"""Targets inside sequences, by hand."""

import pytest
import torch

from rookery.equations.sequences import n_step_targets, sequence_priority


def col(*numbers):
    return torch.tensor(numbers, dtype=torch.float32).reshape(-1, 1)


def targets(n, terminated=(0, 0, 0, 0), done=(0, 0, 0, 0), valid=(1, 1, 1, 1), gamma=0.5):
    args = (col(*terminated).bool(), col(*done).bool(), col(*valid).bool())
    return n_step_targets(col(1, 2, 4, 8), col(10, 20, 30, 40), *args, gamma, n).squeeze(1).tolist()


def test_one_step_is_reward_plus_the_discounted_value():
    assert targets(1) == [1 + 5, 2 + 10, 4 + 15, 8 + 20]


def test_three_steps_stop_at_the_end_of_the_sequence():
    # row 0: 1 + 2/2 + 4/4 + 30/8; row 1: 2 + 4/2 + 8/4 + 40/8; row 2 has two rows left, row 3 one
    assert targets(3) == [1 + 1 + 1 + 3.75, 2 + 2 + 2 + 5, 4 + 4 + 10, 8 + 20]


def test_a_terminated_row_does_not_bootstrap_and_a_truncated_one_does():
    assert targets(3, terminated=(0, 1, 0, 0), done=(0, 1, 0, 0))[:2] == [1 + 1, 2]
    assert targets(3, done=(0, 1, 0, 0))[:2] == [1 + 1 + 20 / 4, 2 + 10]


def test_padding_is_not_summed():
    assert targets(4, valid=(1, 1, 0, 0))[:2] == [1 + 1 + 20 / 4, 2 + 10]


def test_the_priority_of_a_sequence_by_hand():
    td = torch.tensor([[1.0, -2.0], [-3.0, 50.0], [0.0, 60.0]])
    valid = torch.tensor([[1, 1], [1, 0], [1, 0]]).bool()
    # 0.9 · 3 + 0.1 · 4/3; 0.9 · 2 + 0.1 · 2
    assert sequence_priority(td, valid, 0.9).tolist() == pytest.approx([2.7 + 0.4 / 3, 2.0])
