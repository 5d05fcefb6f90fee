"""A user's module in place of the encoder (NET-3)."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

import rookery.core.registry as registry
from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.core.tree import tree_map
from rookery.nets import ModelConfig, QNetwork, build_encoder, modules_with_own_loss, observe

BOX = spaces.Box(-9, 9, (2,))


class Mine(nn.Module):
    """Knows nothing of time: refuses anything but [N, 2]."""

    def __init__(self, obs_spec, size=4):
        super().__init__()
        self.layer, self.out_features, self.spec = nn.Linear(2, size), size, obs_spec

    def forward(self, obs):
        _rows, _width = obs.shape
        return self.layer(obs).tanh()

    def own_loss(self, batch):
        value = self.layer.weight.square().mean()
        return value, {"weight": value}


class TwoParts(Mine):
    def forward(self, obs):
        return super().forward(obs["x"]) + obs["k"].unsqueeze(-1)


class NoWidth(nn.Module):
    def __init__(self, obs_spec):
        super().__init__()


class WrongWidth(Mine):
    def forward(self, obs):
        return super().forward(obs)[:, :1]


class Fails(Mine):
    def forward(self, obs):
        return self.layer(obs.unsqueeze(-1))


class Counting(Mine):
    def __init__(self, obs_spec):
        super().__init__(obs_spec)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, obs):
        return super().forward(self.norm(obs))


def not_a_module(obs_spec):
    return 3


def config(name, **kwargs):
    return ModelConfig(encoder=f"{__name__}:{name}", kwargs=kwargs)


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0, 3)])
def test_a_users_module_replaces_the_encoder_and_sees_one_leading_dimension(lead):
    encoder = build_encoder(spec_of(BOX), config("Mine", size=6))
    assert encoder.out_features == 6
    assert encoder(torch.ones(*lead, 2)).shape == (*lead, 6)


def test_folding_keeps_rows_in_place_in_nested_observations():
    encoder = build_encoder(spec_of(spaces.Dict({"x": BOX, "k": spaces.Discrete(9)})), config("TwoParts"))
    obs = {"x": torch.arange(12.0).reshape(2, 3, 2), "k": torch.arange(6).reshape(2, 3)}
    each = torch.stack([encoder(tree_map(lambda x, t=t: x[t], obs)) for t in range(2)])
    torch.testing.assert_close(encoder(obs), each)


def test_it_sees_observations_without_mask_and_normalised_if_asked():
    space = spaces.Dict({"observation": BOX, "action_mask": spaces.MultiBinary(3)})
    encoder = build_encoder(spec_of(space), config("Mine").model_copy(update={"normalise_obs": True}))
    (mine,) = (part for part in encoder.modules() if isinstance(part, Mine))
    assert mine.spec == spec_of(BOX)
    rows = {"observation": torch.tensor([[1.0, 0.0], [3.0, 4.0]]), "action_mask": torch.ones(2, 3)}
    observe(encoder, rows)
    torch.testing.assert_close(encoder(rows), mine(torch.tensor([[-1.0, -1.0], [1.0, 1.0]])))


def test_its_own_loss_is_found_inside_a_network():
    network = QNetwork(spec_of(BOX), 2, config("Mine"))
    ((path, part),) = modules_with_own_loss(network)
    assert network.get_submodule(path) is part
    assert isinstance(part, Mine)


def test_trying_it_out_changes_no_statistics_and_no_mode():
    encoder = build_encoder(spec_of(BOX), config("Counting"))
    norm = next(part for part in encoder.modules() if isinstance(part, nn.BatchNorm1d))
    assert norm.training
    assert norm.num_batches_tracked == 0


def test_a_registered_name_is_looked_up_under_encoder(monkeypatch):
    asked = []
    monkeypatch.setattr(registry, "lookup", lambda kind, name: asked.append((kind, name)) or Mine)
    assert build_encoder(spec_of(BOX), ModelConfig(encoder="mine")).out_features == 4
    assert asked == [("encoder", "mine")]


@pytest.mark.parametrize(("name", "kwargs", "message"), [
    ("Mine", {"sise": 3}, r"kwargs=\{'sise': 3\}, but it is Mine\(obs_spec, size=4\): got an unexpected keyword "
        r"argument 'sise'"),
    ("NoWidth", {}, "needs an attribute `out_features: int`.*got None"),
    ("not_a_module", {}, "made a int, expected a torch.nn.Module"),
    ("BOX", {}, "is a Box, expected a class"),
    ("WrongWidth", {}, r"gave torch.float32 \(2, 1\) for two observations, expected torch.float32 \(2, 4\)"),
    ("Fails", {}, r"failed on two rows of zeros of the observation box float32 \(2,\): RuntimeError"),
    ("Mien", {}, "Mien"),
])  # fmt: skip
def test_a_module_that_does_not_fit_is_a_config_error(name, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        build_encoder(spec_of(BOX), config(name, **kwargs))


def test_a_module_that_does_not_exist_is_a_config_error():
    with pytest.raises(ConfigError, match="no_such_module_anywhere"):
        build_encoder(spec_of(BOX), ModelConfig(encoder="no_such_module_anywhere:Class"))
