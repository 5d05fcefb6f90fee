"""From config to envs: ids, factories, per-env arguments, wrappers of training and evaluation, the old API."""

from __future__ import annotations

import contextlib
import importlib.util

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from pydantic import ValidationError

from envs.sample_envs import CountingEnv, OldStyle, Scripted, make_scripted
from rookery.core.config.fields import comments_of
from rookery.core.errors import ConfigError, EnvError
from rookery.core.registry import register, unregister
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, FourTuple, FromVector, make


def build(count=1, purpose="train", worker=0, factory=None, **config):
    return make(EnvConfig(**config), count=count, purpose=purpose, streams=Streams(0), worker=worker, factory=factory)


def layers(env):
    found = []
    while isinstance(env, gymnasium.Wrapper):
        found.append(type(env))
        env = env.env
    return found


def test_every_field_is_documented_on_its_line():
    assert comments_of(EnvConfig).keys() == EnvConfig.model_fields.keys()


def test_a_registered_id_keeps_its_time_limit_and_loses_the_checks_that_ours_replaces():
    inner = layers(build(id="CartPole-v1", engine="gymnasium").envs[0])
    assert inner == [TimeLimit]
    assert PassiveEnvChecker not in inner
    assert OrderEnforcing not in inner


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "envs.sample_envs:CountingEnv", "envs.sample_envs:SampleCounting-v0"]
)
def test_max_episode_steps_truncates_whatever_the_env_came_from(env_id, tmp_path):
    kwargs = {} if env_id == "CartPole-v1" else {"log": str(tmp_path / "log")}
    env = build(id=env_id, kwargs=kwargs, max_episode_steps=3)
    env.reset()
    truncated = [bool(env.step(np.array([k % 2])).truncated[0]) for k in range(6)]
    assert truncated == [False, False, True] * 2


def test_module_and_id_imports_the_module_and_keeps_what_was_registered(tmp_path):
    env = build(id="envs.sample_envs:SampleCounting-v0", kwargs={"log": str(tmp_path / "log")})
    env.reset()
    assert [k for k in range(1, 15) if env.step(np.array([k % 2])).truncated[0]] == [7, 14]


def test_factories_are_told_worker_and_index_and_kwargs():
    env = build(count=3, worker=2, factory=make_scripted, kwargs={"length": 4})
    env.reset()
    assert env.step(np.zeros(3, np.int64)).reward.tolist() == [200, 201, 202]
    assert [len(one.script[0]) for one in env.envs] == [4, 4, 4]


def test_a_factory_without_these_arguments_is_called_without_them():
    env = build(count=2, factory=lambda: Scripted([[(1.0, True, False)]]))
    assert env.num == 2


def test_a_factory_that_hands_on_what_it_does_not_name_is_not_told_its_place():
    """`gymnasium.make` and the makers of most packages have **kwargs, and their envs know no `worker`."""

    def maker(**kwargs):
        return CountingEnv(**kwargs)

    assert build(count=2, factory=maker, kwargs={"log": "unused"}).num == 2


def test_a_place_that_the_config_says_itself_is_the_config_s():
    env = build(count=2, worker=2, factory=make_scripted, kwargs={"length": 4, "worker": 7})
    env.reset()
    assert env.step(np.zeros(2, np.int64)).reward.tolist() == [700, 701]


def test_per_env_arguments_are_dealt_out_over_all_workers():
    found = []
    for worker in range(2):
        env = build(count=3, worker=worker, id="CartPole-v1", per_env=({"sutton_barto_reward": True}, {}))
        found += env.call("_sutton_barto_reward")
    assert found == [True, False, True, False, True, False]


def test_training_and_evaluation_are_wrapped_apart():
    config = {
        "factory": lambda: Scripted([[(5.0, True, False)]]),
        "wrappers": ({"name": "reward_scale", "kwargs": {"factor": 2.0}},),
    }
    config |= {"train_wrappers": ("reward_clip",), "eval_wrappers": ("rookery.envs.wrappers:RewardScale",)}
    train = build(purpose="train", **config)
    train.reset()
    out = train.step(np.array([0]))
    assert (out.reward[0], out.ended[0].total) == (1.0, 1.0)  # 5 · 2, clipped to 1
    with pytest.raises(ConfigError, match="factor"):
        build(purpose="eval", **config)
    raw = build(purpose="eval", **{**config, "eval_wrappers": ()})
    raw.reset()
    assert raw.step(np.array([0])).reward[0] == 10.0


def test_a_registered_name_of_ones_own_can_be_used():
    register("env", "my-walk", CountingEnv)
    try:
        assert build(id="my-walk", kwargs={"log": "unused"}).obs_spec.shape == (2,)
    finally:
        unregister("env", "my-walk")


@pytest.mark.parametrize("api", ["auto", "four"])
def test_old_envs_are_seeded_and_their_time_limit_is_a_truncation(api):
    env = build(count=2, factory=OldStyle, api=api)
    assert isinstance(env.envs[0], FourTuple)
    first = env.reset().copy()
    flags = [(bool(o.terminated[0]), bool(o.truncated[0])) for o in (env.step(np.zeros(2, np.int64)) for _ in range(5))]
    assert flags == [(False, False)] * 4 + [(False, True)]
    assert np.array_equal(first, build(count=2, factory=OldStyle).reset())
    assert not np.array_equal(first[0], first[1])


def test_an_old_env_that_falls_terminates_and_can_be_resumed_exactly():
    env = build(factory=lambda: OldStyle(limit=9, fall=3))
    env.reset()
    env.step(np.array([0]))
    env.step(np.array([0]))
    again = build(factory=lambda: OldStyle(limit=9, fall=3))
    again.restore(env.state())
    assert again.exactness == "exact"
    out = again.step(np.array([0]))
    assert (out.terminated[0], out.truncated[0]) == (True, False)


def test_spaces_of_the_old_package_are_translated():
    class Box:
        low, high, dtype = np.zeros(2, np.float32), np.ones(2, np.float32), np.dtype(np.float32)

    class Discrete:
        n = 3

    class Dict:
        spaces = {"a": Box(), "b": Discrete()}

    class Tuple:
        spaces = (Discrete(), Box())

    class Old(OldStyle):
        def __init__(self):
            super().__init__()
            self.observation_space, self.action_space = Dict(), Tuple()

    env = FourTuple(Old())
    assert env.observation_space == gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Box(0, 1, (2,), np.float32), "b": gymnasium.spaces.Discrete(3)}
    )
    assert env.action_space[0] == gymnasium.spaces.Discrete(3)


def test_a_factory_may_return_a_whole_vector_env():
    def factory(num_envs):
        return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)

    env = build(count=3, factory=factory)
    assert isinstance(env, FromVector)
    assert env.reset().shape == (3, 4)
    with pytest.raises(ConfigError, match=r"env\.on_bad"):
        build(count=3, factory=factory, on_bad="drop")
    with pytest.raises(ConfigError, match="has 2 envs, 3 are needed"):
        build(count=3, factory=lambda: factory(2))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": "CartPol-v1"}, r"unknown env 'CartPol-v1'\. Did you mean 'CartPole-v1'"),
        ({"id": "dm_control/cartpole-balance-v0"}, r"shimmy registers such envs: env\.id=shimmy:dm_control/cartpole-b"),
        ({"id": "PongNoFrameskip-v9"}, r"The Atari game: env\.id=ALE/Pong-v5 env\.wrappers=\[atari\] env\.stack=4"),
        ({"id": "Nowhere-v0"}, r"an id that a package registers: env\.id=package:Name"),
        ({"id": "no.such.module:Env"}, r"no module 'no\.such\.module'"),
        ({"id": "envs.sample_envs:CountinEnv"}, r"neither defines nor registers.*Did you mean 'CountingEnv'"),
        ({"id": "CartPole-v1", "kwargs": {"gravty": 1}}, r"env\.kwargs=.*gravty"),
        ({}, r"env\.id is missing"),
        ({"id": "CartPole-v1", "factory": OldStyle}, "both"),
        ({"id": "CartPole-v1", "wrappers": ("reward_clp",)}, "Did you mean 'reward_clip'"),
        ({"id": "Acrobot-v1", "engine": "native"}, "no vectorised engine"),
        ({"id": "CartPole-v1", "engine": "native", "wrappers": ("reward_clip",)}, r"env\.wrappers cannot be used"),
        ({"factory": object}, "is not an env"),
        ({"factory": OldStyle, "api": "gymnasium"}, r"env\.api=four"),
    ],
)
def test_mistakes_are_config_errors_in_sentences(config, told):
    with pytest.raises(ConfigError, match=told):
        build(**config)


@pytest.mark.parametrize(
    ("env_id", "package", "extra"),
    [("ALE/Pong-v5", "ale_py", "atari"), ("LunarLander-v3", "Box2D", "box2d"), ("HalfCheetah-v5", "mujoco", "mujoco")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(env_id, package, extra):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(ConfigError, match=rf'pip install "rookery\[{extra}\]"'):
        build(id=env_id)


def test_a_constructor_that_fails_is_an_env_error_with_its_cause():
    def factory():
        raise RuntimeError("no licence")

    with pytest.raises(EnvError, match="RuntimeError: no licence") as caught:
        build(factory=factory)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "bad", [{"num": 0}, {"kwargs": {"a": float("nan")}}, {"per_env": [{"a": [float("inf")]}]}, {"nmu": 1}]
)
def test_bad_values_are_refused_by_the_section(bad):
    with pytest.raises(ValidationError):
        EnvConfig(**bad)


def test_the_config_is_not_changed_by_the_env():
    kwargs = {"script": [[(0.0, True, False)]]}
    env = build(id="envs.sample_envs:Scripted", kwargs=kwargs)
    env.envs[0].script.append("mine")
    assert kwargs == {"script": [[(0.0, True, False)]]}


@pytest.mark.parametrize(
    ("quota", "collectors", "given", "expected"),
    [(8, 1, None, 8), (8, 2, None, 4), (8, 3, None, 2), (8, 16, None, 1), (8, 2, 6, 6)],
)
def test_collectors_that_step_at_once_share_the_cpus_unless_told_otherwise(
    monkeypatch, quota, collectors, given, expected
):
    monkeypatch.setattr("rookery.envs.config.cpu_quota", lambda: quota)
    config = EnvConfig(id="CartPole-v1", workers={"mode": "subprocess", "processes": given})
    assert config.shared_by(collectors).workers.processes == expected
    assert EnvConfig(id="CartPole-v1").shared_by(collectors).workers.processes is None  # nobody needs any


def test_an_old_env_needs_no_close_no_seed_and_no_metadata():
    class Bare:
        observation_space, action_space = OldStyle().observation_space, OldStyle().action_space

        def reset(self):
            return np.zeros(2, np.float32)

        def step(self, action):
            return np.ones(2, np.float32), 1.0, True, {}

    for config in ({}, {"api": "four"}):
        env = build(factory=Bare, **config)
        env.reset()
        assert env.step(np.array([0])).terminated.tolist() == [True]
        env.close()
    with contextlib.closing(build(factory=Bare, workers={"mode": "subprocess", "start": "fork"})) as env:
        env.reset()
        assert env.step(np.array([0])).reward.tolist() == [1.0]


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("pettingzoo.classic:rps_v2", r"has several agents: set env\.api=turns or env\.api=parallel"),
        ("pettingzoo.classic:tictactoe_v3", r"has several agents: set env\.api=turns \(docs"),
        ("pettingzoo.classic.rps_v2:parallel_env", r"has several agents: set env\.api=parallel$"),
        ("pettingzoo.classic.tictactoe_v3:env", r"has several agents: set env\.api=turns$"),
        ("pettingzoo.classic.rps_v2", r"env\.id=pettingzoo\.classic:rps_v2 with env\.api=turns or env\.api=parallel"),
    ],
)
def test_games_of_pettingzoo_without_an_api_are_told_which_to_set(env_id, told):
    pytest.importorskip("pettingzoo.classic.rps_v2")
    with pytest.raises(ConfigError, match=told):
        build(id=env_id)
