"""Windows: sequences for a memory, against a slow reference and by hand."""

import numpy as np
import pytest
from gymnasium import spaces

from data.replay_reference import Envs, Reference, simple_chunk
from rookery.core.spec import Leaf, spec_of
from rookery.data.config import ReplayConfig
from rookery.data.replay.sequences import Window
from rookery.data.replay.store import ReplayStore
from rookery.kernels import gather, sequence
from selection import slow_but

F32 = np.dtype(np.float32)


def store(window, columns=1, collectors=1, capacity=50, batch=4, width=1, extras=None, seed=0, priority=None):
    options = {"min_fill": batch, "updates_per_step": 100, "priority": priority}
    config = ReplayConfig(capacity=capacity, batch_size=batch, **options)
    obs, action = spec_of(spaces.Box(-np.inf, np.inf, (width,), np.float32)), spec_of(spaces.Discrete(5))
    rng = np.random.Generator(np.random.PCG64(seed))
    return ReplayStore(config, obs, action, columns, 0.9, 1, rng, collectors, window=window, extras=extras)


def ready(replay):
    ring = replay._ring
    flags = ring.meta[..., gather.FLAGS]
    live = np.zeros_like(flags, bool)
    for lane in range(len(ring.lanes)):
        lo = int(ring.lanes[lane, gather.LO])
        live[ring.slots_of(lane), lo : lo + ring.width] = True
    return {int(slot * ring.columns + c) for slot, c in np.argwhere((flags & sequence.READY).astype(bool) & live)}


def test_the_kernel_knows_the_ring_of_gather():
    for name in (
        "REWARD",
        "FLAGS",
        "FINAL",
        "VALID",
        "FIRST",
        "TERMINATED",
        "TRUNCATED",
        "CUT",
        "CLOSED",
        "LO",
        "WIDTH",
        "HEAD",
        "COUNT",
    ):
        assert getattr(sequence, name) == getattr(gather, name), name
    assert sequence.READY & (gather.VALID | gather.FIRST | gather.CLOSED) == 0


def test_windows_by_hand():
    # length 3, stride 2, burn-in 1; seven rows 10 … 16 of one episode that ends with 17
    replay = store(Window(3, 1, 2), batch=1)
    replay.add(simple_chunk([10, 11, 12, 13], [0, 1, 2, 3], 14, first=[0]))
    assert ready(replay) == {0}  # rows 0-2 are there; the window at 2 still waits for row 4
    replay.add(simple_chunk([14, 15, 16], [4, 5, 6], 90, ends={2: (True, 17)}))
    assert ready(replay) == {0, 2, 4, 6}  # the end completes the windows at 4 and 6
    seen = {}
    for _ in range(60):
        batch, keys = replay.sample()
        seen[int(keys[0])] = {k: v.numpy()[:, 0].copy() for k, v in batch.items() if k not in ("weight",)}
    assert set(seen) == {0, 2, 4, 6}
    one = seen[2]
    assert one["obs"][:, 0].tolist() == [11, 12, 13, 14]
    assert one["next_obs"][:, 0].tolist() == [12, 13, 14, 15]
    assert one["reward"].tolist() == [1, 2, 3, 4]
    assert one["valid"].all()
    assert not one["done"].any()
    start = seen[0]  # nothing to warm up with before the start of an episode
    assert start["valid"].tolist() == [False, True, True, True]
    assert start["first"].tolist() == [False, True, False, False]
    assert start["obs"][1:, 0].tolist() == [10, 11, 12]
    end = seen[6]
    assert end["valid"].tolist() == [True, True, False, False]
    assert end["terminated"].tolist() == [False, True, False, False]
    assert end["next_obs"][:2, 0].tolist() == [16, 17]  # the true final observation, not the reset


def test_the_state_is_that_of_the_first_real_row():
    leaf = {"h": Leaf("box", (2,), F32)}
    replay = store(Window(2, 2, 1), batch=8, extras={"state": leaf})
    chunk = simple_chunk([10, 11, 12, 13, 14], [0] * 5, 15, first=[0])
    chunk.rows["state"] = {"h": np.arange(10, dtype=np.float32).reshape(5, 1, 2)}
    replay.add(chunk)
    batch, keys = replay.sample()
    assert batch["state"]["h"].shape == (1, 8, 2)
    for i, key in enumerate(keys):
        first = max(0, int(key) - 2)  # two rows of burn-in, fewer at the start
        assert batch["state"]["h"][0, i].tolist() == [2 * first, 2 * first + 1]


def test_a_window_that_is_not_complete_is_never_drawn_and_the_store_waits_for_the_first():
    replay = store(Window(4, 0, 2), batch=2)
    replay.add(simple_chunk([10, 11, 12], [0] * 3, 13, first=[0]))
    assert not replay.ready()
    replay.add(simple_chunk([13], [0], 14))
    assert replay.ready()
    assert set(replay.sample()[1].tolist()) == {0}


def test_an_episode_that_was_lost_ends_its_windows():
    replay = store(Window(4, 0, 2), batch=32)
    replay.add(simple_chunk([10, 11, 12], [1, 1, 1], 13, first=[0]))
    replay.add(simple_chunk([20], [0], 21, first=[0]))  # another episode, though the last did not end
    assert ready(replay) == {0, 2}
    batch, keys = replay.sample()
    at = list(keys).index(2)
    assert batch["valid"][:, at].tolist() == [True, False, False, False]
    assert batch["next_obs"][0, at].tolist() == [13]
    assert batch["done"][0, at]
    assert not batch["terminated"][0, at]


@pytest.mark.parametrize("priority", [None, {"alpha": 1.0, "beta": 0.0, "initial": "actor"}])
def test_a_lost_episode_may_be_noticed_in_the_middle_of_a_chunk(priority):
    """The env breaks in the first row of a chunk and begins again in the second: what came
    before ended with the last chunk."""
    replay = store(Window(4, 0, 2), batch=32, priority=priority)
    chunks = [
        simple_chunk([10, 11, 12], [1, 1, 1], 13, first=[0]),
        simple_chunk([13, 20, 21], [0, 0, 0], 22, first=[1], holes=[0]),
    ]
    for chunk, errors in zip(chunks, ([1.0, 2.0, 3.0], [9.0, 9.0, 9.0])):
        if priority is not None:
            chunk.rows["priority"] = np.array(errors, np.float32)[:, None]
        replay.add(chunk)
    assert ready(replay) == {0, 2}
    if priority is not None:
        leaves = replay._prioritised.priorities.leaves
        assert leaves[[0, 2]].tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 3.0], abs=1e-5)
        assert np.flatnonzero(leaves).tolist() == [0, 2]
    replay.sample()


def test_steps_whose_error_nobody_said_enter_with_the_largest_priority():
    given = {"alpha": 1.0, "beta": 0.0, "epsilon": 1e-9, "initial": "actor"}
    replay, saved = (store(Window(2, 0, 2), batch=1, capacity=6, priority=given) for _ in range(2))
    for error in (5.0, 0.25, 0.25):
        chunk = simple_chunk([10, 11], [0, 0], 90, first=[0], ends={1: (True, 12)})
        chunk.rows["priority"] = np.full((2, 1), error, np.float32)
        replay.add(chunk)
    leaves = replay._prioritised.priorities.leaves
    assert sorted(leaves[leaves > 0].tolist()) == pytest.approx([0.25, 0.25, 5.0])
    replay.add(simple_chunk([20, 21], [0, 0], 90, first=[0], ends={1: (True, 22)}))  # where other errors were before
    half = simple_chunk([30], [0], 31, first=[0])
    half.rows["priority"] = np.array([[0.5]], np.float32)
    replay.add(half)
    saved.restore(replay.state())
    for each in (replay, saved):
        each.add(simple_chunk([31], [0], 90, ends={0: (True, 32)}))  # one of two is known: not enough
        found = each._prioritised.priorities.leaves
        assert sorted(found[found > 0].tolist()) == pytest.approx([0.25, 5.0, 5.0])


def expected(reference, window):
    """key → (rows of the window, rows of its burn-in) of every complete window whose first row is still kept."""
    found = {}
    for c, column in enumerate(reference.columns):
        live, rows = set(reference.live(c)), column.rows
        episode: list[int] = []
        episodes = []
        for i, row in enumerate(rows):
            if row.first and episode:
                episodes.append((episode, True))
                episode = []
            if row.valid:
                episode.append(i)
                if row.final is not None:
                    episodes.append((episode, True))
                    episode = []
        episodes.append((episode, False))
        for members, over in episodes:
            for k in range(0, len(members), window.stride):
                start = members[k]
                if start in live and (over or len(members) - k >= window.length):
                    key = start % (reference.keep + 1) * len(reference.columns) + c
                    warm = [i for i in members[max(0, k - window.burn_in) : k] if i in live]
                    found[key] = (c, members[k : k + window.length], warm)
    return found


@pytest.mark.parametrize("seed", slow_but(list(range(6)), 0, 5))
def test_every_window_equals_the_slow_reference(seed):
    rng = np.random.default_rng(seed)
    window = Window(int(rng.integers(1, 7)), int(rng.integers(0, 4)), int(rng.integers(1, 6)))
    collectors, width, keep = 2, 2, 17
    replay = store(window, collectors * width, collectors, keep * collectors * width, batch=16, width=2, seed=seed)
    reference = Reference(collectors * width, collectors, keep)
    envs = [Envs(rng, width, c, ends=0.1) for c in range(collectors)]
    compared = set()
    for _ in range(150):
        chunk = envs[int(rng.integers(2))].chunk(int(rng.integers(1, 7)))
        replay.add(chunk)
        reference.add(chunk)
        wanted = expected(reference, window)
        assert ready(replay) == set(wanted)
        if not wanted:
            continue
        batch, keys = replay.sample()
        for i, key in enumerate(keys.tolist()):
            c, members, warm = wanted[key]
            rows = reference.columns[c].rows
            k = window.burn_in
            valid = batch["valid"][:, i].tolist()
            assert valid == [False] * (k - len(warm)) + [True] * (len(warm) + len(members)) + [False] * (
                window.length - len(members)
            )
            for t, j in zip(range(k - len(warm), k + len(members)), [*warm, *members]):
                step = reference.transition(c, j, 1, 1.0, 1)
                assert batch["obs"][t, i].tolist() == rows[j].obs.tolist()
                assert batch["next_obs"][t, i].tolist() == step["next_obs"].tolist()
                assert int(batch["action"][t, i]) == rows[j].action
                assert float(batch["reward"][t, i]) == pytest.approx(rows[j].reward)
                assert bool(batch["terminated"][t, i]) == rows[j].terminated
            compared.add((c, members[0]))
    assert len(compared) > 50


@pytest.mark.parametrize("seed", range(3))
def test_by_priority_exactly_the_complete_windows_are_drawn(seed):
    rng = np.random.default_rng(seed)
    window = Window(int(rng.integers(1, 6)), int(rng.integers(0, 3)), int(rng.integers(1, 5)))
    given = {"alpha": 1.0, "beta": 0.5}
    replay = store(window, 4, 2, 17 * 4, batch=8, width=2, seed=seed, priority=given)
    reference = Reference(4, 2, 17)
    envs = [Envs(rng, 2, c, ends=0.1) for c in range(2)]
    for _ in range(120):
        chunk = envs[int(rng.integers(2))].chunk(int(rng.integers(1, 7)))
        replay.add(chunk)
        reference.add(chunk)
        wanted = set(expected(reference, window))
        leaves = replay._prioritised.priorities.leaves
        assert set(np.flatnonzero(leaves).tolist()) == wanted == ready(replay)
        if wanted and replay.ready():
            _, keys = replay.sample()
            assert set(keys.address.tolist()) <= wanted
            replay.feedback(keys, {"priority": rng.random(8)})


def test_a_window_of_large_priority_is_drawn_more_often():
    replay = store(Window(1, 0, 1), batch=2, priority={"alpha": 1.0, "beta": 0.0})
    replay.add(simple_chunk([10, 11], [0, 0], 12, first=[0]))
    _, keys = replay.sample()
    replay.feedback(keys, {"priority": np.where(keys.address == 0, 3.0, 1.0)})
    drawn = np.concatenate([replay.sample()[1].address.copy() for _ in range(400)])
    assert (drawn == 0).mean() == pytest.approx(0.75, abs=0.05)
