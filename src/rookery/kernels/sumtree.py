"""Sum-tree: draws places in proportion to their mass, in O(log places).

    tree[1] = Σ mass        tree[k] = tree[2k] + tree[2k + 1]        tree[size + a] = mass of place a

`tree` is float64 [2 · size], size a power of two; tree[0] is unused. Every inner node is exactly the sum of its
children as they are, never corrected by a difference: so a tree that is rebuilt from its leaves is equal to the bit.
All kernels go level by level, so that the memory accesses of a batch do not wait for one another. No random numbers are
drawn here: uniforms come as arrays.

    mass of a priority p:   (p + ε)^α

`stamp` counts how often a place was filled;
an update that was computed from an earlier filling is recognised by it and ignored.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import njit

LARGEST = 3.4028234663852886e38  # of float32: sums of masses stay finite


@njit(cache=True)
def _climb(tree, node):
    """Recompute the sums above these leaves; overwrites node."""
    if node.shape[0] == 0:
        return
    levels = 0
    while tree.shape[0] >> (levels + 1) > 1:
        levels += 1
    for _ in range(levels):
        for i in range(node.shape[0]):
            k = node[i] >> 1
            node[i] = k
            tree[k] = tree[2 * k] + tree[2 * k + 1]


@njit(cache=True)
def rebuild(tree):
    """All sums from the leaves."""
    for k in range(tree.shape[0] // 2 - 1, 0, -1):
        tree[k] = tree[2 * k] + tree[2 * k + 1]


@njit(cache=True)
def bad(priority):
    """The number of the first priority that is negative, NaN, infinite or beyond float32, or −1."""
    for i in range(priority.shape[0]):
        if not 0.0 <= priority[i] <= LARGEST:
            return i
    return -1


@njit(cache=True)
def insert(tree, stamp, top, address, priority, alpha, epsilon):
    """Fill places, with a priority each, or all with the largest mass so far (top[0]) if `priority` is empty."""
    size = tree.shape[0] // 2
    node = np.empty(address.shape[0], np.int64)
    for i in range(address.shape[0]):
        mass = top[0]
        if priority.shape[0] > 0:
            mass = (priority[i] + epsilon) ** alpha
        node[i] = size + address[i]
        tree[node[i]] = mass
        stamp[address[i]] += 1
    for i in range(priority.shape[0]):
        top[0] = max(top[0], tree[node[i]])
    _climb(tree, node)


@njit(cache=True)
def remove(tree, address):
    """These places are not drawn any more."""
    size, n = tree.shape[0] // 2, 0
    node = np.empty(address.shape[0], np.int64)
    for i in range(address.shape[0]):
        if tree[size + address[i]] != 0.0:
            node[n] = size + address[i]
            tree[node[n]] = 0.0
            n += 1
    _climb(tree, node[:n])


@njit(cache=True)
def update(tree, stamp, top, address, seen, priority, alpha, epsilon):
    """New priorities for places that are still filled as when they were drawn (`seen`: their
    stamps then); returns how many.
    """
    size, n = tree.shape[0] // 2, 0
    node = np.empty(address.shape[0], np.int64)
    for i in range(address.shape[0]):
        k = size + address[i]
        if stamp[address[i]] == seen[i] and tree[k] > 0.0:
            tree[k] = (priority[i] + epsilon) ** alpha
            top[0] = max(top[0], tree[k])
            node[n] = k
            n += 1
    _climb(tree, node[:n])
    return n


@njit(cache=True)
def draw(tree, uniform, address, mass):
    """Place i is drawn from the i-th of n equal strata of the total mass, at uniform[i] in [0, 1) of it.

    A place without mass is never drawn, whatever rounding does at the edges; the total must be positive.
    """
    size, n = tree.shape[0] // 2, uniform.shape[0]
    for i in range(n):
        address[i], mass[i] = 1, (i + uniform[i]) / n * tree[1]  # on the way down: a node, and how far into it
    level = 1
    while level < size:
        for i in range(n):  # without branches, which no processor could predict
            node = 2 * address[i]
            left, right = tree[node], tree[node + 1]
            turn = ((mass[i] >= left) & (right > 0.0)) | (
                left <= 0.0
            )  # rounding may leave x ≥ left beside an empty right
            mass[i] -= left * turn
            address[i] = node + turn
        level *= 2
    for i in range(n):
        mass[i] = tree[address[i]]
        address[i] -= size


@njit(cache=True)
def weigh(mass, beta, weight):
    """Importance weights (N P_i)^−β / max_j (N P_j)^−β:
    N and the total cancel, so they are (min_j mass_j / mass_i)^β.
    """
    least = mass.min()
    for i in range(mass.shape[0]):
        weight[i] = (least / mass[i]) ** beta


@njit(cache=True)
def extent(leaves):
    """(places with mass, least mass among them, largest)."""
    count, least, largest = 0, np.inf, 0.0
    for i in range(leaves.shape[0]):
        if leaves[i] > 0.0:
            count += 1
            least = min(least, leaves[i])
            largest = max(largest, leaves[i])
    return count, least, largest
