"""Multi-agent deterministic policy gradient, MADDPG (Lowe 2017): each acts alone, critics see everything.

    y_i    = R_i + γ^k (1 − terminated) Q'_i(x', μ'_1(o'_1), …, μ'_G(o'_G))         x: the world
    L_Q    = E[w ½ (Q_i(x, a_1, …, a_G) − y_i)²]
    L_μ    = −E[Q_i(x, a_1, …, μ_i(o_i), …, a_G)]      the others do what they did
    Q', μ' ← (1 − τ) Q' + τ Q, (1 − τ) μ' + τ μ

Continuous actions live in [−1, 1] and are explored by Gaussian noise, as in DDPG. A member that chooses draws from
softmax(logits), and in updates its action is one-hot, with the gradient of a soft one (Gumbel-softmax, Jang 2017):

    y = softmax((logits + g) / T),  g = −log(−log u),  u ~ U(0, 1)        a = onehot(argmax y) + y − stop(y)

R is what the team receives, or what each member does ([N, G]). Means are over the members that are present. Of one that
is not present in x', the value of what follows is the mean of those who are; 0 if each is paid by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rookery.acting.noise import GaussianNoise
from rookery.acting.rules import Rule, rule_for
from rookery.algos.base import AlgoConfig, Algorithm, Positive, Share
from rookery.algos.teams import over_members, side_by_side, with_own, world_problem
from rookery.core.schedule import Schedule
from rookery.core.team import PRESENT
from rookery.core.tree import Tree
from rookery.equations.distributions import masked_logits
from rookery.equations.value import mean_valid, squared
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import DeterministicPolicy, QNetwork
from rookery.nets.encoders import OneHot
from rookery.nets.teams import Central, Members, bare


class CentralConfig(AlgoConfig):
    """Options of deterministic policies and central critics."""

    gamma: Share = 0.95  # discount per env step
    lr: Schedule = Schedule(start=1e-3)  # learning rate of the critics
    policy_lr: Schedule = Schedule(start=1e-3)  # learning rate of the policies
    n_step: Positive = 1  # rewards summed before the bootstrap
    tau: Annotated[float, Field(gt=0, le=1)] = 0.01  # how far the targets move per update
    noise: Schedule = Schedule(start=0.1)  # σ of the noise on continuous actions, which span [−1, 1]
    warmup: Annotated[int, Field(ge=0)] = 1_000  # first env steps with uniform continuous actions
    temperature: Annotated[float, Field(gt=0)] = 1.0  # T of the soft actions of members that choose
    logit_cost: Annotated[float, Field(ge=0)] = 1e-3  # weight of mean logits² in their policy loss: they stay unsure
    shared: bool = False  # one policy and one critic for all members, told who each of them is; false: one for each
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 0.5  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most


class MADDPGConfig(CentralConfig):
    """Options of MADDPG."""

    name: Literal["maddpg"] = "maddpg"  # of the algorithm


def soft_choice(logits: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """One-hot draws [..., A] with the gradient of soft ones, from numbers in [0, 1) of the same shape."""
    noise = -torch.log(-torch.log(uniform.clamp(min=1e-20)))
    soft = ((logits + noise) / temperature).softmax(-1)
    return OneHot(logits.shape[-1])(soft.argmax(-1)) + soft - soft.detach()


class MADDPG(Algorithm):
    """Off-policy, for teams whose members act continuously, or choose."""

    name = "maddpg"
    Config: ClassVar[type[AlgoConfig]] = MADDPGConfig
    store_kind = "replay"
    sits = "team"
    own_rewards = True
    actions = ("box", "multi_discrete")
    plain = True
    targets = {"critic_target": "critic", "policy_target": "policy"}
    defaults = {"model": {"hidden": [64, 64], "activation": "relu"}, "store": {"batch_size": 256}}
    metrics = {
        "critic/loss": "mean weighted loss of the TD errors",
        "policy/loss": "policy loss L_μ: minus the critics' value of the policies' actions, and what logits cost",
        "critic/grad_norm": "norm of the critics' gradient before clipping",
        "policy/grad_norm": "norm of the policies' gradient before clipping",
        "q_mean": "mean Q_i(x, a) of the sampled actions",
        "target_mean": "mean target y",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return world_problem(config)

    @property
    def chooses(self) -> bool:
        """Whether members choose."""
        return self.choices.several

    @property
    def width(self) -> int:
        """Numbers of a member's action."""
        return self.choices.most if self.chooses else self.team.action.shape[0]

    def networks(self) -> dict[str, nn.Module]:
        critic = Central(self.team, self.model, self.width, 1, self.config.shared)
        return {"critic": critic, "policy": self.policy()}

    def policy(self) -> nn.Module:
        """obs → actions in [−1, 1], or logits [..., G, k]."""
        team, model = self.team, bare(self.model)

        def make(spec: Tree) -> nn.Module:
            return QNetwork(spec, self.width, model) if self.chooses else DeterministicPolicy(spec, team.action, model)

        return Members(team, make, self.config.shared, self.model)

    def optimisers(self) -> dict[str, Optimiser]:
        limits = {"clip_norm": self.config.max_grad_norm, **self.config.grad.options}
        return {"critic": Adam(**limits), "policy": Adam(lr="policy_lr", **limits)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return rule_for(self.action_spec) if self.chooses else GaussianNoise(self.action_spec)

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        out = s.policy(obs)
        return {"logits": side_by_side(out, self.choices.sizes)} if self.chooses else {"action": out.flatten(-2)}, state

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        return over_members(self.judged(s.critic, obs, self.usual(s.policy(obs), obs)), obs)

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, there = self.config, b.obs[PRESENT]
        action = OneHot(self.width)(b.action) if self.chooses else b.action
        taken = action.reshape(*there.shape, self.width)
        y = self._target(s, b)

        def error(critic: Any) -> tuple[Tensor, Tensor]:
            q = self.judged(critic, b.obs, taken)
            return mean_valid(b.weight.unsqueeze(-1) * squared(q - y), there), q

        q = s.minimise("critic", error)
        aux = s.minimise("policy", self.policy_loss(s, b, taken))
        s.follow("critic_target", "critic", c.tau)
        s.follow("policy_target", "policy", c.tau)
        numbers = {"q_mean": mean_valid(q, there), "target_mean": mean_valid(y, there)}
        return {"priority": over_members((y - q).abs(), b.obs)} | numbers | (aux or {})

    def policy_loss(self, s: Any, b: Any, taken: Tensor) -> Callable[[Any], Any]:
        """L_μ of the policies, beside the actions [N, G, k] that were taken."""
        there, uniform = b.obs[PRESENT], self.draws(s, b)

        def loss(policy: Any) -> Tensor:
            out = policy(b.obs)
            q = s.critic(b.obs, with_own(taken, self.acted(out, uniform, b.obs))).squeeze(-1)
            return self.logit_cost(out, there) - mean_valid(q, there)

        return loss

    def draws(self, s: Any, b: Any) -> Tensor | None:
        """Numbers in [0, 1) for `acted`."""
        return s.uniform(*b.obs[PRESENT].shape, self.width) if self.chooses else None

    def acted(self, out: Tensor, uniform: Tensor | None, obs: Tree) -> Tensor:
        """What a policy's outputs do [..., G, k], with a gradient: they themselves, or a choice drawn from them."""
        if uniform is None:
            return out
        return soft_choice(masked_logits(out, self.choices.mask(obs)), uniform, self.config.temperature)

    def usual(self, out: Tensor, obs: Tree) -> Tensor:
        """What they do without noise: the probabilities of choices."""
        return masked_logits(out, self.choices.mask(obs)).softmax(-1) if self.chooses else out

    def logit_cost(self, out: Tensor, there: Tensor) -> Any:
        return self.config.logit_cost * mean_valid(out.square().mean(-1), there) if self.chooses else 0.0

    def judged(self, critic: Any, obs: Tree, actions: Tensor) -> Tensor:
        """Q_i [..., G] where everybody does that, [..., G, k]."""
        return critic(obs, actions.unsqueeze(-3).expand(*actions.shape[:-1], *actions.shape[-2:])).squeeze(-1)

    def _target(self, s: Any, b: Any) -> Tensor:
        each = b.reward.dim() > b.discount.dim()  # paid by itself
        out = self.acted(s.policy_target(b.next_obs), self.draws(s, b), b.next_obs)
        q = self.judged(s.critic_target, b.next_obs, out)
        absent = torch.zeros_like(q) if each else over_members(q, b.next_obs).unsqueeze(-1)
        following = torch.where(b.next_obs[PRESENT].bool(), q, absent)
        return (b.reward if each else b.reward.unsqueeze(-1)) + b.discount.unsqueeze(-1) * following
