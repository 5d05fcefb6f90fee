"""Value learning: choosing among Q values, temporal-difference errors and the losses on them.

    y = R + d · V(s')        R = Σ_{i<k} γ^i r_i,   d = γ^k · (1 − terminated),   k = the steps really taken
    td = y − Q(s, a)
    V(s) = max_a Q(s, a), or softly τ log Σ_a exp(Q(s, a) / τ)
    h(x) = sign(x) (√(|x| + 1) − 1) + ε x                     squeezes large returns; y = h(R + d · h⁻¹(V(s')))

One formula serves one-step and n-step data: what differs is in R and d, which belong to each sample (k is smaller near
the end of an episode). A truncated sample keeps its d. Losses are per sample; `weighted_mean` and `mean_valid` make
them one number.

Straight-line torch without branches on data, so that make_fx can trace it. Masks are 1 where an action is legal; a row
without any legal action (padding, a terminal state) counts as all legal, because it has to have some finite number that
nobody uses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rookery.core.counting import rows_of
from rookery.equations.distributions import categorical_logp, legal, masked_logits


def pick(table: Tensor, index: Tensor) -> Tensor:
    """table[…, index[…]]: the entry of the last dimension that index (int64) names."""
    return table.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def max_q(q: Tensor, mask: Tensor | None = None) -> Tensor:
    """max_a Q(s, a) over the legal actions (Watkins 1989)."""
    return _masked_q(q, mask).amax(-1)


def greedy_action(q: Tensor, mask: Tensor | None = None) -> Tensor:
    """argmax_a Q(s, a) over the legal actions, int64."""
    return _masked_q(q, mask).argmax(-1)


def double_q(q_online: Tensor, q_target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Q'(s, argmax_a Q(s, a)): chosen by one network, judged by the other (van Hasselt et al. 2016, eq. 4)."""
    return pick(q_target, greedy_action(q_online, mask))


def soft_value(q: Tensor, temperature: float, mask: Tensor | None = None) -> Tensor:
    """τ log Σ_a exp(Q(s, a) / τ) = Σ_a π(a|s) (Q(s, a) − τ log π(a|s)) for
    π = softmax(Q / τ), over the legal actions.
    """
    return temperature * (masked_logits(q / temperature, mask)).logsumexp(-1)


def munchausen_bonus(q: Tensor, action: Tensor, temperature: float, floor: float, mask: Tensor | None = None) -> Tensor:
    """τ log π(a|s) for π = softmax(Q / τ), not below `floor` ≤ 0 (Vieillard et al. 2020, eq. 2)."""
    return (temperature * categorical_logp(q / temperature, action, mask)).clamp(floor, 0.0)


def bootstrap_discount(gamma: float, steps: Tensor, terminated: Tensor) -> Tensor:
    """γ^k · (1 − terminated), with k [B] the steps that each sample really took."""
    return torch.pow(gamma, steps.to(torch.float32)) * (1.0 - terminated.to(torch.float32))


def td_error(q_sa: Tensor, reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """reward + discount · V(s') − Q(s, a); gradient to q_sa only (semi-gradient: Sutton & Barto 2018, eq. 9.7)."""
    return (reward + discount * next_value).detach() - q_sa


def n_step_td(
    q_sa: Tensor, reward: Tensor, next_value: Tensor, terminated: Tensor, steps: Tensor, gamma: float
) -> Tensor:
    """`td_error` of k-step samples: reward [B] is already the discounted sum of `steps` [B] rewards."""
    return td_error(q_sa, reward, bootstrap_discount(gamma, steps, terminated), next_value)


def double_td(
    q_sa: Tensor, reward: Tensor, discount: Tensor, q_online: Tensor, q_target: Tensor, mask: Tensor | None = None
) -> Tensor:
    """`td_error` with the value of `double_q`; q_online, q_target and mask are those of the successor."""
    return td_error(q_sa, reward, discount, double_q(q_online, q_target, mask))


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    """½ x² up to |x| = delta, delta (|x| − ½ delta) beyond (Huber 1964); its derivative is x clipped to ±delta."""
    return F.huber_loss(
        x, torch.zeros_like(x), reduction="none", delta=delta
    )  # one kernel: half the time of abs and where


def squared(x: Tensor) -> Tensor:
    """½ x², whose derivative is x: the same step as `huber` near 0."""
    return 0.5 * x * x


def rescale(x: Tensor, eps: float = 1e-3) -> Tensor:
    """h(x) = sign(x) (√(|x| + 1) − 1) + eps x (Pohlen et al. 2018, proposition A.2),
    written without its cancellation at 0.
    """
    return x / (torch.sqrt(x.abs() + 1.0) + 1.0) + eps * x


def unscale(x: Tensor, eps: float = 1e-3) -> Tensor:
    """h⁻¹(x) = sign(x) (((√(1 + 4 eps (|x| + 1 + eps)) − 1) / 2 eps)² − 1), the exact inverse of `rescale`.

    With w = 2 x / (√(…) + 1 + 2 eps) this is w (|w| + 2): as written in the paper, float32 loses half its digits.
    """
    root = torch.sqrt(1.0 + 4.0 * eps * (x.abs() + 1.0 + eps))
    w = 2.0 * x / (root + 1.0 + 2.0 * eps)
    return w * (w.abs() + 2.0)


def weighted_mean(x: Tensor, weight: Tensor, valid: Tensor | None = None) -> Tensor:
    """mean(weight · x): importance weights correct each sample before the mean (Schaul et al. 2016, section 3.4).

    Divided by the number of samples, not by the sum of the weights: those are already scaled to a maximum of 1.
    """
    return mean_valid(weight * x, valid)


def mean_valid(x: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over the valid rows, 0 if there are none; what a hole contains (also NaN) does not count."""
    if valid is None:
        return x.mean()
    mask = valid.to(torch.bool)
    return torch.where(mask, x, 0.0).sum() / rows_of(valid, mask)


def _masked_q(q: Tensor, mask: Tensor | None) -> Tensor:
    return q if mask is None else torch.where(legal(mask), q, float("-inf"))
