"""OnPolicy: what algorithms share that learn from rollouts of their own policy, in any space of actions."""

from __future__ import annotations

from typing import Any

from rookery.acting.rules import Rule, rule_for
from rookery.algos.base import Algorithm
from rookery.algos.curiosity import Curiosity
from rookery.core.tree import Tree


class OnPolicy(Algorithm):
    """Base of algorithms with a stochastic policy;
    its `networks`, `optimisers`, `prepare` and `update` ask `self.curiosity`, too.
    """

    store_kind = "rollout"
    actions = ("discrete", "multi_discrete", "multi_binary", "box", "nested")
    plain = True

    def __init__(self, config: Any, obs_spec: Tree, action_spec: Tree, model: Any):
        super().__init__(config, obs_spec, action_spec, model)
        self.curiosity = Curiosity(config.curiosity, obs_spec, action_spec, model)

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return rule_for(self.action_spec)
