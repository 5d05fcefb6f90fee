"""Heads, perceptrons, initialisation, own losses, and the `model` section."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError
from torch import nn

from rookery.core.config.fields import comments_of
from rookery.core.rng import seeded
from rookery.core.spec import spec_of
from rookery.nets import (
    Critic,
    DeterministicPolicy,
    Dueling,
    Ensemble,
    ModelConfig,
    QNetwork,
    Scalar,
    SquashedPolicy,
    linear,
    mlp,
    modules_with_own_loss,
    observe,
    orthogonal_,
)

OBS = spec_of(spaces.Box(-1, 1, (3,)))


def test_dueling_is_value_plus_advantage_minus_its_mean():
    head = Dueling(1, 3)
    with torch.no_grad():
        head.both.weight.copy_(torch.tensor([[2.0], [1.0], [4.0], [7.0]]))  # V = 2x, A = x, 4x, 7x with mean 4x
        head.both.bias.zero_()
    assert head(torch.tensor([[1.0], [10.0]])).tolist() == [[-1, 2, 5], [-10, 20, 50]]


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_a_q_network_gives_one_number_per_action(dueling, lead):
    assert QNetwork(OBS, 5, ModelConfig(hidden=(8,)), dueling=dueling)(torch.zeros(*lead, 3)).shape == (*lead, 5)


def test_a_q_network_ignores_the_action_mask():
    spec = spec_of(spaces.Dict({"observation": spaces.Box(-1, 1, (3,)), "action_mask": spaces.MultiBinary(5)}))
    q, x = QNetwork(spec, 5, ModelConfig(hidden=(8,))), torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    masks = torch.zeros(2, 5), torch.ones(2, 5)
    assert torch.equal(*(q({"observation": x, "action_mask": mask}) for mask in masks))


def test_a_critic_sees_observation_and_action_and_normalises_the_observation_only():
    critic = Critic(OBS, spec_of(spaces.Box(-1, 1, (2, 2))), ModelConfig(hidden=(), normalise_obs=True))
    with torch.no_grad():
        critic.head.weight.fill_(1.0)
        critic.head.bias.zero_()
    observe(critic, np.array([[0, 0, 0], [2, 4, 8]], np.float32))  # means 1 2 4, deviations 1 2 4
    out = critic(torch.tensor([[2.0, 4.0, 8.0]]), torch.full((1, 4), 0.5))  # a vector, whatever the space
    assert out.tolist() == [1 + 1 + 1 + 4 * 0.5]


def test_an_ensemble_gives_the_results_of_different_members_side_by_side():
    box = spec_of(spaces.Box(-1, 1, (2,)))
    critics = Ensemble(lambda: Critic(OBS, box, ModelConfig(hidden=(4,))), 3)
    seen = torch.randn(5, 3), torch.randn(5, 2)
    each = [member(*seen) for member in critics.members]
    assert critics(*seen).shape == (3, 5)
    assert torch.equal(critics(*seen), torch.stack(each))
    assert not torch.equal(each[0], each[1])
    assert torch.equal(critics.least(*seen), torch.stack(each).amin(0))


def test_a_critic_of_quantiles_gives_so_many_numbers():
    critic = Critic(OBS, spec_of(spaces.Box(-1, 1, (2,))), ModelConfig(hidden=(4,)), quantiles=7)
    assert critic(torch.randn(5, 3), torch.randn(5, 2)).shape == (5, 7)


def test_policies_of_bounded_actions_stay_in_their_bounds_and_begin_small():
    shaped = spec_of(spaces.Box(-1, 1, (2, 2)))
    mean, log_std = SquashedPolicy(OBS, shaped, ModelConfig(hidden=(4,)), (-1.0, 0.5))(1e4 * torch.randn(50, 3))
    assert mean.shape == log_std.shape == (50, 4)
    assert (log_std.min().item(), log_std.max().item()) == (-1.0, 0.5)
    policy = DeterministicPolicy(OBS, shaped, ModelConfig(hidden=(4,)))
    assert policy(torch.randn(50, 3)).shape == (50, 4)
    assert policy(torch.randn(50, 3)).abs().max() < 0.1
    assert policy(1e6 * torch.randn(50, 3)).abs().max() <= 1.0


def test_a_scalar_hands_out_a_new_tensor_with_gradient():
    number = Scalar(-1.5)
    value = number()
    assert value.item() == -1.5
    assert value is not number.value
    assert value.data_ptr() != number.value.data_ptr()
    (2 * value).backward()
    assert number.value.grad.item() == 2


@pytest.mark.parametrize(
    ("name", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU), ("elu", nn.ELU), ("gelu", nn.GELU), ("silu", nn.SiLU)]
)
def test_a_perceptron_has_the_activation_between_layers_and_after_the_last_only_if_asked(name, kind):
    assert [type(layer) for layer in mlp((3, 4, 2), name)] == [nn.Linear, kind, nn.Linear]
    assert [type(layer) for layer in mlp((3, 4, 2), name, activate_last=True)] == [nn.Linear, kind, nn.Linear, kind]
    assert len(mlp((3,))) == 0


def test_orthogonal_layers_have_the_gain_and_no_bias():
    layer = linear(6, 4, "orthogonal", gain=0.5)
    torch.testing.assert_close(layer.weight @ layer.weight.T, 0.25 * torch.eye(4))
    assert layer.bias.abs().sum() == 0
    hidden = mlp((6, 4), init="orthogonal")[0]
    torch.testing.assert_close(hidden.weight @ hidden.weight.T, 2.0 * torch.eye(4))
    conv = nn.Conv2d(2, 3, 2)
    assert orthogonal_(conv, math.sqrt(3)) is conv
    torch.testing.assert_close(conv.weight.flatten(1) @ conv.weight.flatten(1).T, 3.0 * torch.eye(3))


@pytest.mark.parametrize("init", ["default", "orthogonal"])
def test_equal_seeds_give_equal_networks(init):
    def weights(seed):
        with seeded(seed):
            return torch.cat(
                [p.detach().flatten() for p in QNetwork(OBS, 2, ModelConfig(init=init), dueling=True).parameters()]
            )

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


class WithLoss(nn.Linear):
    def own_loss(self, batch):
        return self.weight.square().mean(), {"size": self.weight.abs().mean()}


def test_own_losses_are_found_with_their_paths():
    inner = WithLoss(1, 1)
    tree = nn.Sequential(nn.Linear(1, 1), nn.Sequential(inner))
    assert modules_with_own_loss(tree) == [("1.0", inner)]
    assert modules_with_own_loss(inner) == [("", inner)]
    assert modules_with_own_loss(nn.Linear(1, 1)) == []


def test_every_field_of_the_section_is_documented_on_its_line():
    assert set(comments_of(ModelConfig)) == set(ModelConfig.model_fields)


@pytest.mark.parametrize(("fields", "message"), [
    ({"hidden": (64, 0)}, "greater than 0"), ({"activation": "rellu"}, "'tanh', 'relu', 'elu', 'gelu' or 'silu'"),
    ({"convs": ((1, 2),)}, "convs"),
    ({"kwargs": {"a": 1}}, "would be ignored"),
    ({"encoder": "m:C", "kwargs": {"a": [1.0, math.nan]}}, r"kwargs\.a\.1"), ({"layerz": 3}, "Extra inputs"),
])  # fmt: skip
def test_wrong_values_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        ModelConfig(**fields)


def test_the_section_survives_dumping_and_reloading():
    config = ModelConfig(hidden=[32], convs=[[8, 3, 1]], encoder="m:C", kwargs={"size": 3})
    assert ModelConfig(**config.model_dump(mode="json")) == config
