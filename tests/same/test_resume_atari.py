"""A game of Atari that is killed goes on to the bit: the emulator's snapshot is in the checkpoint."""

import random

import pytest

from rookery.testing.resume import differences, killed_and_resumed, outcome, straight

pytest.importorskip("ale_py")
pytestmark = pytest.mark.slow

DQN = [
    "pong-dqn",
    "env.id=ALE/Breakout-v5",  # lives are lost within a minute
    "env.num=2",
    "model.convs=[[4,8,8]]",
    "model.hidden=[16]",
    "store.capacity=600",  # it is overwritten
    "store.min_fill=100",
    "store.batch_size=8",
    "train.max_steps=900",
    "eval.every_steps=0",
    "eval.episodes=1",
    "eval.num=1",
    "checkpoint.every_steps=200",
    "log.every_steps=200",
    "log.sinks=[jsonl]",
]


def test_the_resumed_run_equals_the_straight_one(tmp_path):
    straight(DQN, tmp_path / "straight", {})
    told = killed_and_resumed(DQN, tmp_path / "killed", random.Random(0), kills=1, most=0.7, env={})
    assert told.kills > 0
    assert told.resumed_from
    assert differences(outcome(tmp_path / "straight"), outcome(tmp_path / "killed")) == []
