"""Acting of small networks: all layers of a perceptron in one call, on the live weights; and the rules that choose an action.

A torch module costs microseconds per layer and call whatever its size, and acting is one call per env step. Eight outputs
are summed side by side, which keeps the processor busy, each of them in the order of its inputs: the result depends
neither on the batch nor on vector widths nor on where the arrays lie in memory.

    tanh x ≈ x P(x²) / Q(x²) on |x| ≤ 8.5, where it is 1 for float32: own least-squares fit, 4e-7 off at most. The library's takes
    three times as long as everything else in a small network.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

NONE, RELU, TANH = 0, 1, 2  # activations
_END = np.float32(8.5)
_P = tuple(
    map(
        np.float32,
        (0.9999999657, 0.12949757057, 0.0029537300279, 9.5723112468e-06, -1.3714291825e-08, 2.0711020438e-11),
    )
)
_Q = tuple(map(np.float32, (1.0, 0.46283060401, 0.023897704805, 0.00023268229071)))
N_IN, N_OUT, WEIGHT, BIAS, ACTIVATION = range(5)  # of a layer; weight and bias are offsets into the flat vector


@njit(cache=True)
def perceptron(x: np.ndarray, flat: np.ndarray, layers: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
    """out[b] = a_L(W_L … a_1(W_1 x[b] + b_1) … + b_L). layers int64 [L, 5]; scratch float32 [2, widest layer]."""
    last = len(layers) - 1
    for b in range(len(x)):
        source = x[b]
        for i in range(last + 1):
            into = out[b] if i == last else scratch[i % 2]
            n_out = layers[i, N_OUT]
            _linear(source[: layers[i, N_IN]], flat, n_out, layers[i, WEIGHT], layers[i, BIAS], into)
            if layers[i, ACTIVATION] == RELU:
                for j in range(n_out):
                    if into[j] < 0:  # NaN stays, as in torch
                        into[j] = 0
            elif layers[i, ACTIVATION] == TANH:
                _tanh(into[:n_out])
            source = into


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
    """action[b] ~ softmax(logits[b]) by inversion of the cumulative distribution at u[b] in [0, 1); logp its log-probability."""
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
