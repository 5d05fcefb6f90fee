"""Rules: how a network's outputs become an action.

Numpy and small kernels: torch's dispatch would cost more than the maths.

    argmax             a = argmax_a Q(s, a)
    ε-greedy           a coin per element; the random action is uniform over the *legal* actions;
                       of several choices (multi-discrete) a coin for each
    categorical        a ~ softmax(logits), several heads side by side; log π(a|s) is their sum
    Bernoulli          a_i ~ σ(logit_i)
    Gaussian           a = μ + σ ε, stored unclipped with its log-probability; the env gets it clipped
    joint              a rule for each part of a Dict or Tuple, independent of one another
    squashed Gaussian  a = tanh(μ + σ ε) in [−1, 1]; the env gets it rescaled to its bounds

Every rule: `rule(outputs, rng, knobs, mask, greedy) → {"action": …, "logp": …}`; outputs are never modified in place.
The drawn numbers do not depend on the mask, so a mask never shifts the stream. A rule that draws from a distribution
can give it to whoever looks at a policy: `distribution(outputs, knobs, mask)`, in torch's words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import distributions as dist

from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf
from rookery.core.tree import Tree, flatten, leaves, unflatten, walk
from rookery.equations.distributions import legal as legal_choices
from rookery.equations.distributions import masked_logits
from rookery.kernels import act as kernels

Arrays = dict[str, Any]  # of numpy; the action of a Dict or Tuple is a tree of them
Tensors = Mapping[str, torch.Tensor]
CHOSEN, BEST = "q_chosen", "q_best"  # what `EpsilonGreedy.tell` adds to the action
_LOG_2PI = math.log(2 * math.pi)


class Rule(Protocol):
    """How outputs become an action, and how a stored action and the env's become each other.

    Both directions know choices counted from 0, as networks do; the engine adds the start of a Discrete space.
    """

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays: ...

    def to_env(self, action: Any) -> Any:
        """What the env gets for a stored action."""
        ...

    def from_env(self, action: Any) -> Any:
        """The stored action for one that the env took:
        the inverse of `to_env` inside the env's bounds, for demonstrations.
        """
        ...


@runtime_checkable
class RuleWithMemory(Protocol):
    """What a rule that remembers something of each column has besides."""

    def begin(self, first: np.ndarray) -> None:
        """Before every call of the rule: first [B] is true where the observation starts an episode."""
        ...

    def undo(self, columns: np.ndarray) -> None:
        """After a call: nothing was done in these columns, so they remember what they did before it."""
        ...

    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


class Choosing:
    """A rule whose actions are those of the env."""

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return action

    def from_env(self, action: np.ndarray) -> np.ndarray:
        return action


class EpsilonGreedy(Choosing):
    """Greedy in `q`, with probability ε (a knob) a random legal action instead.

    `spread` > 0 gives each column its own ε (Ape-X): ε_i = ε^(1 + spread · i / (N − 1)).
    With `tell` it adds Q of the action and of the best one.
    """

    tell = False

    def __init__(self, spread: float = 0.0, column: int = 0, columns: int | None = None):
        self.spread, self.column, self.columns = spread, column, columns

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        q = out["q"]
        action = self.chosen(q, rng, knobs, mask, greedy)
        if not self.tell:
            return {"action": action}
        return {"action": action, CHOSEN: q[np.arange(len(q)), action], BEST: best_q(q, mask)}

    def chosen(
        self,
        q: np.ndarray,
        rng: np.random.Generator,
        knobs: Mapping[str, float],
        mask: np.ndarray | None,
        greedy: bool,
        parts: int = 1,
    ) -> np.ndarray:
        """Actions [N] for the rows of q [N, A]; of each column there are so many `parts`."""
        if mask is None and not greedy and self.spread == 0.0:
            action = np.empty(len(q), np.int64)
            kernels.epsilon_greedy(q, rng.random(2 * len(q)), knobs["epsilon"], action)
            return action
        mask = None if mask is None else allowed(mask)
        q = q if mask is None else np.where(mask, q, -np.inf)
        action = q.argmax(-1)
        if greedy:
            return action
        n, actions = q.shape
        coins = rng.random(2 * n)  # first half: explore or not; second half: which action
        which = (coins[n:] * actions).astype(np.int64) if mask is None else legal(coins[n:], mask)
        explores = coins[:n].reshape(-1, parts) < np.reshape(self.epsilon(knobs["epsilon"], n // parts), (-1, 1))
        return np.where(explores.ravel(), which, action)

    def epsilon(self, epsilon: float, n: int) -> Any:
        """One ε for all columns, or one per column."""
        total = self.columns or n
        if self.spread == 0.0 or total == 1:
            return epsilon
        column = self.column + np.arange(n)
        return epsilon ** (1.0 + self.spread * column / (total - 1))

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> dist.Distribution:
        """ε-greedy probabilities over the legal actions."""
        q = masked_logits(out["q"], mask)
        choices = torch.ones_like(q) if mask is None else legal_choices(mask).float()
        rows = q.shape[:-1]  # [N], or [] of one observation
        epsilon = np.broadcast_to(np.float32(self.epsilon(knobs["epsilon"], math.prod(rows))), rows or (1,))
        explored = torch.from_numpy(epsilon.reshape(*rows, 1).copy())
        best = torch.nn.functional.one_hot(q.argmax(-1), q.shape[-1])
        return dist.Categorical(probs=(1 - explored) * best + explored * choices / choices.sum(-1, keepdim=True))


class EpsilonGreedyParts(Choosing):
    """Several choices at once, `q` [B, K, A]: each by the same rule, with coins of its own, among its first n_k."""

    def __init__(self, one: EpsilonGreedy, sizes: tuple[int, ...]):
        self.one, self.sizes = one, sizes
        self._real = np.arange(max(sizes)) < np.array(sizes)[:, None]  # [K, A]

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        q = out["q"]
        rows, count, actions = q.shape
        if mask is not None or not self._real.all():
            mask = self._filled(mask, rows).reshape(rows * count, actions)
        flat = np.ascontiguousarray(q).reshape(rows * count, actions)
        chosen = self.one.chosen(flat, rng, knobs, mask, greedy, count)
        return {"action": chosen.reshape(rows, count)}

    def _filled(self, mask: np.ndarray | None, rows: int) -> np.ndarray:
        """bool [B, K, A]: what is legal; a choice without any legal action may do all that it has."""
        legal_ones = np.zeros((rows, *self._real.shape), np.bool_)
        legal_ones[:, self._real] = True if mask is None else mask > 0
        return legal_ones | (self._real & ~legal_ones.any(-1, keepdims=True))

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> list[dist.Distribution]:
        """One per choice."""
        masks = [None] * len(self.sizes) if mask is None else mask.split(self.sizes, -1)
        parts = [{"q": out["q"][..., k, :n]} for k, n in enumerate(self.sizes)]
        return [self.one.distribution(part, knobs, own) for part, own in zip(parts, masks)]


def best_q(q: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """max_a Q(s, a) over the legal actions [B]."""
    return (q if mask is None else np.where(allowed(mask), q, -np.inf)).max(-1).astype(np.float32)


def allowed(mask: np.ndarray) -> np.ndarray:
    """The mask as bool; a row without any legal action counts as all legal, as it does in the losses."""
    legal_ones = mask > 0
    return legal_ones | ~legal_ones.any(-1, keepdims=True)


def legal(u: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The ⌊u · #legal⌋-th legal action of each row: uniform for uniform u in [0, 1)."""
    counts = (mask > 0).cumsum(-1)
    rank = (u * counts[:, -1]).astype(np.int64)
    return (counts <= rank[:, None]).sum(-1).clip(max=mask.shape[-1] - 1)


class Categorical(Choosing):
    """One or several heads; logits are concatenated along the last axis."""

    def __init__(self, sizes: tuple[int, ...], single: bool):
        self.sizes, self.single = sizes, single
        self.edges = np.cumsum((0, *sizes))

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        logits = out["logits"]
        if mask is not None:
            masks = [allowed(mask[:, a:b]) for a, b in zip(self.edges, self.edges[1:])]
            logits = np.where(np.concatenate(masks, -1), logits, np.float32(-1e9))
        u = None if greedy else rng.random((len(logits), len(self.sizes)))
        if self.single:
            action, logp = draw(logits, None if u is None else u[:, 0])
            return {"action": action, "logp": logp}
        heads = [
            draw(logits[:, a:b], None if u is None else u[:, i])
            for i, (a, b) in enumerate(zip(self.edges, self.edges[1:]))
        ]
        actions, logps = zip(*heads)
        return {"action": np.stack(actions, -1), "logp": np.stack(logps).sum(0)}

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> Any:
        """One categorical, or one per head."""
        masks = [None] * len(self.sizes) if mask is None else mask.split(self.sizes, -1)
        heads = [
            dist.Categorical(logits=masked_logits(logits, part))
            for logits, part in zip(out["logits"].split(self.sizes, -1), masks)
        ]
        return heads[0] if self.single else heads


def draw(logits: np.ndarray, u: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(action, log-probability) by inversion of the cumulative distribution; the mode if u is None."""
    if u is not None:
        drawn, logp = np.empty(len(logits), np.int64), np.empty(len(logits), np.float32)
        kernels.categorical(np.ascontiguousarray(logits), np.ascontiguousarray(u), drawn, logp)
        return drawn, logp
    shifted = logits - logits.max(-1, keepdims=True)
    action = logits.argmax(-1)
    return action, (shifted[np.arange(len(logits)), action] - np.log(np.exp(shifted).sum(-1))).astype(np.float32)


class Bernoulli(Choosing):
    """Independent coins: multi-binary actions."""

    def __init__(self, leaf: Leaf):
        self.shape = leaf.shape

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        logits = out["logits"]
        p = 0.5 * (1.0 + np.tanh(0.5 * logits))  # σ(l) without overflow
        action = (logits > 0 if greedy else rng.random(p.shape) < p).astype(np.int8)
        signed = np.where(action > 0, logits, -logits)
        logp = (-np.logaddexp(0, -signed)).sum(-1).astype(np.float32)
        return {"action": action.reshape(len(logits), *self.shape), "logp": logp}

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> dist.Distribution:
        logits = shaped(out["logits"], self.shape)
        return dist.Independent(dist.Bernoulli(logits=logits), len(self.shape))


class Gaussian:
    """Unsquashed: the unclipped action is stored with its log-probability, the env gets the clipped one."""

    def __init__(self, leaf: Leaf):
        self.shape, self.low, self.high = leaf.shape, leaf.low, leaf.high

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        mean, log_std = out["mean"], out["log_std"]
        eps = np.zeros_like(mean) if greedy else rng.standard_normal(mean.shape, dtype=np.float32)
        logp = (-0.5 * eps**2 - log_std - 0.5 * _LOG_2PI).sum(-1)
        action = mean + np.exp(log_std) * eps
        return {"action": action.reshape(len(mean), *self.shape), "logp": logp.astype(np.float32)}

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> dist.Distribution:
        """Before it is clipped to the env's bounds."""
        mean, log_std = (shaped(out[name], self.shape) for name in ("mean", "log_std"))
        return dist.Independent(dist.Normal(mean, log_std.exp()), len(self.shape))

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return np.clip(action, self.low, self.high)

    def from_env(self, action: np.ndarray) -> np.ndarray:
        return action


class SquashedGaussian:
    """tanh of a Gaussian: actions in [−1, 1], rescaled for the env; knob `random` is the share of uniform actions."""

    def __init__(self, leaf: Leaf):
        bounded = leaf.low is not None and leaf.high is not None
        if not bounded or not (np.isfinite(leaf.low).all() and np.isfinite(leaf.high).all()):  # type: ignore[arg-type]
            raise ConfigError(
                "actions in [−1, 1] are rescaled to the env's, so its action space needs finite bounds, got "
                f"low={leaf.low}, high={leaf.high}. Use ppo, a2c or trpo, which need none, or give the space bounds "
                "with gymnasium.wrappers.TransformAction."
            )
        self.shape = leaf.shape
        self.middle = ((np.asarray(leaf.high) + leaf.low) / 2).astype(np.float32)
        self.half = ((np.asarray(leaf.high) - leaf.low) / 2).astype(np.float32)

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        mean = out["mean"]
        if greedy:
            action = np.tanh(mean)
        elif knobs.get("random", 0.0) >= 1.0:
            action = rng.random(mean.shape, dtype=np.float32) * 2 - 1
        else:
            action = np.tanh(mean + np.exp(out["log_std"]) * self.noise(mean.shape, rng))
        return {"action": action.reshape(len(mean), *self.shape)}

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> dist.Distribution:
        """Of the action as the env gets it."""
        mean, log_std = (shaped(out[name], self.shape) for name in ("mean", "log_std"))
        base = dist.Independent(dist.Normal(mean, log_std.exp()), len(self.shape))
        middle, half = torch.from_numpy(self.middle), torch.from_numpy(self.half)
        to_env = dist.AffineTransform(middle, half, event_dim=len(self.shape))
        squash = dist.IndependentTransform(dist.TanhTransform(cache_size=1), len(self.shape))
        return dist.TransformedDistribution(base, [squash, to_env])

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """ε of actions of this shape [B, d], standard normal."""
        return rng.standard_normal(shape, dtype=np.float32)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return self.middle + self.half * action

    def from_env(self, action: np.ndarray) -> np.ndarray:
        """Beyond the bounds: at the bound. A dimension without room (low = high) is 0."""
        room = np.where(self.half > 0, self.half, np.float32(1.0))
        return np.clip((action - self.middle) / room, -1.0, 1.0)


def shaped(rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """[…, d] as the space has it, […, *shape]."""
    return rows.reshape(*rows.shape[:-1], *shape)


class Joint:
    """The parts of a Dict or Tuple of actions, each by the rule of its own kind; log π(a|s) is the sum over them."""

    def __init__(self, spec: Tree):
        self.parts = [(path, rule_for(leaf), leaf.choices) for path, leaf in walk(spec)]
        self.names = [("mean", "log_std") if leaf.kind == "box" else ("logits",) for leaf in leaves(spec)]

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        actions, logps, at = {}, [], 0
        for (path, rule, choices), names in zip(self.parts, self.names):
            own = None if mask is None or not choices else mask[:, at : at + choices]
            made = rule({name: out[f"{path}/{name}"] for name in names}, rng, knobs, own, greedy)
            actions[path] = made["action"]
            logps.append(made["logp"])
            at += choices
        return {"action": unflatten(actions), "logp": np.stack(logps).sum(0)}

    def distribution(self, out: Tensors, knobs: Mapping[str, float], mask: Any) -> dict[str, Any]:
        """path of a part → its own."""
        drawn_from, at = {}, 0
        for (path, rule, choices), names in zip(self.parts, self.names):
            own = None if mask is None or not choices else mask[..., at : at + choices]
            part = {name: out[f"{path}/{name}"] for name in names}
            drawn_from[path] = rule.distribution(part, knobs, own)  # type: ignore[attr-defined]
            at += choices
        return drawn_from

    def to_env(self, action: Tree) -> Tree:
        arrays = flatten(action)
        return unflatten({path: rule.to_env(arrays[path]) for path, rule, _ in self.parts})

    def from_env(self, action: Tree) -> Tree:
        arrays = flatten(action)
        return unflatten({path: rule.from_env(arrays[path]) for path, rule, _ in self.parts})


def rule_for(action_spec: Tree) -> Rule:
    """The stochastic rule of a policy network, from the action space."""
    if not isinstance(action_spec, Leaf):
        return Joint(action_spec)
    if action_spec.kind == "box":
        return Gaussian(action_spec)
    if action_spec.kind == "multi_binary":
        return Bernoulli(action_spec)
    return Categorical(action_spec.sizes, single=action_spec.kind == "discrete")
