"""The numba engine for several agents: the numbers of the env in Python to the bit, exact snapshots, and clear words
for what it lacks."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import CheckpointError, ConfigError, Diverged, EnvError, UsageError
from rookery.core.rng import Streams
from rookery.core.tree import flatten
from rookery.envs import EnvConfig, make_multi
from rookery.envs.engines import native_multi, spread
from rookery.envs.engines.native_multi import NativeMulti
from rookery.envs.multi.engine import ParallelAgents

SPREAD = "mpe2:simple_spread_v3"
MEAN = {"members": ["b", "a"], "reward": "mean"}
FORMS = {  # what agents may be told, and teams of them
    "players": {},
    "told who they are": {"ids": True},
    "central": {"central": ("*",), "ids": True},
    "central, joined": {"central": ("a", "agent_1"), "world": "joined"},
    "a team": {"teams": {"team": {"members": ["*"]}}},
    "cut short": {"max_episode_steps": 1},
}


def build(name, engine="auto", count=5, central=(), longest=None, **more):
    if name == SPREAD:
        pytest.importorskip("mpe2")
    config = EnvConfig(id=name, api="parallel", engine=engine, **more)
    return make_multi(config, count=count, purpose="train", streams=Streams(3), central=tuple(central), longest=longest)


def actions(env, rng):
    """Random ones; pushes also beyond their bounds."""
    given = {}
    for agent, space in env.action_spaces.items():
        if isinstance(space, spaces.Box):
            given[agent] = rng.normal(0.5, 0.5, (env.num, *space.shape)).astype(np.float32)
        else:
            sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n
            given[agent] = rng.integers(0, sizes, (env.num, *np.shape(sizes)))
    return given


def bits(tree):
    return {path: (x.shape, str(x.dtype), np.ascontiguousarray(x).tobytes()) for path, x in flatten(tree).items()}


def seen(env, out):
    """All that a step gave."""
    rows = {}
    for agent, step in out.agents.items():
        arrays = [x.tobytes() for x in (step.reward, step.terminated, step.truncated, step.valid)]
        final = [(i, bits(obs)) for i, obs in step.final]
        rows[agent] = bits(env.obs[agent]), arrays, final, step.infos, step.cut, step.marked
    return rows, out.ended, None if out.stepped is None else out.stepped.tolist(), env.everyone


def compare(name, steps, **more):
    """Both engines over the same random play, now and then with limits; the number of episodes."""
    ours, theirs = build(name, **more), build(name, "gymnasium", **more)
    assert isinstance(ours, NativeMulti)
    assert isinstance(theirs, ParallelAgents)
    assert (ours.agents, ours.obs_spec, ours.action_spaces) == (theirs.agents, theirs.obs_spec, theirs.action_spaces)
    ours.reset(), theirs.reset()
    rng, ends = np.random.default_rng(0), 0
    for t in range(steps):
        assert {agent: bits(obs) for agent, obs in ours.obs.items()} == {a: bits(obs) for a, obs in theirs.obs.items()}
        limits = {"steps": int(rng.integers(0, 7))} if t % 7 == 3 else {"episodes": 2} if t % 11 == 3 else {}
        given = actions(ours, rng)
        found, expected = ours.step(given, **limits), theirs.step(given, **limits)
        assert seen(ours, found) == seen(theirs, expected)
        ends += len(found.ended)
    ours.close(), theirs.close()
    return ends


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("game", ["TwoStep", "Climbing", "Penalty"])
def test_matrix_games_give_the_numbers_of_the_env_in_python(game, form):
    assert compare(f"rookery/{game}-v0", 60, **FORMS[form]) > 40


@pytest.mark.parametrize(
    "more", [{"teams": {"t": MEAN}}, {"teams": {"t": ["b"]}, "ids": True}, {"kwargs": {"penalty": -7}}]
)
def test_teams_in_another_order_and_arguments_of_a_matrix_game_mean_the_same(more):
    assert compare("rookery/Penalty-v0", 60, **more) > 40


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("continuous", [False, True])
def test_spread_gives_the_numbers_of_mpe2(continuous, form):
    kwargs = {"continuous_actions": continuous, "max_cycles": 12}
    assert compare(SPREAD, 40, kwargs=kwargs, **FORMS[form]) >= 10


@pytest.mark.parametrize(
    ("kwargs", "more"),
    [
        ({"N": 2, "local_ratio": 1}, {"world": "joined", "central": ["*"]}),
        ({"N": 4, "local_ratio": 0.3}, {"teams": {"t": {"members": ["agent_3", "agent_1"], "reward": "mean"}}}),
        ({"N": 5, "local_ratio": 0.0}, {"teams": {"t": ["agent_4", "agent_0"], "u": ["agent_2"]}, "ids": True}),
        ({"N": 5}, {"teams": {"t": ["agent_4", "agent_0"]}, "max_episode_steps": 13}),
        ({"N": 3}, {"longest": 9, "max_episode_steps": 11}),
    ],
)
def test_arguments_teams_and_limits_of_spread_mean_what_they_mean_in_mpe2(kwargs, more):
    assert compare(SPREAD, 80, kwargs=kwargs, **more) >= 10


@pytest.mark.parametrize("form", ["players", "a team", "central, joined"])
def test_who_covers_the_landmark_ends_the_episode_as_in_mpe2(form, monkeypatch):
    ends = []
    monkeypatch.setattr(native_multi, "EpisodeEnd", lambda *args: ends.append(EpisodeEnd(*args)) or ends[-1])
    kwargs = {"N": 1, "terminate_on_success": True, "max_cycles": 40}
    compare(SPREAD, 40, count=60, kwargs=kwargs, **FORMS[form] | {"central": ["*"] if "central" in form else ()})
    assert sum(end.terminated for end in ends) >= 3


def test_collisions_in_a_crowd_equal_mpe2s_to_the_bit():
    assert compare(SPREAD, 70, count=4, kwargs={"N": 10}, teams={"t": "agent_*"}) >= 4


@pytest.mark.parametrize("name", ["rookery/TwoStep-v0", SPREAD])
def test_a_restored_engine_goes_on_bit_for_bit(name):
    teams = {"team": {"members": ["*"]}}
    ours, again = build(name, teams=teams), build(name, teams=teams)
    ours.reset()
    rng = np.random.default_rng(1)
    for _ in range(31):
        ours.step(actions(ours, rng))
    again.restore(ours.state())
    assert again.exactness == "exact"
    assert bits(again.state()["native"]["physics"]) == bits(ours.state()["native"]["physics"])
    for _ in range(60):
        given = actions(ours, rng)
        assert seen(again, again.step(given)) == seen(ours, ours.step(given))


@pytest.mark.parametrize("name", ["rookery/TwoStep-v0", SPREAD])
def test_a_checkpoint_of_the_engine_in_python_is_replayed_and_the_other_way_round_is_refused(name):
    theirs, ours = build(name, "gymnasium"), build(name)
    theirs.reset()
    rng = np.random.default_rng(1)
    for _ in range(31):
        theirs.step(actions(theirs, rng))
    ours.restore(theirs.state())
    for _ in range(60):
        given = actions(ours, rng)
        assert seen(ours, ours.step(given)) == seen(theirs, theirs.step(given))
    with pytest.raises(CheckpointError, match=r"another engine: resume with the env\.engine"):
        theirs.restore(ours.state())


def test_an_engine_that_was_never_reset_is_saved_as_such():
    ours = build("rookery/TwoStep-v0")
    assert ours.state() == {"exactness": "exact", "native": {}}
    ours.restore(ours.state())
    with pytest.raises(UsageError, match="before reset"):
        ours.step({"a": np.zeros(5, np.int64), "b": np.zeros(5, np.int64)})
    with pytest.raises(CheckpointError, match="holds 2 envs"):
        ours.restore(_played("rookery/TwoStep-v0", count=2).state())


def _played(name, **more):
    env = build(name, **more)
    env.reset()
    return env


@pytest.mark.parametrize(
    "more",
    [
        {"wrappers": ["reward_clip"]},
        {"on_bad": "drop"},
        {"teams": {"t": {"members": ["*"], "reward": "own"}}},
        {"per_env": [{}]},
    ],
)
def test_what_it_lacks_is_refused_with_native_and_left_to_python_with_auto(more):
    assert isinstance(build("rookery/Penalty-v0", **more), ParallelAgents)
    with pytest.raises(ConfigError, match=r"cannot be used with env.engine=native.*Use env.engine=gymnasium"):
        build("rookery/Penalty-v0", "native", **more)


def test_a_game_without_a_kernel_is_refused_with_native_and_left_to_python_with_auto():
    assert isinstance(build("rookery/Pairing-v0"), ParallelAgents)
    with pytest.raises(
        ConfigError, match=r"cannot be used with env\.api=parallel and rookery/Pairing-v0: only the matrix"
    ):
        build("rookery/Pairing-v0", "native")
    assert isinstance(build("rookery/Climbing-v0", "native"), NativeMulti)


@pytest.mark.parametrize("kwargs", [{"num_agent_neighbors": 1}, {"benchmark_data": True}, {"render_mode": "rgb_array"}])
def test_arguments_of_spread_that_it_does_not_know_are_left_to_mpe2(kwargs):
    assert isinstance(build(SPREAD, kwargs=kwargs), ParallelAgents)
    with pytest.raises(ConfigError, match=f"{next(iter(kwargs))}.*native engine"):
        build(SPREAD, "native", kwargs=kwargs)


def test_an_env_that_gives_other_numbers_than_the_kernel_is_left_to_python(monkeypatch):
    monkeypatch.setattr(native_multi.matrix, "parameters", lambda model, **kwargs: model.payoffs + 1e-3)
    assert isinstance(build("rookery/Climbing-v0"), ParallelAgents)
    with pytest.raises(ConfigError, match="gives other numbers than our kernel"):
        build("rookery/Climbing-v0", "native")


def test_bad_actions_are_told_with_their_place():
    env = _played("rookery/Climbing-v0", count=2)
    good = np.zeros(2, np.int64)
    with pytest.raises(
        EnvError, match=r"env 1 of worker 0 .*agent 'b', episode 0, seed \d+, step 0.*action 3 is not in"
    ):
        env.step({"a": good, "b": np.array([0, 3])})
    with pytest.raises(UsageError, match="float64, expected int64"):
        env.step({"a": good, "b": np.zeros(2)})
    with pytest.raises(UsageError, match="no action of 'b'"):
        env.step({"a": good})
    with pytest.raises(UsageError, match="state cannot be called"):
        env.call("state")
    with pytest.raises(UsageError, match="a function cannot be called"):
        env.call(lambda env: env)
    assert env.call("optimum")[0] == {"a": 11.0, "b": 11.0}


def test_pushes_that_are_not_finite_are_the_policys_fault():
    env = _played(SPREAD, count=2, kwargs={"continuous_actions": True})
    given = actions(env, np.random.default_rng(0))
    given["agent_1"][1, 4] = np.nan
    with pytest.raises(Diverged, match="the policy gave 'agent_1' an action that is not finite"):
        env.step(given)


def test_two_agents_in_the_same_place_are_told():
    env = _played(SPREAD, count=1)
    env._physics[0, 2:4] = env._physics[0, 0:2]
    with pytest.raises(EnvError, match="two agents stand in the same place"):
        env.step({agent: np.zeros(1, np.int64) for agent in env.agents})


def test_the_forces_of_a_collision_by_hand():
    """Two agents 0.2 apart, 0.1 inside of each other: each is pushed by 100 · 0.1 = 10 N, so v = 0.1 · 10 = 1."""
    body, force = np.zeros(12), np.zeros((2, 2))
    body[2] = 0.2
    assert spread._move(body, force)
    np.testing.assert_allclose(body[8:], [-1.0, 0.0, 1.0, 0.0], atol=1e-9)
    reward = np.zeros(2)
    spread._pay(body, np.arange(2), 0.5, reward)
    np.testing.assert_allclose(reward, -0.5)  # both landmarks are at agent 0; they touch: half of −1


@pytest.mark.parametrize("y", [0.0, -1e-9, 1e-9, -0.3, 0.3, -40.0, 40.0, -800.0, 800.0, 300.0])
def test_softplus_is_numpys_logaddexp_to_the_bit(y):
    assert spread._softplus(y) == np.logaddexp(0, y)
