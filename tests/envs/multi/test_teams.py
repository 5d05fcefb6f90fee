"""Teams: rows with an axis of members equal what the plot of an episode says, in all four APIs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from envs.crowd import AGENTS, CHOICES, CROWDS, ParallelCrowd, plot, team_rows
from rookery.core.errors import ConfigError, EnvError
from rookery.core.spec import MASK
from rookery.core.team import Team
from rookery.core.tree import flatten
from rookery.envs.builders.multi import ENGINES
from rookery.envs.config import TeamConfig

RED = TeamConfig(members=("a", "b", "c"))
SIZES = [CHOICES[m] for m in "abc"]
apis = pytest.mark.parametrize("api", CROWDS)


def seed_of(i, episode):
    return 1000 * i + episode


def names(api, members):
    return tuple(f"agent_{AGENTS.index(m)}" if api == "tuple" else m for m in members)


def engine(api, num=2, teams=None, world="state", **more):
    teams = teams or {"red": TeamConfig(members=names(api, "abc"))}
    return ENGINES[api]([CROWDS[api]() for _ in range(num)], seed_of, teams=teams, world=world, **more)


def actions(env, rng):
    """Legal ones of everybody, drawn by env in order; nonsense for who is not present."""
    given = {}
    for agent in env.agents:
        if not env.acting[agent].any():
            continue
        sizes = SIZES if agent == "red" else [int(env.action_spaces[agent].n)]
        rows = np.zeros((env.num, len(sizes)), np.int64)
        for i in range(env.num):
            mask = env.obs[agent][MASK][i] if agent == "red" else np.ones(sum(sizes))
            for k, part in enumerate(np.split(mask, np.cumsum(sizes)[:-1])):
                legal = np.flatnonzero(part) if part.any() else np.arange(len(part))
                rows[i, k] = rng[i].choice(legal)
        given[agent] = rows if agent == "red" else rows[:, 0]
    return given


def looked_at(obs, i=None):
    obs = obs if i is None else {key: part[i] for key, part in obs.items()}
    return tuple(np.asarray(obs[key]).tolist() for key in ("agents", "present", MASK, "world"))


def played(env, episodes):
    """The rows of the team by env and episode."""
    env.reset()
    rng = [np.random.default_rng(i) for i in range(env.num)]
    rows, begun = {}, [None] * env.num
    ends = []
    while len(ends) < episodes:
        running = list(env.episodes)
        acting = env.acting["red"].copy()
        seen = [looked_at(env.obs["red"], i) for i in range(env.num)]
        out = env.step(actions(env, rng))
        step = out.agents["red"]
        final = {i: looked_at(obs) for i, obs in step.final}
        for i in range(env.num):
            begun[i] = seen[i] if acting[i] else begun[i]
            if step.valid[i]:
                ended = bool(step.terminated[i]), bool(step.truncated[i])
                after = final[i] if any(ended) else looked_at(step.obs, i)
                rows.setdefault((i, running[i]), []).append((begun[i], float(step.reward[i]), *ended, after))
        ends += out.ended
    return rows, ends


def compare(api, episodes):
    env = engine(api)
    rows, ends = played(env, episodes)
    assert len(ends) >= episodes
    for end in ends:
        story = plot(api, end.seed)
        wanted = team_rows(story, ("a", "b", "c"), api)
        assert rows.get((end.env, end.episode), []) == wanted, (api, end.seed)
        paid = {m: sum(p.get(m, 0.0) for p in story.paid[:-1]) for m in "abc"}
        came = [m for m in "abc" if any(m in there for there in story.there)]
        assert end.info["members"] == {n: paid[m] for m, n in zip(came, names(api, came))}
        assert end.info["returns"].get("red", 0.0) == sum(paid.values())


@apis
def test_rows_of_a_team_are_what_the_plot_says(api):
    compare(api, 300)


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [2_500, pytest.param(10_000, marks=pytest.mark.matrix)])
@apis
def test_rows_of_a_team_are_what_the_plot_says_in_ten_thousand_episodes(api, episodes):
    """Of the four APIs together in every run of the tests, of each of them in the full matrix."""
    compare(api, episodes)


@apis
def test_a_restored_team_goes_on_bit_for_bit(api):
    straight, again = engine(api, 3), engine(api, 3)
    straight.reset()
    rng = [np.random.default_rng(i) for i in range(3)]
    for _ in range(37):
        straight.step(actions(straight, rng))
    again.restore(straight.state())
    assert again.exactness == "exact"
    for _ in range(25):
        for agent in straight.agents:
            now, then = flatten(again.obs[agent]), flatten(straight.obs[agent])
            assert all(np.array_equal(now[path], then[path]) for path in then)
            assert again.acting[agent].tolist() == straight.acting[agent].tolist()
        given = actions(straight, rng)
        ours, theirs = straight.step(given).agents["red"], again.step(given).agents["red"]
        assert ours.reward.tolist() == theirs.reward.tolist()
        assert ours.valid.tolist() == theirs.valid.tolist()


def test_specs_of_a_member_are_those_of_the_largest_and_masks_keep_their_sizes():
    env = engine("parallel")
    team = Team.of(env.obs_spec["red"], env.action_spec["red"])
    assert (team.members, team.obs.shape, team.sizes, team.action.sizes) == (3, (3,), (3, 2, 4), (4,))
    assert env.obs_spec["red"][MASK].shape == (9,)
    assert env.agents == ("red", "d")
    assert team.world.shape == (2,)
    assert team.world_size == 2
    joined = engine("parallel", world="joined")
    assert "world" not in joined.obs_spec["red"]
    assert Team.of(joined.obs_spec["red"], joined.action_spec["red"]).world_size == 3 * (3 + 1)
    assert Team.of(env.obs_spec["d"], env.action_spec["d"]) is None


def test_the_mean_of_rewards_is_a_share_of_their_sum():
    whole, mean = (
        engine("parallel", 1, {"red": TeamConfig(members=("a", "b", "c"), reward=r)}) for r in ("sum", "mean")
    )
    (rows, _), (thirds, _) = played(whole, 30), played(mean, 30)
    for key, part in rows.items():
        assert [row[1] / 3 for row in part] == pytest.approx([row[1] for row in thirds[key]], abs=1e-6)


def test_patterns_name_members_in_the_order_of_the_env():
    env = engine("parallel", 1, {"red": TeamConfig(members=("c", "[ab]"))})
    assert env._tables[0].adapter.members == {"red": ("c", "a", "b")}
    assert engine("parallel", 1, {"all": TeamConfig(members="*")}).agents == ("all",)


REFUSED = {
    "two teams": ({"red": ["a", "b"], "blue": ["b"]}, "'b' is in two teams, 'red' and 'blue'"),
    "nobody": ({"red": ["a", "x"]}, "env.teams.red names 'x', but the env has the agents"),
    "name of an agent": ({"a": ["b", "c"]}, "'a' is the name of an agent"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_teams_are_refused(case):
    teams, sentence = REFUSED[case]
    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        engine("parallel", 1, {name: TeamConfig(members=tuple(members)) for name, members in teams.items()})


class Odd(ParallelCrowd):
    """Members that do not fit."""

    def __init__(self, what):
        super().__init__()
        if what == "kinds":
            self.observation_spaces["c"] = spaces.Box(0, 255, (4, 4, 3), np.uint8)
        elif what == "actions":
            self.action_spaces["c"] = spaces.Box(-1, 1, (2,), np.float32)
        elif what == "mask":
            self.observation_spaces["b"] = spaces.Dict(
                {"observation": spaces.Box(0, 10, (3,), np.float32), "action_mask": spaces.Box(0, 1, (5,), np.int8)}
            )
        elif what == "state":
            self.state_space = None


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("kinds", "see things of unlike kinds: 'a' box float32"),
        ("actions", "expected all Discrete, or all Box of one dtype"),
        ("mask", r"'b' of team 'red' has an action_mask of shape \(5,\), but 2 actions"),
        ("state", "env.world=state needs an env with a method state"),
    ],
)
def test_members_that_do_not_fit_are_refused(what, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ENGINES["parallel"]([Odd(what)], seed_of, teams={"red": RED}, world="state")


class Forgets(ParallelCrowd):
    """Says nothing of b's reward."""

    def step(self, given):
        obs, paid, *rest = super().step(given)
        return obs, {a: r for a, r in paid.items() if a != "b"}, *rest


class Wrong(ParallelCrowd):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def step(self, given):
        obs, paid, *rest = super().step(given)
        if self.what == "unseen" and "a" in self.agents:
            del obs["a"]
        elif self.what == "none" and "a" in self.agents:
            obs["a"] = None
        elif self.what == "stranger":
            paid = paid | {"x": 1.0}
        elif self.what == "reward":
            paid = paid | {"a": "much"}
        elif self.what == "shape" and "a" in obs:
            obs["a"] = np.zeros(7, np.float32)
        elif self.what == "nan" and "a" in obs:
            obs["a"] = np.full(2, np.nan, np.float32)
        return obs, paid, *rest


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Forgets, "reward has no entry for 'b'"),
        (lambda: Wrong("unseen"), "member 'a' of 'red' must act and was given no observation"),
        (lambda: Wrong("none"), "'a' .*(must act and was given no observation|NoneType)"),
        (lambda: Wrong("stranger"), r"it speaks of an agent 'x', but its agents are \['a', 'b', 'c', 'd'\]"),
        (lambda: Wrong("reward"), "member 'a' of 'red': the reward is a str"),
        (lambda: Wrong("shape"), r"the observation of 'a' has shape \(7,\), expected \(2,\)"),
        (lambda: Wrong("nan"), r"the observation of 'a'\[0\] is nan"),
    ],
)
def test_what_is_wrong_with_a_member_is_told_with_its_name(make, sentence):
    env = ENGINES["parallel"]([make()], seed_of, teams={"red": RED}, world="state")
    with pytest.raises(EnvError, match=sentence):
        played(env, 40)


class Boxes(ParallelCrowd):
    """Members that move."""

    def __init__(self):
        super().__init__()
        self.action_spaces = {a: spaces.Box(-k, k, (k,), np.float32) for k, a in enumerate(AGENTS, 1)}
        self.observation_spaces["b"] = spaces.Discrete(5)
        self.observation_spaces["c"] = spaces.MultiDiscrete([2, 3])
        self.observation_spaces["a"] = spaces.MultiBinary(3)
        self.got = {}

    def _shown(self, obs):
        odd = {"a": np.array([1, 0, 1], np.int8), "b": 3, "c": np.array([1, 2])}
        return {a: odd.get(a, o) for a, o in obs.items()}

    def reset(self, seed=None, options=None):
        obs, infos = super().reset(seed)
        return self._shown(obs), infos

    def advance(self, given):
        self.got = given
        self.time += 1
        self.agents = list(self.story.there[self.time])
        return self.story.paid[self.time - 1]

    def step(self, given):
        obs, *rest = super().step(given)
        return self._shown(obs), *rest


def test_boxes_are_filled_up_and_discrete_observations_become_one_hot():
    env = ENGINES["parallel"]([Boxes()], lambda i, e: 4 + e, teams={"red": RED}, world="none")
    env.reset()
    assert env.action_spec["red"].shape == (3, 3)
    obs = env.obs["red"]
    there = env.obs["red"]["present"][0].tolist()
    wanted = [[1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert obs["agents"][0].tolist() == [w if t else [0] * 5 for w, t in zip(wanted, there)]
    given = {a: np.full((1, *env.action_spec[a].shape), 9.0, np.float32) for a in env.agents if env.acting[a][0]}
    env.step(given)
    got = env.envs[0].got
    assert {a: row.tolist() for a, row in got.items()} == {a: [k] * k for k, a in enumerate(AGENTS, 1) if a in got}
