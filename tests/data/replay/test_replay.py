"""ReplayStore against a slow reference, and against numbers worked out by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.replay_reference import Envs, Reference, simple_chunk
from rookery.core.errors import BatchError, CheckpointError, ConfigError, UsageError
from rookery.core.spec import Leaf
from rookery.data import ReplayConfig, ReplayStore
from selection import slow_but

PAIR = Leaf("box", (2,), np.dtype(np.float32))
ONE = Leaf("box", (1,), np.dtype(np.float32))
CHOICE = Leaf("discrete", (), np.dtype(np.int64), (5,))


def config(**more: Any) -> ReplayConfig:
    return ReplayConfig(**{"capacity": 40, "batch_size": 8, "min_fill": 8, "max_memory": None, **more})


def store(
    columns: int = 1,
    gamma: float = 0.5,
    n_step: int = 1,
    collectors: int = 1,
    spec: Any = ONE,
    seed: int = 0,
    **more: Any,
) -> ReplayStore:
    stack, rng = more.pop("stack", 1), np.random.default_rng(seed)
    return ReplayStore(config(**more), spec, CHOICE, columns, gamma, n_step, rng, collectors, stack)


def by_obs(replay: ReplayStore, draws: int = 60) -> dict[float, tuple[float, float, float]]:
    """obs → (reward, discount, next_obs) of everything that is ever drawn; equal draws must be equal."""
    seen: dict[float, tuple[float, float, float]] = {}
    for _ in range(draws):
        batch, _ = replay.sample()
        numbers = (batch[name].reshape(-1).tolist() for name in ("obs", "reward", "discount", "next_obs"))
        for obs, reward, discount, successor in zip(*numbers):
            assert seen.setdefault(obs, (reward, discount, successor)) == (reward, discount, successor)
    return seen


def agree(replay: ReplayStore, reference: Reference, gamma: float, n: int, stack: int) -> set[int]:
    batch, keys = replay.sample()
    for i, key in enumerate(keys.tolist()):
        c, row = reference.number_of(key)
        assert row in reference.live(c), "a hole or an overwritten row was drawn"
        for name, wanted in reference.transition(c, row, n, gamma, stack).items():
            np.testing.assert_array_equal(batch[name][i].numpy(), wanted, err_msg=f"{name} of row {row} in column {c}")
    return set(keys.tolist())


SHAPES = [(n, stack, collectors) for n in (1, 3, 5) for stack in (1, 4) for collectors in (1, 3)]


@pytest.mark.parametrize(("n", "stack", "collectors"), slow_but(SHAPES, (1, 1, 1), (3, 4, 3)))
def test_every_transition_equals_the_slow_reference_over_thousands_of_chunks(
    n: int, stack: int, collectors: int
) -> None:
    rng = np.random.default_rng(n * 100 + stack * 10 + collectors)
    columns, gamma = 2 * collectors, 0.5  # powers of 1/2 are exact, so sums agree to the bit
    replay = store(columns, gamma, n, collectors, PAIR, capacity=13 * columns, stack=stack)
    reference = Reference(columns, collectors, keep=13)
    envs = [Envs(rng, 2, collector) for collector in range(collectors)]
    speed = np.array([4, 2, 1][:collectors]) / sum(
        [4, 2, 1][:collectors]
    )  # the first collector is four times as fast as the last
    for i in range(400):
        chunk = envs[rng.choice(collectors, p=speed)].chunk(int(rng.integers(1, 8)))
        replay.add(chunk)
        reference.add(chunk)
        assert replay.size == reference.size
        if i > 5 * collectors and reference.size:
            agree(replay, reference, gamma, n, stack)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 4),
    st.lists(st.integers(1, 25), min_size=1, max_size=25),
)
def test_any_series_of_chunk_lengths_agrees_with_the_reference(
    seed: int, keep: int, n: int, stack: int, lengths: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    replay = store(2, 0.5, n, 1, PAIR, capacity=2 * keep, stack=stack, batch_size=1, min_fill=1)
    reference, envs = Reference(2, 1, keep), Envs(rng, 2, ends=0.3, holes=0.3, lost=0.0)
    for length in lengths:  # chunks may be longer than the ring
        chunk = envs.chunk(length)
        replay.add(chunk)
        reference.add(chunk)
        assert replay.size == reference.size
        for _ in range(3 if reference.size else 0):
            agree(replay, reference, 0.5, n, stack)


def test_uniform_sampling_draws_every_valid_row_equally_often_and_no_hole() -> None:
    rng = np.random.default_rng(1)
    replay, reference = store(4, collectors=2, spec=PAIR, capacity=40), Reference(4, 2, 10)
    envs = [Envs(rng, 2, c, holes=0.4) for c in (0, 1)]
    for collector, rows in ((0, 7), (1, 4), (0, 8), (1, 4)):
        chunk = envs[collector].chunk(rows)
        replay.add(chunk)
        reference.add(chunk)
    counts: dict[int, int] = {}
    for _ in range(4000):
        for key in replay.sample()[1].tolist():
            counts[key] = counts.get(key, 0) + 1
    expected = 4000 * 8 / reference.size
    assert len(counts) == reference.size
    chi = sum((n - expected) ** 2 / expected for n in counts.values())
    assert chi < reference.size - 1 + 5 * (2 * (reference.size - 1)) ** 0.5  # 5 standard deviations of a chi-squared


def test_three_steps_stop_at_truncation_termination_and_the_head() -> None:
    replay = store(gamma=0.5, n_step=3)
    replay.add(simple_chunk([10, 11, 12], [1, 2, 4], 20, first=[0], ends={2: (False, 13)}))
    replay.add(simple_chunk([20, 21], [8, 16], 30, first=[0], ends={1: (True, 22)}))
    replay.add(simple_chunk([30, 31, 32, 33], [1, 1, 1, 2], 34, first=[0]))
    assert by_obs(replay) == {
        10: (1 + 2 / 2 + 4 / 4, 0.125, 13),  # the third step was truncated: still three steps and a bootstrap
        11: (2 + 4 / 2, 0.25, 13),
        12: (4, 0.5, 13),
        20: (8 + 16 / 2, 0, 22),  # terminated: no bootstrap
        21: (16, 0, 22),
        30: (1 + 1 / 2 + 1 / 4, 0.125, 33),
        31: (1 + 1 / 2 + 2 / 4, 0.125, 34),  # the last observation of the chunk is the successor
        32: (1 + 2 / 2, 0.25, 34),  # two steps to the head: γ²
        33: (2, 0.5, 34),
    }


def test_a_hole_is_stepped_over_and_never_drawn() -> None:
    replay = store(gamma=0.5, n_step=2)
    replay.add(simple_chunk([1, 2, 2, 2, 3], [1, 50, 60, 2, 4], 4, first=[0], holes=[1, 2]))
    assert by_obs(replay) == {1: (1 + 2 / 2, 0.25, 3), 2: (2 + 4 / 2, 0.25, 4), 3: (4, 0.5, 4)}


def test_a_hole_before_the_head_leaves_the_pending_observation_as_successor() -> None:
    replay = store(gamma=0.5, n_step=2)
    replay.add(simple_chunk([1, 2, 2], [1, 50, 60], 2, first=[0], holes=[1, 2]))
    assert by_obs(replay) == {1: (1, 0.5, 2)}


def test_a_lost_episode_bootstraps_from_the_last_observation_that_was_seen() -> None:
    replay = store(gamma=0.5, n_step=3)
    replay.add(simple_chunk([1, 2], [1, 2], 3, first=[0]))
    replay.add(simple_chunk([70], [9], 71, first=[0]))  # the env was renewed; 3 was never acted on
    assert by_obs(replay) == {1: (1 + 2 / 2, 0.25, 3), 2: (2, 0.5, 3), 70: (9, 0.5, 71)}


def test_an_env_renewed_while_its_column_waits_does_not_give_its_reset_as_a_successor() -> None:
    replay = store(gamma=0.5, n_step=3)
    replay.add(simple_chunk([1, 2], [1, 50], 2, first=[0], holes=[1]))
    replay.add(simple_chunk([70], [50], 70, first=[0], holes=[0]))  # renewed, and not acted in yet
    assert by_obs(replay) == {1: (1, 0.5, 2)}


def test_rows_of_a_dropped_episode_end_the_sum_of_those_stored_before() -> None:
    replay = store(gamma=0.5, n_step=3)
    replay.add(simple_chunk([1], [1], 2, first=[0]))
    replay.add(simple_chunk([2, 3, 70], [5, 5, 9], 71, first=[2], holes=[0, 1]))
    assert by_obs(replay) == {1: (1, 0.5, 2), 70: (9, 0.5, 71)}


def test_after_the_ring_is_full_the_oldest_rows_are_gone_and_the_seam_is_not_crossed() -> None:
    replay = store(gamma=0.5, n_step=3, capacity=8)
    replay.add(simple_chunk(list(range(1, 7)), [1] * 6, 7, first=[0]))
    replay.add(simple_chunk(list(range(7, 12)), [1] * 5, 12))  # rows 1 … 11, of which 4 … 11 stay
    three = 1 + 1 / 2 + 1 / 4
    expected = {float(i): (three, 0.125, float(i + 3)) for i in range(4, 10)}
    assert by_obs(replay) == expected | {10: (1.5, 0.25, 12), 11: (1, 0.5, 12)}
    assert replay.size == 8


def stacks(replay: ReplayStore) -> dict[float, tuple[list[float], list[float]]]:
    seen = {}
    for _ in range(60):
        batch, _ = replay.sample()
        assert batch["obs"].shape == (8, 3, 1)
        for obs, successor in zip(batch["obs"].squeeze(-1).tolist(), batch["next_obs"].squeeze(-1).tolist()):
            seen[obs[-1]] = (obs, successor)
    return seen


def test_stacks_repeat_the_first_frame_and_end_with_the_final_observation() -> None:
    replay = store(stack=3)
    replay.add(simple_chunk([1, 2, 3, 50], [0] * 4, 51, first=[0, 3], ends={2: (False, 4)}))
    assert stacks(replay) == {
        1: ([1, 1, 1], [1, 1, 2]),
        2: ([1, 1, 2], [1, 2, 3]),
        3: ([1, 2, 3], [2, 3, 4]),  # the final observation, not the reset observation 50
        50: ([50, 50, 50], [50, 50, 51]),
    }


def test_stacks_do_not_reach_behind_the_oldest_row() -> None:
    replay = store(stack=3, capacity=8)
    replay.add(simple_chunk(list(range(1, 12)), [0] * 11, 12, first=[0]))  # 4 … 11 stay
    seen = stacks(replay)
    assert seen[4] == ([4, 4, 4], [4, 4, 5])
    assert seen[5] == ([4, 4, 5], [4, 5, 6])
    assert seen[11] == ([9, 10, 11], [10, 11, 12])


def test_stacks_skip_holes() -> None:
    replay = store(stack=3)
    replay.add(simple_chunk([1, 2, 2, 3], [0] * 4, 4, first=[0], holes=[1]))
    assert stacks(replay) == {1: ([1, 1, 1], [1, 1, 2]), 2: ([1, 1, 2], [1, 2, 3]), 3: ([1, 2, 3], [2, 3, 4])}


def test_nested_observations_are_stacked_but_not_the_action_mask() -> None:
    spec = {
        "left/pixels": Leaf("box", (3,), np.dtype(np.uint8)),
        "action_mask": Leaf("multi_binary", (5,), np.dtype(np.int8), (2,) * 5),
    }
    replay = store(spec=spec, stack=2)
    chunk = simple_chunk([1, 2, 3], [0] * 3, 4, first=[0], ends={2: (True, 9)})
    grow = lambda x, n: np.repeat(x, n, axis=-1)  # noqa: E731
    types = {"left/pixels": (3, np.uint8), "action_mask": (5, np.int8)}
    make = lambda x: {name: grow(x, size).astype(kind) for name, (size, kind) in types.items()}  # noqa: E731
    chunk.rows["obs"], chunk.last_obs, chunk.final_obs = (
        make(chunk.rows["obs"]),
        make(chunk.last_obs),
        make(chunk.final_obs),
    )
    replay.add(chunk)
    batch, _ = replay.sample()
    last = (batch["obs"]["left/pixels"][:, -1, 0] == 3).nonzero()[0].item()
    assert batch["obs"]["left/pixels"].dtype == torch.uint8
    assert batch["obs"]["left/pixels"][last].tolist() == [[2, 2, 2], [3, 3, 3]]
    assert batch["next_obs"]["left/pixels"][last].tolist() == [[3, 3, 3], [9, 9, 9]]
    assert batch["obs"]["action_mask"][last].tolist() == [3] * 5
    assert batch["next_obs"]["action_mask"][last].tolist() == [9] * 5


def test_a_batch_has_the_promised_types_and_is_overwritten_by_the_next_unless_copied() -> None:
    replay = store(spec=PAIR)
    replay.add(Envs(np.random.default_rng(0), 1).chunk(30))
    batch, _ = replay.sample()
    copied, keys = replay.sample(copy=True)
    before = {name: value.clone() for name, value in copied.items()}, keys.copy()
    again, _ = replay.sample()
    types = {name: value.dtype for name, value in again.items()}
    f32 = torch.float32
    assert types == {"obs": f32, "next_obs": f32, "action": torch.int64, "reward": f32, "discount": f32, "weight": f32}
    assert again["obs"].data_ptr() == batch["obs"].data_ptr() != copied["obs"].data_ptr()
    assert all(torch.equal(copied[name], before[0][name]) for name in copied)
    assert (keys == before[1]).all()
    assert again["weight"].tolist() == [1.0] * 8


@pytest.mark.slow
def test_side_table_entries_are_used_again_so_memory_stays_flat() -> None:
    replay = store(spec=PAIR, columns=2, capacity=20)
    envs = Envs(np.random.default_rng(0), 2, ends=0.5)
    for _ in range(100):
        replay.add(envs.chunk(3))
    entries = len(replay._ring.obs_leaves[0].finals)
    for _ in range(2000):
        replay.add(envs.chunk(3))
    assert len(replay._ring.obs_leaves[0].finals) == entries == 64


def test_max_reuse_bounds_the_draws_of_every_row_and_then_the_store_is_not_ready() -> None:
    replay = store(spec=PAIR, columns=2, capacity=40, max_reuse=3, updates_per_step=100.0, batch_size=8, min_fill=8)
    envs, counts = Envs(np.random.default_rng(0), 2, lost=0.0), {}
    replay.add(envs.chunk(16))
    size = replay.size
    while replay.ready():
        for key in replay.sample()[1].tolist():
            counts[key] = counts.get(key, 0) + 1
    assert max(counts.values()) == 3
    assert (
        sum(1 for n in counts.values() if n < 3) + size - len(counts) < 8
    )  # fewer than a batch of rows had draws left
    left = 3 * size - sum(counts.values())  # draws, of at most 7 rows
    for _ in range(left // 8):
        replay.sample()
    with pytest.raises(UsageError, match="max_reuse=3"):
        replay.sample()
    replay.add(envs.chunk(16))  # fresh rows overwrite used ones
    assert replay.ready()


def test_when_nearly_all_rows_are_holes_the_few_others_are_still_drawn_equally_often() -> None:
    replay = store(batch_size=8, capacity=400)
    holes = [i for i in range(400) if i not in (3, 50, 399)]
    replay.add(simple_chunk(list(range(400)), [0] * 400, 400, holes=holes))
    counts = {3.0: 0, 50.0: 0, 399.0: 0}
    for _ in range(600):
        for obs in replay.sample()[0]["obs"].flatten().tolist():
            counts[obs] += 1
    assert all(abs(n - 1600) < 5 * 33 for n in counts.values())  # 4800 draws of 3 rows; standard deviation 32.7


def test_max_staleness_excludes_rows_of_older_weights() -> None:
    replay = store(max_staleness=2, batch_size=2, min_fill=2, updates_per_step=10.0)
    for version in range(6):
        replay.add(simple_chunk([10 * version, 10 * version + 1], [0, 0], 10 * version + 10, version=version))
    assert replay.ready()
    seen = set(by_obs(replay))
    assert seen == {30, 31, 40, 41, 50, 51}  # versions 3, 4, 5
    assert replay.size == 12
    replay.add(simple_chunk([90], [0], 91, version=100))
    assert not replay.ready()  # one fresh row is fewer than batch_size


def test_counters_agree_with_the_rows_under_reuse_staleness_and_overwriting() -> None:
    rng = np.random.default_rng(5)
    replay = store(4, spec=PAIR, collectors=2, capacity=60, max_reuse=2, max_staleness=6, updates_per_step=50.0)
    envs = [Envs(rng, 2, c, holes=0.3) for c in (0, 1)]
    for version in range(300):
        replay.add(envs[int(rng.integers(2))].chunk(int(rng.integers(1, 9)), version))
        ring = replay._ring
        for _ in range(int(rng.integers(3))):
            if replay.ready():
                replay.sample()
        rows = [
            (c, s)
            for lane in (0, 1)
            for s in ring.slots_of(lane)
            for c in (2 * lane, 2 * lane + 1)
            if ring.meta[s, c, 1] & 1
        ]
        fresh = [(c, s) for c, s in rows if ring.version_of[c // 2, s] >= ring.version - 6]
        assert replay.size == len(rows)
        assert ring.draws == sum(ring.meta[s, c, 3] for c, s in rows)
        assert ring.eligible == sum(ring.meta[s, c, 3] < 2 for c, s in fresh)


def test_the_store_grants_updates_by_the_ratio_after_min_fill() -> None:
    replay = store(updates_per_step=0.5, min_fill=10, batch_size=8)
    done = []
    for i in range(20):
        replay.add(simple_chunk([i], [0], i + 1))
        while replay.ready():
            replay.sample()
            done.append(i + 1)
    assert done == [12, 14, 16, 18, 20]  # one per two steps after the tenth


def test_metrics_say_size_fill_reuse_and_staleness() -> None:
    replay = store(batch_size=2, min_fill=2, capacity=8)
    assert replay.metrics() == {"size": 0, "fill": 0, "reuse": 0, "staleness": 0}
    replay.add(simple_chunk([1, 2, 3], [0] * 3, 4, version=0, holes=[2]))
    replay.add(simple_chunk([4], [0], 5, version=4))
    for _ in range(3):
        replay.sample()
    assert replay.metrics() == {
        "size": 3,
        "fill": 0.5,
        "reuse": 2.0,
        "staleness": 3.0,
    }  # 6 draws of 3 steps; ages 4 4 4 0


def saved(replay: ReplayStore) -> dict[str, Any]:
    return copy.deepcopy(replay.state())


@pytest.mark.parametrize("rows", [2, 40], ids=["half full", "wrapped"])
def test_a_restored_store_goes_on_bit_for_bit(rows: int) -> None:
    limits = {"max_reuse": 4, "max_staleness": 50, "updates_per_step": 0.3}
    make = lambda: store(4, 0.99, 3, 2, PAIR, capacity=60, stack=2, **limits)  # noqa: E731
    one, two, rng = make(), make(), np.random.default_rng(7)
    envs = [Envs(rng, 2, c) for c in (0, 1)]
    for version in range(rows):
        for env in envs[: 1 + version % 2]:
            one.add(env.chunk(2, version))
        while one.ready():
            one.sample()
    state = saved(one)
    two.restore(state)
    two._rng.bit_generator.state = one._rng.bit_generator.state
    for version in range(rows, rows + 30):
        for env in envs[: 1 + version % 2]:
            chunk = env.chunk(3, version)
            one.add(chunk)
            two.add(chunk)
        assert one.ready() == two.ready()
        assert one.metrics() == two.metrics()
        while one.ready():
            (a, keys_a), (b, keys_b) = one.sample(), two.sample()
            assert (keys_a == keys_b).all()
            assert all(torch.equal(a[name], b[name]) for name in a)
    assert one._limiter.updates > 0


def test_state_changes_nothing_and_holds_only_the_filled_region() -> None:
    replay = store(capacity=1000)
    replay.add(simple_chunk([1, 2, 3], [0] * 3, 4))
    rng, state = replay._rng.bit_generator.state, saved(replay)
    assert state["ring"]["fields"]["obs"].shape == (4, 1, 1)  # three rows and the pending observation
    assert replay._rng.bit_generator.state == rng
    np.testing.assert_equal(saved(replay), state)


def test_a_state_of_another_capacity_is_refused() -> None:
    one, two = store(), store(capacity=80)
    one.add(simple_chunk([1], [0], 2))
    with pytest.raises(CheckpointError, match=r"has 40 rows per column .* this one 80 .* same store.capacity"):
        two.restore(one.state())


def broken(**rows: Any) -> Any:
    chunk = simple_chunk([1, 2], [0, 0], 3, ends={1: (True, 9)})
    chunk.rows.update(rows)
    return chunk


def without(name: str) -> Any:
    chunk = broken()
    del chunk.rows[name]
    return chunk


def other(**parts: Any) -> Any:
    chunk = broken()
    for name, value in parts.items():
        setattr(chunk, name, value)
    return chunk


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (
            broken(obs=np.zeros((2, 1, 2), np.float32)),
            r"rows.obs must be float32 \(2, 1, 1\), but it is float32 \(2, 1, 2\)",
        ),
        (broken(obs=np.zeros((2, 1, 1))), "rows.obs must be float32 .* but it is float64"),
        (broken(action=np.zeros((2, 1), np.float32)), "rows.action must be int64"),
        (broken(reward=np.zeros((2, 1))), "rows.reward must be float32"),
        (broken(reward=np.zeros((1, 1), np.float32)), r"rows.reward must be float32 \(2, 1\)"),
        (broken(valid=np.ones((2, 1), np.int64)), "rows.valid must be bool"),
        (broken(action=[[1], [2]]), "rows.action must be int64 .* but it is a list"),
        (without("first"), "rows.first must be bool .* missing .*there is: .*obs"),
        (without("valid"), "rows.valid must be bool .* missing"),
        (without("obs"), "rows.obs .* missing"),
        (other(last_obs=np.zeros((2, 1), np.float32)), r"last_obs must be float32 \(1, 1\)"),
        (other(final_obs=np.zeros((2, 1), np.float32)), r"final_obs must be float32 \(1, 1\)"),
        (other(final_at=np.zeros((1, 3), np.int64)), r"final_at must be int64 \(1, 2\)"),
        (other(collector=1), "collectors 0 to 0"),
        (
            other(final_at=np.zeros((0, 2), np.int64), final_obs=np.zeros((0, 1), np.float32)),
            "ended but final_at does not list it",
        ),
        (other(final_at=np.array([[0, 0]])), "final_at lists a row that did not end"),
        (broken(first=np.array([[False], [True]])), "although the row before it did not end"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused_with_a_sentence_and_changes_nothing(chunk: Any, said: str) -> None:
    replay = store()
    replay.add(simple_chunk([1], [0], 2, first=[0]))
    before = saved(replay)
    with pytest.raises(BatchError, match=said):
        replay.add(chunk)
    np.testing.assert_equal(saved(replay), before)


def test_arrays_that_are_used_again_are_checked_again_as_soon_as_one_is_another() -> None:
    replay = store()
    chunk = simple_chunk([1], [0], 2, first=[0])
    replay.add(chunk)
    replay.add(chunk)
    chunk.rows["reward"] = chunk.rows["reward"].astype(np.float64)
    before = saved(replay)
    with pytest.raises(BatchError, match="reward"):
        replay.add(chunk)
    np.testing.assert_equal(saved(replay), before)


def test_small_integers_are_accepted_as_actions() -> None:
    replay = store()
    chunk = simple_chunk([1, 2], [0, 0], 3)
    chunk.rows["action"] = np.array([[3], [4]], np.int8)
    replay.add(chunk)
    assert set(replay.sample()[0]["action"].tolist()) == {3, 4}


def test_sampling_an_empty_store_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="of 0 stored steps 0 may be drawn"):
        store().sample()


def test_collectors_must_share_the_columns_equally() -> None:
    with pytest.raises(ConfigError, match="3 columns cannot be shared by 2 collectors"):
        store(columns=3, collectors=2)


def test_an_empty_chunk_is_no_insert() -> None:
    replay, envs = store(spec=PAIR), Envs(np.random.default_rng(0), 1)
    empty = envs.chunk(1)
    empty.rows = {name: value[:0] for name, value in empty.rows.items()}
    empty.final_at, empty.final_obs = np.zeros((0, 2), np.int64), np.zeros((0, 2), np.float32)
    replay.add(empty)
    assert replay.size == 0
