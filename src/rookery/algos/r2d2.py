"""Recurrent replay distributed DQN (Kapturowski 2019):
double Q-learning with memory, from sequences with a stored state.

    q_t, m_{t+1} = Q(s_t, m_t)                      m: the hidden state; m_0: recorded when acting, then burnt in
    a*_t         = argmax_a Q(s'_t, m_{t+1})        s' the true successor, judged with the memory *after* step t
    R^n_t        = Σ_{i<k} γ^i r_{t+i} + γ^k (1 − terminated) h⁻¹(Q'(s'_{t+k−1}, a*))     k ≤ n: up to an end
    y_t          = h(R^n_t)                         h(x) = sign(x)(√(|x| + 1) − 1) + ε x
    L            = mean w ½ (y_t − q_t(a_t))²       over the learnt rows; w per sequence
    priority     = η max_t |y_t − q_t| + (1 − η) mean_t |y_t − q_t|

The sum ends with the episode or the sequence. Burn-in rows move the memory and are not learnt from; at the start of an
episode there is nothing to warm up. With m_0 = 0 (`stored_state=false`), without burn-in, rescaling, dueling heads and
priorities it is DRQN (Hausknecht 2015), with double Q.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm, Positive, Share
from rookery.algos.recalled import Learnt, SequenceConfig, overlap_problem
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree, tree_map
from rookery.data.replay.sequences import Window
from rookery.equations.sequences import n_step_targets, sequence_priority
from rookery.equations.value import double_q, mean_valid, pick, rescale, unscale
from rookery.learning.optim import Adam, GradConfig, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets import QNetwork
from rookery.nets.cores import state_spec


class R2D2Config(SequenceConfig):
    """Options of R2D2."""

    name: Literal["r2d2"] = "r2d2"  # of the algorithm
    gamma: Share = 0.997  # discount per env step
    lr: Schedule = Schedule(start=5e-4)  # learning rate of Adam
    n_step: Positive = 5  # rewards summed before the bootstrap
    rescale: Annotated[float, Field(gt=0)] | None = 1e-3  # ε of the value rescaling h; null: none
    dueling: bool = True  # Q = V + A − mean A
    target_every: Positive = 200  # updates between moves of the target network
    tau: Annotated[float, Field(gt=0, le=1)] = 1.0  # how far the target moves: 1 is a copy
    epsilon: Schedule = Schedule(kind="linear", start=1.0, end=0.05, steps=10_000)  # share of random actions
    epsilon_spread: Annotated[float, Field(ge=0)] = 0.0  # ε of column i is ε^(1 + spread · i/(N−1)); Ape-X uses 7
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 40.0  # norm to which gradients are clipped
    grad: GradConfig = GradConfig()  # further limit of gradients
    rollout: Positive | None = None  # env steps per env and round; null: as many as an update waits for, 16 at most

    shares = ("epsilon",)


class R2D2(Algorithm):
    """Off-policy, discrete and multi-discrete actions, with memory."""

    name = "r2d2"
    Config = R2D2Config
    store_kind = "replay"
    recurrent = "must"
    actions = ("discrete", "multi_discrete")
    plain = True
    targets = {"q_target": "q"}
    defaults = {
        "model": {"hidden": [64], "activation": "relu", "core": {"kind": "lstm", "size": 64}},
        "store": {"batch_size": 32, "updates_per_step": 0.25, "priority": {"alpha": 0.9, "beta": 0.6}},
    }
    metrics = {
        "q/loss": "mean weighted loss of the TD errors of learnt rows",
        "q/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean rescaled Q(s, a) of the sampled actions",
        "target_mean": "mean rescaled target y",
        "td_abs": "mean absolute rescaled TD error",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return overlap_problem(config)

    def networks(self) -> dict[str, nn.Module]:
        return {"q": QNetwork(self.obs_spec, self.choices.actions, self.model, dueling=self.config.dueling)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"q": Adam(clip_norm=self.config.max_grad_norm, eps=1e-5, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def memory(self) -> Tree:
        return state_spec(self.model.core)

    def window(self) -> Window:
        return self.config.window

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        q, state = s.q.step(obs, state)
        return {"q": q}, state

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        c, choices, eps = self.config, self.choices, self.config.rescale
        rows = Learnt(b, c)
        obs, next_obs, action, first, valid = rows.obs, rows.next_obs, rows.action, rows.first, rows.valid
        marks = rows.reward, rows.terminated, rows.done, valid
        weight, reward, terminated, done, seen = choices.each(b.weight, *marks)
        start = rows.start(s.q)
        q_target = s.q_target
        after_target = q_target.unroll(obs, rows.start(q_target), first, valid)[1]
        judged = q_target.step(next_obs, after_target)[0]

        def loss(q: Any) -> tuple[Tensor, dict[str, Tensor]]:
            values, after = q.unroll(obs, start, first, valid)
            chosen = s.q.step(next_obs, tree_map(lambda t: t.detach(), after))[0]
            value = double_q(chosen, judged, choices.mask(next_obs))
            value = value if eps is None else unscale(value, eps)
            y = n_step_targets(reward, value, terminated, done, seen, c.gamma, c.n_step)
            y = (y if eps is None else rescale(y, eps)).detach()
            q_sa = pick(values, action)
            td = y - q_sa
            return mean_valid(choices.together(weight * 0.5 * td.square()), valid), {"td": td, "q": q_sa}

        out = s.minimise("q", loss)
        size, target = choices.together(out["td"].abs()), choices.together(out["q"] + out["td"])
        return {
            "priority": sequence_priority(size, valid, c.eta),
            "td_abs": mean_valid(size, valid),
            "q_mean": mean_valid(choices.together(out["q"]), valid),
            "target_mean": mean_valid(target, valid),
        }
