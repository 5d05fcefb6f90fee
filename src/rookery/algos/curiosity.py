"""Curiosity: a bonus for what the learner cannot foresee yet,
as an addition to an on-policy algorithm (`algo.curiosity`).

    rnd   b_t  = ‖f̂(s'_t) − f(s'_t)‖²                       f fixed and random, f̂ learns it            (Burda 2018)
    icm   b_t  = ½ ‖f(φ(s_t), a_t) − φ(s'_t)‖²               φ learns to tell a_t from φ(s_t), φ(s'_t)   (Pathak 2017)
          L    = (1 − β) E[−log g(a_t | φ(s_t), φ(s'_t))] + β E[b_t];        rnd: L = E[b_t]

    i_t   = (1 − γ_I) b_t / √E[b²]                       running mean over the whole run
    A_t   = A^E_t + c_I A^I_t                            each with its own critic and discount (Burda 2018, section 2.3)

With `algo.rho_max` and `algo.c_max` (IMPALA, APPO) A^I and the target of its critic are those of V-trace, as A^E is.

The bonus's return goes on beyond the end of an episode unless `episodic`: being caught costs the novelty that a
new episode does not offer. Reward, critic, targets and their metrics are those without a bonus; only the advantage
of the policy's loss is another.

Not as in the papers: the bonus is scaled by its own root mean square and 1 − γ_I, not by the deviation of its returns,
so no filter is kept per env; the critic of the bonus is a network of its own; icm has this critic, too, and its
features learn from the actions only.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rookery.core.config.section import Section
from rookery.core.tree import Tree, tree_take
from rookery.equations.distributions import joint_logp_entropy
from rookery.equations.returns import gae, successor_values, vtrace
from rookery.equations.rollouts import Rows, successors
from rookery.equations.value import mean_valid, squared
from rookery.learning.optim import Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets.curiosity import Distillation, Dynamics
from rookery.nets.normalise import observe

Lag = tuple[Tensor, float, float]  # log π(a|s) − log μ(a|s) [T, B], ρ̄ and c̄ of V-trace


class CuriosityConfig(Section):
    """`algo.curiosity`: a bonus for what is new."""

    kind: Literal["rnd", "icm"] = (
        "rnd"  # what is to be foreseen: random features of a state, or what an action leads to
    )
    weight: Annotated[float, Field(ge=0)] = 1.0  # c_I of the bonus's advantage beside that of the reward
    gamma: Annotated[float, Field(ge=0, lt=1)] = 0.99  # γ_I: discount of the bonus per env step
    episodic: bool = False  # whether the bonus's return ends with the episode
    features: Annotated[int, Field(ge=1)] = 64  # size of the embeddings
    value_cost: Annotated[float, Field(ge=0)] = 0.5  # weight of the loss of the bonus's critic
    forward: Annotated[float, Field(ge=0, le=1)] = 0.2  # β of icm: share of the forward model in its loss

    @model_validator(mode="after")
    def _used(self) -> CuriosityConfig:
        if self.kind == "rnd" and self.forward != type(self).model_fields["forward"].default:
            raise ValueError(f"algo.curiosity.forward={self.forward:g} would be ignored: it belongs to kind=icm")
        return self


CURIOSITY_METRICS = {
    "curiosity/loss": "loss of the bonus's networks (only with `algo.curiosity`)",
    "curiosity/grad_norm": "norm of their gradient before clipping",
    "curiosity/bonus": "mean bonus b of the rollout, before it is scaled",
    "curiosity/forward_loss": "mean error that gives the bonus",
    "curiosity/inverse_loss": "−log-likelihood of the actions, in nats (only icm)",
    "curiosity/value_loss": "loss of the bonus's critic",
}


class Curiosity:
    """What an algorithm asks at four places; without a config it answers nothing."""

    def __init__(self, config: CuriosityConfig | None, obs_spec: Tree, action_spec: Tree, model: Any):
        self.config, self.model = config, model
        self.obs_spec, self.action_spec = obs_spec, action_spec

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        if c is None:
            return {}
        if c.kind == "rnd":
            return {"curiosity": Distillation(self.obs_spec, self.model, c.features)}
        return {"curiosity": Dynamics(self.obs_spec, self.action_spec, self.model, c.features)}

    def optimisers(self, like: Optimiser) -> dict[str, Optimiser]:
        return {} if self.config is None else {"curiosity": like}

    def prepare(self, s: Any, b: Any, rows: Rows, lam: float = 1.0, lag: Lag | None = None) -> Rows:
        """The rows [T, B] with the bonus in their advantage, and with what `update` needs."""
        if self.config is None:
            return rows
        net, next_obs = s.curiosity, successors(b)
        own = not self.model.normalise_obs  # else the trainer shows observations to all networks
        seen, begins = tree_take(b.obs, b.valid), bool(net.size.count == 0)
        if own and begins:  # raw observations would give a bonus whose size outweighs all later ones
            observe(net, seen)
        bonus = self.errors(net, b.obs, next_obs, b.action)["forward"]
        net.size.observe(bonus[b.valid])
        if own and not begins:
            observe(net, seen)
        target, advantage = self.judged(net, b, bonus, lam, lag)
        mean = mean_valid(bonus, b.valid).expand_as(bonus)
        more = {"next_obs": next_obs, "bonus": mean, "bonus_target": target}
        return rows | more | {"advantage": rows["advantage"] + self.config.weight * advantage}

    def judged(self, net: Any, b: Any, bonus: Tensor, lam: float, lag: Lag | None) -> tuple[Tensor, Tensor]:
        """(target of the critic, A) of the scaled bonus."""
        c, value, last = self.config, net.value(b.obs), net.value(b.last_obs)
        assert c is not None
        reward = (1.0 - c.gamma) * net.scaled(bonus)
        terminated, done, at, final = b.terminated, b.terminated | b.truncated, b.final_at, net.value(b.final_obs)
        if not c.episodic:  # the next episode is what comes after the last step of this one
            terminated = done = torch.zeros_like(done)
            at, final = at[:0], final[:0]
        next_value = successor_values(value, last, final, at, b.valid)
        if lag is not None:
            log_rho, rho_max, c_max = lag
            ends = terminated, done
            return vtrace(log_rho, reward, value, next_value, *ends, c.gamma, rho_max, c_max, b.valid)
        advantage = gae(reward, value, next_value, terminated, done, c.gamma, lam, b.valid)
        return advantage + value, advantage

    def errors(self, net: Any, obs: Tree, next_obs: Tree, action: Tree) -> dict[str, Tensor]:
        """Per row: `forward` gives the bonus, `inverse` is −log g(a)."""
        assert self.config is not None
        if self.config.kind == "rnd":
            predicted, wanted = net(next_obs)
            return {"forward": (predicted - wanted).square().sum(-1)}
        action_params, predicted, wanted = net(obs, next_obs, action)
        inverse = -joint_logp_entropy(self.action_spec, action_params, action)[0]
        return {"forward": squared(predicted - wanted).sum(-1), "inverse": inverse}

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        """The bonus's networks learn; b has rows of `prepare`."""
        c = self.config
        if c is None:
            return {}
        share = {"forward": 1.0} if c.kind == "rnd" else {"forward": c.forward, "inverse": 1.0 - c.forward}

        def loss(net: Any) -> tuple[Tensor, dict[str, Tensor]]:
            errors = self.errors(net, b.obs, b.next_obs, b.action)
            losses = {f"curiosity/{name}_loss": mean_valid(error, b.valid) for name, error in errors.items()}
            critic = mean_valid(squared(net.value(b.obs) - b.bonus_target), b.valid)
            own = sum(share[name] * losses[f"curiosity/{name}_loss"] for name in errors)
            return own + c.value_cost * critic, losses | {"curiosity/value_loss": critic}

        return s.minimise("curiosity", loss) | {"curiosity/bonus": b.bonus.mean()}
