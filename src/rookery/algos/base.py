"""Algorithm: the mathematics of learning. It knows no env, no store, no process and no file.

A subclass is one file: equations in its docstring, a frozen config, networks, `outputs` and a rule for acting,
`prepare` and named updates for learning. The words that an update may use are in `rookery.learning.update_words`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from rookery.acting.rules import Rule
from rookery.algos.choice import check_rewards, instead, remembering
from rookery.algos.config import AlgoConfig, Positive, Share
from rookery.algos.multi_discrete import Choices
from rookery.core.errors import ConfigError, UsageError
from rookery.core.schedule import Schedule, until
from rookery.core.spec import Leaf, describe, mask_of
from rookery.core.team import Team
from rookery.core.tree import Tree, leaves
from rookery.data.replay.sequences import Window
from rookery.learning.learner import Learner, Outputs
from rookery.learning.optim import Optimiser
from rookery.learning.torch_optim import chosen, eager_by_choice
from rookery.learning.update_types import UpdateBatch, UpdateState

__all__ = ["AlgoConfig", "Algorithm", "Positive", "Share", "kind_of"]


def kind_of(action_spec: Tree) -> str:
    """Of a space of actions: that of its leaf; "nested" for a Dict or Tuple."""
    return action_spec.kind if isinstance(action_spec, Leaf) else "nested"


class Algorithm:
    """Base of all algorithms; at most one class stands between: `OnPolicy` for rollouts, C51 for Rainbow.

    Args:
        config, model: the sections `algo` (of the class `Config`) and `model`.
        obs_spec, action_spec: of one observation as networks see it, frames stacked, and of one action.
    """

    name: ClassVar[str]
    Config: ClassVar[type[AlgoConfig]] = AlgoConfig
    store_kind: ClassVar[Literal["replay", "rollout"]]
    defaults: ClassVar[dict[str, Any]] = {}  # what this algorithm prefers in other sections of the config
    metrics: ClassVar[dict[str, str]] = {}  # metric → one sentence
    actions: ClassVar[tuple[str, ...]] = ()  # kinds of action space it can act in; nested: Dict and Tuple
    targets: dict[str, str] = {}  # target → the network it follows
    schedule: dict[str, int] = {"update": 1}  # named update → it runs at every n-th update
    eager_only: ClassVar[str | None] = None  # the reason why its update cannot be compiled
    corrects_lag: ClassVar[bool] = False  # whether a rollout of older weights is learnt from as such (pool.mode=async)
    recurrent: ClassVar[Literal["no", "may", "must"]] = "no"  # whether its networks can have a memory (model.core)
    sits: ClassVar[Literal["agent", "team"]] = "agent"  # what it learns: one agent, or a team with an axis of members
    own_rewards: ClassVar[bool] = False  # whether it can learn from the rewards of each member of a team, [N, G]
    plain: ClassVar[bool] = True  # what a class promises of the methods in its own body alone (`core.plain`)

    def __init__(self, config: Any, obs_spec: Tree, action_spec: Tree, model: Any):
        self.config, self.obs_spec, self.action_spec, self.model = config, obs_spec, action_spec, model
        if isinstance(action_spec, Leaf):
            self.choices = Choices(action_spec)  # of a discrete or multi-discrete action
        kind = kind_of(action_spec)
        if self.sits == "team":
            self.team = self._team()
        if kind not in self.actions or not leaves(action_spec):
            raise ConfigError(
                f"algo.name={self.name} acts in spaces of kind {' or '.join(self.actions)}, but the env's action space "
                f"is {describe(action_spec)}: {instead(kind, self.sits)} wrap the env."
            )
        self._check_mask()
        self._check_memory()
        check_rewards(self)
        if self.targets and hasattr(config, "target_every"):
            self.schedule = {"update": 1, "move_target": config.target_every}

    def _team(self) -> Team:
        """What it learns, if its class `sits` for a team."""
        team = Team.of(self.obs_spec, self.action_spec)
        if team is None:
            raise ConfigError(
                f"algo.name={self.name} learns a team, but it sits for a single agent, which sees "
                f"{describe(self.obs_spec)}. Name the team's members in env.teams, e.g. env.teams.team='*' for all."
            )
        return team

    def _check_memory(self) -> None:
        core = getattr(self.model, "core", None)
        if core is not None and self.recurrent == "no":
            able = remembering(kind_of(self.action_spec), self.sits)
            problem = f"model.core is set, but algo.name={self.name} does not learn from sequences."
            raise ConfigError(f"{problem} Use {able}, or remove model.core.")
        if core is None and self.recurrent == "must":
            raise ConfigError(
                f"algo.name={self.name} needs a memory: set model.core, e.g. model.core.kind=lstm model.core.size=64."
            )

    def _check_mask(self) -> None:
        mask, spec = mask_of(self.obs_spec), self.action_spec
        if mask is None:
            return
        wanted = (sum(leaf.choices for leaf in leaves(spec)),)
        if isinstance(mask, dict) or not wanted[0] or mask.shape != wanted:
            broken = f"a mask has one entry per choice, {wanted} here. Mend the mask or rename the entry"
            why = broken if wanted[0] else "only Discrete and MultiDiscrete actions can be masked. Rename the entry"
            form = "with parts" if isinstance(mask, dict) else f"of shape {mask.shape}"
            raise ConfigError(
                f"the observation has an `action_mask` {form}, but the action space is {describe(spec)}: {why}."
            )

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        """Cross-field rules of the whole config that are broken, as sentences that name both fields."""
        return []

    @classmethod
    def planned_updates(cls, config: Any) -> int:
        """Updates that a full run of this config will do; decides whether compiling pays."""
        planned = config.train.max_updates, cls.updates_of(config, config.train.max_steps)
        return min((n for n in planned if n is not None), default=0)

    @classmethod
    def updates_of(cls, config: Any, steps: int | None) -> int | None:
        """Updates that so many env steps bring; None: no limit on either."""
        if steps is None:
            return None
        if cls.store_kind == "replay":
            return int(max(steps - config.store.min_fill, 0) * config.store.updates_per_step)
        together = 1 if config.pool.mode == "async" else config.pool.workers  # workers whose rollouts are one batch
        rounds = steps // (config.env.num * together * config.algo.rollout)
        return rounds * config.algo.epochs * (config.algo.minibatches or 1)

    @property
    def rows(self) -> int | None:
        """Env steps per env and round; None: as many as an update waits for."""
        return self.config.rollout

    def networks(self) -> dict[str, nn.Module]:
        """Fresh networks by name; called once, with seeded global generators."""
        raise TypeError(f"{type(self).__name__} defines no networks()")

    def optimisers(self) -> dict[str, Optimiser]:
        """Which networks learn, and how."""
        raise TypeError(f"{type(self).__name__} defines no optimisers()")

    def chosen(self, own: Optimiser) -> Optimiser:
        """What the user wants in the place of one of `optimisers`."""
        return chosen(own, self.config.optimiser, self.config.optimiser_options)

    @classmethod
    def not_compiled(cls, config: Any) -> str | None:
        """The reason why the updates of this whole config cannot be compiled."""
        return cls.eager_only or eager_by_choice(config.algo.optimiser)

    def knobs(self) -> dict[str, Schedule]:
        """Scheduled numbers, by name: `s.knob.name` in updates, `knobs["name"]` in rules.

        By default all of the config's schedules; with `algo.warmup` also "random": 1 while actions are drawn
        uniformly, then 0.
        """
        schedules = {name: value for name, value in self.config if isinstance(value, Schedule)}
        return schedules | ({"random": until(self.config.warmup)} if hasattr(self.config, "warmup") else {})

    def rule(self, column: int = 0, columns: int | None = None) -> Rule:
        """How the outputs become an action, for the collector whose first of `columns` columns is `column`."""
        raise TypeError(f"{type(self).__name__} defines no rule()")

    def outputs(self, s: UpdateState, obs: Tree, state: Any, first: Any) -> tuple[dict[str, Tensor], Any]:
        """What the rule sees: outputs of the acting network, and its next state (feed-forward: unchanged)."""
        raise TypeError(f"{type(self).__name__} defines no outputs()")

    def expected_return(self, s: UpdateState, obs: Tree, state: Any) -> Tensor:
        """What `Policy.values` tells: Q(s, ·) [B, A] of algorithms that act by it; others say where their V or Q is."""
        if (q := self.outputs(s, obs, state, None)[0].get("q")) is None:
            raise UsageError(f"algo.name={self.name} learns no value of an observation, so there is none to look at")
        return self.choices.real(q)

    def memory(self) -> Tree:
        """Spec of one seat's hidden state; None without memory."""
        return None

    def window(self) -> Window | None:
        """The sequences it learns from; None: single steps."""
        return None

    def prepare(self, s: UpdateState, b: UpdateBatch) -> dict[str, Tree]:
        """Once per sampled batch, without gradient: advantages, fixed targets."""
        return {name: b[name] for name in b}

    def move_target(self, s: UpdateState, b: UpdateBatch) -> None:
        """target ← (1 − τ) target + τ source: the update of algorithms with `algo.target_every`."""
        for target, source in self.targets.items():
            s.follow(target, source, self.config.tau)

    def learn(self, learner: Learner, batch: dict[str, Tree], rng: np.random.Generator) -> Iterator[list[Outputs]]:
        """Python around updates: one item per update. By default one update per sampled batch."""
        yield learner.step(batch)
