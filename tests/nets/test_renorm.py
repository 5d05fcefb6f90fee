"""Batch renormalisation by hand, in both executions of a learner, and as a layer of any model."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.nets import BatchRenorm, ModelConfig, build_encoder
from rookery.nets.config import BatchRenormLayer
from rookery.nets.layers import with_renorm

ROOT = math.sqrt(1.001)  # √(1 + ε)
NORM = BatchRenormLayer(type="batch_renorm")


def column(*values):
    return torch.tensor(values).unsqueeze(-1)


def test_before_the_end_of_the_warmup_it_is_batch_normalisation():
    layer = BatchRenorm(1, momentum=0.1, warmup=2)
    # mean 2, variance 1 (divided by n): ±1 / √1.001; the statistics move by a tenth: 0.2 and 1
    assert layer(column(1.0, 3.0)).flatten().tolist() == pytest.approx([-1 / ROOT, 1 / ROOT])
    assert (layer.mean.item(), layer.var.item(), layer.count.item()) == pytest.approx((0.2, 1.0, 1.0))


def test_after_it_learning_and_reading_agree_within_the_bounds():
    layer = BatchRenorm(1, momentum=0.1, warmup=0)
    # r = 1, d = (2 − 0) / √1.001: (x − 2) / √1.001 + 2 / √1.001 = x / √1.001, as reading gives with mean 0, variance 1
    assert layer(column(1.0, 3.0)).flatten().tolist() == pytest.approx([1 / ROOT, 3 / ROOT])


def test_a_batch_far_from_the_statistics_is_corrected_no_further_than_the_bounds():
    layer = BatchRenorm(1, warmup=0)
    # deviation 10 and mean 100 against 1 and 0: r = 3 of 10, d = 5 of 100
    unit = 10 / math.sqrt(100.001)
    assert layer(column(90.0, 110.0)).flatten().tolist() == pytest.approx([-3 * unit + 5, 3 * unit + 5])
    layer = BatchRenorm(1, warmup=0)
    # deviation 0.01: r = 1/3 of √0.0011 / √1.001, d = −5
    unit = 0.01 / math.sqrt(0.0011)
    assert layer(column(-99.99, -100.01)).flatten().tolist() == pytest.approx([unit / 3 - 5, -unit / 3 - 5], abs=1e-2)


def test_the_corrections_get_no_gradient_but_mean_and_deviation_of_the_batch_do():
    layer, x = BatchRenorm(1, warmup=0), column(1.0, 3.0).requires_grad_()
    layer(x).sum().backward()
    assert x.grad.flatten().tolist() == pytest.approx([0.0, 0.0], abs=1e-6)  # a common shift changes nothing
    layer(x)[1].sum().backward()
    # y₂ = 1/√(v + ε) · r, v = ((x₂ − x₁) / 2)²: d/dx₂ of u / √(u² + ε) with u = 1, halved: ½ ε / 1.001^1.5
    assert x.grad[1].item() == pytest.approx(0.5 * 0.001 / 1.001**1.5, rel=0.05)


def test_reading_uses_the_running_statistics_and_leaves_them():
    layer = BatchRenorm(1).eval()
    layer.mean.fill_(2.0)
    layer.var.fill_(4.0 - 0.001)
    with torch.no_grad():
        layer.weight.fill_(3.0)
        layer.bias.fill_(1.0)
    assert layer(column(6.0)).item() == pytest.approx(3 * (6 - 2) / 2 + 1)
    assert (layer.mean.item(), layer.count.item()) == (2.0, 0.0)


def test_the_count_stops_at_the_warmup():
    layer = BatchRenorm(1, warmup=3)
    for _ in range(5):
        layer(column(1.0, 3.0))
    assert layer.count.item() == 3.0


def test_time_and_columns_are_one_batch():
    x = torch.arange(12.0).reshape(3, 4, 1)
    one, two = BatchRenorm(1), BatchRenorm(1)
    assert torch.equal(one(x).reshape(12, 1), two(x.reshape(12, 1)))
    assert torch.equal(one.mean, two.mean)


def test_it_is_a_layer_of_any_model():
    layers = [{"type": "batch_renorm", "warmup": 7}, {"type": "linear", "size": 5}, {"type": "batch_renorm"}]
    encoder = build_encoder(spec_of(spaces.Box(-1, 1, (3,), np.float32)), ModelConfig(layers=layers))
    norms = [part for part in encoder.modules() if isinstance(part, BatchRenorm)]
    assert [(len(part.mean), part.warmup) for part in norms] == [(3, 7.0), (5, 100_000.0)]
    with pytest.raises(ValueError, match=r"layer 0 is batch_renorm, but sees images: put \{type: flatten\}"):
        ModelConfig(layers=[NORM, {"type": "conv", "channels": 2, "kernel": 3}, {"type": "flatten"}])


def test_a_model_gets_it_on_its_features_and_after_every_hidden_layer():
    vector, image = spec_of(spaces.Box(-1, 1, (3,), np.float32)), spec_of(spaces.Box(0, 255, (8, 8, 3), np.uint8))
    model = ModelConfig(hidden=(6, 4), convs=((2, 3, 1),))
    kinds = lambda spec: [layer.type for layer in with_renorm(model, spec, NORM).layers]  # noqa: E731
    hidden = ["batch_renorm", "linear", "batch_renorm", "linear", "batch_renorm"]
    assert kinds(vector) == hidden
    assert kinds({"a": vector, "b": image}) == ["conv", "flatten", *hidden]
    encoder = build_encoder({"a": vector, "b": image}, with_renorm(model, {"a": vector, "b": image}, NORM))
    seen = {"a": torch.zeros(2, 3), "b": torch.zeros(2, 8, 8, 3, dtype=torch.uint8)}
    assert encoder(seen).shape == (2, 4)
    small, large = (spec_of(spaces.Box(0, 255, (side, side, 3), np.uint8)) for side in (20, 84))
    layers = with_renorm(ModelConfig(), {"small": small, "large": large}, NORM).layers
    assert [(part.kernel, part.stride) for part in layers if part.type == "conv"] == [(3, 2), (3, 2)]  # fit the smaller


def test_a_model_given_layer_by_layer_stays_as_it_is():
    model = ModelConfig(layers=[{"type": "linear", "size": 5}])
    assert with_renorm(model, spec_of(spaces.Box(-1, 1, (3,), np.float32)), NORM) is model


def test_an_unknown_layer_names_it_among_the_known_ones():
    with pytest.raises((ConfigError, ValueError), match="batch_renorm"):
        ModelConfig(layers=[{"type": "batchrenorm"}])
