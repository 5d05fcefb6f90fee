"""Negative controls: what is broken on purpose is caught, by the test that is there for it."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from rookery.algos.dqn import DQN, DQNConfig
from rookery.core import registry
from rookery.core.errors import EnvError
from rookery.core.tree import tree_map, tree_take
from rookery.data import ReplayConfig, ReplayStore, RolloutStore
from rookery.envs import DictAgents, InProcess
from rookery.envs.tasks.games import Shifts
from rookery.run.report.sinks import JsonLines, Sink
from rookery.testing.algorithm import AlgorithmContract
from rookery.testing.comparing import difference
from rookery.testing.env import EnvContract
from rookery.testing.multi_env import MultiEnvContract
from rookery.testing.pool import PoolContract
from rookery.testing.resume import ResumeContract
from rookery.testing.sink import SinkContract
from rookery.testing.store import StoreContract
from testing.test_envs import Walk, seed_of


def caught(suite, test, said):
    """The suite's test fails, and says why."""
    with pytest.raises(AssertionError, match=said):
        getattr(suite(), test)()


# --- engines ---


class ResetInPlaceOfFinal(InProcess):
    """The most common mistake of vector envs."""

    def step(self, action, steps=None, episodes=None):
        out = super().step(action, steps, episodes)
        out.final = [(i, tree_map(np.copy, tree_take(out.obs, i))) for i, _ in out.final]
        return out


class LimitIsDeath(InProcess):
    def step(self, action, steps=None, episodes=None):
        out = super().step(action, steps, episodes)
        out.terminated |= out.truncated
        out.truncated[:] = False
        for end in out.ended:
            end.terminated, end.truncated = True, False
        return out


class SilentEnd(InProcess):
    def step(self, action, steps=None, episodes=None):
        out = super().step(action, steps, episodes)
        out.ended = []
        return out


class Amnesia(InProcess):
    def restore(self, state):
        self.reset()


class MovesWhenLookedAt(InProcess):
    def state(self):
        state = super().state()
        super().step(np.zeros(self.num, np.int64))
        return state


class StepsThemAll(InProcess):
    def step(self, action, steps=None, episodes=None):
        return super().step(action)


class ClosesOnce(InProcess):
    closed = False

    def close(self):
        assert not self.closed, "closed before"
        self.closed = True
        super().close()


COUNTER = iter(range(10**6))
ENGINES = [
    (ResetInPlaceOfFinal, seed_of, "test_the_rows_are_those_of_one_env_stepped_by_hand", "the successor of row"),
    (LimitIsDeath, seed_of, "test_the_rows_are_those_of_one_env_stepped_by_hand", r"\(False, True\) by hand"),
    (SilentEnd, seed_of, "test_every_row_is_a_step_or_a_hole", "ended must"),
    (InProcess, lambda i, e: next(COUNTER), "test_the_same_seeds_give_the_same_steps", "same seeds and actions"),
    (Amnesia, seed_of, "test_a_restored_engine_goes_on_to_the_bit_or_says_why_not", "restored"),
    (MovesWhenLookedAt, seed_of, "test_taking_its_state_changes_nothing", "state is taken"),
    (StepsThemAll, seed_of, "test_beyond_a_limit_of_steps_the_other_envs_stay_as_they_were", "more than the first"),
    (StepsThemAll, lambda i, e: 2 * e, "test_no_more_episodes_end_than_are_asked_for", "ended 3 episodes"),
    (ClosesOnce, seed_of, "test_it_can_be_closed_twice", "closed before"),
]


@pytest.mark.parametrize(("engine", "seeds", "test", "said"), ENGINES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_engine_is_caught(engine, seeds, test, said):
    class Suite(EnvContract):
        steps = 60

        def make(self):
            return engine([Walk() for _ in range(3)], seeds)

        def one(self, index):
            return Walk()

    caught(Suite, test, said)


class RewardsHoles(DictAgents):
    def step(self, action, steps=None, episodes=None):
        out = super().step(action, steps, episodes)
        for step in out.agents.values():
            step.reward[~step.valid] = 1.0
        return out


class MultiAmnesia(DictAgents):
    def restore(self, state):
        self.reset()


@pytest.mark.parametrize(
    ("engine", "test", "said"),
    [
        (RewardsHoles, "test_a_row_begins_where_its_agent_acts_and_is_complete_once", "has a reward"),
        (MultiAmnesia, "test_a_restored_engine_goes_on_to_the_bit_or_says_why_not", "restored"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_broken_engine_of_several_agents_is_caught(engine, test, said):
    class Suite(MultiEnvContract):
        def make(self):
            return engine([Shifts() for _ in range(3)], seed_of)

    caught(Suite, test, said)


# --- stores ---


class SuccessorIsTheReset(ReplayStore):
    def add(self, chunk):
        chunk.final_obs = chunk.final_obs + 1  # what the next episode begins with
        super().add(chunk)


class LearnsFromHoles(RolloutStore):
    def sample(self):
        batch, keys = super().sample()
        return batch | {"valid": torch.ones_like(batch["valid"])}, keys


class AlwaysReady(ReplayStore):
    def ready(self):
        return self.size > 0


class ForgetsItsDebts(ReplayStore):
    def restore(self, state):
        super().restore(state | {"limiter": {"inserted": 0, "updates": 0}})


class Lazy(RolloutStore):
    """What waits for the next batch still lies in the collector's arrays."""

    def _take(self, chunk, owned=False):
        super()._take(chunk, owned=True)


class NotFinite(ReplayStore):
    def metrics(self):
        return super().metrics() | {"reuse": float("nan")}


STORES = [
    (SuccessorIsTheReset, "test_what_is_drawn_was_stored_and_has_its_true_successor", "an episode ends"),
    (LearnsFromHoles, "test_holes_are_never_drawn", "nothing was decided"),
    (AlwaysReady, "test_updates_are_granted_after_min_fill_and_at_the_promised_ratio", "the store granted"),
    (AlwaysReady, "test_metrics_are_finite_and_counts_only_grow", "still ready"),
    (ForgetsItsDebts, "test_a_restored_store_goes_on_to_the_bit", "restored from its state"),
    (Lazy, "test_the_arrays_of_a_chunk_may_be_used_again", "the successor of 1 is said to be 1"),
    (NotFinite, "test_metrics_are_finite_and_counts_only_grow", "not finite"),
]


@pytest.mark.parametrize(("store", "test", "said"), STORES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_store_is_caught(store, test, said):
    class Suite(StoreContract):
        min_fill, updates_per_step = 20, 0.5

        def make(self, rng):
            if issubclass(store, RolloutStore):
                return store(rows=8, columns=self.columns)
            config = ReplayConfig(capacity=90, batch_size=8, min_fill=20, updates_per_step=0.5, max_memory=None)
            return store(config, self.obs_spec, self.action_spec, self.columns, self.gamma, 1, rng)

    caught(Suite, test, said)


# --- algorithms ---


class AnyName(DQNConfig):
    name: str = "any"  # of the algorithm


class Broken(DQN):
    """What the algorithms below are besides."""

    Config = AnyName


class Unexplained(Broken):
    """Its metrics have no sentences."""

    name, metrics = "unexplained", {}


class Remembers(Broken):
    """Keeps a count that no state holds."""

    name, count = "remembers", 0

    def learn(self, learner, batch, rng):
        self.count += 1
        yield learner.step(batch | {"reward": batch["reward"] * self.count})


class Dice(Broken):
    """Draws from a generator of its own."""

    name = "dice"

    def learn(self, learner, batch, rng):
        yield learner.step(batch | {"reward": batch["reward"] * np.random.default_rng().random()})


class Idle(Broken):
    """Does nothing with what it is given."""

    name = "idle"

    def learn(self, learner, batch, rng):
        before = copy.deepcopy(learner.state())
        outputs = learner.step(batch)
        learner.restore(before)
        learner.updates += 1
        yield outputs


class Boastful(Broken):
    """Names a kind of space that it cannot act in."""

    name, actions = "boastful", ("discrete", "box")


class Blind(Broken):
    """Chooses without a look at the mask."""

    name = "blind"

    def rule(self, column=0, columns=None):
        rule = super().rule(column, columns)
        choose = type(rule).__call__
        rule.__class__ = type(
            "Blindly", (type(rule),), {"__call__": lambda s, o, r, k, m, g: choose(s, o, r, k, None, g)}
        )
        return rule


ALGORITHMS = [
    (Unexplained, "test_its_numbers_are_those_that_it_documents", "without a sentence"),
    (Remembers, "test_a_restored_run_goes_on_to_the_bit", "restored in its middle"),
    (Dice, "test_the_same_seed_gives_the_same_weights_and_another_does_not", "two runs with the same seed"),
    (Idle, "test_updates_change_the_weights_and_everything_stays_finite", "what they were"),
]


@pytest.fixture
def forgotten():
    known = registry.names("algo")
    yield
    for name in set(registry.names("algo")) - set(known):
        registry.unregister("algo", name)


def suite_of(cls):
    return type("Suite", (AlgorithmContract,), {"algo": cls})


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(("algo", "test", "said"), ALGORITHMS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_algorithm_is_caught(algo, test, said):
    caught(suite_of(algo), test, said)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("algo", "test", "error", "said"),
    [
        (Boastful, "test_it_builds_for_the_spaces_it_names_and_refuses_all_others", IndexError, "out of range"),
        (Blind, "test_it_never_takes_an_illegal_action", EnvError, "is illegal"),
    ],
)
def test_an_algorithm_that_breaks_by_itself_does_so_in_the_suite(algo, test, error, said):
    with pytest.raises(error, match=said):
        getattr(suite_of(algo)(), test)()


# --- sinks ---


class Formats(Sink):
    """Thinks that every value is a number."""

    def report(self, record):
        for value in record.values():
            assert f"{value:.3f}"


class Adds(JsonLines):
    """Never takes anything back."""

    def restore(self, state):
        pass


class ClosedTwice(Sink):
    file = None

    def open(self, folder, resume_step):
        self.file = open(Path(folder) / "x", "w")  # noqa: SIM115

    def close(self):
        self.file.close()
        self.file = None


class Changes(JsonLines):
    def report(self, record):
        record["extra"] = 1
        super().report(record)


@pytest.mark.parametrize(
    ("sink", "test"),
    [
        (Formats, "test_it_takes_whatever_a_report_holds_and_changes_nothing_in_it"),
        (Adds, "test_a_resumed_run_takes_back_what_came_after_its_checkpoint"),
        (ClosedTwice, "test_it_can_be_closed_twice_and_without_being_opened"),
        (Changes, "test_it_takes_whatever_a_report_holds_and_changes_nothing_in_it"),
    ],
)
def test_a_broken_sink_is_caught(sink, test):
    from testing.test_sinks import lines

    class Suite(SinkContract):
        def make(self):
            return sink()

        def written(self, folder):
            return lines(folder) if issubclass(sink, JsonLines) else None

    with pytest.raises((AssertionError, TypeError, ValueError, AttributeError)):
        getattr(Suite(), test)()


# --- pools ---


def spoilt(method, change):
    class Suite(PoolContract):
        def trainer(self, *words):
            trainer = super().trainer(*words)
            if not words:  # the one that is looked at, not the one it is compared with
                setattr(trainer.pool, method, change(getattr(trainer.pool, method)))
            return trainer

    return Suite


def shifted(gather):
    """One env's reward is another's."""

    def changed(*wait):
        gathered = gather(*wait)
        for _, chunks in gathered:
            chunks["main"].rows["obs"] = chunks["main"].rows["obs"][:, ::-1].copy()
        return gathered

    return changed


@pytest.mark.parametrize(
    ("method", "change", "test", "said"),
    [
        ("gather", lambda f: lambda *w: f(*w)[::-1],
            "test_chunks_come_back_in_the_order_of_the_workers_with_the_rows_asked_for", "order"),
        ("gather", shifted, "test_it_collects_what_one_process_does", "pool=local"),
        ("submit", lambda f: lambda m, rows, **limits: f(m, rows), "test_limits_of_steps_and_episodes_are_met_exactly",
            None),
        ("times", lambda f: lambda: (1, 1), "test_the_time_in_envs_and_in_acting_only_grows", "nanoseconds"),
        ("restore", lambda f: lambda state: None, "test_a_restored_pool_goes_on_to_the_bit", "restored"),
    ],
)  # fmt: skip
def test_a_broken_pool_is_caught(method, change, test, said):
    caught(spoilt(method, change), test, said)


# --- whole runs ---


@pytest.mark.slow
def test_a_run_that_cannot_be_repeated_is_caught(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=":")

    class Suite(ResumeContract):
        words = [
            *("--algo=dqn", "--env=testing.unrepeatable:Unrepeatable-v0", "train.max_steps=600", "store.min_fill=100"),
            *("checkpoint.every_steps=100", "log.sinks=[jsonl]", "learning.mode=eager", "model.hidden=[8]"),
        ]

    caught(Suite, "test_killed_and_resumed_equals_uninterrupted", "the resumed run differs")


def test_a_run_without_words_is_told_what_is_missing():
    caught(type("Suite", (ResumeContract,), {}), "test_killed_and_resumed_equals_uninterrupted", "must say in `words`")


# --- the suites themselves ---


@pytest.mark.parametrize("suite", [EnvContract, MultiEnvContract, StoreContract, SinkContract])
def test_a_suite_without_its_one_method_says_what_is_missing(suite):
    mine = type("Mine", (suite,), {})()
    with pytest.raises(TypeError, match=r"Mine must define make\(self"):
        mine.make(*([None] if suite is StoreContract else []))


def test_the_first_difference_is_named_with_its_place():
    a = {"x": [np.zeros(3), {"y": 1.0}], "z": float("nan")}
    b = {"x": [np.array([0.0, 2.0, 0.0]), {"y": 1.0}], "z": float("nan")}
    assert difference(a, a) is None
    assert difference(a, b) == "x[0]: np.float64(0.0) and np.float64(2.0) at (1,), 1 of 3 differ"
    assert difference({"a": 1}, {"b": 1}) == "they: the keys ['a'] and ['b']"
    assert difference(np.zeros(2, np.float32), np.zeros(2)) == "they: float32 (2,) and float64 (2,)"
