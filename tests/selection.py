"""Which cases of a parametrised test are fast: the fast part has one of each kind, the slow part all of them."""

import pytest


def slow_but(cases, *quick):
    """The cases for `pytest.mark.parametrize`; all but `quick` are slow tests."""
    missing = [case for case in quick if case not in cases]
    assert not missing, f"not among the cases: {missing}"

    def value(case):
        return case if case in quick else pytest.param(*_unpacked(case), marks=pytest.mark.slow)

    return [value(case) for case in cases]


def _unpacked(case):
    return case if isinstance(case, tuple) else (case,)
