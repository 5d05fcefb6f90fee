"""Probe envs: their best policy gets the optimum, and every other faculty is ruled out."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rookery.core.rng import Streams
from rookery.envs import EnvConfig, check_env, make
from rookery.envs.tasks import probes

probes.register()
IDS = sorted(name for name in gymnasium.registry if name.startswith("rookery/Probe"))


def play(env_id, policy, episodes=40, **kwargs):
    """Mean return of a policy that sees the raw observation and the step of the episode."""
    env = gymnasium.make(env_id, **kwargs)
    totals = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        total, ended, seen = 0.0, False, [obs]
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(policy(seen))
            seen.append(obs)
            total, ended = total + reward, terminated or truncated
        totals.append(total)
    return float(np.mean(totals))


def move(right):
    return np.array([0.5 if right else -0.5], np.float32)


BEST = {
    "Constant": lambda seen: 0,
    "Discount": lambda seen: 0,
    "Action": lambda seen: 1,
    "ObsAction": lambda seen: int(seen[-1][0] > 0),
    "Memory": lambda seen: int(seen[0][0] > 0),
    "Endless": lambda seen: 0,
    "Mask": lambda seen: int(np.flatnonzero(seen[-1]["action_mask"])[-1]),
    "Nested": lambda seen: int(seen[-1]["count"] + seen[-1]["pair"][1][0]),
    "MultiDiscrete": lambda seen: np.array([int(seen[-1][0] > 0), int(np.argmax(seen[-1][1:]))]),
    "Parts": lambda seen: {
        "arm": ((seen[-1][:2] > 0).astype(int), 0.5 * seen[-1][2:3]),
        "button": 1 + int(np.argmax(seen[-1][3:])),
    },
}


def test_there_are_discrete_and_continuous_variants():
    assert len(IDS) == 2 * 7 + 4


@pytest.mark.parametrize("name", BEST)
def test_the_best_policy_reaches_the_optimum(name):
    env_id = f"rookery/Probe{name}-v0"
    assert play(env_id, BEST[name]) == gymnasium.make(env_id).unwrapped.optimum


@pytest.mark.parametrize("name", ["Action", "ObsAction", "Memory"])
def test_continuous_variants_have_their_optimum_at_a_half(name):
    best = play(f"rookery/Probe{name}Continuous-v0", lambda seen: move(BEST[name](seen)))
    assert best == 1.0
    assert play(f"rookery/Probe{name}Continuous-v0", lambda seen: np.zeros(1, np.float32)) == 0.0  # 1 − 4·0.25


@pytest.mark.parametrize(
    ("name", "blind"), [("ObsAction", 0.5), ("Memory", 0.5), ("Nested", 0.5), ("MultiDiscrete", 0.9)]
)
def test_a_blind_policy_does_not_reach_it(name, blind):
    constant = np.array([0, 0]) if name == "MultiDiscrete" else 0
    assert play(f"rookery/Probe{name}-v0", lambda seen: constant, episodes=200) < blind


def test_the_last_observation_of_the_memory_probe_tells_nothing():
    assert abs(play("rookery/ProbeMemory-v0", lambda seen: int(seen[-1][0] > 0), episodes=400)) < 0.25


def test_the_endless_chain_is_cut_by_time_only():
    env = make(EnvConfig(id="rookery/ProbeEndless-v0"), count=1, purpose="train", streams=Streams(0))
    env.reset()
    ended = [end for _ in range(30) for end in env.step(np.array([0])).ended]
    assert [(end.length, end.total, end.terminated, end.truncated) for end in ended] == [(10, 10.0, False, True)] * 3


def test_an_illegal_action_raises():
    env = gymnasium.make("rookery/ProbeMask-v0")
    masks = [env.reset(seed=seed)[0]["action_mask"] for seed in range(20)]
    assert len({tuple(mask) for mask in masks}) > 5
    seed, mask = next((seed, mask) for seed, mask in enumerate(masks) if not mask.all())
    env.reset(seed=seed)
    with pytest.raises(ValueError, match="illegal"):
        env.step(int(np.flatnonzero(mask == 0)[0]))


@pytest.mark.parametrize("env_id", IDS)
def test_every_probe_passes_the_checker(env_id):
    report = check_env(env_id, episodes=3)
    assert (report.problems, report.warnings, report.facts["resume"]) == ([], [], "exact")
