"""What VDN, QMIX and CollaQ share: Q-learning of a team whose value is mixed from its members' own.

    Q_tot(s, a) = mix(Q_1(o_1, a_1), …, Q_G(o_G, a_G); s)           the mixer is the algorithm's
    a*_i        = argmax_a Q_i(o'_i, a)                              double;   argmax_a Q'_i(o'_i, a) otherwise
    y           = R + γ^k (1 − terminated) Q'_tot(s', a*)            R: of k ≤ n steps, as in DQN
    L           = mean w ½ (y − Q_tot)²

If the mixer is monotone, each member's own argmax is the argmax of Q_tot, so that all can act alone. With `model.core`
members remember, and learn from sequences as R2D2 does: from the state recorded when acting, burnt in.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.base import Algorithm
from rookery.algos.qlearning import QLearningConfig
from rookery.algos.recalled import Learnt, SequenceConfig, overlap_problem
from rookery.core.schedule import Schedule
from rookery.core.tree import Tree, tree_map
from rookery.data.replay.sequences import Window
from rookery.equations.sequences import n_step_targets, sequence_priority
from rookery.equations.value import greedy_action, mean_valid, pick, squared
from rookery.learning.optim import Adam, Optimiser
from rookery.learning.update_types import UpdateBatch, UpdateState
from rookery.nets.teams import TeamQ, team_memory


class MixingConfig(QLearningConfig, SequenceConfig):
    """Options of value mixing; those of sequences count with model.core."""

    lr: Schedule = Schedule(start=5e-4)  # learning rate of Adam
    double: bool = True  # choose the next actions with the online network, judge them with the target
    shared: bool = True  # one network for all members, which is told who each of them is; false: one for each


class Mixing(Algorithm):
    """Off-policy, for teams whose members choose."""

    store_kind = "replay"
    sits = "team"
    recurrent = "may"
    actions = ("multi_discrete",)
    plain = True
    targets = {"team_target": "team"}
    judge = "team_target"  # whose Q_tot is bootstrapped from
    defaults = {"model": {"hidden": [64, 64], "activation": "relu"}}
    metrics = {
        "team/loss": "mean weighted loss of the TD errors of Q_tot",
        "team/grad_norm": "norm of the gradient before clipping",
        "q_mean": "mean Q_tot of the sampled actions",
        "target_mean": "mean target y",
        "td_abs": "mean absolute TD error",
    }

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        return overlap_problem(config) if config.model.core is not None else []

    def mixer(self) -> nn.Module:
        """(Q_i of the chosen actions [..., G], world [..., S]) → Q_tot [...]."""
        raise TypeError(f"{type(self).__name__} defines no mixer()")

    def networks(self) -> dict[str, nn.Module]:
        c = self.config
        return {"team": TeamQ(self.team, self.model, self.mixer(), shared=c.shared, dueling=c.dueling, noisy=c.noisy)}

    def optimisers(self) -> dict[str, Optimiser]:
        return {"team": Adam(clip_norm=self.config.max_grad_norm, **self.config.grad.options)}

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return self.choices.rule(self.config.epsilon_spread, column, columns)

    def memory(self) -> Tree:
        return team_memory(self.team, self.model)

    def window(self) -> Window | None:
        return None if self.model.core is None else self.config.window

    def outputs(self, s: Any, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        if state is None:
            return {"q": s.team(obs)}, None
        q, state = s.team.step(obs, state)
        return {"q": q}, state

    def update(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tensor]:
        rows, team, judge = self.rows_of(b), s.team, getattr(s, self.judge)
        start, judged = self._start(team, rows), self._next(judge, rows, self._after(judge, rows))

        def loss(net: Any) -> tuple[Tensor, dict[str, Tensor]]:
            q, after = self._now(net, rows, start)
            q_tot = net.mix(pick(q, rows.action), rows.obs)
            q_next = self._next(team, rows, after) if self.config.double else judged
            best = greedy_action(q_next, self.choices.mask(rows.next_obs))
            y = self.bootstrapped(rows, judge.mix(pick(judged, best), rows.next_obs))
            td = y - q_tot
            counts = b.weight * self.emphasis(s, rows, q.detach(), y, td.detach())
            return self.mean(counts * squared(td), rows), {"td": td, "q": q_tot}

        out = s.minimise("team", loss)
        self.further(s, b, rows, out["q"] + out["td"])
        return self.told(rows, out["td"], out["q"])

    def rows_of(self, b: Any) -> Any:
        """Single steps, or the learnt rows of sequences."""
        return b if self.model.core is None else Learnt(b, self.config)

    def emphasis(self, s: Any, rows: Any, q: Tensor, y: Tensor, td: Tensor) -> Any:
        """ω: what each row counts, from Q_i [..., G, A], y and y − Q_tot [...]."""
        return 1.0

    def further(self, s: Any, b: Any, rows: Any, y: Tensor) -> None:
        """What else learns towards y."""

    def bootstrapped(self, rows: Any, value: Tensor) -> Tensor:
        """R + γ^k (1 − terminated) value."""
        if self.model.core is None:
            return rows.reward + rows.discount * value
        c, marks = self.config, (rows.terminated, rows.done, rows.valid)
        return n_step_targets(rows.reward, value, *marks, c.gamma, c.n_step).detach()

    def mean(self, x: Tensor, rows: Any) -> Tensor:
        """Over all rows, or the valid ones of sequences."""
        return x.mean() if self.model.core is None else mean_valid(x, rows.valid)

    def told(self, rows: Any, td: Tensor, q: Tensor) -> dict[str, Tensor]:
        """Priorities and metrics."""
        size = td.abs()
        priority = size if self.model.core is None else sequence_priority(size, rows.valid, self.config.eta)
        numbers = {"td_abs": size, "q_mean": q, "target_mean": q + td}
        return {"priority": priority} | {name: self.mean(x, rows) for name, x in numbers.items()}

    def _start(self, net: Any, rows: Any) -> Tree:
        return None if self.model.core is None else rows.start(net)

    def _now(self, net: Any, rows: Any, start: Tree) -> tuple[Tensor, Tree]:
        """Q_i of the rows, and the memory after each."""
        return (net(rows.obs), None) if start is None else net.unroll(rows.obs, start, rows.first, rows.valid)

    def _after(self, net: Any, rows: Any) -> Tree:
        return None if self.model.core is None else self._now(net, rows, self._start(net, rows))[1]

    def _next(self, net: Any, rows: Any, after: Tree) -> Tensor:
        """Q_i of the successors of the rows, with the memory after the row."""
        if after is None:
            return net(rows.next_obs)
        return net.step(rows.next_obs, tree_map(lambda x: x.detach(), after))[0]
