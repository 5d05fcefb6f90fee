"""Every store keeps the contract of stores."""

from __future__ import annotations

import numpy as np
import pytest

from rookery.core.spec import Leaf
from rookery.data import Demonstrations, Mixture, Replay, ReplayConfig, ReplayStore, RolloutStore
from rookery.data.replay.hindsight import GoalFunctions
from rookery.data.replay.leaf import stored_spec
from rookery.data.replay.sequences import Window
from rookery.testing.numbered_steps import NUMBER
from rookery.testing.store import StoreContract

CAPACITY = 90  # of about 290 steps that are added: rows are overwritten all the time


class OfReplays(StoreContract):
    """What the replays share."""

    min_fill, updates_per_step = 20, 0.5
    n_step, stack = 1, 1
    settings = {}

    def make(self, rng, rows=8, **more):
        options = {"min_fill": self.min_fill, "updates_per_step": self.updates_per_step} | self.settings
        config = ReplayConfig(capacity=CAPACITY, batch_size=rows, max_memory=None, **options)
        own = self.obs_spec, self.action_spec, self.columns, self.gamma, self.n_step
        return ReplayStore(config, *own, rng, total_steps=1000, **more)


class TestReplay(OfReplays): ...


class TestReplayOfThreeSteps(OfReplays):
    n_step = 3


class TestReplayThatIsLimited(OfReplays):
    min_fill = None  # the limits of reuse and age decide as well
    settings = {"min_fill": 20, "updates_per_step": 0.25, "max_reuse": 4, "max_staleness": 6}


class TestPrioritised(OfReplays):
    n_step = 2
    settings = {"priority": {"alpha": 0.7}}


class TestScratchFile(OfReplays):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.settings = {"mmap": str(tmp_path)}


class OfSequences(OfReplays):
    min_fill = None  # it also waits for the first whole sequence
    extras = {"state": {"h": Leaf("box", (2,), np.dtype(np.float32))}}

    def make(self, rng):
        self.settings = self.settings | {"min_fill": 20, "updates_per_step": 0.5}
        return super().make(rng, window=Window(4, 2, 2), extras=self.extras)


class TestSequences(OfSequences): ...


class TestPrioritisedSequences(OfSequences):
    settings = {"priority": {}}


class TestHindsight(OfReplays):
    obs_spec = {"observation": NUMBER, "achieved_goal": NUMBER, "desired_goal": NUMBER}
    rewards_stay = False  # they follow the new goals
    settings = {"hindsight": {"k": 3.0}}

    def make(self, rng):
        return super().make(rng, goals=GoalFunctions(lambda achieved, goal, infos: -np.abs(achieved - goal)[:, 0]))

    def test_a_new_goal_was_reached_later_in_the_same_episode(self):
        store, steps, _ = self._new()
        relabelled = 0
        for _ in range(self.chunks):
            store.add(steps.chunk(self.rows))
            for batch in self._drain(store):
                for row, goal in zip(self.drawn(batch), batch["obs"]["desired_goal"][:, 0].tolist()):
                    if goal == row.obs:
                        continue  # left as it was: the suite's goals are the observations
                    relabelled += 1
                    assert row.reward == -abs(row.successor - goal)
                    path = [steps.facts[number] for number in range(row.obs, int(goal) - 1)]
                    assert not any(fact.terminated or fact.truncated for fact in path)
        assert relabelled > 60


class TestMixture(OfReplays):
    """A quarter of each batch are demonstrations, whose numbers lie above all others."""

    FIRST = 5_000_000

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        self.path = tmp_path / "file"
        replay = Replay(6)
        for i in range(6):
            obs, after = (np.array([self.FIRST + i + k], np.float32) for k in (0, 1))
            replay.add(obs=obs, action=2, reward=1.0, terminated=i == 5, truncated=False, next_obs=after)
        replay.save(self.path)

    def make(self, rng):
        shown = Demonstrations(self.path, stored_spec(NUMBER, self.action_spec), 2, rng, gamma=self.gamma)
        return Mixture(
            {"replay": super().make(rng, rows=6), "demonstrations": shown}, {"replay": 0.75, "demonstrations": 0.25}
        )

    def test_an_empty_store_is_not_ready(self):
        assert not self.make(np.random.default_rng(0)).ready()  # its size counts the demonstrations

    def check(self, row, facts):
        if row.obs < self.FIRST:
            return super().check(row, facts)
        assert (row.action, row.reward, row.successor) == (2, 1.0, row.obs + 1)


class TestRollout(StoreContract):
    def make(self, rng):
        return RolloutStore(rows=8, columns=self.columns)  # chunks of five rows are cut
