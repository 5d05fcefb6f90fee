"""Exploration of deterministic policies μ(s), whose `out["action"]` lies in [−1, 1]; the env gets it rescaled to its
bounds. And of squashed Gaussian policies whose noise shall last.

    Gaussian             a = clip(μ(s) + clip(σ ε, ±c), ±1)
    Ornstein–Uhlenbeck   a = clip(μ(s) + x, ±1),  x ← x − θ x Δt + σ √Δt ε               x = 0 where an episode begins
    parameter noise      a = μ(s; w + σ ε);  σ ← α σ if d < δ, else σ / α                Plappert et al. 2018, section 3
                         d² = mean (μ(s; w) − μ(s; w + σ ε))²                            appendix C
    state-dependent      a = μ(s) + z(s)ᵀ (s ⊙ θ),  θ ~ N(0, 1) for n steps of a column  Raffin et al. 2021, section 3
    drifting Gaussian    a = tanh(μ(s) + σ(s) x),  x ← ρ x + √(1 − ρ²) ε                 x = ε where an episode begins

σ of the first two is the knob `noise`; the knob `random` ≥ 1 means uniform actions, as for warming up.

Ornstein–Uhlenbeck, state-dependent and drifting noise are each a `RuleWithMemory`.
Parameter noise is no rule: it is the vector of weights that acting reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.acting.rules import Arrays, Gaussian, SquashedGaussian
from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf


class Deterministic:
    """The action as it is; the other rules of this file add to it."""

    def __init__(self, leaf: Leaf):
        scale = SquashedGaussian(leaf)  # [−1, 1] ↔ the env's bounds, which it checks
        self.shape, self.to_env, self.from_env = leaf.shape, scale.to_env, scale.from_env

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        action = out["action"]
        if not greedy and knobs.get("random", 0.0) >= 1.0:
            action = rng.random(action.shape, dtype=np.float32) * 2 - 1
        elif not greedy:
            action = np.clip(action + self.noise(action.shape, rng, knobs), -1.0, 1.0)
        return {"action": action.reshape(len(action), *self.shape)}

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator, knobs: Mapping[str, float]) -> Any:
        """What is added to actions of this shape [B, d]."""
        return np.float32(0.0)


class GaussianNoise(Deterministic):
    """Independent noise in every step, each element within ±clip."""

    def __init__(self, leaf: Leaf, clip: float = math.inf):
        super().__init__(leaf)
        if not clip > 0:
            raise ConfigError(
                f"the noise of actions needs clip > 0, got {clip}. Use the knob noise=0 to act without it."
            )
        self.clip = clip

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator, knobs: Mapping[str, float]) -> Any:
        eps = rng.standard_normal(shape, dtype=np.float32)
        return np.clip(np.float32(knobs["noise"]) * eps, -self.clip, self.clip)


class OrnsteinUhlenbeck(Deterministic):
    """Noise that drifts from step to step, for each column by itself (Lillicrap et al. 2016, section 7)."""

    def __init__(self, leaf: Leaf, theta: float = 0.15, dt: float = 1.0):
        super().__init__(leaf)
        if not 0 < theta * dt < 2 or dt <= 0:
            raise ConfigError(
                "Ornstein–Uhlenbeck noise returns to 0 only if dt > 0 and 0 < theta · dt < 2, "
                f"got theta={theta}, dt={dt}."
            )
        self.theta, self.dt = theta, dt
        self.x = np.zeros((0, 0), np.float32)  # [B, d]; made with the first actions
        self._before = self.x  # what it was before the last call

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        self._before = self.x
        return super().__call__(out, rng, knobs, mask, greedy)

    def begin(self, first: np.ndarray) -> None:
        """Forget the noise of the columns where an episode begins; first: bool [B]."""
        if len(self.x) == len(first):
            self.x[first] = 0.0

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator, knobs: Mapping[str, float]) -> Any:
        if self.x.shape != shape:
            self.x = self._before = np.zeros(shape, np.float32)
        eps = rng.standard_normal(shape, dtype=np.float32)
        drift, spread = 1.0 - self.theta * self.dt, knobs["noise"] * math.sqrt(self.dt)
        self.x = np.float32(drift) * self.x + np.float32(spread) * eps
        return self.x

    def undo(self, columns: np.ndarray) -> None:
        if self._before is not self.x:
            self.x[columns] = self._before[columns]

    def state(self) -> dict[str, Any]:
        return {"x": self.x.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.x = self._before = np.array(state["x"], np.float32)


class DriftingGaussian(SquashedGaussian):
    """A squashed Gaussian whose noise resembles that of the step before, for each column by itself: every x is standard
    normal, so each action alone is distributed as without memory, but many steps push in one direction.
    """

    def __init__(self, leaf: Leaf, memory: float):
        super().__init__(leaf)
        if not 0 < memory < 1:
            raise ConfigError(f"drifting noise needs 0 < memory < 1, got {memory}. Use SquashedGaussian for none.")
        self.memory = memory
        self.x = np.zeros((0, 0), np.float32)  # [B, d]; NaN: an episode begins
        self._before = self.x  # what it was before the last call

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        self._before = self.x
        return super().__call__(out, rng, knobs, mask, greedy)

    def begin(self, first: np.ndarray) -> None:
        """Forget the noise of the columns where an episode begins; first: bool [B]."""
        if len(self.x) == len(first):
            self.x[first] = np.nan

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if self.x.shape != shape:
            self.x = self._before = np.full(shape, np.nan, np.float32)
        eps = rng.standard_normal(shape, dtype=np.float32)
        drifted = np.float32(self.memory) * self.x + np.float32(math.sqrt(1.0 - self.memory**2)) * eps
        self.x = np.where(np.isnan(self.x), eps, drifted)
        return self.x

    def undo(self, columns: np.ndarray) -> None:
        if self._before is not self.x:
            self.x[columns] = self._before[columns]

    def state(self) -> dict[str, Any]:
        return {"x": self.x.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.x = self._before = np.array(state["x"], np.float32)


class StateDependentGaussian(Gaussian):
    """Noise that is a function of the state, another one every `every` steps of a column and in every episode: the same
    state gets the same action for a while, so that exploration is smooth. Each action alone is Gaussian.
    """

    def __init__(self, leaf: Leaf, every: int):
        super().__init__(leaf)
        self.every = every
        self.theta = np.zeros((0, 0, 0), np.float32)  # [B, features, d]; made with the first actions
        self.age = np.zeros(0, np.int64)  # steps since it was drawn [B]
        self._before = self.theta, self.age  # what they were before the last call

    def begin(self, first: np.ndarray) -> None:
        """Another function where an episode begins; first: bool [B]."""
        if len(self.age) == len(first):
            self.age[first] = self.every

    def __call__(
        self, out: Arrays, rng: np.random.Generator, knobs: Mapping[str, float], mask: np.ndarray | None, greedy: bool
    ) -> Arrays:
        mean = out["mean"]
        noise = np.zeros_like(mean) if greedy else self._noise(out["latent"], out["scale"], rng)
        eps = noise * np.exp(-out["log_std"])
        logp = (-0.5 * eps**2 - out["log_std"] - 0.5 * math.log(2 * math.pi)).sum(-1)
        return {"action": (mean + noise).reshape(len(mean), *self.shape), "logp": logp.astype(np.float32)}

    def _noise(self, latent: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        shape = (len(latent), *scale.shape)
        if self.theta.shape != shape:
            self.theta, self.age = np.zeros(shape, np.float32), np.full(len(latent), self.every)
        self._before = self.theta, self.age
        old = self.age >= self.every
        self.theta, self.age = self.theta.copy() if old.any() else self.theta, np.where(old, 0, self.age) + 1
        if old.any():
            self.theta[old] = rng.standard_normal((int(old.sum()), *scale.shape), dtype=np.float32)
        return np.einsum("bf,bfd->bd", latent, self.theta * scale)

    def undo(self, columns: np.ndarray) -> None:
        theta, age = self._before
        if age is not self.age:
            self.theta = self.theta.copy()
            self.theta[columns], self.age[columns] = theta[columns], age[columns]

    def state(self) -> dict[str, Any]:
        return {"theta": self.theta.copy(), "age": self.age.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.theta, self.age = np.array(state["theta"], np.float32), np.array(state["age"], np.int64)
        self._before = self.theta, self.age


def squashed(leaf: Leaf, memory: float) -> SquashedGaussian:
    """The rule of a squashed Gaussian policy, with or without drifting noise."""
    return DriftingGaussian(leaf, memory) if memory else SquashedGaussian(leaf)


class ParameterNoise:
    """Perturbed weights for acting: `perturbed` is another flat vector for the same network (`FlatNetwork.bound`).

    Call `perturb` where episodes begin (or once per round), and `adapt` with the actions of both networks before it.
    """

    def __init__(self, weights: Tensor, *, sigma: float = 0.1, distance: float = 0.1, alpha: float = 1.01):
        if not (sigma > 0 and distance > 0 and alpha > 1):
            raise ConfigError(
                f"parameter noise needs sigma > 0, distance > 0 and alpha > 1, got sigma={sigma}, "
                f"distance={distance}, alpha={alpha}."
            )
        self.weights, self.sigma, self.distance, self.alpha = weights, sigma, distance, alpha
        self.perturbed = weights.detach().clone()

    def perturb(self, rng: np.random.Generator) -> None:
        """New noise around the present weights, in place."""
        eps = torch.from_numpy(rng.standard_normal(self.weights.shape, dtype=np.float32))
        with torch.no_grad():
            self.perturbed.copy_(self.weights + self.sigma * eps.to(self.weights.device))

    def adapt(self, action: np.ndarray, perturbed_action: np.ndarray) -> float:
        """Move σ towards the wanted distance of the two networks' actions [N, d]; returns the present distance."""
        difference = np.asarray(action, np.float64) - perturbed_action
        distance = float(np.sqrt(np.mean(difference * difference)))
        self.sigma = self.sigma * self.alpha if distance < self.distance else self.sigma / self.alpha
        return distance

    def state(self) -> dict[str, Any]:
        return {"sigma": self.sigma, "perturbed": self.perturbed.clone()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sigma = float(state["sigma"])
        self.perturbed.copy_(torch.as_tensor(state["perturbed"], device=self.perturbed.device))
