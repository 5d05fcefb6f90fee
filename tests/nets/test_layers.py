"""Networks from a list of layers (NET-2): sizes are inferred, mistakes are sentences, a dump is what was loaded."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError
from torch import nn

from rookery.core.config.yaml import read_file
from rookery.core.errors import ConfigError
from rookery.core.rng import seeded
from rookery.core.spec import spec_of
from rookery.nets import ModelConfig, build_encoder
from rookery.run.config.resolve import load_config

VECTOR = spaces.Box(-1, 1, (3,))
IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
CONVS = [{"type": "conv", "channels": 4, "kernel": 3, "stride": 2}, {"type": "conv", "channels": 2, "kernel": 2}]
FLATTEN, NORM = {"type": "flatten"}, {"type": "layer_norm"}


def linear(size, **options):
    return {"type": "linear", "size": size} | options


def kinds(module):
    return [type(part).__name__ for part in module]


def test_sizes_are_inferred_and_activations_follow_the_layer_or_the_model():
    layers = [linear(5, activation="tanh"), NORM, linear(4), {"type": "noisy", "size": 2, "activation": "identity"}]
    encoder = build_encoder(spec_of(VECTOR), ModelConfig(layers=layers, activation="elu"))
    assert kinds(encoder.hidden) == ["Linear", "Tanh", "LayerNorm", "Linear", "ELU", "Noisy"]
    assert [tuple(p.shape) for p in (encoder.hidden[0].weight, encoder.hidden[3].weight)] == [(5, 3), (4, 5)]
    assert encoder.out_features == 2
    assert encoder(torch.zeros(7, 2, 3)).shape == (7, 2, 2)


def test_the_same_layers_are_the_same_network_as_hidden():
    with seeded(0):
        short = build_encoder(spec_of(VECTOR), ModelConfig(hidden=(8, 4), activation="tanh"))
    with seeded(0):
        long = build_encoder(spec_of(VECTOR), ModelConfig(layers=[linear(8), linear(4)], activation="tanh"))
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    assert torch.equal(short(x), long(x))


def test_convolutions_are_applied_to_images_and_the_rest_to_everything():
    space = spaces.Dict({"camera": IMAGE, "speed": VECTOR})
    # 12 × 10 → kernel 3, stride 2 → 5 × 4 → kernel 2 → 4 × 3, of 2 channels: 24 features, and 3 of the vector
    encoder = build_encoder(spec_of(space), ModelConfig(layers=[*CONVS, FLATTEN, linear(6)]))
    assert encoder.hidden[0].in_features == 24 + 3
    obs = {"camera": torch.zeros(2, 12, 10, 3, dtype=torch.uint8), "speed": torch.zeros(2, 3)}
    assert encoder(obs).shape == (2, 6)
    padded = [CONVS[0] | {"padding": 1}, {"type": "layer_norm", "activation": "relu"}, FLATTEN]
    encoder = build_encoder(spec_of(IMAGE), ModelConfig(layers=padded))
    assert kinds(encoder.images[0].layers) == ["Conv2d", "ReLU", "LayerNorm", "ReLU"]
    assert encoder.out_features == 4 * 6 * 5  # (12 + 2 − 3) // 2 + 1, (10 + 2 − 3) // 2 + 1


def test_an_image_without_convolutions_is_a_vector():
    assert build_encoder(spec_of(IMAGE), ModelConfig(layers=[FLATTEN, NORM])).out_features == 360
    assert build_encoder(spec_of(IMAGE), ModelConfig(layers=[])).out_features == 360


def test_orthogonal_initialisation_reaches_every_kind():
    layers = [*CONVS, FLATTEN, linear(3), {"type": "noisy", "size": 2}]
    encoder = build_encoder(spec_of(IMAGE), ModelConfig(layers=layers, init="orthogonal"))
    for part in encoder.modules():
        if hasattr(part, "bias") and not isinstance(part, nn.LayerNorm):
            assert not part.bias.any()
            rows = part.weight.flatten(1)
            torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(len(rows)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            [{"type": "linaer", "size": 3}],
            "layer 0 is of unknown type 'linaer'.*linear, noisy, conv.*Did you mean 'linear'",
        ),
        ([linear(3), {"size": 3}], "layer 1 is without a type; known types"),
        ([3], "layer 0 is without a type"),
        ([linear(3), *CONVS, FLATTEN], "layer 0 is linear, but sees images"),
        ([CONVS[0], linear(3)], "layer 1 is linear, but sees images.*flatten"),
        ([CONVS[0]], "convs without a flatten"),
        ([CONVS[0], FLATTEN, CONVS[1]], "layer 2 is a conv after the flatten at 1"),
        ([linear(0)], "greater than 0"),
        ([linear(3, sizee=3)], "sizee"),
        ([{"type": "linear"}], "size"),
        ([linear(3, activation="sinus")], "activation"),
    ],
)
def test_what_is_no_network_is_refused_before_anything_is_built(layers, message):
    with pytest.raises(ValidationError, match=f"(?s){message}"):
        ModelConfig(layers=layers)


@pytest.mark.parametrize(
    ("space", "layers", "message"),
    [
        (VECTOR, [*CONVS, FLATTEN], "has convolutions, but the observation .* has no image"),
        (IMAGE, [CONVS[0] | {"kernel": 11}, FLATTEN],
            r"model.layers.0: nothing is left of the image after kernel=11, stride=2 on 12 × 10"),
        (spaces.Dict({"eye": IMAGE}), [*CONVS, CONVS[0] | {"kernel": 9}, FLATTEN],
            r"model.layers.2: .*'eye'.* on 4 × 3"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_a_sentence(space, layers, message):
    with pytest.raises(ConfigError, match=message):
        build_encoder(spec_of(space), ModelConfig(layers=layers))


TEXT = "[{type: linear, size: 32, activation: tanh}, {type: layer_norm}, {type: noisy, size: 16}]"


def config(*overrides, **kwargs):
    return load_config(algo="dqn", env="CartPole-v1", overrides=overrides, **kwargs)


def test_from_the_command_line_and_from_a_file_and_back(tmp_path):
    by_words = config(f"model.layers={TEXT}")
    (tmp_path / "c.yaml").write_text(f"model:\n  layers: {TEXT}\n")
    by_file = config(file=tmp_path / "c.yaml")
    assert by_words.model == by_file.model
    assert [layer.type for layer in by_words.model.layers] == ["linear", "layer_norm", "noisy"]
    assert by_words.model.hidden == by_words.model.convs == ()  # those of the algorithm's defaults are replaced
    assert load_config(tree=by_words.dump()) == by_words
    assert by_words.provenance("model.layers") == "command line"
    assert config().model.hidden == (128, 128)


def test_a_dumped_file_is_the_same_config(tmp_path):
    import yaml

    before = config(f"model.layers={TEXT}")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(before.dump()))
    assert read_file(tmp_path / "c.yaml")
    assert load_config(file=tmp_path / "c.yaml") == before


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.hidden=[8]"], "model.layers and model.hidden are both set"),
        (["model.convs=[[8,3,1]]"], "model.layers and model.convs are both set"),
        (["model.encoder=a:B"], "model.layers and model.encoder are both set"),
    ],
)
def test_two_ways_to_say_what_the_network_is_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message) as error:
        config(f"model.layers={TEXT}", *overrides)
    assert "command line" in str(error.value)


def test_layers_replace_what_a_preset_says_and_can_be_taken_back():
    words = load_config("cartpole-dqn", overrides=[f"model.layers={TEXT}"])
    assert words.model.hidden == ()
    assert words.model.widths == (32, 16)
    tree = {"model": {"layers": [linear(3)]}}
    back = config("model.layers=null", "model.hidden=[7]", tree=tree)
    assert (back.model.layers, back.model.hidden) == (None, (7,))
    with pytest.raises(ConfigError, match=r"model.hidden.*argument"):
        config("model.hidden=[7]", tree=tree)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{type: linaer, size: 3}]", "model.layers: layer 0 is of unknown type 'linaer'.*Did you mean 'linear'"),
        ("[{type: linear, sise: 3}]", r"model.layers.0.sise: unknown key.*model.layers.0.size"),
        ("[{type: linear, size: x}]", "model.layers.0.size: expected a whole number > 0, got 'x'"),
        ("[{type: linear, size: true}]", "model.layers.0.size: expected a whole number > 0, got True"),
        ("[{type: linear}]", "model.layers.0.size: is missing"),
        ("[{type: linear, size: 3, activation: tahn}]", "model.layers.0.activation: .*Did you mean 'tanh'"),
        ("7", "model.layers: expected a list"),
    ],
)
def test_mistakes_are_told_with_their_key(text, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        config(f"model.layers={text}")
