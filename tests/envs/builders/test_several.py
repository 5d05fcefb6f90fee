"""From config to envs with several agents, and what check-env says about them."""

from __future__ import annotations

import json
import random
import sys

import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.registry import register, unregister
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, check_env, make, make_multi
from rookery.envs.multi.engine import DictAgents, ParallelAgents, TurnAgents
from rookery.envs.tasks.games import Pairing, Shifts, Verdicts, Visitors
from rookery.envs.tasks.matrix_games import TwoStep

GAMES = "rookery.envs.tasks.games:"


def build(count=1, purpose="train", worker=0, factory=None, **config):
    config = EnvConfig(**config)
    return make_multi(config, count=count, purpose=purpose, streams=Streams(4), worker=worker, factory=factory)


@pytest.mark.parametrize(
    ("env_id", "api", "engine"),
    [("Pairing", "parallel", ParallelAgents), ("Verdicts", "turns", TurnAgents), ("Shifts", "dict", DictAgents)],
)
def test_the_api_of_the_config_chooses_the_engine(env_id, api, engine):
    env = build(count=2, id=GAMES + env_id, api=api)
    assert type(env) is engine
    assert (env.num, env.name) == (2, GAMES + env_id)
    assert EnvConfig(api=api).agents is None


def test_envs_are_seeded_by_purpose_worker_env_and_episode():
    env = build(count=2, purpose="eval", worker=3, id=GAMES + "Pairing", api="parallel")
    env.reset()
    state = env.state()["envs"]
    assert [state[str(i)]["seed"] for i in range(2)] == [Streams(4).seed_of("eval", 3, i, 0) for i in range(2)]


@pytest.mark.parametrize("env_id", ["pettingzoo.classic:tictactoe_v3", "pettingzoo.classic.tictactoe_v3:env"])
@pytest.mark.parametrize("api", ["turns", "auto"])
def test_a_module_of_pettingzoo_or_its_factory_can_be_named(env_id, api):
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    env = build(count=2, id=env_id, api=api)
    assert isinstance(env, TurnAgents)
    assert env.agents == ("player_1", "player_2")


def test_a_module_with_both_apis_gives_the_one_that_is_asked_for():
    pytest.importorskip("pettingzoo.classic.rps_v2")
    assert isinstance(build(id="pettingzoo.classic:rps_v2", api="turns"), TurnAgents)
    env = build(id="pettingzoo.classic:rps_v2", api="parallel", kwargs={"max_cycles": 4})
    env.reset()
    lengths = []
    while not lengths:
        out = env.step({agent: np.zeros(1, int) for agent in env.agents})
        lengths += [end.length for end in out.ended]
    assert lengths == [4]


def test_arguments_places_limits_and_wrappers_reach_the_envs():
    class Placed(Pairing):
        def __init__(self, rounds, worker, index):
            super().__init__(rounds + 10 * worker + index)

    env = build(count=3, worker=1, factory=Placed, api="parallel", per_env=({"rounds": 1}, {"rounds": 2}))
    assert env.call("rounds") == [2 + 10, 1 + 11, 2 + 12]  # envs 3, 4 and 5 of all workers
    cut = build(factory=Pairing, api="parallel", max_episode_steps=2)
    cut.reset()
    action = {agent: np.zeros(1, int) for agent in cut.agents}
    assert [bool(cut.step(action).ended) for _ in range(4)] == [False, True, False, True]
    wrapped = build(factory=Pairing, api="parallel", train_wrappers=("envs.builders.test_several:Wrapped",))
    assert type(wrapped.envs[0]).__name__ == "Wrapped"
    assert isinstance(
        build(factory=Pairing, api="parallel", eval_wrappers=("envs.builders.test_several:Wrapped",)).envs[0], Pairing
    )


class Wrapped:
    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)


@pytest.mark.parametrize(
    ("name", "api"), [("Pairing", "parallel"), ("Verdicts", "turns"), ("Visitors", "parallel"), ("Shifts", "dict")]
)
def test_our_games_have_names_and_their_old_paths_still_build(name, api):
    for env_id in (f"rookery/{name}-v0", f"rookery.envs.games:{name}", GAMES + name):
        assert type(build(id=env_id, api=api).envs[0]).__name__ == name
    assert check_env(f"rookery/{name}-v0", api=api).ok
    assert "Set env.api to one of parallel, turns, dict" in check_env(f"rookery/{name}-v0").problems[0]
    with pytest.raises(ConfigError, match=r"has several agents: set env\.api to one of"):
        make(EnvConfig(id=f"rookery/{name}-v0"), count=1, purpose="train", streams=Streams(0))


def test_a_registered_name_of_ones_own_can_be_used():
    register("env", "my-pairs", Pairing)
    try:
        assert build(id="my-pairs", api="parallel").agents == ("left", "right")
    finally:
        unregister("env", "my-pairs")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": "CartPole-v1", "api": "turns"}, "expected module:name, for example pettingzoo.classic:tictactoe_v3"),
        ({"api": "turns"}, "env.id is missing"),
        ({"id": GAMES + "Paring", "api": "parallel"}, "defines no env 'Paring'. Did you mean 'Pairing'"),
        ({"id": "nowhere.at_all:Env", "api": "parallel"}, "there is no module 'nowhere.at_all'"),
        ({"id": GAMES + "Pairing", "api": "auto"},
            "how does Pairing speak\\? Set env.api to one of parallel, turns, dict"),
        ({"id": GAMES + "Pairing", "api": "turns"},
            "Pairing cannot be used with this env.api: it has no last, observe"),
        ({"id": GAMES + "Pairing", "api": "parallel", "kwargs": {"x": 1}},
            r"cannot be made with env.kwargs=\{'x': 1\}"),
        ({"id": GAMES + "Pairing", "api": "parallel", "engine": "native"},
            "env.engine=native cannot be used with env.api=parallel"),
        ({"id": GAMES + "Pairing", "api": "parallel", "wrappers": ("atari",)}, "'atari' is for one agent"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_told(config, told):
    with pytest.raises(ConfigError, match=told):
        build(**config)


@pytest.mark.parametrize(
    ("env_id", "api", "told"),
    [
        (
            "pettingzoo.classic:tictactoe_v3",
            "parallel",
            "cannot be used with env.api=parallel: it offers env.api=turns",
        ),
        ("pettingzoo.classic.tictactoe_v3:env", "parallel", "one of PettingZoo's turns envs: set env.api=turns"),
        ("pettingzoo.classic:tictactoe_v2", "turns", "Did you mean 'tictactoe_v3'"),
    ],
)
def test_a_wrong_name_or_api_of_pettingzoo_is_told(env_id, api, told):
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    with pytest.raises(ConfigError, match=told):
        build(id=env_id, api=api)


def test_without_pettingzoo_its_envs_name_the_extra_and_ours_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ConfigError, match=r'needs pettingzoo, which is not installed: pip install "rookery\[marl\]"'):
        build(id="pettingzoo.classic:tictactoe_v3", api="turns")
    for name, api in (("Pairing", "parallel"), ("Verdicts", "turns"), ("Shifts", "dict")):
        assert check_env(GAMES + name, api=api).ok


def test_an_env_with_several_agents_is_not_made_as_one_with_one():
    with pytest.raises(ConfigError, match=r"env.api=turns has several agents: .*make_multi"):
        make(EnvConfig(id=GAMES + "Verdicts", api="turns"), count=1, purpose="train", streams=Streams(0))


# --- check-env ---


@pytest.mark.parametrize(
    ("target", "api", "lengths"),
    [(Pairing, "parallel", [5, 5]), (Verdicts, "turns", [6, 6]), (Visitors, "parallel", [8, 8]),
        (Shifts, "dict", [8, 8])],
)  # fmt: skip
def test_good_envs_are_ok_and_resume_exactly(target, api, lengths):
    report = check_env(target, api=api, episodes=2)
    assert (report.ok, report.problems, report.warnings) == (True, [], [])
    assert report.facts["api"] == api
    assert report.facts["agents"] == target().possible_agents
    assert report.facts["resume"] == "exact"
    assert report.facts["episode_lengths"] == lengths
    json.dumps(report.to_dict())
    assert check_env(target(), api=api).ok


def test_pettingzoo_envs_are_known_without_a_word_and_pass_its_tests_too(capsys):
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    report = check_env("pettingzoo.classic:tictactoe_v3")
    assert report.ok
    assert report.facts["api"] == "turns"
    assert report.warnings == ["PettingZoo's api_test: Observation numpy array is all zeros."]
    assert report.facts["player_1"].startswith("observes {action_mask: box int8 (9,), observation: box int8 (3, 3, 2)}")
    assert capsys.readouterr().out == ""


def test_our_games_pass_pettingzoos_own_tests():
    pettingzoo = pytest.importorskip("pettingzoo")
    for game, base in (
        (Pairing, pettingzoo.ParallelEnv),
        (Visitors, pettingzoo.ParallelEnv),
        (Verdicts, pettingzoo.AECEnv),
    ):
        report = check_env(type(game.__name__, (game, base), {}))
        assert (report.name, report.problems) == (game.__name__, [])
        assert report.facts["api"] == ("turns" if base is pettingzoo.AECEnv else "parallel")


def test_what_pettingzoos_test_finds_is_a_problem():
    pettingzoo = pytest.importorskip("pettingzoo")

    class Copying(Pairing, pettingzoo.ParallelEnv):
        def action_space(self, agent):
            return spaces.Discrete(2 if agent == "left" else 3)

    assert any(
        "parallel_api_test failed: AssertionError: action_space should" in text for text in check_env(Copying).problems
    )


class Unseeded(Pairing):
    def reset(self, seed=None, options=None):
        return super().reset(seed=None)


class Mute(Pairing):
    def step(self, actions):
        obs, reward, _, truncated, info = super().step(actions)
        return obs, reward, truncated, truncated, info


class Idle(Pairing):
    def __init__(self):
        super().__init__()
        self.possible_agents = [*self.possible_agents, "third"]
        self.observation_spaces["third"], self.action_spaces["third"] = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        obs, info = super().reset(seed)
        self.agents = ["left", "right"]
        return obs, info


class Global(Pairing):
    def step(self, actions):
        random.random()
        return super().step(actions)


class Rotten(Pairing):
    def step(self, actions):
        obs, *rest = super().step(actions)
        return {agent: part * np.nan for agent, part in obs.items()}, *rest


@pytest.mark.parametrize(
    ("target", "kind", "told"),
    [
        (Unseeded, "warnings", "the same seed and actions gave another episode"),
        (Mute, "warnings", r"ended without saying so for ['left', 'right'], which counts as truncated"),
        (Idle, "warnings", "['third'] never completed a decision"),
        (lambda: Pairing(rounds=10**6), "warnings", "did not end within 1000 steps: set env.max_episode_steps"),
        (Global, "problems", "global random generator"),
        (Rotten, "problems", "agent 'left', episode 0, seed 0, step 1: step failed: the observation[0] is nan"),
    ],
)
def test_what_is_wrong_is_told_in_sentences(target, kind, told):
    report = check_env(target, api="parallel")
    assert any(told in text for text in getattr(report, kind)), str(report)
    assert report.ok == (kind == "warnings")


def test_check_env_on_the_command_line_takes_the_api():
    from typer.testing import CliRunner

    from rookery.cli.main import app

    result = CliRunner().invoke(app, ["check-env", GAMES + "Verdicts", "--api", "turns", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["facts"]["agents"] == ["first", "second"]


# --- check-env and teams ---


class Frozen(TwoStep):
    def state(self):
        return np.zeros(3, np.float32)


class Wide(Pairing):
    state_space = spaces.Box(0.0, 1.0, (3,), np.float32)

    def state(self):
        return np.zeros(4, np.float32)


class Limited(Pairing):
    def __init__(self):
        super().__init__(rounds=20)


def test_a_team_is_looked_at_with_its_members_and_the_world():
    for members, settings in (("[a, b]", []), ("'*'", ["env.world=joined"])):
        report = check_env(TwoStep, api="parallel", settings=[f"env.teams.red={members}", *settings])
        assert (report.problems, report.warnings) == ([], [])
        seen = "what its members see" if settings else "state()"
        assert "acts multi_discrete of 2×2" in report.facts["red"]
        assert report.facts["red"].endswith(f"world: {seen}")


@pytest.mark.parametrize(
    ("target", "settings", "kind", "told"),
    [
        (
            TwoStep,
            ["env.teams.red=[a, c]"],
            "problems",
            "env.teams.red names 'c', but the env has the agents ['a', 'b']",
        ),
        (Pairing, ["env.teams.red='*'", "env.world=state"], "problems", "env.world=state needs an env with a method"),
        (Wide, ["env.teams.red='*'"], "problems", "the state of the env"),
        (Frozen, ["env.teams.red='*'"], "warnings", "state() was the same in 300 random steps"),
        (Idle, ["env.teams.red=[left, right]", "env.teams.blue=third"], "warnings", "['third'] never completed"),
        (Limited, [], "warnings", "every episode terminated after exactly 20 steps: if that is a time limit"),
    ],
)
def test_what_is_wrong_with_a_team_is_told_in_a_sentence(target, settings, kind, told):
    report = check_env(target, api="parallel", settings=settings)
    assert any(told in text for text in getattr(report, kind)), str(report)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["env.teems=3"], "env.teems: unknown key .* Did you mean 'env.teams'"),
        (["algo.lr=3"], "only an env is checked: expected options such as env.kwargs, got algo"),
    ],
)
def test_options_that_are_none_of_the_envs_are_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        check_env(TwoStep, api="parallel", settings=settings)


def test_options_of_an_env_with_one_agent_count_as_well():
    report = check_env("CartPole-v1", settings={"env.max_episode_steps": 5})
    assert report.facts["time_limit"] == 5
