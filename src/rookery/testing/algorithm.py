"""What the loop relies on in an algorithm: it says what it needs, acts within the space, learns, and repeats and
resumes to the bit.

from rookery.testing.algorithm import AlgorithmContract, CompiledContract

class TestMine(AlgorithmContract):
    algo = Mine  # the class, or the name it is registered under
    env = "CartPole-v1"  # an id, or a class or function that makes one
    words = ("algo.rollout=8", "model.hidden=[8]")  # a small config: a few hundred steps must bring several updates

@pytest.mark.slow  # it compiles
class TestMineCompiled(CompiledContract):
    algo, env, words = Mine, "CartPole-v1", TestMine.words
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from unittest import SkipTest

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.algos.base import Algorithm
from rookery.core import registry
from rookery.core.config.fields import comments_of
from rookery.core.spec import spec_of
from rookery.core.tree import leaves
from rookery.run.config.resolve import Config, load_config
from rookery.run.trainer import Trainer
from rookery.testing.comparing import assert_same, difference, random_action, refusal, through_checkpoint

SPACES: dict[str, spaces.Space] = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-2, 2, (2,), np.float32),
    "nested": spaces.Dict({"aim": spaces.Box(-2, 2, (2,), np.float32), "go": spaces.Discrete(3)}),
}
TINY = ("env.num=2", "model.hidden=[8]", "learning.mode=eager", "log.sinks=[]", "eval.num=2", "eval.episodes=2")
OFF_POLICY = ("store.min_fill=24", "store.batch_size=16", "store.capacity=200", "store.updates_per_step=0.25")


@dataclass(slots=True)
class Run:
    """What one short run gave, for all tests of a suite."""

    before: dict[str, Any]  # tensors of the learner
    after: dict[str, Any]
    middle: dict[str, Any]  # state of the trainer half-way, as a checkpoint keeps it
    learnt: list[str]  # those that an optimiser moves
    updates: int
    steps: int
    metrics: dict[str, Any]
    knobs: tuple[dict[str, float], dict[str, float]]


class _OneAlgorithm:
    """How the algorithm of a suite is run."""

    algo: str | type[Algorithm] = ""
    env: Any = "CartPole-v1"
    words: tuple[str, ...] = ()  # `key=value`, as on the command line
    steps = 96  # of the short run

    def config(self, *more: str) -> Config:
        """The suite's config: TINY and, of algorithms with a replay, OFF_POLICY, then its own words."""
        assert self.algo, f"{type(self).__name__} must say which `algo` it is about"
        replay = OFF_POLICY if self._class().store_kind == "replay" else ()
        said = [*TINY, *replay, f"train.max_steps={self.steps}", *self.words, *more]
        last = {word.partition("=")[0]: word for word in said}  # a suite's own words stand in place of ours
        env = self.env if isinstance(self.env, str) else None
        return load_config(algo=self.algo, env=env, overrides=list(last.values()))

    def trainer(self, *more: str) -> Trainer:
        """A new run."""
        return Trainer(self.config(*more), env=None if isinstance(self.env, str) else self.env)

    def _class(self) -> type[Algorithm]:
        return registry.lookup("algo", self.algo) if isinstance(self.algo, str) else self.algo


class AlgorithmContract(_OneAlgorithm):
    """Inherit it and say which `algo` it is; `env` and `words` make a short run of it possible."""

    _runs: ClassVar[dict[type, Run]] = {}  # one per suite: the run is what takes the time

    # --- what must hold ---

    def test_it_says_what_it_is_and_what_it_needs(self) -> None:
        cls = self._class()
        assert cls.name, "an algorithm needs a name"
        assert cls.actions, "actions: the kinds of action space that it can act in"
        assert set(cls.actions) <= set(SPACES), f"actions={cls.actions}: known are {list(SPACES)}"
        assert cls.store_kind in ("replay", "rollout")
        assert cls.recurrent in ("no", "may", "must")
        assert inspect.getdoc(inspect.getmodule(cls)) or inspect.getdoc(cls), "a docstring says what it computes"
        undocumented = set(cls.Config.model_fields) - set(comments_of(cls.Config))
        assert not undocumented, f"options without a comment beside them: {sorted(undocumented)}"
        assert all(text.strip() for text in cls.metrics.values()), "every metric has a sentence"

    def test_it_builds_for_the_spaces_it_names_and_refuses_all_others(self) -> None:
        cls, config = self._class(), self.config()
        seen = spec_of(spaces.Box(-1, 1, (3,), np.float32))
        for kind, space in SPACES.items():
            if kind not in cls.actions:
                build = partial(cls, config.algo, seen, spec_of(space), config.model)
                refusal(build, f"a space of kind {kind}, which `actions` does not name,")
                continue
            algo = cls(config.algo, seen, spec_of(space), config.model)
            assert algo.networks(), f"{kind}: networks() gives none"
            rule = algo.rule()
            actions = random_action(spec_of(space), 8, np.random.default_rng(0))
            pairs = zip(leaves(rule.to_env(rule.from_env(actions))), leaves(actions), strict=True)
            assert all(np.allclose(*pair, atol=1e-5) for pair in pairs), f"{kind}: from_env is no inverse of to_env"

    def test_it_acts_within_the_space(self) -> None:
        env = self.one()
        space, (obs, _) = env.action_space, env.reset(seed=0)
        with self.trainer() as trainer:
            for greedy in (True, False):
                policy = trainer.policy()
                for _ in range(8):
                    action = np.asarray(policy({"obs": many(obs)}, greedy=greedy).action)[0]
                    env_action = int(action) if isinstance(space, spaces.Discrete) else action.astype(space.dtype)
                    assert space.contains(env_action), f"greedy={greedy}: {env_action} is not in {space}"
        env.close()

    def one(self) -> gymnasium.Env:
        """One env of the suite, with the wrappers of `words` if there are any."""
        return gymnasium.make(self.env) if isinstance(self.env, str) else self.env()

    def test_it_never_takes_an_illegal_action(self) -> None:
        if "discrete" not in self._class().actions:
            raise SkipTest("only choices can be masked")
        with Trainer(self.config("env.id=rookery/ProbeMask-v0", "env.faults.renewals=0")) as trainer:
            _to(trainer, self.steps)  # the probe raises at an illegal action
            trainer.evaluate()

    def test_updates_change_the_weights_and_everything_stays_finite(self) -> None:
        run = self._run()
        assert run.updates >= 2, f"{run.steps} steps brought {run.updates} updates: `words` should make more of them"
        still = [name for name in run.learnt if not difference(run.before[name], run.after[name])]
        assert not still, f"after {run.updates} updates these weights are what they were: {still}"
        for name, tensor in run.after.items():
            assert np.isfinite(np.asarray(tensor, np.float64)).all(), f"{name} holds NaN or infinity"
        wrong = {k: v for k, v in run.metrics.items() if isinstance(v, float) and not math.isfinite(v) and _learnt(k)}
        assert not wrong, f"metrics are not finite: {wrong}"

    def test_its_numbers_are_those_that_it_documents(self) -> None:
        documented, names = self._class().metrics, {k for k in self._run().metrics if _learnt(k)}
        assert names <= set(documented), f"metrics without a sentence in `metrics`: {sorted(names - set(documented))}"
        assert names, "an update tells nothing: it should return its losses"

    def test_its_knobs_follow_their_schedules(self) -> None:
        with self.trainer() as trainer:
            schedules = trainer.algo.knobs()
        early, late = self._run().knobs
        assert set(schedules) == set(early) == set(late), "every knob of knobs() travels"
        assert all(math.isfinite(value) for value in (*early.values(), *late.values()))
        still = [name for name, s in schedules.items() if _moves(s, self.steps) and early[name] == late[name]]
        assert not still, f"knobs that should have moved within {self.steps} steps: {still}"

    def test_the_same_seed_gives_the_same_weights_and_another_does_not(self) -> None:
        run = self._run()
        with self.trainer() as again, self.trainer("run.seed=1234") as other:
            assert_same(run.before, _tensors(again), "networks of the same seed")
            assert difference(run.before, _tensors(other)), "the seed changes nothing: networks() draws from elsewhere"
            _to(again, self.steps)
            assert_same(run.after, _tensors(again), "two runs with the same seed")

    def test_a_restored_run_goes_on_to_the_bit(self) -> None:
        run = self._run()
        with self.trainer() as resumed:
            resumed.restore(run.middle)
            _to(resumed, self.steps)
            assert (resumed.steps, resumed.updates) == (run.steps, run.updates)
            assert_same(run.after, _tensors(resumed), "the straight run and the one restored in its middle")

    # --- how it is looked at ---

    def _run(self) -> Run:
        if type(self) not in self._runs:
            with self.trainer() as trainer:
                before, half = _tensors(trainer), self.steps // 2
                trainer.round()
                early = dict(trainer.players.main.knob_values)
                _to(trainer, half)
                middle = through_checkpoint(trainer.state())
                _to(trainer, self.steps)
                knobs = early, dict(trainer.players.main.knob_values)
                learnt = [f"{name}.value" for name in trainer.learner.optimisers if name in trainer.learner.nets]
                counts = learnt, trainer.updates, trainer.steps
                self._runs[type(self)] = Run(
                    before, _tensors(trainer), middle, *counts, trainer.report().metrics, knobs
                )
        return self._runs[type(self)]


class CompiledContract(_OneAlgorithm):
    """The compiled update agrees with the eager one at every state of an eager run. Compiling takes seconds: mark it
    slow."""

    within = 1e-5  # of the size of each tensor
    steps = 120

    def test_compiled_equals_eager(self) -> None:
        if reason := self._class().eager_only:
            raise SkipTest(f"it is never compiled: {reason}")
        with self.trainer() as eager, self.trainer("learning.mode=compiled") as compiled:
            while eager.steps < self.steps:
                compiled.restore(eager.state())
                for trainer in (eager, compiled):
                    trainer.round()
                for name, tensor in eager.learner.tensors.items():
                    a, b = (np.asarray(x.detach(), np.float64) for x in (tensor, compiled.learner.tensors[name]))
                    far = float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(a)), 1e-9)
                    assert far < self.within, f"{name} after step {eager.steps}: {far:.2g} of its size apart"
            assert eager.updates > 1
            assert compiled.learner.compiled, f"nothing was compiled: {compiled.learner.note or 'no reason is given'}"


def many(obs: Any) -> Any:
    """One observation as a batch of one."""
    if isinstance(obs, dict):
        return {key: many(part) for key, part in obs.items()}
    return tuple(many(part) for part in obs) if isinstance(obs, tuple) else np.asarray(obs)[None]


def _tensors(trainer: Trainer) -> dict[str, Any]:
    return {name: tensor.detach().clone().numpy() for name, tensor in trainer.learner.tensors.items()}


def _to(trainer: Trainer, steps: int) -> None:
    while trainer.steps < steps:
        trainer.round()


def _learnt(metric: str) -> bool:
    """Whether a number of a report is the algorithm's own."""
    general = ("episode/", "eval/", "time/", "store/", "knob/", "env/", "pool/", "grad/", "sentinel/")
    return metric not in ("steps", "updates", "episodes") and not metric.startswith(general)


def _moves(schedule: Any, steps: int) -> bool:
    whole = schedule.resolved(steps)
    return bool(whole.at(1) != whole.at(steps - 1))
