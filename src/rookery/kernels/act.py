"""Acting of small networks: all layers of a perceptron in one call, on the live weights;
and the rules that choose an action.

A torch module costs microseconds per layer and call whatever its size, and acting is one call per env step. Eight rows
(of a small batch: eight outputs of one row) are summed side by side, which keeps the processor busy, each sum in the
order of its inputs: the result depends neither on the batch nor on vector widths nor on where the arrays lie in memory.

    tanh x ≈ x P(x²) / Q(x²) on |x| ≤ 8.5, where it is 1 for float32: own least-squares fit, 4e-7 off at most. The
    library's takes three times as long as everything else in a small network.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import config, njit

NONE, RELU, TANH = 0, 1, 2  # activations
_END = np.float32(8.5)
_P = tuple(
    map(
        np.float32,
        (0.9999999657, 0.12949757057, 0.0029537300279, 9.5723112468e-06, -1.3714291825e-08, 2.0711020438e-11),
    )
)
_Q = tuple(map(np.float32, (1.0, 0.46283060401, 0.023897704805, 0.00023268229071)))
LANES, FEW = 8, 3  # rows computed side by side, and from how many on that is quicker
N_IN, N_OUT, WEIGHT, BIAS, ACTIVATION = range(5)  # of a layer; weight and bias are offsets into the flat vector


def _side_by_side(signature: str) -> Any:
    """njit, and equal operations on neighbouring numbers become one instruction.

    Compiled here: numba's switch for that is global.
    """

    def compile_now(function: Any) -> Any:
        settings: Any = config
        before, settings.SLP_VECTORIZE = settings.SLP_VECTORIZE, 1
        try:
            return njit(signature, cache=True)(function)
        finally:
            settings.SLP_VECTORIZE = before

    return compile_now


@njit(cache=True)
def perceptron(x: np.ndarray, flat: np.ndarray, layers: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    """out[b] = a_L(W_L … a_1(W_1 x[b] + b_1) … + b_L). layers int64 [L, 5]; scratch float32 [3, widest, LANES]."""
    rows = len(x)
    for start in range(0, rows, LANES):
        count = min(LANES, rows - start)
        if count < FEW:
            for b in range(start, start + count):
                _one(x[b], flat, layers, scratch, out[b])
        else:
            _block(x[start : start + count], flat, layers, scratch, out[start : start + count])


@njit(cache=True)
def _one(x: np.ndarray, flat: np.ndarray, layers: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    """One row through all layers."""
    last, source = len(layers) - 1, x
    for i in range(last + 1):
        into = out if i == last else scratch[i % 2].reshape(-1)
        n_out = layers[i, N_OUT]
        _linear(source[: layers[i, N_IN]], flat, n_out, layers[i, WEIGHT], layers[i, BIAS], into)
        _activate(into[:n_out], layers[i, ACTIVATION])
        source = into


@njit(cache=True)
def _block(x: np.ndarray, flat: np.ndarray, layers: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    """Up to LANES rows through all layers, one row in each lane."""
    count, last, source = len(x), len(layers) - 1, scratch[2]
    for k in range(x.shape[1]):
        for b in range(count):
            source[k, b] = x[b, k]
    for i in range(last + 1):
        into = scratch[i % 2]
        n_in, n_out, bias = layers[i, N_IN], layers[i, N_OUT], layers[i, BIAS]
        weight = flat[layers[i, WEIGHT] : layers[i, WEIGHT] + n_in * n_out]
        _lanes(source[:n_in], weight, flat[bias : bias + n_out], into[:n_out])
        _activate(into[:n_out].reshape(-1), layers[i, ACTIVATION])
        source = into
    for b in range(count):
        for j in range(out.shape[1]):
            out[b, j] = source[j, b]


@_side_by_side("void(f4[:,::1], f4[::1], f4[::1], f4[:,::1])")
def _lanes(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    """out[j, b] = bias[j] + Σ_k weight[j n + k] x[k, b] for 8 lanes b, two outputs j at a time."""
    n, n_out = len(x), len(bias)
    for j in range(0, n_out, 2):
        other = min(j + 1, n_out - 1)  # the last of an odd number is computed twice
        r, q = weight[j * n : (j + 1) * n], weight[other * n : (other + 1) * n]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = bias[j]
        t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = bias[other]
        for k in range(n):
            v, w, y = r[k], q[k], x[k]
            s0 += v * y[0]
            s1 += v * y[1]
            s2 += v * y[2]
            s3 += v * y[3]
            s4 += v * y[4]
            s5 += v * y[5]
            s6 += v * y[6]
            s7 += v * y[7]
            t0 += w * y[0]
            t1 += w * y[1]
            t2 += w * y[2]
            t3 += w * y[3]
            t4 += w * y[4]
            t5 += w * y[5]
            t6 += w * y[6]
            t7 += w * y[7]
        into = out[j]
        into[0], into[1], into[2], into[3], into[4], into[5], into[6], into[7] = s0, s1, s2, s3, s4, s5, s6, s7
        into = out[other]
        into[0], into[1], into[2], into[3], into[4], into[5], into[6], into[7] = t0, t1, t2, t3, t4, t5, t6, t7


@njit(cache=True)
def _activate(x: np.ndarray, activation: int) -> None:
    if activation == RELU:
        for j in range(len(x)):
            if x[j] < 0:  # NaN stays, as in torch
                x[j] = 0
    elif activation == TANH:
        _tanh(x)


@njit(cache=True)
def _tanh(x: np.ndarray) -> None:
    for j in range(len(x)):
        z = min(max(x[j], -_END), _END) if x[j] == x[j] else x[j]  # NaN stays
        y = z * z
        top = _P[0] + y * (_P[1] + y * (_P[2] + y * (_P[3] + y * (_P[4] + y * _P[5]))))
        z = z * top / (_Q[0] + y * (_Q[1] + y * (_Q[2] + y * _Q[3])))
        x[j] = min(max(z, np.float32(-1)), np.float32(1)) if z == z else z


@njit(cache=True)
def _linear(x: np.ndarray, flat: np.ndarray, n_out: int, weight: int, bias: int, out: np.ndarray) -> None:
    n, whole = len(x), n_out - n_out % 8
    for j in range(0, whole, 8):  # slices, not sums of indices: those would each be tested for being negative
        at = weight + j * n
        r0, r1, r2 = flat[at : at + n], flat[at + n : at + 2 * n], flat[at + 2 * n : at + 3 * n]
        r3, r4, r5 = flat[at + 3 * n : at + 4 * n], flat[at + 4 * n : at + 5 * n], flat[at + 5 * n : at + 6 * n]
        r6, r7 = flat[at + 6 * n : at + 7 * n], flat[at + 7 * n : at + 8 * n]
        start = flat[bias + j : bias + j + 8]
        s0, s1, s2, s3, s4, s5, s6, s7 = start[0], start[1], start[2], start[3], start[4], start[5], start[6], start[7]
        for k in range(n):
            xk = x[k]
            s0 += r0[k] * xk
            s1 += r1[k] * xk
            s2 += r2[k] * xk
            s3 += r3[k] * xk
            s4 += r4[k] * xk
            s5 += r5[k] * xk
            s6 += r6[k] * xk
            s7 += r7[k] * xk
        into = out[j : j + 8]
        into[0], into[1], into[2], into[3], into[4], into[5], into[6], into[7] = s0, s1, s2, s3, s4, s5, s6, s7
    for j in range(whole, n_out):
        row = flat[weight + j * n : weight + (j + 1) * n]
        total = flat[bias + j]
        for k in range(n):
            total += row[k] * x[k]
        out[j] = total


@njit(cache=True)
def epsilon_greedy(q: np.ndarray, coins: np.ndarray, epsilon: float, action: np.ndarray) -> None:
    """action[b] = argmax q[b], or ⌊coins[N + b] · actions⌋ where coins[b] < epsilon. coins: [2 N] in [0, 1)."""
    rows, actions = q.shape
    for b in range(rows):
        if coins[b] < epsilon:
            action[b] = int(coins[rows + b] * actions)
            continue
        best = 0
        for j in range(1, actions):
            if q[b, j] > q[b, best]:
                best = j
        action[b] = best


@njit(cache=True)
def categorical(logits: np.ndarray, u: np.ndarray, action: np.ndarray, logp: np.ndarray) -> None:
    """action[b] ~ softmax(logits[b]) by inversion of the cumulative distribution at u[b] in [0, 1);
    logp its log-probability.
    """
    rows, actions = logits.shape
    for b in range(rows):
        top = logits[b, 0]
        for j in range(1, actions):
            top = max(top, logits[b, j])
        total = np.float32(0)
        for j in range(actions):
            total += math.exp(logits[b, j] - top)
        mark, reached, chosen = u[b] * total, np.float32(0), 0
        for j in range(actions):
            share = math.exp(logits[b, j] - top)
            reached += share
            if share > 0:  # the product above may round up to the total: even then nothing impossible is chosen
                chosen = j
            if reached > mark:
                break
        action[b] = chosen
        logp[b] = logits[b, chosen] - top - math.log(total)
