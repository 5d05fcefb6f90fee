"""A replay of frames holds each of them once: its bytes are counted while it is filled through its ordinary door."""

import sys
import tracemalloc
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from memory import filled


@pytest.mark.parametrize("length", [900, 60])  # steps per episode: final observations are stored besides
def test_a_stacked_replay_costs_little_more_than_its_frames(length):
    filled(100, 2, 10, batch_size=8).sample()  # what the kernels keep is not the store's
    tracemalloc.start()
    try:
        store = filled(10_000, 2, length, batch_size=8)
        store.sample()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.size == 10_000
    assert 84 * 84 <= held / 10_000 <= 84 * 84 * 1.05


def test_what_is_read_is_four_frames_stacked():
    batch, _ = filled(1_000, 2, 100, batch_size=8).sample()
    assert batch["obs"].shape == batch["next_obs"].shape == (8, 4, 84, 84)
    assert (batch["obs"] == batch["obs"][:, :1, :1, :1]).all()  # an episode has one tint: stacks do not cross its start
