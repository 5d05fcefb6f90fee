"""F45: rewards, flags and spaces that no env should give: a sentence names them, and the exit code is 3."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envs.sample_envs import Faulty, OldStyle, Scripted
from faults.commands import DQN, Cli
from rookery.core.errors import EnvError
from rookery.core.rng import Streams
from rookery.envs import DictAgents, EnvConfig, FromVector, InProcess, check_env, make
from rookery.envs.wrappers import RewardScale

GRADIENT = torch.ones(1, requires_grad=True)


def seed_of(i, episode):
    return episode


def stepped(env):
    engine = InProcess([env], seed_of)
    engine.reset()
    return engine.step(np.array([0]))


REWARDS = {
    "huge": (10**400, "the reward is inf"),
    "huge debt": (-(10**400), "the reward is -inf"),
    "huge in an array": (np.array([10**400], object), "the reward is inf"),
    "gradient": (GRADIENT, r"the reward is a Tensor of shape \(1,\), expected one number"),
    "complex": (1 + 2j, "the reward is a complex"),
    "numpy complex": (np.complex64(1 + 2j), "the reward is a complex64"),
    "complex array": (np.array([1j]), r"the reward is a ndarray of shape \(1,\)"),
    "masked": (np.ma.masked, "the reward is a MaskedConstant"),
    "masked array": (np.ma.array([1.0], mask=True), "the reward is a MaskedArray"),
}


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_odd_reward_is_named_also_inside_of_a_wrapper_and_no_new_env_is_tried(name, wrapped):
    reward, told = REWARDS[name]
    env = Scripted([[(reward, False, False)] * 3])
    with pytest.raises(EnvError, match=told):
        stepped(RewardScale(env, factor=0.5) if wrapped else env)


def test_an_array_whose_mask_hides_nothing_is_a_number():
    assert stepped(Scripted([[(np.ma.array([2.0]), False, False)]])).reward.tolist() == [2.0]


FLAGS = {
    "text": ("False", "is 'False' \\(str\\), expected True or False"),
    "nan": (float("nan"), r"is nan \(float\)"),
    "numpy nan": (np.float32("nan"), r"is np\.float32\(nan\)"),
    "two": (2, "is 2"),
    "none": (None, r"is None \(NoneType\)"),  # a function that forgot to return it
}


@pytest.mark.parametrize("which", ["terminated", "truncated"])
@pytest.mark.parametrize("name", FLAGS)
def test_an_odd_flag_is_named(name, which):
    value, told = FLAGS[name]
    flags = (value, False) if which == "terminated" else (False, value)
    with pytest.raises(EnvError, match=f"{which} {told}"):
        stepped(Scripted([[(1.0, *flags)]]))


@pytest.mark.parametrize("value", [True, 1, 1.0, np.True_, np.array([True]), torch.tensor(True)])
def test_what_equals_true_ends_an_episode(value):
    out = stepped(Scripted([[(1.0, value, False)]]))
    assert (out.terminated.tolist(), out.truncated.tolist()) == ([True], [False])


def test_the_old_api_has_no_odd_flags_either():
    class Odd(OldStyle):
        def step(self, action):
            obs, reward, _, info = super().step(action)
            return obs, reward, "False", info

    env = make(EnvConfig(), count=1, purpose="train", streams=Streams(0), factory=Odd)
    env.reset()
    with pytest.raises(EnvError, match="done is 'False'"):
        env.step(np.array([0]))


def test_an_observation_with_a_gradient_or_a_mask_is_named():
    def broken(obs):
        return Faulty(lambda _, reward: (obs, reward))

    with pytest.raises(EnvError, match=r"the observation is not an array: .*requires grad"):
        stepped(broken(torch.zeros(3, requires_grad=True)))
    with pytest.raises(EnvError, match="the observation has masked values"):
        stepped(broken(np.ma.array(np.zeros(3, np.float32), mask=[0, 1, 0])))


class Several:
    """Two agents; what the first is told of its end is odd."""

    possible_agents = ("a", "b")
    observation_spaces = dict.fromkeys(possible_agents, spaces.Box(-1.0, 1.0, (1,), np.float32))
    action_spaces = dict.fromkeys(possible_agents, spaces.Discrete(2))

    def __init__(self, everybody=False, first=False):
        self.ends = {"a": first, "b": False, "__all__": everybody}

    def reset(self, *, seed=None):
        return dict.fromkeys("ab", np.zeros(1, np.float32)), {}

    def step(self, actions):
        no = dict.fromkeys(("a", "b", "__all__"), False)
        return dict.fromkeys("ab", np.zeros(1, np.float32)), dict.fromkeys("ab", 0.0), self.ends, no, {}


@pytest.mark.parametrize(
    ("odd", "told"),
    [({"first": "False"}, "the end of 'a' is 'False'"), ({"everybody": float("nan")}, "__all__ is nan")],
)
def test_an_odd_flag_of_one_of_several_agents_is_named(odd, told):
    env = DictAgents([Several(**odd)], seed_of)
    env.reset()
    with pytest.raises(EnvError, match=told):
        env.step(dict.fromkeys("ab", np.array([0])))


class Vector(gymnasium.vector.VectorEnv):
    """Two envs whose answers are given."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, **answers):
        self.num_envs = 2
        self.single_observation_space, self.single_action_space = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)
        no = np.zeros(2, bool)
        self.answers = {"reward": np.zeros(2), "terminated": no, "truncated": no} | answers

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        return np.zeros((2, 1), np.float32), *self.answers.values(), {}

    def close(self, **kwargs):
        pass


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"reward": np.array([1j, 0])}, r"the reward is complex128 of shape \(2,\), expected 2 numbers"),
        ({"reward": np.array([10**400, 0], object)}, "the reward is object"),
        ({"reward": np.ma.array([0.0, 1.0], mask=[0, 1])}, "the reward is masked"),
        ({"reward": torch.zeros(2, requires_grad=True)}, "the reward is no array"),
        ({"reward": np.zeros(3)}, r"shape \(3,\)"),
        ({"terminated": np.array(["False", "False"])}, "terminated is <U5"),
        ({"truncated": np.array([0.0, np.nan])}, r"truncated is \[0.0, nan\], expected True or False"),
    ],
)  # fmt: skip
def test_vector_engines_are_looked_at_too(odd, told):
    env = FromVector(Vector(**odd), seed_of, name="odd")
    env.reset()
    with pytest.raises(EnvError, match=told):
        env.step(np.zeros(2, np.int64))


class NothingToDo(Faulty):
    def __init__(self, shape=(0,)):
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, shape, np.float32)


def test_an_action_space_without_a_number_is_refused_with_exit_3(cli: Cli):
    ended = cli("train", *DQN, "--algo", "sac", "--env", "faults.test_odd_values:NothingToDo", "--out", "here")
    assert ended.code == 3
    assert "the action space of faults.test_odd_values:NothingToDo is box float32 (0,): it is empty" in ended.err
    assert "it is empty" in check_env(NothingToDo).problems[0]
    inside = spaces.Dict({"move": spaces.Discrete(2), "force": spaces.Box(-1.0, 1.0, (0,))})

    class Part(Faulty):
        def __init__(self):
            super().__init__()
            self.action_space = inside

    with pytest.raises(EnvError, match=r"\['force'\] is box float32 \(0,\)"):
        InProcess([Part()], seed_of)


class Odd(Faulty):
    """For whole runs."""

    def __init__(self, what):
        odd = {"huge": (10**400, False), "complex": (1j, False), "text": (0.0, "False"), "nan": (0.0, float("nan"))}
        super().__init__()
        self.odd = odd[what]

    def step(self, action):
        obs, _, _, truncated, info = super().step(action)
        return obs, *self.odd, truncated, info


@pytest.mark.parametrize("what", ["huge", "complex", "text", "nan"])
def test_a_run_with_odd_values_ends_with_exit_3_and_a_sentence(cli: Cli, what):
    words = [*DQN, "--env", "faults.test_odd_values:Odd", f"env.kwargs={{what: {what}}}", "--out", "here"]
    ended = cli("train", *words)
    assert ended.code == 3
    assert ended.err.splitlines()[-1].startswith("error: env 0 of worker 0 (faults.test_odd_values:Odd), episode 0")
