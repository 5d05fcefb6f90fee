"""Proximal policy optimisation (Schulman 2017) with generalised advantages (Schulman 2016).

    δ_t    = r_t + γ (1 − terminated_t) V(s'_t) − V(s_t)    s' the true successor, also at a time limit
    A_t    = δ_t + γ λ (1 − done_t) A_{t+1},      R_t = A_t + V(s_t)
    ρ      = π(a|s) / π_old(a|s)
    L_π    = −E[min(ρ A, clip(ρ, 1 − ε, 1 + ε) A)]          dual clip: max(·, c A) where A < 0
    L_V    = E[½ (V − R)²]                                  value clip: the worse of V and V_old + clip(V − V_old, ±ε_V)
    L      = L_π + c_V L_V − c_H E[H(π)]

Means are over valid rows. Several epochs over shuffled minibatches of one rollout, ended early when E[(ρ − 1) − log ρ]
exceeds `target_kl`. Discrete, multi-discrete, multi-binary and continuous actions; action masks. With `model.core`
policy and value have a memory: minibatches are whole sequences, unrolled from the state recorded when acting, and the
successor of an ended step is judged with the memory after that step.

MAPPO (Yu 2022) is this for the agents of a team, who share a network: `algo.critic=world` shows the env's state to the
critic alone, and `normalise_value` learns V in deviations from the running mean of returns, (R − μ) / σ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from rookery.algos.base import AlgoConfig, Positive, Share
from rookery.algos.curiosity import CURIOSITY_METRICS, CuriosityConfig
from rookery.algos.onpolicy import OnPolicy
from rookery.algos.teams import world_problem
from rookery.core.schedule import Schedule
from rookery.core.spec import mask_of
from rookery.core.tree import Tree
from rookery.equations.distributions import joint_logp_entropy
from rookery.equations.policy import clip_fraction, kl_estimate, normalise, ppo_policy_loss, ppo_value_loss
from rookery.equations.rollouts import as_rows, as_sequences, judged, shuffled
from rookery.equations.value import mean_valid
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import ActorCritic
from rookery.nets.policy import memory_spec


class PPOConfig(AlgoConfig):
    """Options of PPO."""

    name: Literal["ppo"] = "ppo"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lam: Share = 0.95  # λ of the generalised advantage
    lr: Schedule = Schedule(start=3e-4)  # learning rate of Adam
    rollout: Positive = 128  # env steps per env between updates
    epochs: Positive = 4  # passes over a rollout
    minibatches: Positive = 4  # equal parts of a rollout per epoch
    clip: Schedule = Schedule(start=0.2)  # ε: how far the probability ratio may move from 1
    dual_clip: Annotated[float, Field(gt=1)] | None = None  # c: lower bound c·A of the objective where A < 0
    value_clip: Annotated[float, Field(gt=0)] | None = None  # ε_V: how far the value may move from its old one
    value_cost: Annotated[float, Field(ge=0)] = 0.5  # weight c_V of the value loss
    entropy_bonus: Schedule = Schedule(start=0.0)  # weight c_H of the entropy
    normalise_advantage: bool = True  # to mean 0 and deviation 1 over the rollout
    target_kl: Annotated[float, Field(gt=0)] | None = None  # estimate of KL(old ‖ new) that ends the epochs early
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    sde_every: Positive | None = None  # steps that noise stays one function of the state (gSDE); null: new in each
    shared: bool = False  # one encoder (and memory) for policy and value
    critic: Literal["own", "world"] = "own"  # world: the critic alone sees the state of an env with several agents
    normalise_value: bool = False  # the critic tells a return in deviations from the running mean of returns
    sequence: Positive | None = None  # rows per sequence of a policy with memory (model.core); null: the whole rollout
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 0.5  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    curiosity: CuriosityConfig | None = None  # bonus for what is new to the learner; null: none


def critic_problems(config: Any) -> list[str]:
    """What is wrong with a critic that sees the world."""
    if config.algo.critic == "own":
        return []
    if config.env.agents == 1:
        one = "algo.critic=world needs an env with several agents, but env.api says that it has one."
        return [f"{one} Set algo.critic=own."]
    problems = world_problem(config, "algo.critic=world", "algo.critic=own")
    if config.algo.shared:
        shared = "algo.critic=world sees more than the policy, so algo.shared=true cannot be."
        problems.append(f"{shared} Set algo.shared=false.")
    return problems


class PPO(OnPolicy):
    """On-policy, any action space."""

    name = "ppo"
    Config = PPOConfig
    plain = True
    recurrent = "may"
    defaults = {"model": {"hidden": [64, 64], "activation": "tanh", "init": "orthogonal"}, "env": {"num": 8}}
    metrics = {
        "ac/loss": "total loss L",
        "ac/grad_norm": "norm of the gradient before clipping",
        "policy_loss": "clipped surrogate loss L_π",
        "value_loss": "value loss L_V",
        "entropy": "mean entropy of the policy, in nats",
        "kl": "estimate E[(ρ − 1) − log ρ] of how far the policy has moved since the rollout",
        "clip_fraction": "share of samples whose ratio left the clip range",
        "explained_variance": "1 − Var(R − V) / Var(R): 1 is a perfect critic, 0 a constant one",
    } | CURIOSITY_METRICS

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        c, memory, columns = config.algo, config.model.core is not None, config.env.num * config.pool.workers
        if problems := critic_problems(config):
            return problems
        length = (c.sequence or c.rollout) if memory else 1
        if c.sequence is not None and not memory:
            return [
                f"algo.sequence={c.sequence} cuts the rollout for a memory, "
                "but model.core is not set. Set both or none."
            ]
        if c.rollout % length:
            return [f"algo.sequence={length} must divide algo.rollout={c.rollout}. Change one of them."]
        parts = columns * (c.rollout // length)
        factor = f"sequences per rollout ({c.rollout // length})" if memory else f"algo.rollout ({c.rollout})"
        if parts % c.minibatches:
            return [
                f"algo.minibatches={c.minibatches} must divide env.num × pool.workers × {factor} = {parts} into equal "
                "parts. Change algo.minibatches or algo.rollout."
            ]
        return []

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        options = {"shared": c.shared, "log_std": c.log_std, "state_dependent": c.sde_every is not None}
        options |= {"central": c.critic == "world", "scaled": c.normalise_value}
        ac = ActorCritic(self.obs_spec, self.action_spec, self.model, **options)
        return {"ac": ac} | self.curiosity.networks()

    def optimisers(self) -> dict[str, Optimiser]:
        adam = Adam(clip_norm=self.config.max_grad_norm, eps=1e-5, **self.config.grad.options)
        return {"ac": adam} | self.curiosity.optimisers(adam)

    def memory(self) -> Tree:
        return memory_spec(self.model, self.config.shared)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return s.ac.act(obs, state)

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Advantages and old values of the whole rollout [T, B]; then rows [N], or sequences [L, N] for a memory."""
        c = self.config
        rows = judged(b, s.ac.judge(b), c.gamma, c.lam) | {"logp": b.logp}
        rows = self.curiosity.prepare(s, b, rows, c.lam)
        if c.normalise_advantage:
            rows["advantage"] = normalise(rows["advantage"], rows["valid"])
        if c.normalise_value:
            s.ac.scale.observe(rows["target"][rows["valid"].bool()])
            rows |= {name: s.ac.scale.into(rows[name]) for name in ("value", "target")}
        return as_rows(rows) if self.model.core is None else as_sequences(rows, b, c.sequence)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        c, rows = self.config, learner.prepare(batch)
        axis = 0 if self.model.core is None else 1  # of the rows, or of the sequences
        for _ in range(c.epochs):
            for part in shuffled(rows, c.minibatches, rng, axis):
                out = learner.step(part)
                yield out
            if c.target_kl is not None and out[0].metrics["kl"] > c.target_kl:
                return

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, spec = self.config, self.action_spec

        def loss(ac: Any) -> tuple[Tensor, dict[str, Tensor]]:
            params, value = ac.read(b)
            logp, entropy = joint_logp_entropy(spec, params, b.action, mask_of(b.obs))
            log_ratio = logp - b.logp
            policy = mean_valid(ppo_policy_loss(log_ratio, b.advantage, s.knob.clip, c.dual_clip), b.valid)
            critic = mean_valid(ppo_value_loss(value, b.value, b.target, c.value_clip), b.valid)
            bonus = mean_valid(entropy, b.valid)
            moved = {"kl": kl_estimate(log_ratio), "clip_fraction": clip_fraction(log_ratio, s.knob.clip)}
            aux = {"policy_loss": policy, "value_loss": critic, "entropy": bonus}
            aux |= {key: mean_valid(x, b.valid) for key, x in moved.items()}
            return policy + c.value_cost * critic - s.knob.entropy_bonus * bonus, aux

        metrics = s.minimise("ac", loss) | {"explained_variance": b.explained.mean()}
        return metrics | self.curiosity.update(s, b)
