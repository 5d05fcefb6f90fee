"""Log-probabilities and entropies of the action distributions; every result is summed over the parts of one action.

    categorical       log p_a = l_a − log Σ exp l                        H = −Σ p log p
    multi-discrete    independent categoricals, their logits side by side in the last dimension: sums over the heads
    Bernoulli         log p = log σ(±l) per bit                          H = softplus(l) − l σ(l)
    Gaussian          −½ ((a − μ) / σ)² − log σ − ½ log 2π               H = ½ + ½ log 2π + log σ
    squashed          a = tanh u, u Gaussian: log p(a) = log p(u) − Σ log(1 − tanh² u)
    divergence        KL(old ‖ new) = Σ p_old (log p_old − log p_new), in closed form
    joint             the parts of a Dict or Tuple are independent: log p = Σ_k log p_k    H = Σ_k H_k    KL = Σ_k KL_k

Straight-line torch without branches on data and without torch.distributions, so that make_fx can trace it.

Masks are 1 where an action is legal (bool, int or float). An illegal action has probability exactly 0, adds 0 to the
entropy and receives gradient 0. Its logit becomes −1e9, not −∞: 0 · (−1e9) is 0 where 0 · ∞ would be NaN, forwards and
backwards. A row without any legal action (padding, a hole, a terminal state) counts as all legal: a finite distribution
that nobody uses, instead of NaN for the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rookery.core.spec import Leaf
from rookery.core.tree import Tree, flatten, walk

_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_IMPOSSIBLE = -1e9  # exp(−1e9) is 0 in every dtype, and a sum over many heads stays finite


def legal(mask: Tensor) -> Tensor:
    """The mask as bool; rows of the last dimension without any legal action become all legal."""
    allowed = mask != 0
    return allowed | ~allowed.any(-1, keepdim=True)


def masked_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Logits of a distribution that never chooses an illegal action."""
    if mask is None:
        return logits
    return torch.where(legal(mask), logits, max(_IMPOSSIBLE, torch.finfo(logits.dtype).min / 2))


def categorical_logp(logits: Tensor, action: Tensor, mask: Tensor | None = None) -> Tensor:
    """log π(action); logits […, n], action int64 […] from 0. An illegal action gives about −1e9, whose exp is 0."""
    return _at(masked_logits(logits, mask).log_softmax(-1), action)


def categorical_entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """H in nats, over the legal actions."""
    return _entropy(masked_logits(logits, mask).log_softmax(-1))


def categorical(logits: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(log π(action), H) from one log-softmax."""
    logp = masked_logits(logits, mask).log_softmax(-1)
    return _at(logp, action), _entropy(logp)


def multi_categorical_logp(logits: Tensor, action: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """Σ_h log π_h(action_h); logits and mask […, Σ sizes], action int64 […, heads]."""
    heads = zip(_heads(logits, sizes, mask), action.unbind(-1), strict=True)
    return torch.stack([_at(logp, chosen) for logp, chosen in heads], -1).sum(-1)


def multi_categorical_entropy(logits: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """Σ_h H_h: the heads are independent."""
    return torch.stack([_entropy(logp) for logp in _heads(logits, sizes, mask)], -1).sum(-1)


def multi_categorical(
    logits: Tensor, action: Tensor, sizes: Sequence[int], mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(Σ_h log π_h(action_h), Σ_h H_h) from one log-softmax per head."""
    heads = _heads(logits, sizes, mask)
    logp = [_at(head, chosen) for head, chosen in zip(heads, action.unbind(-1), strict=True)]
    return torch.stack(logp, -1).sum(-1), torch.stack([_entropy(head) for head in heads], -1).sum(-1)


def logp_entropy(
    kind: str, sizes: Sequence[int], params: Mapping[str, Tensor], action: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(log π(action), H) of the distribution that fits a kind of action space, `Leaf.kind` and `Leaf.sizes`.

    params holds `logits`, or `mean` and `log_std` for "box" (not squashed), with all parts of an action in the last
    dimension; the action keeps the shape of its space. Only discrete and multi-discrete actions have masks.
    """
    if kind == "discrete":
        return categorical(params["logits"], action, mask)
    if kind == "multi_discrete":
        return multi_categorical(params["logits"], action, sizes, mask)
    if kind == "multi_binary":
        logits = params["logits"]
        return bernoulli_logp(logits, action.reshape(logits.shape)), bernoulli_entropy(logits)
    mean, log_std = params["mean"], params["log_std"]
    return gaussian_logp(action.reshape(mean.shape), mean, log_std), gaussian_entropy(log_std.expand_as(mean))


def divergence(
    kind: str, sizes: Sequence[int], old: Mapping[str, Tensor], new: Mapping[str, Tensor], mask: Tensor | None = None
) -> Tensor:
    """KL(old ‖ new) of two distributions of one action, whose parameters are those of `logp_entropy`."""
    if kind == "box":
        return gaussian_divergence(old["mean"], old["log_std"], new["mean"], new["log_std"])
    if kind == "multi_binary":
        return bernoulli_divergence(old["logits"], new["logits"])
    pairs = zip(_heads(old["logits"], sizes, mask), _heads(new["logits"], sizes, mask), strict=True)
    return torch.stack([(p.exp() * (p - q)).sum(-1) for p, q in pairs], -1).sum(-1)


def joint_logp_entropy(
    spec: Tree, params: Mapping[str, Tensor], action: Tree, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`logp_entropy` of the action of a whole space: a leaf, or a tree of leaves with an action in every one.

    The parameters of the part at `path` are called `path/logits` and so on; the mask [..., Σ] holds those of the
    discrete and multi-discrete parts side by side, in the order of the space.
    """
    if isinstance(spec, Leaf):
        return logp_entropy(spec.kind, spec.sizes, params, action, mask)
    actions, masks = flatten(action), _masks_of(spec, mask)
    parts = [
        logp_entropy(leaf.kind, leaf.sizes, _part_of(params, path), actions[path], masks.get(path))
        for path, leaf in walk(spec)
    ]
    logps, entropies = zip(*parts)
    return torch.stack(logps).sum(0), torch.stack(entropies).sum(0)


def joint_divergence(
    spec: Tree, old: Mapping[str, Tensor], new: Mapping[str, Tensor], mask: Tensor | None = None
) -> Tensor:
    """KL(old ‖ new) of two distributions of the action of a whole space, as in `joint_logp_entropy`."""
    if isinstance(spec, Leaf):
        return divergence(spec.kind, spec.sizes, old, new, mask)
    masks = _masks_of(spec, mask)
    parts = [
        divergence(leaf.kind, leaf.sizes, _part_of(old, path), _part_of(new, path), masks.get(path))
        for path, leaf in walk(spec)
    ]
    return torch.stack(parts).sum(0)


def _part_of(params: Mapping[str, Tensor], path: str) -> dict[str, Tensor]:
    """The parameters of one part of a tree of actions."""
    return {name[len(path) + 1 :]: x for name, x in params.items() if name.rpartition("/")[0] == path}


def _masks_of(spec: Tree, mask: Tensor | None) -> dict[str, Tensor]:
    """path → its own mask, for the parts of a tree of actions that can have one."""
    if mask is None:
        return {}
    choices = {path: n for path, leaf in walk(spec) if (n := leaf.choices)}
    return dict(zip(choices, mask.split(list(choices.values()), -1)))


def bernoulli_divergence(old: Tensor, new: Tensor) -> Tensor:
    """Σ_i KL(old ‖ new) of the bits with these logits: σ(l) (l − l') + softplus(l') − softplus(l)."""
    return (torch.sigmoid(old) * (old - new) + F.softplus(new) - F.softplus(old)).sum(-1)


def gaussian_divergence(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Σ_i log σ' − log σ + (σ² + (μ − μ')²) / 2 σ'² − ½ of diagonal Gaussians, the new ones primed."""
    spread = (2.0 * old_log_std).exp() + (old_mean - mean).square()
    return (log_std - old_log_std + 0.5 * spread * (-2.0 * log_std).exp() - 0.5).sum(-1)


def bernoulli_logp(logits: Tensor, action: Tensor) -> Tensor:
    """Σ_i log p(bit i); logits and action (0 or 1, any dtype) […, bits]."""
    return F.logsigmoid(logits * (2.0 * action - 1.0)).sum(
        -1
    )  # log σ(l) for 1, log σ(−l) for 0: no 1 − σ, no cancellation


def bernoulli_entropy(logits: Tensor) -> Tensor:
    """Σ_i H of the bits, in nats."""
    return (F.softplus(logits) - logits * torch.sigmoid(logits)).sum(-1)


def gaussian_logp(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log N(action; mean, σ²) with a diagonal covariance; log_std broadcasts against mean […, d]."""
    z = (action - mean) * torch.exp(-log_std)
    return (-0.5 * z * z - log_std - _HALF_LOG_2PI).sum(-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """H in nats, of the shape of log_std without its last dimension: it does not depend on the mean."""
    return (log_std + (0.5 + _HALF_LOG_2PI)).sum(-1)


def squashed_gaussian(mean: Tensor, log_std: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """(action, log π(action)) of action = tanh(mean + σ eps), eps standard normal (Haarnoja et al. 2018, eq. 21).

    The density is over (−1, 1), before any scaling to the bounds of the env. Gradient flows through the sample to mean
    and log_std.
    """
    u = mean + torch.exp(log_std) * eps
    logp = -0.5 * eps * eps - log_std - _HALF_LOG_2PI - _log_tanh_slope(u)
    return torch.tanh(u), logp.sum(-1)


def squashed_gaussian_logp(u: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """log π(tanh u) for a given u. It takes u and not the action, because atanh is lost where tanh rounds to ±1."""
    return gaussian_logp(u, mean, log_std) - _log_tanh_slope(u).sum(-1)


def _log_tanh_slope(u: Tensor) -> Tensor:
    """log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), finite for every u;
    in float32 1 − tanh² is 0 beyond |u| = 9.
    """
    return 2.0 * (_LOG_2 - u - F.softplus(-2.0 * u))


def _heads(logits: Tensor, sizes: Sequence[int], mask: Tensor | None) -> list[Tensor]:
    """Log-probabilities of each head, masked by its own part of the mask."""
    parts = logits.split(list(sizes), -1)
    masks = [None] * len(sizes) if mask is None else mask.split(list(sizes), -1)
    return [masked_logits(part, own).log_softmax(-1) for part, own in zip(parts, masks)]


def _at(logp: Tensor, action: Tensor) -> Tensor:
    return logp.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def _entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * logp).sum(-1)
