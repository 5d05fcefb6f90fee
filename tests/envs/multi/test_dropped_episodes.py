"""env.on_bad=drop with several agents: an episode with NaN or infinity is left out, and the next one begins at once."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import Diverged, EnvError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make_multi
from rookery.envs.multi.engine import DictAgents, ParallelAgents, TurnAgents
from rookery.envs.tasks.games import Pairing, Shifts, Verdicts


def seed_of(i, episode):
    return 100 * i + episode


class BadPairs(Pairing):
    """At step `when` of episodes with these seeds, `agent` sees or earns `value`."""

    def __init__(self, seeds, when, agent, what, value=np.nan):
        super().__init__()
        self.seeds, self.when, self.agent, self.what, self.value = seeds, when, agent, what, value

    def reset(self, seed=None, options=None):
        self.now = seed
        obs, info = super().reset(seed)
        return self._spoilt(obs), info

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        if self.what == "reward" and self.now in self.seeds and self.time == self.when:
            reward = reward | {self.agent: self.value}
        return self._spoilt(obs), reward, *rest

    def _spoilt(self, obs):
        if self.what == "obs" and self.now in self.seeds and self.time == self.when:
            obs = obs | {self.agent: obs[self.agent] * self.value}
        return obs


def both(num=2):
    return {"left": np.zeros(num, int), "right": np.zeros(num, int)}


def rows(out, i):
    return {
        agent: (bool(step.valid[i]), float(step.reward[i]), bool(step.terminated[i]), bool(step.truncated[i]))
        for agent, step in out.agents.items()
    }


HOLE = (False, 0.0, False, False)


@pytest.mark.parametrize("agent", ["left", "right"])
@pytest.mark.parametrize(("what", "value"), [("obs", np.nan), ("reward", np.nan), ("reward", -np.inf)])
@pytest.mark.parametrize("when", [1, 3, 5])  # the first step, one in between, the last of the episode
def test_a_bad_step_is_a_hole_of_every_agent_that_cuts_their_episode_and_the_next_one_begins(agent, what, value, when):
    env = ParallelAgents([Pairing(), BadPairs({100}, when, agent, what, value)], seed_of, name="pairs", on_bad="drop")
    plain = ParallelAgents([Pairing(), Pairing()], seed_of)
    env.reset(), plain.reset()
    for _ in range(when - 1):
        out = env.step(both())
        assert out.stepped is None
        assert [step.cut for step in out.agents.values()] == [[], []]
        plain.step(both())
    out, theirs = env.step(both()), plain.step(both())
    assert rows(out, 1) == {"left": HOLE, "right": HOLE}
    assert [step.cut for step in out.agents.values()] == [[1], [1]]
    assert [[i for i, _ in step.final if i == 1] for step in out.agents.values()] == [[], []]
    assert out.stepped.tolist() == [True, False]
    assert rows(out, 0) == rows(theirs, 0)
    assert [end.env for end in out.ended] == ([0] if when == 5 else [])
    fresh = Pairing()
    seen, _ = fresh.reset(seed=101)
    for name in env.agents:
        assert env.obs[name][1].tolist() == seen[name].tolist()
        assert env.acting[name].tolist() == [True, True]
        assert all(step.marked for step in out.agents.values())
    assert f"env 1 of worker 0 (pairs), agent '{agent}', episode 0, seed 100, step {when}" in env.exactness
    assert "The episode was dropped" in env.exactness
    out = env.step(both())
    assert (out.stepped, rows(out, 1)["left"][0], out.agents["left"].cut) == (None, True, [])
    assert env.state()["envs"]["1"]["episode"] == 1


def test_a_bad_reset_is_dropped_without_taking_the_rows_before_it():
    env = ParallelAgents([BadPairs({1}, 0, "right", "obs")], seed_of, on_bad="drop")
    env.reset()
    outs = [env.step(both(1)) for _ in range(4)]
    out = env.step(both(1))
    assert all(part.agents["left"].valid[0] for part in outs)
    assert rows(out, 0)["left"][0]
    assert rows(out, 0)["left"][2]
    assert [step.cut for step in out.agents.values()] == [[], []]
    assert [end.episode for end in out.ended] == [0]
    assert env.episodes == [2]  # episode 1 never was
    assert "seed 1, step 0" in env.exactness


def test_an_env_whose_every_episode_is_bad_ends_the_run():
    env = ParallelAgents([BadPairs(range(1000), 1, "left", "obs")], seed_of, on_bad="drop")
    env.reset()
    for _ in range(99):
        env.step(both(1))
    with pytest.raises(EnvError, match=r"is nan.* 100 episodes in a row had to be dropped"):
        env.step(both(1))
    always = ParallelAgents([BadPairs(range(1000), 0, "left", "obs")], seed_of, on_bad="drop")
    with pytest.raises(EnvError, match="100 episodes in a row"):
        always.reset()


def test_drops_with_good_episodes_between_them_are_endured():
    env = ParallelAgents([BadPairs(range(0, 1000, 2), 1, "left", "reward")], seed_of, on_bad="drop")
    env.reset()
    for _ in range(6 * 120):
        env.step(both(1))
    assert env.episodes == [240]


def test_what_is_wrong_otherwise_is_never_dropped():
    class Short(Pairing):
        def step(self, actions):
            obs, *rest = super().step(actions)
            return obs | {"left": np.zeros(2, np.float32)}, *rest

    env = ParallelAgents([Short()], seed_of, on_bad="drop")
    env.reset()
    with pytest.raises(EnvError, match=r"shape \(2,\), expected \(3,\)"):
        env.step(both(1))


def test_without_drop_the_error_says_that_it_is_possible():
    env = ParallelAgents([BadPairs({0}, 1, "left", "obs")], seed_of)
    env.reset()
    with pytest.raises(EnvError, match=r"is nan.*set env\.on_bad=drop to drop such episodes and go on"):
        env.step(both(1))


def test_nan_after_nan_from_a_policy_is_the_policys_fault():
    class Moving(Pairing):
        def __init__(self):
            super().__init__()
            self.action_spaces["left"] = spaces.Box(-np.inf, np.inf, (3,), np.float32)

        def step(self, actions):
            obs, *rest = super().step({"left": 0, "right": 0})
            return obs | {"left": actions["left"]}, *rest

    env = ParallelAgents([Moving()], seed_of, on_bad="drop")
    env.reset()
    with pytest.raises(Diverged, match=r"policy of \['left'\]"):
        env.step({"left": np.full((1, 3), np.nan, np.float32), "right": np.zeros(1, int)})


class BadVerdicts(Verdicts):
    """What `second` earns in episode 0 is not finite at its first turn; what it sees, in its second."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def reset(self, seed=None, options=None):
        super().reset(seed)
        self.bad = seed == 0

    def observe(self, agent):
        bad = self.what == "obs" and self.bad and agent == "second" and self.time == 3
        return super().observe(agent) * (np.nan if bad else 1.0)

    def step(self, action):
        super().step(action)
        if self.what == "reward" and self.bad and self.time == 3:
            self._cumulative_rewards["second"] = np.nan


@pytest.mark.parametrize("what", ["obs", "reward"])
def test_in_turns_the_row_that_waits_is_never_completed_and_everybody_is_cut(what):
    env = TurnAgents([BadVerdicts(what)], seed_of, on_bad="drop")
    env.reset()
    valid = []
    for _ in range(3):
        out = env.step({agent: np.zeros(1, int) for agent, acting in env.acting.items() if acting[0]})
        valid.append({agent: bool(step.valid[0]) for agent, step in out.agents.items()})
    assert valid == [
        {"first": False, "second": False},
        {"first": True, "second": False},
        {"first": False, "second": False},
    ]
    assert [step.cut for step in out.agents.values()] == [[0], [0]]
    assert {agent: acting.tolist() for agent, acting in env.acting.items()} == {"first": [True], "second": [False]}
    assert np.isfinite(env.obs["second"]).all()  # stale, but not NaN for ever
    ended = []
    while not ended:
        ended = env.step({agent: np.zeros(1, int) for agent, acting in env.acting.items() if acting[0]}).ended
    assert (ended[0].episode, ended[0].length) == (1, 6)


def test_with_dicts_somebody_who_never_acted_is_cut_too_and_nothing_is_paid_on():
    class Bad(Shifts):
        def step(self, actions):
            obs, reward, *rest = super().step(actions)
            return obs, reward | ({"night": np.inf} if self.time == 2 and self.first else {}), *rest

        def reset(self, seed=None):
            self.first = seed == 0
            return super().reset(seed)

    env, plain = DictAgents([Bad()], seed_of, on_bad="drop"), DictAgents([Shifts()], lambda i, e: e + 1)
    env.reset(), plain.reset()
    env.step({"day": np.zeros(1, int)})
    out = env.step({"day": np.zeros(1, int)})
    assert [step.cut for step in out.agents.values()] == [[0], [0]]
    ended, theirs = [], []
    while not ended:
        action = {agent: np.zeros(1, int) for agent, acting in env.acting.items() if acting[0]}
        ended, theirs = env.step(action).ended, plain.step(action).ended
    assert ended[0].info["returns"] == theirs[0].info["returns"]


def test_a_dropped_episode_leaves_no_trace_in_a_restored_env():
    def made():
        return ParallelAgents([BadPairs({0}, 2, "left", "obs"), Pairing()], seed_of, on_bad="drop")

    env, again = made(), made()
    env.reset()
    for _ in range(4):
        env.step(both())
    again.restore(env.state())
    assert again.exactness == env.exactness
    for _ in range(7):
        mine, theirs = env.step(both()), again.step(both())
        assert [rows(mine, i) for i in range(2)] == [rows(theirs, i) for i in range(2)]


def test_the_config_says_whether_episodes_are_dropped():
    config = EnvConfig(id="rookery/Pairing-v0", api="parallel", on_bad="drop")
    env = make_multi(config, count=1, purpose="train", streams=Streams(0), factory=None)
    assert env._drop_bad
    env.close()
