"""Several agents: in workers, in wrappers and with dropped episodes runs learn what they should, bit for bit."""

import os
import signal

import numpy as np
import pytest

from rookery import Trainer, load_config
from rookery.envs.tasks.games import Pairing

pytestmark = pytest.mark.slow

COMMON = ["model.hidden=[8]", "learning.mode=eager", "log.sinks=[]", "eval.num=2", "eval.episodes=2", "env.num=3"]
GAMES = {
    "Pairing": ["env.api=parallel", "seats={left: one, right: two}", "players.two.algo={name: ppo, rollout: 8}"]
    + ["players.one={algo: {name: dqn}, store: {min_fill: 40, batch_size: 16, capacity: 400}}"],
    "Verdicts": ["env.api=turns", "algo={name: ppo, rollout: 8}", "players={both: {}, still: {train: false}}"]
    + ["seats={first: both, second: {both: 2, still: 1}}"],
    "Shifts": ["env.api=dict", "algo.name=dqn", "players={both: {}}"]
    + ["store={min_fill: 40, batch_size: 16, capacity: 400}"],
}
WRAPPERS = (
    "env.wrappers=[previous_step, {name: time_awareness, kwargs: {limit: 9}}, "
    "{name: reward_scale, kwargs: {factor: 2}}]"
)
MODES = {
    "inline": ["env.workers=inline"],
    "subprocess": ["env.workers=subprocess", "env.workers.processes=2", "env.workers.start=fork"],
}
games = pytest.mark.parametrize("game", GAMES)


def trainer_of(game, mode, *words, env=None):
    overrides = [*COMMON, *GAMES[game], *MODES[mode], "train.max_steps=600", "eval.every_steps=0", *words]
    return Trainer(load_config(env=env or f"rookery/{game}-v0", overrides=overrides))


def rounds(trainer, steps):
    while trainer.steps < steps:
        trainer.round()


def learnt(trainer):
    assert trainer.exact() is True
    assert trainer.updates > 5
    return trainer.players.weights_sha256(), trainer.evaluate().returns


@games
@pytest.mark.parametrize("words", [(), (WRAPPERS,)], ids=["plain", "wrapped"])
def test_weights_are_the_same_in_workers_and_when_a_run_changes_over_in_the_middle(game, words):
    straight = []
    for mode in MODES:
        with trainer_of(game, mode, *words) as trainer:
            rounds(trainer, 240)
            straight.append(learnt(trainer))
            assert len(trainer.pool.collectors[0].env.pids) == (0 if mode == "inline" else 2)
    assert straight[0] == straight[1]
    for before, after in (("inline", "subprocess"), ("subprocess", "inline")):
        with trainer_of(game, before, *words) as first, trainer_of(game, after, *words) as second:
            rounds(first, 120)
            second.restore(first.state())
            rounds(second, 240)
            assert learnt(second) == straight[0]


@games
def test_a_run_goes_on_when_its_workers_are_killed_and_counts_every_step_once(game):
    with trainer_of(game, "subprocess", "env.faults.backoff_seconds=0") as trainer:
        env = trainer.pool.collectors[0].env
        for steps in (100, 200, 300):
            rounds(trainer, steps)
            os.kill(env.pids[steps // 100 % 2], signal.SIGKILL)
        rounds(trainer, 600)
        assert (trainer.steps, env.renewals, env.given_up) == (600, 4, 0)  # 1 env, 2 envs, 1 env
        assert "SIGKILL" in trainer.exact()
        pids = env.pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


class Rotten(Pairing):
    """Every second episode holds NaN at its third step."""

    def reset(self, seed=None, options=None):
        self.bad = seed % 2 == 0
        return super().reset(seed)

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        spoil = np.nan if self.bad and self.time == 3 else 1.0
        return {agent: part * spoil for agent, part in obs.items()}, reward, *rest


@pytest.mark.parametrize("mode", MODES)
def test_episodes_with_nan_are_left_out_and_the_run_says_so(mode):
    path = f"{Rotten.__module__}:Rotten"
    with trainer_of("Pairing", mode, "env.on_bad=drop", env=path) as trainer:
        rounds(trainer, 300)
        assert trainer.steps == 300
        assert "The episode was dropped" in trainer.exact()
        for chunk in trainer.pool.collectors[0].collect(40).values():
            rows = {name: chunk.rows[name] for name in ("valid", "truncated", "first", "obs")}
            cut = np.argwhere(rows["truncated"])  # the game itself only terminates
            assert len(cut) > 3
            for t, column in cut:
                assert rows["valid"][t, column]
                assert not rows["valid"][t + 1, column]  # the hole, and what was seen before it
                final = chunk.final_obs[(chunk.final_at == (t, column)).all(1)]
                assert final.tolist() == [rows["obs"][t + 1, column].tolist()]
                assert t == 38 or rows["first"][t + 2, column]
