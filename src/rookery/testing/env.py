"""What the loop relies on in an engine: true successors, ends that are told apart, seeds that repeat, states that go
on to the bit.

    from rookery.testing.env import EnvContract

    class TestMyEngine(EnvContract):
        def make(self):  # always with the same seeds; episodes must end within `steps` steps
            return MyEngine(num=3, seed=7)

        def one(self, index):  # optional: the env behind column `index`, to be stepped by hand
            return gymnasium.make("Mine-v0")

An engine with several agents: `rookery.testing.multi_env`. An ordinary env (`gymnasium.Env`) is checked by
`rookery.check_env(MyEnv)` or `rookery check-env my_module:MyEnv`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest import SkipTest

import gymnasium
import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.core.spec import Leaf, spec_of
from rookery.core.tree import Tree, flatten, tree_map, tree_take, walk
from rookery.envs.actions import split
from rookery.envs.vector import Step, VectorEnv
from rookery.testing.comparing import assert_same, random_action, refusal, through_checkpoint


@dataclass(slots=True)
class Row:
    """One step of one env (or agent): what it acted on, what it did, what came of it."""

    obs: Tree
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    successor: Tree


@dataclass(slots=True)
class Record:
    """All that an engine gave, by env; the arrays are copies."""

    rows: list[list[Row]]
    ends: list[list[EpisodeEnd]]
    steps: list[Any] = field(default_factory=list)  # everything of every step, to be compared to the bit


class EnvContract:
    """Inherit it, define `make`; the other members are for engines that need something else."""

    steps = 200  # of every env, within which at least one episode must end
    repeats = True  # false: which env answers when depends on the clock, so nothing is repeated to the bit

    def make(self) -> VectorEnv:
        """A new engine that was not reset yet, of two envs or more, always with the same seeds."""
        raise TypeError(f"{type(self).__name__} must define make(self), which returns a new VectorEnv")

    def one(self, index: int) -> gymnasium.Env | None:
        """One env as the engine steps it in this column, wrappers and time limit included; None: it cannot be stepped
        by hand."""
        return None

    def action(self, env: VectorEnv, rng: np.random.Generator) -> Tree:
        """Actions [B, …] for one step; choices count from 0."""
        return random_action(env.action_spec, env.num, rng)

    # --- what must hold ---

    def test_specs_are_those_of_the_spaces_and_observations_have_their_form(self) -> None:
        with made(self) as env:
            assert env.num >= 2, f"make() gave {env.num} envs: mistakes between columns show only with two or more"
            assert env.obs_spec == spec_of(env.obs_space)
            assert env.action_spec == spec_of(env.action_space)
            check_form(env.obs, env.obs_spec, env.num)

    def test_every_row_is_a_step_or_a_hole(self) -> None:
        with made(self) as env:
            rng = np.random.default_rng(0)
            for _ in range(self.steps):
                check_step(env.step(self.action(env, rng)), env)

    def test_an_episode_counts_its_own_rows_and_ends_as_its_last_row_does(self) -> None:
        with made(self) as env:
            record = self._record(env, self.steps)
        assert any(record.ends), f"no episode ended within steps={self.steps}: shorten them, or set `steps` higher"
        for rows, ends in zip(record.rows, record.ends):
            assert [end.episode for end in ends] == list(range(len(ends))), "episodes are numbered from 0"
            at = 0
            for end in ends:
                own = rows[at : at + end.length]
                at += end.length
                assert [row.terminated or row.truncated for row in own] == [False] * (end.length - 1) + [True]
                assert (own[-1].terminated, own[-1].truncated) == (end.terminated, end.truncated)
                assert np.isclose(sum(row.reward for row in own), end.total, rtol=1e-4, atol=1e-4)
                for before, after in pairwise(own):
                    assert_same(before.successor, after.obs, "the successor of a row is what is acted on next")

    def test_the_rows_are_those_of_one_env_stepped_by_hand(self) -> None:
        with made(self) as env:
            record, convert = self._record(env, self.steps), split(env.action_space)
            for i, (rows, ends) in enumerate(zip(record.rows, record.ends)):
                hand = self.one(i)
                if hand is None:
                    raise SkipTest("one() gives no env, so there is nothing to compare with")
                for end in ends:
                    own, rows = rows[: end.length], rows[end.length :]
                    if end.seed is not None:
                        check_by_hand(hand, end.seed, own, env.obs_spec, convert)
                hand.close()

    def test_the_same_seeds_give_the_same_steps(self) -> None:
        self._if_it_repeats()
        with made(self) as first, made(self) as second:
            a, b = (self._record(env, self.steps).steps for env in (first, second))
        assert_same(a, b, "two engines with the same seeds and actions")

    def test_taking_its_state_changes_nothing(self) -> None:
        self._if_it_repeats()
        with made(self) as first, made(self) as second:
            expected = self._record(first, 30).steps
            actual = self._record(second, 30, looks=True).steps
        assert_same(expected, actual, "an engine whose state is taken before every step")

    def test_a_restored_engine_goes_on_to_the_bit_or_says_why_not(self) -> None:
        half = self.steps // 2
        with made(self) as first, made(self) as second:
            self._record(first, half)
            second.restore(through_checkpoint(first.state()))
            if second.exactness != "exact" or not self.repeats:
                assert len(second.exactness.split()) >= 4, f"exactness must be a sentence, it is {second.exactness!r}"
                assert any(self._record(second, half).rows), "a restored engine gives no rows any more"
                return
            assert_same(first.obs, second.obs, "what a restored engine acts on next")
            a, b = (self._record(env, half, seed=1).steps for env in (first, second))
        assert_same(a, b, "an engine and the one that was restored from its state")

    def test_beyond_a_limit_of_steps_the_other_envs_stay_as_they_were(self) -> None:
        self._if_it_repeats()
        with made(self) as env:
            rng, cut = np.random.default_rng(0), set[int]()  # an env that was cut may be about to begin anew
            for _ in range(20):
                before = tree_map(np.copy, env.obs)
                out = env.step(self.action(env, rng), steps=1)
                check_step(out, env)
                assert not out.valid[1:].any(), "step(steps=1) stepped more than the first env"
                cut |= set(out.cut)
                for i in set(range(1, env.num)) - cut:
                    assert_same(tree_take(before, i), tree_take(env.obs, i), f"env {i}, which was not stepped,")

    def test_no_more_episodes_end_than_are_asked_for(self) -> None:
        self._if_it_repeats()
        with made(self) as env:
            rng = np.random.default_rng(0)
            for _ in range(self.steps):
                out = env.step(self.action(env, rng), episodes=1)
                check_step(out, env)
                assert len(out.ended) <= 1, f"step(episodes=1) ended {len(out.ended)} episodes"

    def test_wrong_calls_are_refused_in_a_sentence(self) -> None:
        env = self.make()
        try:
            action = self.action(env, np.random.default_rng(0))
            refusal(lambda: env.step(action), "a step before the first reset")
            env.reset()
            refusal(lambda: env.step(tree_map(lambda x: x[:-1], action)), "a step with too few actions")
        finally:
            env.close()

    def test_infos_are_there_for_whoever_wants_them(self) -> None:
        with made(self) as env:
            env.wants_infos = True
            infos = env.step(self.action(env, np.random.default_rng(0))).infos
            assert infos is not None
            assert [type(info) for info in infos] == [dict] * env.num, "infos are one dict per env"

    def test_it_can_be_closed_twice(self) -> None:
        env = self.make()
        env.reset()
        env.close()
        env.close()

    # --- how it is looked at ---

    def _if_it_repeats(self) -> None:
        if not self.repeats:
            raise SkipTest("repeats = False: what this engine gives depends on the clock")

    def _record(self, env: VectorEnv, steps: int, seed: int = 0, looks: bool = False) -> Record:
        rng, record = np.random.default_rng(seed), Record([[] for _ in range(env.num)], [[] for _ in range(env.num)])
        pending: list[Any] = [None] * env.num  # (obs, action) with which a step began
        for _ in range(steps):
            if looks:
                through_checkpoint(env.state())
            action = self.action(env, rng)
            for i in range(env.num):
                pending[i] = pending[i] or (tree_map(np.copy, tree_take(env.obs, i)), tree_take(action, i))
            out = env.step(action)
            record.steps.append(copied(out))
            note(record, pending, out)
        return record


@contextmanager
def made(suite: EnvContract) -> Iterator[VectorEnv]:
    """A new engine that was reset; closed afterwards."""
    env = suite.make()
    try:
        env.reset()
        yield env
    finally:
        env.close()


def note(record: Record, pending: list[Any], out: Step) -> None:
    """Add the rows and ends of one step; `pending` keeps what belongs to steps that are not done."""
    final = dict(out.final)
    for i in range(len(out.valid)):
        if out.valid[i]:
            successor = final[i] if i in final else tree_take(out.obs, i)
            came_of_it = float(out.reward[i]), bool(out.terminated[i]), bool(out.truncated[i])
            obs, action = pending[i]
            record.rows[i].append(Row(obs, action, *came_of_it, tree_map(np.copy, successor)))
        if out.busy is None or not out.busy[i]:
            pending[i] = None
    for end in out.ended:
        record.ends[end.env].append(end)


def copied(out: Step) -> dict[str, Any]:
    """Everything of a step but infos, which are the env's own."""
    arrays = {name: getattr(out, name).copy() for name in ("reward", "terminated", "truncated", "valid")}
    ends = [(end.env, end.episode, end.seed, end.length, end.total, end.terminated, end.truncated) for end in out.ended]
    final = [(i, flatten(obs)) for i, obs in out.final]
    return arrays | {"obs": flatten(tree_map(np.copy, out.obs)), "final": final, "ended": ends, "cut": list(out.cut)}


def check_form(obs: Tree, spec: Tree, num: int) -> None:
    """Observations [num, …] have the shapes and dtypes of their spec."""
    arrays = flatten(obs)
    for path, leaf in walk(spec):
        assert path in arrays, f"the observation has no {path!r}"
        array, where = arrays[path], path or "obs"
        assert (array.shape, array.dtype) == ((num, *leaf.shape), leaf.dtype), f"{where} is {array.dtype} {array.shape}"
        assert array.dtype.kind != "f" or np.isfinite(array).all(), f"{where} holds NaN or infinity"


def check_step(out: Step, env: VectorEnv) -> None:
    """One step says of every env either what came of its action, or that it is a hole."""
    check_form(out.obs, env.obs_spec, env.num)
    for name, dtype in (("reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_), ("valid", np.bool_)):
        array = getattr(out, name)
        assert (array.shape, array.dtype) == ((env.num,), dtype), f"{name} is {array.dtype} {array.shape}"
    done, holes = out.terminated | out.truncated, ~out.valid
    assert not (holes & done).any(), "a hole ended an episode"
    assert not out.reward[holes].any(), "a hole has a reward"
    assert [i for i, _ in out.final] == np.flatnonzero(done).tolist(), "final must name exactly the envs that ended"
    assert sorted(end.env for end in out.ended) == np.flatnonzero(done).tolist(), "ended must, too"
    for end in out.ended:
        assert (end.terminated, end.truncated) == (bool(out.terminated[end.env]), bool(out.truncated[end.env]))
    quiet = not done.any() and out.valid.all() and not out.cut
    assert out.marked or quiet, "marked is false, but something ended or is a hole: nobody would look"


def check_by_hand(hand: gymnasium.Env, seed: int, rows: list[Row], spec: Tree, convert: Any) -> None:
    """Play one episode again in an env of its own, and compare."""
    seen, _ = hand.reset(seed=seed)
    for number, row in enumerate(rows):
        assert_same(as_spec(seen, spec), row.obs, f"seed {seed}: what row {number} acted on, by hand and by the engine")
        seen, reward, terminated, truncated, _ = hand.step(
            convert(tree_map(lambda x: np.asarray(x)[None], row.action))[0]
        )
        assert_same(
            as_spec(seen, spec), row.successor, f"seed {seed}: the successor of row {number}, by hand and by the engine"
        )
        assert np.float32(np.ravel(np.asarray(reward))[0]) == np.float32(row.reward), f"the reward of row {number}"
        flags = (bool(terminated), bool(truncated)), (row.terminated, row.truncated)
        assert flags[0] == flags[1], (
            f"row {number} is (terminated, truncated) = {flags[0]} by hand, {flags[1]} by the engine"
        )


def as_spec(obs: Any, spec: Tree) -> Tree:
    """One observation of a gymnasium env in the form that the engine gives it."""
    if isinstance(spec, Leaf):
        return np.asarray(obs, spec.dtype).reshape(spec.shape) - (spec.start if spec.kind == "discrete" else 0)
    named = (
        {str(i): part for i, part in enumerate(obs)} if isinstance(obs, tuple) else {str(k): v for k, v in obs.items()}
    )
    return {key: as_spec(named[key], part) for key, part in spec.items()}
