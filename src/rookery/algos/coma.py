"""Counterfactual multi-agent policy gradients, COMA (Foerster 2018): which member's action brought the reward?

    Q_i(s, o_i, a_-i, ·)                              one critic gives Q of all actions of member i, the others' fixed
    A_i  = Q_i(a_i) − Σ_a' π_i(a'|o_i) Q_i(a')        counterfactual: how much better than what i does on average
    Q(s, a) = mean_i Q_i(a_i)                         over the members that are present: all of them judge the same
    y_t  = r_t + γ (1 − terminated_t) ((1 − λ) Q'(s'_t, a_{t+1}) + λ y_{t+1})        s' the true successor
    L_Q  = E[½ (Q_i(a_i) − y)²]
    L_π  = −E[A_i log π_i(a_i|o_i)] − c_H E[H(π_i)]
    Q'   ← (1 − τ) Q' + τ Q                           every `target_every` updates

Where an episode is cut and at the end of a rollout nobody has acted on s' yet: there actions enter Q' with their
probabilities, Σ_a π_i(a) Q'_i(a). Means are over the members that are present in valid rows. The critic learns first,
then the policies by what it says. With `model.core` members remember, the critic does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule, rule_for
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.algos.teams import of_others, over_members, side_by_side, world_problem
from rookery.core.schedule import Schedule
from rookery.core.team import PRESENT
from rookery.core.tree import Tree, tree_take
from rookery.equations.distributions import categorical_entropy, masked_logits
from rookery.equations.returns import lambda_return, successor_values
from rookery.equations.rollouts import as_rows, as_sequences
from rookery.equations.value import mean_valid, pick, squared
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import GradConfig, Optimiser, RMSprop
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import QNetwork
from rookery.nets.encoders import OneHot
from rookery.nets.teams import Central, Members, bare, team_memory


class COMAConfig(AlgoConfig):
    """Options of COMA."""

    name: Literal["coma"] = "coma"  # of the algorithm
    gamma: Share = 0.99  # discount per env step
    lam: Share = 0.8  # λ of the critic's target: 0 is one step, 1 the return to the end of the rollout
    lr: Schedule = Schedule(start=5e-4)  # learning rate of the policies
    critic_lr: Schedule = Schedule(start=5e-4)  # learning rate of the critic
    optimiser: str | None = "rmsprop"  # the paper's; or adam, sgd, any of torch.optim, module:Class
    rollout: Positive = 32  # env steps per env between updates
    target_every: Positive = 200  # updates between moves of the target critic
    tau: Annotated[float, Field(gt=0, le=1)] = 1.0  # how far it moves: 1 is a copy
    entropy_bonus: Schedule = Schedule(start=0.01)  # weight c_H of the entropy
    shared: bool = True  # one policy and one critic for all members, told who each of them is; false: one for each
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 10.0  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients


def counterfactual(q: Tensor, policy: Tensor, action: Tensor) -> Tensor:
    """Q(a) − Σ_a' π(a') Q(a') [...] of q and policy [..., A] and actions [...] (Foerster 2018, eq. 4)."""
    return pick(q, action) - (policy * q).sum(-1)


class COMA(Algorithm):
    """On-policy, for teams whose members choose."""

    name = "coma"
    Config = COMAConfig
    store_kind = "rollout"
    sits = "team"
    recurrent = "may"
    actions = ("multi_discrete",)
    plain = True
    targets = {"critic_target": "critic"}
    defaults = {"model": {"hidden": [64, 64], "activation": "relu"}, "env": {"num": 8}}
    metrics = {
        "critic/loss": "mean squared error of the critic, halved",
        "critic/grad_norm": "norm of the critic's gradient before clipping",
        "policy/loss": "policy loss L_π",
        "policy/grad_norm": "norm of the policies' gradient before clipping",
        "q_mean": "mean Q(s, a) of the actions taken",
        "target_mean": "mean target y",
        "td_abs": "mean absolute difference of y and Q(s, a)",
        "advantage_abs": "mean absolute counterfactual advantage",
        "entropy": "mean entropy of a member's policy, in nats",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return world_problem(config)

    def networks(self) -> dict[str, nn.Module]:
        c, team, most = self.config, self.team, self.choices.most
        model = bare(self.model)
        policy = Members(team, lambda spec: QNetwork(spec, most, model), c.shared, self.model)
        return {"critic": Central(team, self.model, most, most, c.shared), "policy": policy}

    def optimisers(self) -> dict[str, Optimiser]:
        limits = {"clip_norm": self.config.max_grad_norm, "eps": 1e-5, **self.config.grad.options}
        return {"critic": RMSprop(lr="critic_lr", **limits), "policy": RMSprop(**limits)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return rule_for(self.action_spec)

    def memory(self) -> Tree:
        return team_memory(self.team, self.model)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        logits, state = self._decide(s.policy, obs, state)
        return {"logits": side_by_side(logits, self.choices.sizes)}, state

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        return self._expected(s.critic, obs, self._decide(s.policy, obs, state)[0])

    def prepare(self, s: Any, b: Any) -> dict[str, Tree]:
        """Targets of the rollout [T, B] as rows [N], or as sequences [T, B] for a memory."""
        c, after = self.config, None
        ends = b.last_obs, b.final_obs
        if self.model.core is not None:
            _, after = s.policy.unroll(b.obs, tree_take(b.state, 0), b.first, b.valid)
        places = -1, tuple(b.final_at.unbind(1))  # of the last rows, and of the ended ones
        states = [None if after is None else tree_take(after, at) for at in places]
        last, final = (
            self._expected(s.critic_target, obs, self._decide(s.policy, obs, state)[0])
            for obs, state in zip(ends, states)
        )
        value = over_members(pick(s.critic_target(b.obs, self._told(b.action)), b.action), b.obs)
        following = successor_values(value, last, final, b.final_at, b.valid)
        done = b.terminated | b.truncated
        target = lambda_return(b.reward, following, b.terminated, done, c.gamma, c.lam, b.valid)
        rows = {"obs": b.obs, "action": b.action, "target": target, "valid": b.valid.float()}
        return as_rows(rows) if after is None else as_sequences(rows, b)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        yield learner.step(learner.prepare(batch))

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        others, y = self._told(b.action), b.target.unsqueeze(-1)
        counts, mask = b.valid.unsqueeze(-1) * b.obs[PRESENT].float(), self.choices.mask(b.obs)

        def error(critic: Any) -> tuple[Tensor, dict[str, Tensor]]:
            q = pick(critic(b.obs, others), b.action)
            numbers = {"q_mean": q, "td_abs": (y - q).abs(), "target_mean": y.expand_as(q)}
            return mean_valid(squared(q - y), counts), {key: mean_valid(x, counts) for key, x in numbers.items()}

        metrics = s.minimise("critic", error)
        q = s.critic(b.obs, others)

        def loss(policy: Any) -> tuple[Tensor, dict[str, Tensor]]:
            logits = self._read(policy, b)
            logp = masked_logits(logits, mask).log_softmax(-1)
            advantage = counterfactual(q, logp.exp(), b.action).detach()
            bonus = mean_valid(categorical_entropy(logits, mask), counts)
            gain = mean_valid(advantage * pick(logp, b.action), counts)
            aux = {"advantage_abs": mean_valid(advantage.abs(), counts), "entropy": bonus}
            return -gain - s.knob.entropy_bonus * bonus, aux

        return metrics | s.minimise("policy", loss)

    def _told(self, action: Tensor) -> Tensor:
        """What the others do, for each member."""
        return of_others(OneHot(self.choices.most)(action))

    def _decide(self, policy: Any, obs: Tree, state: Any) -> tuple[Tensor, Any]:
        """Logits [..., G, A] of one observation, and the next state."""
        return (policy(obs), None) if state is None else policy.step(obs, state)

    def _read(self, policy: Any, b: Any) -> Tensor:
        """Logits of rows [N], or of sequences [T, B] from their state."""
        if self.model.core is None:
            return policy(b.obs)
        return policy.unroll(b.obs, tree_take(b.state, 0), b.first, b.valid)[0]

    def _expected(self, critic: Any, obs: Tree, logits: Tensor) -> Tensor:
        """Q(s, ·) [...] where everybody acts with these probabilities."""
        chances = masked_logits(logits, self.choices.mask(obs)).softmax(-1)
        return over_members((chances * critic(obs, of_others(chances))).sum(-1), obs)
