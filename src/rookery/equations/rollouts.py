"""From a rollout to what is learnt from: the rows [T, B] of a store, judged, cut and shuffled.

    s'_t   the true successor: the final observation of an ended row, else what comes next in its column
    δ_t  = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)
    A_t  = δ_t + γ λ (1 − done_t) A_{t+1},        R_t = A_t + V(s_t)

`b` is a batch of a rollout store:
rows [T, B, …], `last_obs` [B, …], and `final_obs` [K, …] of the rows `final_at` [K, 2].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.core.tree import Tree, leaves, tree_map
from rookery.equations.policy import explained_variance
from rookery.equations.returns import gae, successor_values, upgo, vtrace

Rows = dict[str, Tree]
Values = tuple[Tensor, Tensor, Tensor]  # V of the rows [T, B], of last_obs [B], of final_obs [K]


def successors(b: Mapping[str, Tree]) -> Tree:
    """The true successor of every row, [T, B, …]; that of a row before a hole waits in the hole."""
    at = tuple(b["final_at"].unbind(1))

    def shifted(obs: Tensor, last: Tensor, final: Tensor) -> Tensor:
        return torch.cat([obs[1:], last[None]]).index_put(at, final)

    return tree_map(shifted, b["obs"], b["last_obs"], b["final_obs"])


def values_of(judge: Callable[[Tree], Tensor], b: Mapping[str, Tree]) -> Values:
    """What a critic without memory thinks of a rollout."""
    return judge(b["obs"]), judge(b["last_obs"]), judge(b["final_obs"])


def judged(b: Mapping[str, Any], values: Values, gamma: float, lam: float) -> Rows:
    """The rollout's observations and actions with advantage A, target R and value V;
    `explained` is how well V tells R.
    """
    value, last, final = values
    next_value = successor_values(value, last, final, b["final_at"], b["valid"])
    done = b["terminated"] | b["truncated"]
    advantage = gae(b["reward"], value, next_value, b["terminated"], done, gamma, lam, b["valid"])
    target, valid = advantage + value, b["valid"].float()
    explained = explained_variance(value, target, valid).expand_as(value)
    rows = {"obs": b["obs"], "action": b["action"], "advantage": advantage, "target": target}
    return rows | {"value": value, "valid": valid, "explained": explained}


def corrected(b: Mapping[str, Any], values: Values, logp: Tensor, gamma: float, rho_max: float, c_max: float) -> Rows:
    """`judged` for a rollout of another policy μ: V-trace advantages and targets, `upgoing` returns;
    logp [T, B]: log π(a|s) now.
    """
    value, last, final = values
    next_value = successor_values(value, last, final, b["final_at"], b["valid"])
    ends = b["terminated"], b["terminated"] | b["truncated"]
    target, advantage = vtrace(
        logp - b["logp"], b["reward"], value, next_value, *ends, gamma, rho_max, c_max, b["valid"]
    )
    better = upgo(b["reward"], value, next_value, *ends, gamma, b["valid"]) - value
    ratio, valid = (logp - b["logp"]).exp(), b["valid"].float()
    rows = {"obs": b["obs"], "action": b["action"], "advantage": advantage, "target": target, "logp": logp}
    rows |= {"upgoing": ratio.clamp(max=rho_max) * better, "ratio": ratio, "value": value, "valid": valid}
    return rows | {"explained": explained_variance(value, target, valid).expand_as(value)}


def ends_inside(b: Mapping[str, Any]) -> Tensor:
    """1 where the episode of a row ends within the rollout, 0 where it is still running, [T, B]."""
    ended = ((b["terminated"] | b["truncated"]) & b["valid"]).float()
    return ended.flip(0).cumsum(0).flip(0).clamp(max=1.0)


def as_rows(rows: Rows) -> Rows:
    """[T, B, …] → [T · B, …]."""
    return tree_map(lambda x: x.flatten(0, 1).contiguous(), rows)


def as_sequences(rows: Rows, b: Mapping[str, Any], length: int | None = None) -> Rows:
    """[T, B, …] → sequences [L, N, …] with the state [1, N, …] recorded before each; length None: one per column."""
    length = length or len(b["valid"])
    starts = tree_map(lambda x: x[::length].flatten(0, 1)[None], b["state"])
    cut = lambda x: x.unflatten(0, (-1, length)).transpose(0, 1).flatten(1, 2).contiguous()  # noqa: E731
    return tree_map(cut, rows | {"first": b["first"]}) | {"state": starts}


def shuffled(rows: Rows, parts: int, rng: np.random.Generator, axis: int = 0) -> Iterator[Rows]:
    """One pass over the rows (or, along axis 1, the sequences) in `parts` equal minibatches."""
    count = leaves(rows)[0].shape[axis]
    for part in torch.from_numpy(rng.permutation(count)).split(count // parts):
        yield tree_map(lambda x, part=part: x.index_select(axis, part), rows)
