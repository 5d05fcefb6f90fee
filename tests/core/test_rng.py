"""Named streams: equal names, equal numbers, whatever else is drawn; nothing global changes."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from rookery.core.rng import Streams, seeded


def numbers(streams: Streams, name: str, count: int = 3) -> list[float]:
    return streams.numpy(name).random(count).tolist()


def test_equal_seed_and_name_give_an_equal_stream() -> None:
    assert numbers(Streams(1), "act") == numbers(Streams(1), "act")
    a, b = (torch.randn(3, generator=Streams(1).torch("act")) for _ in range(2))
    assert torch.equal(a, b)


def test_another_seed_or_name_gives_another_stream() -> None:
    drawn = [numbers(Streams(seed), name)[0] for seed in (1, 2) for name in ("act", "sample")]
    assert len(set(drawn)) == 4
    drawn = [torch.rand(1, generator=Streams(seed).torch(name)).item() for seed in (1, 2) for name in ("act", "sample")]
    assert len(set(drawn)) == 4


def test_a_new_consumer_changes_nobodys_numbers() -> None:
    alone, crowded = Streams(1), Streams(1)
    crowded.numpy("newcomer").random(100)
    crowded.torch("act").manual_seed(0)
    assert numbers(alone, "act") == numbers(crowded, "act")


def test_asking_twice_gives_the_same_object() -> None:
    streams = Streams(1)
    assert streams.numpy("act") is streams.numpy("act")
    assert streams.torch("act") is streams.torch("act")
    assert numbers(streams, "act") != numbers(streams, "act")


def test_seed_of_is_a_31_bit_number_without_state() -> None:
    streams = Streams(1)
    seeds = [streams.seed_of("train", 0, env, episode) for env in range(20) for episode in range(20)]
    assert seeds == [Streams(1).seed_of("train", 0, env, episode) for env in range(20) for episode in range(20)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_same_characters_cut_differently_are_different_names() -> None:
    streams = Streams(1)
    assert streams.seed_of("a/b") != streams.seed_of("a", "b")
    assert streams.seed_of("train", 1, 23) != streams.seed_of("train", 12, 3)
    assert streams.seed_of('a", "b') != streams.seed_of("a", "b")


def test_a_numpy_integer_names_the_same_stream_as_a_python_one() -> None:
    assert Streams(1).seed_of("train", np.int64(3)) == Streams(1).seed_of("train", 3)


def test_the_numbers_do_not_depend_on_the_process() -> None:
    code = (
        "from rookery.core.rng import Streams; s = Streams(7); print(s.seed_of('a', 1), s.numpy('x').integers(10**9))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [int(part) for part in other] == [Streams(7).seed_of("a", 1), Streams(7).numpy("x").integers(10**9)]


def test_a_restored_stream_goes_on_where_it_was() -> None:
    streams = Streams(1)
    streams.numpy("act").random(5)
    streams.torch("noise").manual_seed(3)
    torch.rand(5, generator=streams.torch("noise"))
    state = streams.state()
    expected = numbers(streams, "act"), torch.rand(3, generator=streams.torch("noise"))

    fresh = Streams(999)
    held = fresh.numpy("act")  # somebody took it before the restore
    fresh.restore(state)
    assert fresh.seed == 1
    assert fresh.numpy("act") is held
    assert numbers(fresh, "act") == expected[0]
    assert torch.equal(torch.rand(3, generator=fresh.torch("noise")), expected[1])
    assert numbers(fresh, "never seen") == numbers(Streams(1), "never seen")


def test_a_stream_that_the_state_does_not_know_starts_from_its_beginning() -> None:
    """First used after the checkpoint: the resumed run must draw the same, even if it drew before the restore."""
    state = Streams(1).state()
    streams = Streams(1)
    numbers(streams, "late")
    torch.rand(3, generator=streams.torch("late"))
    streams.restore(state)
    assert numbers(streams, "late") == numbers(Streams(1), "late")
    fresh = torch.rand(3, generator=Streams(1).torch("late"))
    assert torch.equal(torch.rand(3, generator=streams.torch("late")), fresh)


def test_looking_at_the_state_draws_nothing_and_the_state_does_not_move_with_the_stream() -> None:
    streams, other = Streams(1), Streams(1)
    for both in (streams, other):
        both.numpy("act")
        both.torch("act")
    state = streams.state()
    assert numbers(streams, "act") == numbers(other, "act")
    restored = Streams(1)
    restored.restore(state)
    assert numbers(restored, "act") == numbers(Streams(1), "act")


def test_the_numpy_part_of_the_state_survives_json() -> None:
    streams = Streams(1)
    streams.numpy("act").integers(5, dtype=np.int32)  # leaves half a word in the generator's buffer
    state = streams.state()
    restored = Streams(2)
    restored.restore({"seed": state["seed"], "numpy": json.loads(json.dumps(state["numpy"]))})
    assert restored.numpy("act").integers(1000, size=5, dtype=np.int32).tolist() == (
        streams.numpy("act").integers(1000, size=5, dtype=np.int32).tolist()
    )


def test_a_torch_state_may_come_back_as_an_array() -> None:
    streams = Streams(1)
    torch.rand(5, generator=streams.torch("act"))
    array = streams.state()["torch"]["act"].numpy().copy()
    restored = Streams(1)
    restored.restore({"seed": 1, "torch": {"act": array}})
    assert torch.equal(torch.rand(2, generator=restored.torch("act")), torch.rand(2, generator=streams.torch("act")))


def draw_globally() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), torch.rand(1).item()  # noqa: NPY002


def test_seeded_gives_equal_numbers_inside_and_leaves_the_globals_as_they_were() -> None:
    with seeded(5):
        first = draw_globally()
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    expected = draw_globally()
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    with seeded(5):
        again = draw_globally()
    assert again == first
    assert draw_globally() == expected
    with seeded(6):
        assert draw_globally() != first


def test_seeded_restores_the_globals_after_an_error() -> None:
    before = torch.random.get_rng_state()
    state = random.getstate()
    with pytest.raises(ZeroDivisionError), seeded(5):
        random.seed(draw_globally()[0] // 0.0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert random.getstate() == state


def test_streams_touch_no_global_generator() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()  # noqa: NPY002
    streams = Streams(1)
    numbers(streams, "act")
    torch.rand(3, generator=streams.torch("act"))
    streams.restore(streams.state())
    streams.seed_of("a")
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.random.get_rng_state(), before[2])


def test_a_branch_draws_from_the_trunk_under_its_own_name():
    trunk = Streams(3)
    branch = trunk.branch("player/a")
    assert branch.numpy("act") is trunk.numpy("player/a/act")
    assert branch.torch("learner") is trunk.torch("player/a/learner")
    assert branch.seed_of("networks") == trunk.seed_of("player/a", "networks") != trunk.seed_of("networks")
    assert trunk.branch("player/b").numpy("act").random() != branch.numpy("act").random()
