"""Expected SARSA (van Seijen 2009) with a soft policy: an algorithm of your own, in one file outside the package.

    π(a|s) = softmax(Q(s, ·) / T)                                       acts; over the legal actions
    y      = R + γ^k (1 − terminated) Σ_a π'(a|s') Q'(s', a)      π' is the soft policy of Q'; R: sum of k ≤ n rewards
    L      = mean_i w_i huber(y_i − Q(s_i, a_i))
    Q'     ← (1 − τ) Q' + τ Q

It values what the policy really does, mistakes included, where Q-learning values the best action. T → 0 is DQN.

python examples/own_algorithm.py
rookery train -c examples/own_algorithm.yaml
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

import rookery
from rookery.acting.rules import Categorical, Rule
from rookery.algos.base import AlgoConfig, Algorithm, Positive
from rookery.core.schedule import Schedule
from rookery.core.spec import mask_of
from rookery.core.tree import Tree
from rookery.equations.distributions import masked_logits
from rookery.equations.value import huber, pick, td_error, weighted_mean
from rookery.learning.optim import Adam, Optimiser
from rookery.nets import QNetwork


class ExpectedSarsaConfig(AlgoConfig):
    """Options of expected SARSA."""

    name: Literal["expected-sarsa"] = "expected-sarsa"  # of the algorithm
    lr: Schedule = Schedule(start=1e-3)  # learning rate of Adam
    n_step: Positive = 1  # rewards summed before the bootstrap
    temperature: Annotated[float, Field(gt=0)] = 1.0  # T, in units of Q: how soft the policy is
    tau: Annotated[float, Field(gt=0, le=1)] = 0.01  # how far the target moves per update
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 10.0  # norm to which gradients are clipped


class ExpectedSarsa(Algorithm):
    """Off-policy, discrete actions."""

    name = "expected-sarsa"
    Config = ExpectedSarsaConfig
    store_kind = "replay"
    actions = ("discrete",)
    targets = {"q_target": "q"}
    defaults = {"model": {"hidden": [128, 128], "activation": "relu"}}
    metrics = {
        "q/loss": "mean weighted Huber loss of the TD errors",
        "q/grad_norm": "norm of the gradient before clipping",
        "target_mean": "mean target y",
        "greedy_mean": "mean probability of the best action in s'",
    }

    def networks(self) -> dict[str, nn.Module]:
        return {"q": QNetwork(self.obs_spec, self.action_spec.sizes[0], self.model)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return Categorical(self.action_spec.sizes, single=True)  # draws from softmax(logits); greedy: the largest

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        return {"logits": s.q(obs) / self.config.temperature}, state

    def update(self, s: Any, b: Any) -> dict[str, Tensor]:
        q_next = s.q_target(b.next_obs)  # [N, A]
        policy = masked_logits(q_next / self.config.temperature, mask_of(b.next_obs)).softmax(-1)
        value = (policy * q_next).sum(-1)

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            q_sa = pick(q(b.obs), b.action)
            td = td_error(q_sa, b.reward, b.discount, value)  # b.discount is γ^k (1 − terminated)
            return weighted_mean(huber(td), b.weight), {"td": td, "q": q_sa}

        out = s.minimise("q", loss)
        s.follow("q_target", "q", self.config.tau)
        greedy = policy.amax(-1).mean()
        return {"priority": out["td"].abs(), "target_mean": (out["q"] + out["td"]).mean(), "greedy_mean": greedy}


rookery.register("algo", "expected-sarsa", "own_algorithm:ExpectedSarsa", "values of the soft policy itself")

if __name__ == "__main__":
    from rookery.cli.main import run

    raise SystemExit(run(["train", "-c", str(Path(__file__).with_suffix(".yaml")), "train.max_steps=1500"]))
