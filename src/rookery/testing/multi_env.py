"""What the loop relies on in an engine with several agents: every row belongs to one agent, begins where it acts and
is complete once.

from rookery.testing.multi_env import MultiEnvContract

class TestMyEngine(MultiEnvContract):
    def make(self):  # always with the same seeds; episodes must end within `steps` steps
        return MyEngine(num=3, seed=7)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rookery.core.spec import Leaf, spec_of
from rookery.core.tree import Tree, tree_map
from rookery.envs.multi.env import MultiEnv
from rookery.envs.vector import Step
from rookery.testing.comparing import assert_same, random_action, refusal, through_checkpoint
from rookery.testing.env import check_form, copied


class MultiEnvContract:
    """Inherit it and define `make`."""

    steps = 200

    def make(self) -> MultiEnv:
        """A new engine that was not reset yet, of two envs or more, always with the same seeds."""
        raise TypeError(f"{type(self).__name__} must define make(self), which returns a new MultiEnv")

    def action(self, env: MultiEnv, rng: np.random.Generator) -> dict[str, Tree]:
        """Actions [B, …] of every agent that acts somewhere, legal ones where there is a mask."""
        return {agent: legal_action(env, agent, rng) for agent in env.agents if env.acting[agent].any()}

    def test_specs_are_those_of_the_spaces_of_every_agent(self) -> None:
        with opened(self) as env:
            assert env.num >= 2, f"make() gave {env.num} envs: mistakes between columns show only with two or more"
            assert tuple(env.obs_spec) == tuple(env.action_spec) == env.agents
            for agent in env.agents:
                assert env.obs_spec[agent] == spec_of(env.obs_spaces[agent])
                assert env.action_spec[agent] == spec_of(env.action_spaces[agent])
                check_form(env.obs[agent], env.obs_spec[agent], env.num)

    def test_a_row_begins_where_its_agent_acts_and_is_complete_once(self) -> None:
        with opened(self) as env:
            rng, open_rows, ended = np.random.default_rng(0), {a: np.zeros(env.num, bool) for a in env.agents}, 0
            for _ in range(self.steps):
                for agent in env.agents:
                    assert not (open_rows[agent] & env.acting[agent]).any(), (
                        f"{agent} must act, but its last row is open"
                    )
                    open_rows[agent] |= env.acting[agent]
                out = env.step(self.action(env, rng))
                for agent, step in out.agents.items():
                    check_agent(agent, step, open_rows[agent], env)
                    open_rows[agent] &= ~step.valid
                for end in out.ended:
                    left = [agent for agent in env.agents if open_rows[agent][end.env]]
                    assert not left, f"the episode of env {end.env} ended, but the rows of {left} did not"
                    assert np.isclose(sum(end.info["returns"].values()), end.total, atol=1e-4)
                ended += len(out.ended)
            assert ended, f"no episode ended within steps={self.steps}: shorten them, or set `steps` higher"

    def test_the_successor_of_a_row_is_what_its_agent_acts_on_next(self) -> None:
        with opened(self) as env:
            rng = np.random.default_rng(0)
            for _ in range(self.steps):
                out = env.step(self.action(env, rng))
                over = {end.env for end in out.ended}
                for agent, step in out.agents.items():
                    goes_on = step.valid & ~(step.terminated | step.truncated)
                    lost = [i for i in np.flatnonzero(goes_on & ~env.acting[agent]) if i not in over]
                    assert not lost, f"a row of {agent} is complete in envs {lost}, but it neither ended nor acts again"

    def test_the_same_seeds_give_the_same_steps_and_a_look_at_the_state_changes_nothing(self) -> None:
        with opened(self) as first, opened(self) as second:
            a, b = self._steps(first, self.steps), self._steps(second, self.steps, looks=True)
        assert_same(a, b, "two engines with the same seeds and actions")

    def test_a_restored_engine_goes_on_to_the_bit_or_says_why_not(self) -> None:
        half = self.steps // 2
        with opened(self) as first, opened(self) as second:
            self._steps(first, half)
            second.restore(through_checkpoint(first.state()))
            if second.exactness != "exact":
                assert len(second.exactness.split()) >= 4, f"exactness must be a sentence, it is {second.exactness!r}"
                return
            a, b = (self._steps(env, half, seed=1) for env in (first, second))
        assert_same(a, b, "an engine and the one that was restored from its state")

    def test_wrong_calls_are_refused_in_a_sentence(self) -> None:
        env = self.make()
        try:
            refusal(lambda: env.step({}), "a step before the first reset")
            env.reset()
            action = self.action(env, np.random.default_rng(0))
            refusal(lambda: env.step({}), "a step without the action of an agent that must act")
            refusal(lambda: env.step(action | {"nobody": 0}), "an action of an agent that does not exist")
            short = {agent: tree_map(lambda x: x[:-1], part) for agent, part in action.items()}
            refusal(lambda: env.step(short), "a step with too few actions")
        finally:
            env.close()

    def test_it_can_be_closed_twice(self) -> None:
        env = self.make()
        env.reset()
        env.close()
        env.close()

    def _steps(self, env: MultiEnv, steps: int, seed: int = 0, looks: bool = False) -> list[Any]:
        rng, record = np.random.default_rng(seed), []
        for number in range(steps):
            if looks and number % 10 == 0:
                through_checkpoint(env.state())
            out = env.step(self.action(env, rng))
            ends = [(end.env, end.episode, end.seed, end.length, end.total) for end in out.ended]
            record.append({agent: copied(step) for agent, step in out.agents.items()} | {"ends": ends})
        return record


@contextmanager
def opened(suite: MultiEnvContract) -> Iterator[MultiEnv]:
    """A new engine that was reset; closed afterwards."""
    env = suite.make()
    try:
        env.reset()
        yield env
    finally:
        env.close()


def legal_action(env: MultiEnv, agent: str, rng: np.random.Generator) -> Tree:
    """Random actions [B, …] of one agent; under a mask the drawn number chooses among the legal ones."""
    action = random_action(env.action_spec[agent], env.num, rng)
    obs, leaf = env.obs[agent], env.action_spec[agent]
    if not (isinstance(obs, dict) and "action_mask" in obs) or not isinstance(leaf, Leaf) or leaf.kind != "discrete":
        return action
    for i, mask in enumerate(obs["action_mask"]):
        legal = np.flatnonzero(mask)
        if len(legal):
            action[i] = legal[action[i] % len(legal)]
    return action


def check_agent(agent: str, step: Step, is_open: np.ndarray, env: MultiEnv) -> None:
    """One agent's part of a step."""
    done, holes = step.terminated | step.truncated, ~step.valid
    assert not (step.valid & ~is_open).any(), f"a row of {agent} is complete that never began"
    assert not (holes & done).any(), f"a hole of {agent} ended"
    assert not step.reward[holes].any(), f"a hole of {agent} has a reward"
    assert sorted(i for i, _ in step.final) == np.flatnonzero(done).tolist(), f"final of {agent} must name who ended"
    check_form(step.obs, env.obs_spec[agent], env.num)
