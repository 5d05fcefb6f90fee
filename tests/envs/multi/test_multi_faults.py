"""Envs with several agents: what goes wrong is told with env, agent, episode and step."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import CheckpointError, ConfigError, Diverged, EnvError, UsageError
from rookery.envs import action_log
from rookery.envs.action_log import same_bits
from rookery.envs.multi.engine import DictAgents, ParallelAgents, TurnAgents
from rookery.envs.tasks.games import Pairing, Shifts, Verdicts, Visitors


def seed_of(i, episode):
    return 100 * i + episode


def pairing(num=2, cls=Pairing, **kwargs):
    env = ParallelAgents([cls(**kwargs) for _ in range(num)], seed_of, name="pairing")
    env.reset()
    return env


def both(left=0, right=0, num=2):
    return {"left": np.full(num, left), "right": np.full(num, right)}


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (None, "step got a NoneType, expected a dict: agent → its actions"),
        (
            {"left": np.zeros(2, int)},
            r"no action of 'right', who must act \(env 0 of worker 0 \(pairing\), agent 'right', "
            r"episode 0, seed 0, step 0\)",
        ),
        (
            {**both(), "rigth": np.zeros(2, int)},
            r"action of 'rigth', who is none of \['left', 'right'\]. Did you mean 'right'",
        ),
        ({**both(), "left": np.zeros(3, int)}, r"actions of 'left' in pairing have shape \(3,\), expected \(2,\)"),
        ({**both(), "left": np.zeros((2, 1), int)}, r"shape \(2, 1\), expected \(2,\)"),
    ],
)
def test_wrong_actions_are_told_and_nothing_is_stepped(action, told):
    env = pairing()
    with pytest.raises(UsageError, match=told):
        env.step(action)
    assert env.step(both()).agents["left"].valid.all()
    assert env.state()["envs"]["1"]["length"] == 1


def test_an_action_out_of_turn_is_told():
    env = TurnAgents([Verdicts(), Verdicts()], seed_of, name="verdicts")
    env.reset()
    now = np.zeros(2, int)
    with pytest.raises(
        UsageError, match=r"action of 'second', but it is not its turn in any env: \['first'\] must act .*episode 0"
    ):
        env.step({"first": now, "second": now})
    env.step({"first": now}, steps=1)
    env.step({"first": now, "second": now})  # each acts somewhere
    assert [int(table.length) for table in env._tables] == [2, 1]


def test_nothing_can_be_stepped_before_reset():
    env = ParallelAgents([Pairing()], seed_of)
    with pytest.raises(UsageError, match="before reset"):
        env.step(both(num=1))


def test_dict_actions_are_checked_part_by_part():
    class Parts(Pairing):
        def __init__(self):
            super().__init__()
            self.action_spaces["left"] = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (3,))})

    env = pairing(1, Parts)
    good = {"a": np.zeros(1, int), "b": np.zeros((1, 3))}
    for part, told in (
        ({"a": good["a"]}, r"\['a'\], expected a dict with the keys \['a', 'b'\]"),
        ({**good, "b": np.zeros(3)}, r"in 'b' shape \(3,\), expected \(1, 3\)"),
        (np.zeros(1), "ndarray, expected a dict"),
    ):
        with pytest.raises(UsageError, match=told):
            env.step({"left": part, "right": np.zeros(1, int)})


class Broken(Pairing):
    """Says something else at its second step."""

    def __init__(self, spoil):
        super().__init__()
        self.spoil = spoil

    def step(self, actions):
        result = super().step(actions)
        return self.spoil(*result) if self.time == 2 else result


def without(part, key):
    return {k: v for k, v in part.items() if k != key}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            lambda o, r, t, u, i: (o, without(r, "left"), t, u, i),
            "reward has no entry for 'left', only for \\['right'\\]",
        ),
        (lambda o, r, t, u, i: (o, r, without(t, "right"), u, i), "terminated has no entry for 'right'"),
        (lambda o, r, t, u, i: (o, r, t, {}, i), "truncated has no entry for 'left'"),
        (
            lambda o, r, t, u, i: (without(o, "right"), r, t, u, i),
            "agent 'right', .* it must act and was given no observation",
        ),
        (
            lambda o, r, t, u, i: ({**o, "middle": 0}, r, t, u, i),
            r"it speaks of an agent 'middle', but its agents are \['left', 'right'\]",
        ),
        (lambda o, r, t, u, i: (o, {**r, "middle": 0}, t, u, i), "it speaks of an agent 'middle'"),
        (
            lambda o, r, t, u, i: (o, r, t, u),
            r"step returned a tuple of dict, dict, dict, dict, expected \(obs, reward",
        ),
        (
            lambda o, r, t, u, i: (o, 1.0, t, u, i),
            "a tuple of dict, float, dict, dict, dict, expected .* five dicts by agent",
        ),
        (
            lambda o, r, t, u, i: ({**o, "left": np.zeros(2, np.float32)}, r, t, u, i),
            r"agent 'left'.* the observation has shape \(2,\), expected \(3,\)",
        ),
        (
            lambda o, r, t, u, i: ({**o, "right": o["right"] * np.nan}, r, t, u, i),
            r"agent 'right'.* the observation\[0\] is nan",
        ),
        (lambda o, r, t, u, i: (o, {**r, "left": np.inf}, t, u, i), "agent 'left'.* the reward is inf"),
        (lambda o, r, t, u, i: (o, {**r, "left": "x"}, t, u, i), "agent 'left'.* the reward is a str"),
        (lambda o, r, t, u, i: 1 / 0, r"ZeroDivisionError: division by zero \(.*\)\. Actions: {'left': 0, 'right': 1}"),
        (
            lambda o, r, t, u, i: ({a: x * np.nan for a, x in o.items()}, r, {"left": True, "right": False}, u, i),
            r"agent 'left'.* is nan",
        ),
    ],
)
def test_an_env_that_breaks_its_word_is_told_with_env_agent_episode_and_step(spoil, told):
    env = ParallelAgents([Pairing(), Broken(spoil)], seed_of, name="pairing", worker=3)
    env.reset()
    env.step(both(0, 1))
    with pytest.raises(EnvError, match=told) as caught:
        env.step(both(0, 1))
    for part in ("env 1 of worker 3 (pairing)", "episode 0, seed 100, step 2", "`rookery check-env pairing`"):
        assert part in str(caught.value)


def test_nan_from_a_policy_is_not_blamed_on_the_env():
    class Moving(Pairing):
        def __init__(self):
            super().__init__()
            self.action_spaces["left"] = spaces.Box(-np.inf, np.inf, (1,), np.float32)

        def step(self, actions):
            raise ValueError("that is no number")

    env = pairing(1, Moving)
    with pytest.raises(Diverged, match=r"policy of \['left'\] .* not finite.*that is no number"):
        env.step({"left": np.full((1, 1), np.nan, np.float32), "right": np.zeros(1, int)})


def play(env, steps):
    for _ in range(steps):
        env.step({agent: np.zeros(1, int) for agent, acting in env.acting.items() if acting[0]})


def test_an_agent_that_comes_back_in_the_same_episode_is_told():
    class Ghost(Visitors):
        def step(self, actions):
            result = super().step(actions)
            self.agents += ["early"] if self.time == self._leaves + 1 and "early" not in self.agents else []
            return {**result[0], "early": np.zeros(2, np.float32)}, *result[1:]

    env = ParallelAgents([Ghost()], seed_of)
    env.reset()
    with pytest.raises(EnvError, match=r"agent 'early'.* after it ended; agents come back only in the next episode"):
        play(env, 6)


def test_an_ended_agent_that_is_never_removed_is_told():
    class Stuck(Verdicts):
        def _bury(self, agent):
            pass

    env = TurnAgents([Stuck(moves=1)], seed_of)
    env.reset()
    with pytest.raises(EnvError, match="an ended agent stays selected"):
        env.step({"first": np.zeros(1, int)})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda o, r, t, u, i: (o, r, {}, u, i), "terminated has no entry for '__all__'"),
        (lambda o, r, t, u, i: (o, r, t, {}, i), "truncated has no entry for '__all__'"),
        (
            lambda o, r, t, u, i: ({}, r, t, u, i),
            r"nobody must act and the episode is not over; \['day'\] would wait for ever",
        ),
    ],
)
def test_a_dict_env_that_says_too_little_is_told(spoil, told):
    class Short(Shifts):
        def step(self, actions):
            return spoil(*super().step(actions))

    env = DictAgents([Short()], seed_of)
    env.reset()
    with pytest.raises(EnvError, match=told):
        env.step({"day": np.zeros(1, int)})


@pytest.mark.parametrize("result", [({}, {}), None, {"day": 0}])
def test_a_reset_that_shows_nobody_anything_is_told(result):
    class Nobody(Shifts):
        def reset(self, seed=None):
            return result

    with pytest.raises(
        EnvError,
        match=r"episode 0, seed 0, step 0: reset failed: (somebody has ended, or nobody must act|reset returned)",
    ):
        DictAgents([Nobody()], seed_of).reset()


def test_who_waits_when_the_env_ends_without_a_word_is_truncated_with_its_last_observation():
    class Silent(Shifts):
        """The last agent that observes ends; night, who waits, is not mentioned."""

        def step(self, actions):
            obs, reward, _, truncated, info = super().step(actions)
            over = self.time == 5
            return obs, reward, {"__all__": False, "day": over, "night": False}, {**truncated, "night": False}, info

    class Gone(Pairing):
        """All agents vanish, and nobody is told."""

        def step(self, actions):
            obs, reward, _, truncated, info = super().step(actions)
            return obs, reward, dict(truncated), truncated, info

    env = DictAgents([Silent()], seed_of)
    env.reset()
    with pytest.raises(EnvError, match=r"\['night'\] would wait for ever"):  # night is still there, so it is not over
        play(env, 5)
    env = pairing(1, Gone, rounds=2)
    env.step(both(num=1))
    out = env.step(both(num=1))
    for agent in env.agents:
        step = out.agents[agent]
        assert (bool(step.valid[0]), bool(step.terminated[0]), bool(step.truncated[0])) == (True, False, True)
        assert len(step.final) == 1
    assert out.ended[0].info["unsaid"] == ["left", "right"]
    assert (out.ended[0].terminated, out.ended[0].truncated) == (False, True)


def test_what_an_ended_agent_receives_later_is_in_its_return_and_in_no_row():
    class Pension(Visitors):
        def step(self, actions):
            obs, reward, *rest = super().step(actions)
            return obs, {**reward, "early": reward.get("early", 10.0)}, *rest

    env = ParallelAgents([Pension()], seed_of)
    env.reset()
    earned, ended = 0.0, []
    while not ended:
        out = env.step({agent: np.zeros(1, int) for agent, acting in env.acting.items() if acting[0]})
        earned, ended = earned + float(out.agents["early"].reward[0]), out.ended
    assert ended[0].info["returns"]["early"] == earned + 10.0 * (8 - ended[0].info["lengths"]["early"])


def test_a_late_reward_after_the_end_of_a_turn_based_agent_is_in_its_return_and_in_no_row():
    class Slow(Verdicts):
        """first ends with its first move, is buried only at its turn, and receives 5 meanwhile."""

        def step(self, action):
            agent = self.agent_selection
            dead = self.terminations[agent]
            super().step(action)
            if dead:
                return
            self.terminations["first"] = True
            self._cumulative_rewards["first"] += 5.0 if agent == "second" else 0.0

    env = TurnAgents([Slow(moves=3)], seed_of)
    env.reset()
    verdict = 1.0 if env.obs["first"][0, 0] < 0 else -1.0  # it will answer 0
    out = env.step({"first": np.array([0])})
    assert (bool(out.agents["first"].valid[0]), bool(out.agents["first"].terminated[0])) == (True, True)
    assert out.agents["first"].reward[0] == 0.0
    bit = int(env.obs["second"][0, 0] > 0)
    out = env.step({"second": np.array([bit])})
    assert not out.agents["first"].valid[0]
    assert env._tables[0].seats["first"].total == 5.0 + verdict  # both came after its end


def test_envs_of_one_run_must_have_equal_agents_and_spaces():
    class Other(Pairing):
        def __init__(self):
            super().__init__()
            self.action_spaces["right"] = spaces.Discrete(4)

    with pytest.raises(ConfigError, match=r"'right' has other spaces in env 1 \(env\) than in env 0: .*Discrete\(4\)"):
        ParallelAgents([Pairing(), Other()], seed_of)
    with pytest.raises(
        ConfigError, match=r"env 1 \(env\) has the agents \['early', 'steady', 'late'\], env 0 has \['left', 'right'\]"
    ):
        ParallelAgents([Pairing(), Visitors()], seed_of)
    with pytest.raises(ConfigError, match="it has no last, observe"):
        TurnAgents([Pairing()], seed_of)


def test_a_checkpoint_of_another_number_of_envs_is_refused():
    with pytest.raises(CheckpointError, match=r"holds 2 envs of pairing, this run has 3: set env.num=2"):
        pairing(3).restore(pairing(2).state())


def test_a_state_taken_before_the_first_reset_can_be_restored():
    env = ParallelAgents([Pairing()], seed_of)
    again = pairing(1)
    again.restore(env.state())
    with pytest.raises(UsageError, match="before reset"):
        again.step(both(num=1))


@pytest.mark.parametrize(
    ("leak", "told", "episode"),
    [
        ("obs", "last observation of 'left' differs", 0),
        ("reward", "return of 'left' differs", 0),
        ("end", "it ended earlier than before", 1),
        ("turn", "it was somebody else's turn", 1),
    ],
)
def test_an_env_that_ignores_its_seed_makes_the_resumed_run_approximate_with_the_reason(leak, told, episode):
    made = []

    class Careless(Pairing):
        def __init__(self):
            super().__init__()
            made.append(self)
            self.strange = len(made) > 1

        def step(self, actions):
            obs, reward, terminated, truncated, info = super().step(actions)
            if self.strange and leak == "obs":
                obs["left"] += 1
            if self.strange and leak == "reward":
                reward["left"] += 1
            if self.strange and leak == "end" and self.time == 2:
                self.agents = []
            if self.strange and leak == "turn" and self.time == 3:
                self.agents = ["left"]
                terminated["right"] = True
            return obs, reward, terminated, truncated, info

    env = pairing(1, Careless)
    for _ in range(3):
        env.step(both(num=1))
    again = ParallelAgents([Careless()], seed_of)
    again.restore(env.state())
    assert told in again.exactness
    assert "env 0 of worker 0" in again.exactness
    assert again.state()["envs"]["0"]["episode"] == episode
    again.step({agent: np.zeros(1, int) for agent, acting in again.acting.items() if acting[0]})


def test_an_episode_too_long_to_be_replayed_says_so_and_is_begun_anew(monkeypatch):
    monkeypatch.setattr(action_log, "LONGEST", 64)
    env, again = pairing(1, rounds=500), pairing(1, rounds=500)
    for _ in range(64):
        env.step(both(num=1))
    assert env.exactness == "exact"
    env.step(both(num=1))
    assert "too long" in env.exactness
    again.restore(env.state())
    assert again.state()["envs"]["0"]["episode"] == 1
    again.step(both(num=1))


def test_a_replayed_episode_leaves_no_rows_behind():
    env = pairing(2)
    for _ in range(2):
        env.step(both())
    again = pairing(2)
    again.restore(env.state())
    assert not any(step.valid.any() or step.final for step in again.out.agents.values())
    assert again.out.ended == []


def test_call_reaches_methods_and_attributes_and_closing_goes_on_after_an_env_that_fails(caplog):
    closed = []

    class Door(Pairing):
        def close(self):
            closed.append(self)
            raise RuntimeError("stuck")

    env = pairing(3, Door)
    assert env.call("rounds") == [5, 5, 5]
    assert len(env.call("action_space", "left")) == 3
    env.close()
    assert len(closed) == 3
    assert caplog.text.count("close failed: RuntimeError: stuck") == 1


def test_actions_that_were_not_logged_one_by_one_are_saved_with_their_own_episode():
    """Batches of 64 steps, episodes of 7 rounds, a step of one env only, and a save at any time."""
    for steps in (3, 63, 64, 65, 130, 203):
        env, again = pairing(3, rounds=7), pairing(3, rounds=7)
        rng = np.random.default_rng(steps)
        for t in range(steps):
            given = {agent: rng.integers(0, env.action_spaces[agent].n, 3) for agent in env.agents}
            env.step(given, steps=1 if t % 50 == 20 else None)
        again.restore(env.state())
        assert again.exactness == "exact"
        for i, saved in again.state()["envs"].items():
            assert same_bits(saved["actions"], env.state()["envs"][i]["actions"])
            assert all(len(actions) == saved["length"] for actions in saved["actions"].values())
