"""The interquartile mean and its intervals, on numbers worked out by hand."""

import numpy as np
import pytest

from rookery.studies.statistics import band, interval, iqm, stratified_interval


def test_the_mean_of_the_middle_half_leaves_out_a_quarter_at_either_end():
    assert iqm([4.0, 1.0, 1000.0, 2.0]) == 3.0  # 1 and 1000 are left out: (2 + 4) / 2
    assert iqm([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0]) == 3.5  # 2, 3, 4, 5


def test_values_at_the_edge_of_the_middle_half_count_in_part():
    # five values: the middle half is [0.25, 0.75]; of the second and the fourth (each a fifth
    # wide) 0.15 of 0.2 lie inside
    assert iqm([0.0, 10.0, 20.0, 40.0, 1e6]) == pytest.approx((0.15 * 10 + 0.2 * 20 + 0.15 * 40) / 0.5)


def test_a_mean_has_the_same_bits_on_every_cpu():
    for values in np.random.default_rng(0).uniform(0, 500, (200, 10)):  # ¼ of ten: half of the third and of the eighth
        edges = [i / 10 for i in range(11)]
        weights = [min(edges[i + 1], 0.75) - max(edges[i], 0.25) for i in range(2, 8)]
        total = weight = 0.0
        for share, value in zip(weights, sorted(values)[2:8]):
            total, weight = total + share * value, weight + share
        assert iqm(values) == total / weight


def test_one_value_is_its_own_mean_and_interval():
    assert iqm([7.0]) == 7.0
    assert interval([7.0]) == (7.0, 7.0)


def test_columns_are_taken_one_by_one():
    both = np.array([[1.0, 10.0], [2.0, 40.0], [4.0, 20.0], [9.0, 0.0]])
    assert iqm(both).tolist() == [3.0, 15.0]


def test_the_interval_of_two_values_reaches_from_one_to_the_other():
    # a quarter of the draws is (0, 0) and a quarter (1, 1): both quantiles lie there
    assert interval([0.0, 1.0]) == (0.0, 1.0)


def test_the_interval_is_the_same_every_time_and_lies_around_the_mean():
    values = [3.0, 1.0, 2.0, 8.0, 5.0]
    assert interval(values) == interval(list(values))
    low, high = interval(values)
    assert 1.0 <= low < iqm(values) < high <= 8.0


def test_a_stratified_draw_never_takes_values_of_another_task():
    # within each task all values are equal, so every redraw is the same; a plain bootstrap over the six would vary
    assert stratified_interval([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]) == (0.5, 0.5)
    assert interval([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]) != (0.5, 0.5)


def test_a_stratified_interval_of_one_task_is_the_plain_one():
    values = [3.0, 1.0, 2.0, 8.0, 5.0]
    assert stratified_interval([values]) == interval(values)


def test_the_band_of_curves_that_agree_has_no_width_and_else_encloses_the_centre():
    curves = np.array([[1.0, 0.0], [1.0, 4.0], [1.0, 8.0], [1.0, 2.0], [1.0, 6.0]])
    low, high = band(curves)
    assert low[0] == pytest.approx(1.0)
    assert high[0] == pytest.approx(1.0)
    assert 0.0 <= low[1] < iqm(curves)[1] < high[1] <= 8.0
