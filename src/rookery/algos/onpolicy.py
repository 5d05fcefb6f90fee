"""OnPolicy: what algorithms share that learn from rollouts of their own policy, in any space of actions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rookery.acting.rules import Rule, rule_for
from rookery.algos.base import Algorithm
from rookery.algos.curiosity import Curiosity
from rookery.core.tree import Tree


class OnPolicy(Algorithm):
    """Base of algorithms with a stochastic policy;
    its `networks`, `optimisers`, `prepare` and `update` ask `self.curiosity`, too.
    """

    store_kind = "rollout"
    actions = ("discrete", "multi_discrete", "multi_binary", "box")
    plain = True

    def __init__(self, config: Any, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.curiosity = Curiosity(config.curiosity, obs_spec, action_spec, model)

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        """V(s), of the network `value` or of the critic in `ac`."""
        if (critic := getattr(s, "value", None)) is not None:
            return critic(obs)
        if (ac := getattr(s, "ac", None)) is not None:
            return ac.value(obs) if state is None else ac.step(obs, state)[1]
        return super().expected_return(s, obs, state)

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return rule_for(self.action_spec)
