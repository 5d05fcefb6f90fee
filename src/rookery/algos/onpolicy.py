"""OnPolicy: what algorithms share that learn from rollouts of their own policy, in any space of actions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rookery.acting.noise import StateDependentGaussian
from rookery.acting.rules import Rule, rule_for
from rookery.algos.base import Algorithm, kind_of
from rookery.algos.curiosity import Curiosity
from rookery.core.errors import ConfigError
from rookery.core.spec import describe
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
        if self.sde_every is not None and kind_of(action_spec) != "box":
            raise ConfigError(
                f"algo.sde_every={self.sde_every} is noise of continuous actions, but the env's action space is "
                f"{describe(action_spec)}. Set algo.sde_every=null."
            )

    @property
    def sde_every(self) -> int | None:
        """Steps for which exploration is one function of the state; None: noise of its own in every step."""
        return getattr(self.config, "sde_every", None)

    def expected_return(self, s: Any, obs: Tree, state: Any) -> Tensor:
        """V(s), of the network `value` or of the critic in `ac`."""
        if (critic := getattr(s, "value", None)) is not None:
            return critic(obs)
        if (ac := getattr(s, "ac", None)) is not None:
            return ac.value(obs) if state is None else ac.step(obs, state)[1]
        return super().expected_return(s, obs, state)

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        return (
            rule_for(self.action_spec)
            if self.sde_every is None
            else StateDependentGaussian(self.action_spec, self.sde_every)
        )
