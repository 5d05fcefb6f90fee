"""The limiter counts exactly, for any ratio, length and cutting of the inserts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.data import Limiter


def test_nothing_is_granted_before_min_fill() -> None:
    limiter = Limiter(1.0, min_fill=10)
    limiter.insert(10)
    assert limiter.credit == 0
    limiter.insert(1)
    assert limiter.credit == 1


def test_a_chunk_across_min_fill_counts_only_its_part_after_it() -> None:
    limiter = Limiter(2.0, min_fill=10)
    limiter.insert(13)
    assert limiter.credit == 6


@pytest.mark.parametrize(
    ("ratio", "granted"),
    [(0.25, 2_500_000), (1 / 3, 3_333_333), (0.1, 1_000_000), (2 / 3, 6_666_666), (4.0, 40_000_000)],
)
def test_ten_million_single_inserts_grant_exactly_the_ratio(ratio: float, granted: int) -> None:
    limiter = Limiter(ratio, min_fill=1)
    updates = 0
    limiter.insert(1)
    for _ in range(1000):
        limiter.insert(10_000)
        while limiter.credit > 0:
            limiter.updates += limiter.credit
        updates = limiter.updates
    assert updates == granted


def test_a_third_grants_on_every_third_insert_and_never_drifts() -> None:
    limiter, at = Limiter(1 / 3, min_fill=5), []
    for i in range(1, 300_006):
        limiter.insert(1)
        if limiter.credit > 0:
            limiter.spend()
            at.append(i)
        assert limiter.credit == 0
    assert at == list(range(8, 300_006, 3))  # 5 + 3, 5 + 6, …


@given(st.lists(st.integers(0, 500), max_size=50), st.sampled_from([0.25, 1 / 3, 0.7, 1.0, 3.5]), st.integers(1, 300))
def test_how_inserts_are_cut_into_chunks_does_not_matter(chunks: list[int], ratio: float, min_fill: int) -> None:
    cut, whole = Limiter(ratio, min_fill), Limiter(ratio, min_fill)
    for steps in chunks:
        cut.insert(steps)
    whole.insert(sum(chunks))
    assert cut.credit == whole.credit


def test_a_restored_limiter_has_the_same_credit() -> None:
    one, two = Limiter(0.3, 4), Limiter(0.3, 4)
    one.insert(100)
    one.spend()
    two.restore(one.state())
    assert two.credit == one.credit == 27  # ⌊0.3 · 96⌋ − 1


def test_the_smallest_ratio_still_grants() -> None:
    limiter = Limiter(1e-9, min_fill=1)
    limiter.insert(1_000_001)
    assert limiter.credit == 1
