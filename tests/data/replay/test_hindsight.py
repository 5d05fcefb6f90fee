"""Goals in hindsight: whose they may be, how often, and what reward and discount become."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest

from data.replay_reference import Envs, Reference
from rookery.core.chunk import Chunk
from rookery.core.errors import ConfigError, EnvError
from rookery.core.spec import Leaf
from rookery.data import ReplayConfig, ReplayStore
from rookery.data.replay.hindsight import GoalFunctions

ONE, PAIR = (Leaf("box", (n,), np.dtype(np.float32)) for n in (1, 2))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))
GAMMA = 0.5


def distance(achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
    assert len(info) == len(achieved) == len(desired)
    return np.abs(achieved - desired).max(-1)


def equal(achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
    return (achieved == desired).all(-1)


def store(strategy: str = "future", k: float = 4, leaf: Leaf = ONE, columns: int = 1, **more: Any) -> ReplayStore:
    ends = more.pop("ends", equal)
    config = {"capacity": 40, "batch_size": 8, "min_fill": 8, "max_memory": None, **more}
    spec = {"observation": leaf, "achieved_goal": leaf, "desired_goal": leaf}
    return ReplayStore(
        ReplayConfig(**config, hindsight={"strategy": strategy, "k": k}),
        spec, CHOICE, columns, GAMMA, 1, np.random.default_rng(0), goals=GoalFunctions(distance, ends),
    )  # fmt: skip


def goal_chunk(plain: Chunk, goal: float = -1.0) -> Chunk:
    """The same rows seen by a goal env: what is achieved is the observation itself; the desired goal never changes."""

    def seen(obs: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": obs, "achieved_goal": obs.copy(), "desired_goal": np.full_like(obs, goal)}

    rows = {**plain.rows, "obs": seen(plain.rows["obs"])}
    more = plain.version, plain.collector
    return Chunk(rows, seen(plain.last_obs), seen(plain.final_obs), plain.final_at, *more)


def line(obs: list[float], last: float, **more: Any) -> Chunk:
    """One column with scalar observations and reward 100. more: ends, first and holes as in `simple_chunk`."""
    from data.replay_reference import simple_chunk

    return goal_chunk(simple_chunk(obs, [100.0] * len(obs), last, **more))


def drawn(replay: ReplayStore, draws: int = 300) -> dict[float, Counter]:
    """observation → how often each (goal, reward, discount) was given to it."""
    seen: dict[float, Counter] = {}
    for _ in range(draws):
        batch, _ = replay.sample()
        assert np.array_equal(batch["obs"]["desired_goal"], batch["next_obs"]["desired_goal"])
        columns = batch["obs"]["observation"], batch["obs"]["desired_goal"], batch["reward"], batch["discount"]
        for obs, goal, reward, discount in zip(*(x.reshape(-1).tolist() for x in columns)):
            seen.setdefault(obs, Counter())[goal, reward, discount] += 1
    return seen


def goals(replay: ReplayStore) -> dict[float, set[float]]:
    """observation → the goals it was given in hindsight."""
    return {obs: {goal for goal, _, _ in found if goal != -1.0} for obs, found in drawn(replay).items()}


def two_episodes(replay: ReplayStore) -> None:
    """10 → 11 → 12 → 13 (truncated, final 13), then 20 → 21 → 22 which goes on."""
    replay.add(line([10, 11, 12], 20, first=[0], ends={2: (False, 13)}))
    replay.add(line([20, 21], 22, first=[0]))


def test_future_goals_are_those_of_later_successors_of_the_same_episode() -> None:
    replay = store()
    two_episodes(replay)
    assert goals(replay) == {10: {11, 12, 13}, 11: {12, 13}, 12: {13}, 20: {21, 22}, 21: {22}}


def test_the_final_goal_is_the_last_of_the_episode_or_the_newest_of_a_running_one() -> None:
    replay = store("final")
    two_episodes(replay)
    assert goals(replay) == {10: {13}, 11: {13}, 12: {13}, 20: {22}, 21: {22}}


def test_goals_of_the_whole_episode_may_lie_before_the_step() -> None:
    replay = store("episode")
    two_episodes(replay)
    whole, running = {11.0, 12.0, 13.0}, {21.0, 22.0}
    assert goals(replay) == {10: whole, 11: whole, 12: whole, 20: running, 21: running}


def test_reward_and_discount_are_those_of_the_new_goal_and_the_rest_stays() -> None:
    """Goal 13 after 11 → 12: distance 1, not ended; after 12 → 13: distance 0, ended, though
    the step was only truncated."""
    replay = store()
    two_episodes(replay)
    found = drawn(replay)
    assert set(found[11]) == {(-1, 100, 0.5), (12, 0, 0), (13, 1, 0.5)}
    assert set(found[12]) == {(-1, 100, 0.5), (13, 0, 0)}


def test_a_terminated_step_goes_on_if_its_new_goal_was_not_reached() -> None:
    replay = store("episode")
    replay.add(line([1, 2], 9, first=[0], ends={1: (True, 4)}))
    assert set(drawn(replay)[2]) == {(-1, 100, 0), (2, 2, 0.5), (4, 0, 0)}  # 2 → 4: distance 2 to the goal 2


def test_without_compute_terminated_the_ends_stay_as_they_were() -> None:
    replay = store("episode", ends=None)
    replay.add(line([1, 2], 9, first=[0], ends={1: (True, 4)}))
    found = drawn(replay)
    assert set(found[1]) == {(-1, 100, 0.5), (2, 0, 0.5), (4, 2, 0.5)}
    assert set(found[2]) == {(-1, 100, 0), (2, 2, 0), (4, 0, 0)}


@pytest.mark.parametrize("k", [1, 4])
def test_k_of_k_plus_one_draws_are_relabelled_and_future_goals_are_uniform(k: int) -> None:
    replay = store(k=k)
    two_episodes(replay)
    found = drawn(replay, 4000)[10]
    total = sum(found.values())  # about 6400 of 32000 draws
    shares = {goal: sum(n for (g, _, _), n in found.items() if g == goal) / total for goal in (-1, 11, 12, 13)}
    assert shares[-1] == pytest.approx(1 / (k + 1), abs=0.03)
    for goal in (11, 12, 13):
        assert shares[goal] == pytest.approx(k / (k + 1) / 3, abs=0.03)


def test_holes_are_stepped_over_and_give_no_goal() -> None:
    replay = store()
    replay.add(line([1, 77, 77, 2], 3, first=[0], holes=[1, 2]))
    assert goals(replay) == {1: {2, 3}, 2: {3}}


def test_a_lost_episode_gives_the_observation_it_was_lost_at_and_nothing_beyond() -> None:
    replay = store()
    replay.add(line([1, 2], 3, first=[0]))
    replay.add(line([50, 51], 52, first=[0]))  # the env was renewed: 3 is the last that is known
    assert goals(replay) == {1: {2, 3}, 2: {3}, 50: {51, 52}, 51: {52}}


def test_the_seam_of_the_ring_is_crossed_and_what_was_overwritten_is_gone() -> None:
    replay = store("episode", capacity=4, min_fill=4, batch_size=4)
    replay.add(line([1, 2, 3], 4, first=[0]))
    replay.add(line([4, 5, 6], 7))  # five slots: 1 and 2 are overwritten
    assert goals(replay) == {obs: {4, 5, 6, 7} for obs in (3, 4, 5, 6)}


class Goals(Reference):
    """The slow answer to: which goals may this row be given?"""

    def allowed(self, c: int, i: int, strategy: str) -> list[tuple[float, ...]]:
        live, rows = self.live(c), self.columns[c].rows
        episode = [i]
        while rows[episode[-1]].final is None and (later := [j for j in live if j > episode[-1]]):
            episode.append(later[0])
        if strategy == "episode":
            while not rows[episode[0]].first and (earlier := [j for j in live if j < episode[0]]):
                if rows[earlier[-1]].final is not None:
                    break
                episode.insert(0, earlier[-1])
        found = [tuple(self.transition(c, j, 1, GAMMA, 1)["next_obs"].tolist()) for j in episode]
        return found[-1:] if strategy == "final" else found


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_every_goal_is_one_that_the_slow_reference_allows_and_all_of_them_occur(strategy: str) -> None:
    rng = np.random.default_rng(5)
    replay, reference, envs = store(strategy, leaf=PAIR, columns=3, capacity=27), Goals(3, 1, keep=9), Envs(rng, 3)
    for _ in range(150):
        chunk = envs.chunk(int(rng.integers(1, 8)))
        reference.add(chunk)
        replay.add(goal_chunk(chunk))
        if reference.size >= 8:
            batch, keys = replay.sample()
            for i, key in enumerate(keys.tolist()):
                c, row = reference.number_of(key)
                wanted = reference.transition(c, row, 1, GAMMA, 1)
                goal = tuple(batch["obs"]["desired_goal"][i].tolist())
                assert goal == (-1.0, -1.0) or goal in reference.allowed(c, row, strategy)
                assert np.array_equal(batch["obs"]["achieved_goal"][i], wanted["obs"])
                assert np.array_equal(batch["next_obs"]["achieved_goal"][i], wanted["next_obs"])
    seen: dict[tuple[int, int], set] = {}
    for _ in range(2000):
        batch, keys = replay.sample()
        for goal, key in zip(batch["obs"]["desired_goal"].tolist(), keys.tolist()):
            if goal != [-1.0, -1.0]:
                seen.setdefault(reference.number_of(key), set()).add(tuple(goal))
    assert seen == {(c, i): set(reference.allowed(c, i, strategy)) for c in range(3) for i in reference.live(c)}


def test_the_ring_keeps_what_happened_and_a_restored_store_draws_the_same() -> None:
    replay = store()
    two_episodes(replay)
    before = copy.deepcopy(replay.state())
    replay.sample()
    other = store()
    other.restore(copy.deepcopy(replay.state()))
    other._rng.bit_generator.state = replay._rng.bit_generator.state
    fields, kept = replay.state()["ring"]["fields"]["obs"], before["ring"]["fields"]["obs"]
    assert all(np.array_equal(fields[key], kept[key]) for key in kept)
    for _ in range(20):
        (a, keys), (b, others) = replay.sample(copy=True), other.sample(copy=True)
        assert np.array_equal(keys, others)
        assert np.array_equal(a["obs"]["desired_goal"], b["obs"]["desired_goal"])
        assert np.array_equal(a["reward"], b["reward"])


def test_stacked_frames_all_get_the_goal_and_the_newest_is_what_was_achieved() -> None:
    spec = {"observation": ONE, "achieved_goal": ONE, "desired_goal": ONE}
    config = ReplayConfig(capacity=40, batch_size=8, min_fill=8, max_memory=None, hindsight={"strategy": "final"})
    replay = ReplayStore(
        config, spec, CHOICE, 1, GAMMA, 1, np.random.default_rng(0), stack=2, goals=GoalFunctions(distance, None)
    )
    two_episodes(replay)
    for _ in range(40):
        batch, _ = replay.sample()
        for i in range(8):
            now, later = batch["obs"]["desired_goal"][i].flatten(), batch["next_obs"]["desired_goal"][i].flatten()
            assert now.tolist() == later.tolist()
            assert now[0] == now[1]
            if now[0] != -1:
                assert batch["reward"][i] == abs(batch["next_obs"]["achieved_goal"][i, -1, 0] - now[0])


@pytest.mark.parametrize(
    ("spec", "functions", "told"),
    [
        (
            ONE,
            GoalFunctions(distance),
            r"Dict with observation, achieved_goal, desired_goal; this one is box float32 \(1,\)",
        ),
        ({"observation": ONE, "achieved_goal": ONE}, GoalFunctions(distance), "has no desired_goal"),
        (
            {"observation": ONE, "achieved_goal": ONE, "desired_goal": PAIR},
            GoalFunctions(distance),
            r"of one shape and dtype; they are box float32 \(1,\) and box float32 \(2,\)",
        ),
        ({"observation": ONE, "achieved_goal": ONE, "desired_goal": ONE}, None, "needs the env's compute_reward"),
    ],
)
def test_an_env_that_is_no_goal_env_is_refused_in_a_sentence(spec: Any, functions: Any, told: str) -> None:
    config = ReplayConfig(max_memory=None, hindsight={})
    with pytest.raises(ConfigError, match=told):
        ReplayStore(config, spec, CHOICE, 1, GAMMA, 1, np.random.default_rng(0), goals=functions)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda a, d, info: 0.0, r"gave shape \(\) for \d+ goals of shape \(\d+, 1\)"),
        (lambda a, d, info: np.full(len(a), np.nan), "not finite"),
        (lambda a, d, info: info["x"], "failed for .* TypeError"),
    ],
)
def test_a_reward_function_that_does_not_work_on_arrays_is_named(wrong: Any, told: str) -> None:
    replay = store()
    two_episodes(replay)
    replay._hindsight._goals = GoalFunctions(wrong)
    with pytest.raises(EnvError, match=f"compute_reward.*{told}"):
        replay.sample()  # the chance that none of eight draws is relabelled is 0.2⁸
