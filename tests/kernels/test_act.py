"""Kernels of acting: the rules by hand and against plain numpy, and the hyperbolic tangent."""

import math

import numpy as np
import pytest

from rookery.kernels.act import _tanh, categorical, epsilon_greedy


def test_epsilon_greedy_by_hand():
    q = np.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0], [5.0, 1.0, 2.0]], np.float32)
    coins = np.array([0.5, 0.05, 0.0999, 0.9, 0.34, 0.999])  # rows 1 and 2 explore: ⌊0.34 · 3⌋ = 1, ⌊0.999 · 3⌋ = 2
    action = np.full(3, -1)
    epsilon_greedy(q, coins, 0.1, action)
    assert action.tolist() == [1, 1, 2]  # of equal values the first


@pytest.mark.parametrize("rows", [1, 5])
def test_epsilon_greedy_equals_numpy(rows):
    rng = np.random.Generator(np.random.PCG64(rows))
    for epsilon in (0.0, 0.3, 1.0):
        q, coins = rng.normal(size=(rows, 4)).astype(np.float32), rng.random(2 * rows)
        action = np.zeros(rows, np.int64)
        epsilon_greedy(q, coins, epsilon, action)
        random = (coins[rows:] * 4).astype(np.int64)
        assert action.tolist() == np.where(coins[:rows] < epsilon, random, q.argmax(-1)).tolist()


def test_categorical_by_hand():
    logits = np.log(np.array([[1, 2, 1], [1, 2, 1], [1, 2, 1], [1, 2, 1]], np.float32)) + np.float32(50)
    action, logp = np.zeros(4, np.int64), np.zeros(4, np.float32)
    categorical(logits, np.array([0.0, 0.249, 0.26, 0.76]), action, logp)
    assert action.tolist() == [0, 0, 1, 2]
    assert logp.tolist() == pytest.approx([math.log(0.25), math.log(0.25), math.log(0.5), math.log(0.25)], abs=1e-5)


def test_categorical_has_the_probabilities_of_softmax():
    rng, n = np.random.Generator(np.random.PCG64(3)), 100_000
    logits = np.array([0.3, -1.0, 2.0, 0.0], np.float32)
    action, logp = np.zeros(n, np.int64), np.zeros(n, np.float32)
    categorical(np.tile(logits, (n, 1)), rng.random(n), action, logp)
    p = np.exp(logits) / np.exp(logits).sum()
    assert np.bincount(action) / n == pytest.approx(p, abs=0.006)
    assert np.exp(logp) == pytest.approx(p[action], rel=1e-5)


def test_categorical_never_chooses_what_is_impossible():
    logits = np.array([[0.0, 0.1, -1e9, -1e9]] * 2, np.float32)
    action, logp = np.zeros(2, np.int64), np.zeros(2, np.float32)
    categorical(logits, np.array([1 - 2.0**-53, 1.0]), action, logp)
    assert action.tolist() == [1, 1]


def test_tanh_is_right_to_half_a_millionth_and_never_beyond_one():
    x = np.concatenate([np.linspace(-12, 12, 100_001), [0.0, 1e-30, -1e-8, 1e30, np.inf, -np.inf]]).astype(np.float32)
    found = x.copy()
    _tanh(found)
    assert np.abs(found - np.tanh(x.astype(np.float64))).max() < 5e-7
    assert np.abs(found).max() == 1.0
    assert (found[x < 0] <= 0).all()
    assert found[x == 0].tolist() == [0.0] * int((x == 0).sum())
    small = np.abs(x) < 1e-3
    assert found[small] == pytest.approx(x[small], rel=1e-6)
    bad = np.array([np.nan], np.float32)
    _tanh(bad)
    assert np.isnan(bad[0])
