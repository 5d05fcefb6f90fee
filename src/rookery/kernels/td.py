"""The loss of Q-learning and its slope in one pass over a batch:
what `rookery.equations.td` needs where there is no tape.

It stands alone as each kernel does whose equation is written out in torch elsewhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def huber_rows(
    q: np.ndarray,
    action: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    delta: np.float32,
    slope: np.ndarray,
    td: np.ndarray,
    chosen: np.ndarray,
    loss: np.ndarray,
) -> None:
    """loss[0] = mean_i w_i huber(td_i), td_i = y_i − Q_i(a_i);
    fills td, chosen = Q_i(a_i) and slope = the loss differentiated by Q.

    All arrays are float32 but for the actions (int64).
    The slope is rounded step by step as autograd does it, the mean is summed in float64.
    """
    rows, total = len(action), 0.0
    share = np.float32(1.0) / np.float32(rows)
    slope[:] = 0.0
    for i in range(rows):
        a = action[i]
        if a < 0 or a >= q.shape[1]:
            raise IndexError("an action is out of bounds: there are fewer Q values")
        chosen[i] = q[i, a]
        td[i] = target[i] - q[i, a]
        size = abs(td[i])
        if size <= delta:
            total += np.float64(weight[i]) * 0.5 * np.float64(size) ** 2
        else:
            total += np.float64(weight[i]) * delta * (np.float64(size) - 0.5 * delta)
        slope[i, a] = -(share * weight[i]) * min(max(td[i], -delta), delta)
    loss[0] = total / rows
