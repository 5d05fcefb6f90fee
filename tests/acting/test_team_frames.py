"""Stacked frames of teams: each member has its own, by hand; what was acted on is what is learnt from."""

import numpy as np
import pytest

from rookery import Trainer, load_config
from rookery.acting.frames import Frames, repeated
from rookery.core.spec import Leaf, stacked_spec

FLOATS = np.dtype(np.float32)
SEEN = {
    "agents": {"eye": Leaf("box", (2, 1), FLOATS), "map": Leaf("box", (2, 1, 2, 2), np.dtype(np.uint8))},
    "present": Leaf("multi_binary", (2,), np.dtype(np.int8)),
    "world": Leaf("box", (1,), FLOATS),
}


def seen(time):
    """One seat; the first member sees the time, the second ten times the time."""
    eye = np.float32([[[time], [10 * time]]])
    pictures = np.zeros((1, 2, 1, 2, 2), np.uint8) + np.uint8([time, 10 * time]).reshape(1, 2, 1, 1, 1)
    return {
        "agents": {"eye": eye, "map": pictures},
        "present": np.int8([[1, time % 2]]),
        "world": np.float32([[100 * time]]),
    }


def test_every_member_has_a_stack_and_nothing_else_of_a_team_is_stacked():
    spec = stacked_spec(SEEN, 3)
    assert spec["agents"]["eye"].shape == (2, 3, 1)
    assert spec["agents"]["map"].shape == (2, 3, 2, 2)  # frames of images are their channels
    assert (spec["present"].shape, spec["world"].shape) == ((2,), (1,))
    frames = Frames(SEEN, 1, 3)
    frames.push(seen(1), np.array([True]))
    assert frames.stacked["agents"]["eye"][0, :, :, 0].tolist() == [[1, 1, 1], [10, 10, 10]]
    frames.push(seen(2))
    told = frames.push(seen(3))
    assert told["agents"]["eye"][0, :, :, 0].tolist() == [[1, 2, 3], [10, 20, 30]]
    assert told["agents"]["map"][0, :, :, 1, 1].tolist() == [[1, 2, 3], [10, 20, 30]]
    assert (told["present"].tolist(), told["world"].tolist()) == ([[1, 1]], [[300.0]])
    after = frames.after(0, {"agents": {k: x[0] for k, x in seen(4)["agents"].items()}} | _first(seen(4)))
    assert after["agents"]["eye"][:, :, 0].tolist() == [[2, 3, 4], [20, 30, 40]]
    assert after["agents"]["map"][:, :, 0, 0].tolist() == [[2, 3, 4], [20, 30, 40]]
    other = Frames(SEEN, 1, 3)
    other.restore(frames.state())
    assert other.stacked["agents"]["eye"].tolist() == told["agents"]["eye"].tolist()
    copies = repeated(seen(5), spec, 3)
    assert copies["agents"]["eye"][0, :, :, 0].tolist() == [[5, 5, 5], [50, 50, 50]]


def _first(obs):
    return {key: obs[key][0] for key in ("present", "world")}


WORDS = ["env.api=parallel", "env.num=2", "env.stack=3", "model.hidden=[8]", "learning.mode=eager", "log.sinks=[]"]
WORDS += ["eval.at_end=false", "eval.every_steps=0", "train.max_steps=200"]


def _check(agents, present):
    """Members see (bit, time), one more in every step: 0, 0, 0 at first, then 0, 0, 1 and so on. Who comes late was not
    there before: zeros."""
    times = agents[..., 1]  # [N, G, 3]
    for row, there in zip(times, present):
        for member, (oldest, middle, newest) in enumerate(row):
            if not there[member]:
                continue
            wanted = (max(newest - 2, 0), max(newest - 1, 0))
            assert (oldest, middle) == wanted or (member == 2 and (oldest == 0 or middle == 0))
    assert len(np.unique(times[:, 1, -1])) > 4


def test_the_replay_reads_stacks_of_members():
    words = [*WORDS, "store={min_fill: 40, batch_size: 40, capacity: 400}", "algo.n_step=2"]
    with Trainer(load_config(algo="vdn", env="rookery/Visitors-v0", overrides=words)) as trainer:
        *_, _ = trainer
        batch, _ = trainer.players.main.store.sample()
    for name in ("obs", "next_obs"):
        shown = {key: x.numpy() for key, x in batch[name].items()}
        assert shown["agents"].shape == (40, 3, 3, 2)
        assert shown["present"].shape == (40, 3)
        _check(shown["agents"], shown["present"])


@pytest.mark.slow
def test_rollouts_hold_stacks_of_members():
    with Trainer(load_config(algo="coma", env="rookery/Visitors-v0", overrides=[*WORDS, "algo.rollout=16"])) as trainer:
        trainer.pool.submit(trainer._messages(), 40)
        ((_, chunks),) = trainer.pool.gather()
    rows = chunks["main"].rows
    valid = rows["valid"]
    _check(rows["obs"]["agents"][valid], rows["obs"]["present"][valid])
