"""Which cases of a parametrised test run where: the fast part has one of each kind, the slow part one of everything
that differs, the full matrix all of them."""

import pytest


def slow_but(cases, *quick):
    """The cases for `pytest.mark.parametrize`; all but `quick` are slow tests."""
    return _marked(cases, quick, pytest.mark.slow)


def matrix_but(cases, *kept):
    """The cases for `pytest.mark.parametrize`; all but `kept` run in the full matrix alone."""
    return _marked(cases, kept, pytest.mark.matrix)


def _marked(cases, unmarked, mark):
    missing = [case for case in unmarked if case not in cases]
    assert not missing, f"not among the cases: {missing}"
    return [case if case in unmarked else pytest.param(*_unpacked(case), marks=mark) for case in cases]


def _unpacked(case):
    return case if isinstance(case, tuple) else (case,)
