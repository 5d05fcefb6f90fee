"""Quick acting gives what torch gives, on live weights, and leaves to torch what it does not understand."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rookery.acting.actor import Actor
from rookery.acting.rules import EpsilonGreedy
from rookery.algos.c51 import C51
from rookery.algos.crossq import CrossQ
from rookery.algos.dqn import DQN
from rookery.algos.ppo import PPO
from rookery.algos.qrdqn import QRDQN
from rookery.algos.sac import SAC
from rookery.algos.sac_discrete import SACDiscrete
from rookery.algos.td3 import TD3
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.kernels.act import LANES, NONE, RELU, TANH, perceptron
from rookery.learning.learner import Learner
from rookery.nets.config import ModelConfig

VECTOR = spec_of(spaces.Box(-np.inf, np.inf, (4,), np.float32))
BOX = spec_of(spaces.Box(-2.0, 2.0, (3,), np.float32))
FIVE = spec_of(spaces.Discrete(5))


def made(algo, obs=VECTOR, actions=FIVE, model=None, **config):
    model = ModelConfig(**({"hidden": (24, 17), "activation": "tanh"} | (model or {})))
    it = algo(algo.Config(**config), obs, actions, model)
    learner = Learner(it, Streams(0))
    return Actor(it.outputs, it.rule(), learner.eager), learner


def some(rows, seed=0, width=4):
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


def by_torch(actor, obs):
    with torch.no_grad():
        out, _ = actor.outputs(actor.reader, torch.as_tensor(obs), None, None)
    return {name: t.numpy() for name, t in out.items()}


CASES = {
    "dqn": lambda: made(DQN),
    "dqn relu": lambda: made(DQN, model={"activation": "relu"}),
    "dqn without hidden layers": lambda: made(DQN, model={"hidden": ()}),
    "dueling": lambda: made(DQN, dueling=True),
    "normalised": lambda: made(DQN, model={"normalise_obs": True}),
    "ppo": lambda: made(PPO),
    "ppo shared": lambda: made(PPO, shared=True),
    "ppo box": lambda: made(PPO, actions=BOX),
    "sac": lambda: made(SAC, actions=BOX),
    "c51": lambda: made(C51, atoms=7, v_min=-3.0),
    "dueling c51": lambda: made(C51, atoms=7, dueling=True),
    "qrdqn": lambda: made(QRDQN, quantiles=4),
    "layer norm": lambda: made(DQN, model={"layer_norm": True}),
    "sac-discrete": lambda: made(SACDiscrete),
    "td3": lambda: made(TD3, actions=BOX),
    "crossq": lambda: made(CrossQ, actions=BOX),
    "two observations": lambda: made(DQN, obs={"a": VECTOR, "b": BOX}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_the_outputs_are_those_of_torch_also_after_the_weights_changed(case, rows):
    actor, learner = CASES[case]()
    obs = {"a": some(rows), "b": some(rows, 7, 3)} if case == "two observations" else some(rows)
    tensors = {k: torch.as_tensor(v) for k, v in obs.items()} if isinstance(obs, dict) else obs
    actor.act(obs, None, greedy=True)
    assert actor._quick is not None
    for change in range(3):
        for name, tensor in learner.learned():
            if not name.endswith("stats") or change == 2:
                tensor.add_(torch.linspace(0.1, 0.2, tensor.numel()).reshape(tensor.shape))
        if not isinstance(obs, dict):
            obs = tensors = some(rows, seed=change)
        if isinstance(tensors, dict):
            with torch.no_grad():
                wanted = {k: t.numpy() for k, t in actor.outputs(actor.reader, tensors, None, None)[0].items()}
        else:
            wanted = by_torch(actor, obs)
        found = actor._quick(obs)[0]
        assert found.keys() == wanted.keys()
        for name in wanted:
            assert found[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-5), (case, name)


@pytest.mark.parametrize("rows", [1, 8])
def test_a_perceptron_by_hand(rows):
    # layer 1: W = [[1, 2], [3, −4]], b = [0.5, 0]; layer 2: W = [[2, −1]], b = [1]; x = [1, 1]
    flat = np.array([1, 2, 3, -4, 0.5, 0, 2, -1, 1], np.float32)
    x, out = np.array([[1, 1]] * rows, np.float32), np.zeros((rows, 1), np.float32)
    for activation, wanted in ((NONE, 2 * 3.5 + 1 + 1), (RELU, 2 * 3.5 + 1), (TANH, 2 * np.tanh(3.5) + np.tanh(1) + 1)):
        layers = np.array([[2, 2, 0, 4, activation], [2, 1, 6, 8, NONE]])
        perceptron(x, flat, layers, np.zeros((3, 2, LANES), np.float32), out)
        assert out == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("rows", [1, 4, 8, 17])
@pytest.mark.parametrize("widths", [(1, 1), (3, 8), (5, 9), (16, 23, 8, 1)])
def test_perceptrons_of_all_widths_equal_numpy(widths, rows):
    rng, layers, flat, at = np.random.default_rng(0), [], [], 0
    for n_in, n_out in itertools.pairwise(widths):
        layers.append([n_in, n_out, at, at + n_in * n_out, TANH])
        flat.append(rng.normal(size=n_in * n_out + n_out).astype(np.float32))
        at += n_in * n_out + n_out
    x = rng.normal(size=(rows, widths[0])).astype(np.float32)
    out = np.zeros((rows, widths[-1]), np.float32)
    perceptron(x, np.concatenate(flat), np.array(layers), np.full((3, max(widths), LANES), np.nan, np.float32), out)
    wanted = x.astype(np.float64)
    for (n_in, n_out), part in zip(itertools.pairwise(widths), flat):
        wanted = np.tanh(wanted @ part[: n_in * n_out].reshape(n_out, n_in).T + part[n_in * n_out :])
    assert out == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("rows", [2, 5, 8, 11])
def test_a_row_does_not_depend_on_the_others(rows):
    actor, _ = made(DQN)
    obs = some(rows)
    actor.act(obs, None, greedy=True)
    together = actor._quick(obs)[0]["q"].copy()
    for i in range(rows):
        actor.act(obs[i : i + 1], None, greedy=True)
        assert (actor._quick(obs[i : i + 1])[0]["q"] == together[i]).all()


def test_nan_stays_nan():
    actor, _ = made(DQN, model={"activation": "relu"})
    actor.act(some(1), None, greedy=True)
    assert np.isnan(actor._quick(np.full((1, 4), np.nan, np.float32))[0]["q"]).all()


class Branching(nn.Module):
    """What a recorder would get wrong: a branch on a Python counter."""

    def __init__(self, obs_spec):
        super().__init__()
        self.out_features, self.calls = 4, 0

    def forward(self, obs):
        self.calls += 1
        return obs if self.calls % 2 else -obs


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("a module of the user's", lambda: made(DQN, model={"encoder": f"{__name__}:Branching", "hidden": (64, 64)})),
        ("an activation without kernel", lambda: made(DQN, model={"activation": "gelu"})),
        ("a large network", lambda: made(DQN, model={"hidden": (512, 512)})),
    ],
)
def test_what_is_not_plain_is_left_to_torch(why, make):
    actor, _ = make()
    obs = some(2)
    action = actor.act(obs, None, greedy=True)["action"]
    assert actor._quick is None, why
    if "module" not in why:
        assert (action == by_torch(actor, obs)["q"].argmax(-1)).all()


def test_integers_and_images_are_left_to_torch():
    for space in (spaces.Discrete(4), spaces.Box(0, 255, (8, 8, 3), np.uint8)):
        spec = spec_of(space)
        actor, _ = made(DQN, obs=spec, model={"convs": ((4, 3, 1),)})
        actor.act(np.zeros((2, *spec.shape), spec.dtype), None, greedy=True)
        assert actor._quick is None


def test_a_number_read_from_the_data_is_left_to_torch():
    def outputs(reader, obs, state, first):
        return {"q": obs + float(obs.sum())}, state

    actor = Actor(outputs, EpsilonGreedy(), None)
    actor.act(some(2), None, greedy=True)
    assert actor._quick is None


def test_another_batch_size_gets_a_program_of_its_own():
    actor, _ = made(DQN)
    for rows in (1, 5, 2):
        obs = some(rows, seed=rows)
        assert (actor.act(obs, None, greedy=True)["action"] == by_torch(actor, obs)["q"].argmax(-1)).all()


def test_outputs_that_look_at_starts_are_left_to_torch():
    def outputs(reader, obs, state, first):
        return {"q": obs + torch.as_tensor(first).float().unsqueeze(-1)}, state

    actor = Actor(outputs, EpsilonGreedy(), None)
    actor.act(some(2), None, np.array([True, False]), greedy=True)
    assert actor._quick is None
