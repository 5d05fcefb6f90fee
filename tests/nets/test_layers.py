"""Networks from a list of layers (NET-2): sizes are inferred, mistakes are sentences, a dump is what was loaded."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError
from torch import nn

from learning.toys import distance
from rookery import Trainer
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


# --- blocks ---


def test_a_residual_block_adds_what_its_two_layers_give_by_hand():
    encoder = build_encoder(spec_of(spaces.Box(-9, 9, (2,))), ModelConfig(layers=[{"type": "residual", "inner": 1}]))
    (block,) = encoder.hidden
    with torch.no_grad():
        block.first.weight[:], block.first.bias[:] = torch.tensor([[1.0, 1.0]]), torch.tensor([-1.0])
        block.second.weight[:], block.second.bias[:] = torch.tensor([[2.0], [0.0]]), torch.tensor([0.0, 0.5])
    # relu: (3, 0) → 3 − 1 = 2 → (4, 0.5) beside x
    assert encoder(torch.tensor([[3.0, -4.0]])).tolist() == [[7.0, -3.5]]


def test_pools_and_residual_blocks_of_images_keep_or_halve_the_sides():
    layers = [CONVS[0], {"type": "pool", "kernel": 2}, {"type": "residual"}, FLATTEN, {"type": "residual"}]
    encoder = build_encoder(spec_of(IMAGE), ModelConfig(layers=layers))
    assert kinds(encoder.images[0].layers) == ["Conv2d", "ReLU", "MaxPool2d", "Residual"]  # its activation is inside
    assert encoder.out_features == 4 * 2 * 2  # 12 × 10 → 5 × 4 → 2 × 2
    assert encoder(torch.zeros(3, 2, 12, 10, 3, dtype=torch.uint8)).shape == (3, 2, 16)
    alone = ModelConfig(layers=[{"type": "pool", "kernel": 2, "how": "mean"}, FLATTEN])
    image = torch.tensor([[0, 51], [102, 255]], dtype=torch.uint8).reshape(1, 2, 2, 1)
    mean = build_encoder(spec_of(spaces.Box(0, 255, (2, 2, 1), np.uint8)), alone)
    assert mean(image).item() == pytest.approx((0 + 51 + 102 + 255) / 4 / 255)


def test_a_transformer_block_is_torchs_with_learned_places():
    config = ModelConfig(layers=[{"type": "transformer", "tokens": 3, "heads": 2}])
    (block,) = build_encoder(spec_of(spaces.Box(-9, 9, (12,))), config).hidden
    theirs = nn.TransformerEncoderLayer(4, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    pairs = {
        "self_attn.in_proj": block.read, "self_attn.out_proj": block.out, "linear1": block.wide,
        "linear2": block.narrow, "norm1": block.norm, "norm2": block.norm_after,
    }  # fmt: skip
    state = {}
    for name, layer in pairs.items():
        join = "_" if name.endswith("in_proj") else "."
        state |= {f"{name}{join}weight": layer.weight, f"{name}{join}bias": layer.bias}
    theirs.load_state_dict(state)
    x = torch.randn(2, 5, 12)
    wanted = theirs((x.unflatten(-1, (3, 4)) + block.place).flatten(0, 1)).reshape(2, 5, 12)
    assert torch.allclose(block(x), wanted, atol=1e-5)


def test_the_places_of_an_image_attend_to_one_another():
    layers = [CONVS[0], {"type": "transformer", "heads": 2}, FLATTEN]
    encoder = build_encoder(spec_of(IMAGE), ModelConfig(layers=layers))
    assert encoder.out_features == 4 * 5 * 4
    image = torch.zeros(1, 12, 10, 3, dtype=torch.uint8)
    other = image.clone()
    other[0, :3, :3] = 255  # only the first window of the convolution sees it
    change = (encoder(image) - encoder(other)).reshape(4, 20).abs().amax(0)
    assert (change > 0).all()


def test_discrete_observations_become_learned_vectors():
    space = spaces.Dict({"kind": spaces.Discrete(3), "pair": spaces.MultiDiscrete([2, 4]), "x": VECTOR})
    encoder = build_encoder(spec_of(space), ModelConfig(layers=[{"type": "embedding", "size": 5}]))
    assert encoder.out_features == 5 + 2 * 5 + 3
    assert [tuple(table.weight.shape) for part in encoder.embeddings for table in part.tables] == [
        (3, 5),
        (2, 5),
        (4, 5),
    ]
    obs = {"kind": torch.tensor([2]), "pair": torch.tensor([[1, 3]]), "x": torch.zeros(1, 3)}
    tables = [table for part in encoder.embeddings for table in part.tables]
    wanted = torch.cat([tables[0].weight[2], tables[1].weight[1], tables[2].weight[3], torch.zeros(3)])
    assert torch.equal(encoder(obs)[0], wanted)


@pytest.mark.parametrize(("space", "layers", "message"), [
    (VECTOR, [{"type": "embedding", "size": 2}], "has an embedding, but the observation .* has no Discrete"),
    (VECTOR, [{"type": "transformer"}], r"model.layers.0: tokens=None must cut the 3 features into equal parts"),
    (VECTOR, [{"type": "transformer", "tokens": 3, "heads": 2}], r"model.layers.0: heads=2 must divide the 1 numbers"),
    (IMAGE, [CONVS[0], {"type": "transformer", "tokens": 2}, FLATTEN], r"model.layers.1: tokens=2 would be ignored"),
    (IMAGE, [{"type": "pool", "kernel": 11}, FLATTEN], r"nothing is left of the image after kernel=11, stride=11"),
    (IMAGE, [{"type": "pool", "kernel": 2, "padding": 2}, FLATTEN], r"padding=2 is more than half of kernel=2"),
])  # fmt: skip
def test_blocks_that_do_not_fit_are_a_sentence(space, layers, message):
    with pytest.raises(ConfigError, match=message):
        build_encoder(spec_of(space), ModelConfig(layers=layers))


def test_an_embedding_comes_first_and_a_pool_before_the_flatten():
    with pytest.raises(ValidationError, match=r"layer 1 is an embedding.*put it first"):
        ModelConfig(layers=[linear(3), {"type": "embedding", "size": 2}])
    with pytest.raises(ValidationError, match="layer 2 is a pool after the flatten at 1"):
        ModelConfig(layers=[CONVS[0], FLATTEN, {"type": "pool", "kernel": 2}])


BLOCKS = "[{type: linear, size: 8}, {type: residual}, {type: transformer, tokens: 2, heads: 2}]"


@pytest.mark.matrix
def test_compiled_updates_of_blocks_learn_nearly_the_same(tmp_path):
    found = []
    for words in (["learning.mode=eager"], ["learning.mode=compiled", f"learning.cache={tmp_path}"]):
        short = ["train.max_updates=4", "store.min_fill=8", "store.batch_size=4", "eval.at_end=false", "log.sinks=[]"]
        with Trainer(config(f"model.layers={BLOCKS}", *short, *words)) as trainer:
            for _ in trainer:
                pass
            found.append(trainer.learner.tensors["q.value"].clone())
    assert distance(*found) < 1e-2
