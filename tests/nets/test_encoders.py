"""Encoders from spaces: shapes for all of them, values by hand, leading dimensions, tracing, errors."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from rookery.core.errors import ConfigError
from rookery.core.rng import seeded
from rookery.core.spec import spec_of
from rookery.core.tree import tree_map
from rookery.nets import ModelConfig, build_encoder, observation_of
from rookery.nets.config import NATURE

RAW = ModelConfig(hidden=())
SMALL = ModelConfig(hidden=(5,), convs=((4, 3, 2), (3, 2, 1)))
VECTOR = spaces.Box(-1, 1, (3,))
HWC, CHW = spaces.Box(0, 255, (12, 10, 3), np.uint8), spaces.Box(0, 255, (3, 12, 10), np.uint8)
NESTED = spaces.Dict({
    "type": spaces.Discrete(4),  # "type" cannot be the name of a submodule
    "a/b": spaces.Tuple((VECTOR, spaces.MultiBinary((2, 2)))),
    "deep": spaces.Dict({"image": HWC, "choice": spaces.MultiDiscrete([2, 3])}),
})  # fmt: skip
SPACES = {
    "vector": (VECTOR, 3), "scalar": (spaces.Box(-1, 1, ()), 1), "matrix": (spaces.Box(-1, 1, (2, 3)), 6),
    "integers": (spaces.Box(0, 9, (2,), np.int32), 2),
    "bytes": (spaces.Box(0, 255, (4,), np.uint8), 4), "discrete": (spaces.Discrete(5), 5),
    "multi_discrete": (spaces.MultiDiscrete([2, 4]), 6),
    "equal heads": (spaces.MultiDiscrete([3, 3]), 6), "multi_binary": (spaces.MultiBinary(3), 3),
    "matrix of bits": (spaces.MultiBinary((2, 2)), 4),
    # 12 × 10 → kernel 3, stride 2 → 5 × 4 → kernel 2, stride 1 → 4 × 3, of 3 channels
    "image hwc": (HWC, 36), "image chw": (CHW, 36), "tuple": (spaces.Tuple((VECTOR, spaces.Discrete(2))), 5),
    "nested": (NESTED, 4 + 3 + 4 + 36 + 5),
}  # fmt: skip


def sample(space, *lead):
    """Legal observations with leading dimensions, as envs deliver them."""
    spec, rng = spec_of(space), np.random.default_rng(0)

    def draw(leaf):
        if leaf.kind == "box" and leaf.dtype.kind == "f":
            return torch.from_numpy(np.asarray(rng.standard_normal((*lead, *leaf.shape)), np.float32))
        high = 255 if leaf.is_image else 2
        return torch.from_numpy(np.asarray(rng.integers(0, high, (*lead, *leaf.shape))).astype(leaf.dtype))

    return tree_map(draw, spec)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("lead", [(), (7,), (0,), (2, 3), (2, 0)])
def test_every_space_with_any_leading_dimensions_gives_its_features(name, lead):
    space, width = SPACES[name]
    config = ModelConfig(hidden=(), convs=SMALL.convs)
    encoder = build_encoder(spec_of(space), config)
    assert encoder.out_features == width
    out = encoder(sample(space, *lead))
    assert out.shape == (*lead, width)
    assert out.dtype == torch.float32
    hidden = build_encoder(spec_of(space), SMALL)
    assert hidden.out_features == 5
    assert hidden(sample(space, *lead)).shape == (*lead, 5)


@pytest.mark.parametrize("name", SPACES)
def test_time_and_batch_folded_or_not_give_the_same_features(name):
    space, _ = SPACES[name]
    encoder, obs = build_encoder(spec_of(space), SMALL), sample(space, 2, 3)
    folded = encoder(tree_map(lambda x: x.flatten(0, 1), obs))
    torch.testing.assert_close(encoder(obs).flatten(0, 1), folded)


def test_discrete_values_become_one_hot_counted_from_zero():
    encoder = build_encoder(spec_of(spaces.Discrete(3, start=5)), RAW)  # the env boundary has subtracted 5
    assert encoder(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_multi_discrete_heads_lie_side_by_side():
    unequal = build_encoder(spec_of(spaces.MultiDiscrete([2, 3])), RAW)
    assert unequal(torch.tensor([[1, 2], [0, 1]])).tolist() == [[0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]
    equal = build_encoder(spec_of(spaces.MultiDiscrete([2, 2])), RAW)
    assert equal(torch.tensor([[1, 0]])).tolist() == [[0, 1, 1, 0]]


def test_parts_are_concatenated_in_the_order_of_the_space_and_the_mask_is_not_seen():
    space = spaces.Dict({"x": VECTOR, "k": spaces.Discrete(2), "action_mask": spaces.MultiBinary(4)})
    encoder = build_encoder(spec_of(space), RAW)
    order = list(spec_of(space))
    obs = {"x": torch.tensor([[1.0, 2.0, 3.0]]), "k": torch.tensor([1]), "action_mask": torch.ones(1, 4)}
    parts = {"x": [1, 2, 3], "k": [0, 1], "action_mask": []}
    assert encoder(obs).tolist() == [[number for key in order for number in parts[key]]]
    assert encoder({"x": obs["x"], "k": obs["k"]}).shape == (1, 5)


def test_a_lone_observation_beside_the_mask_is_unwrapped():
    space = spaces.Dict({"observation": VECTOR, "action_mask": spaces.MultiBinary(4)})
    x = torch.ones(2, 3)
    assert observation_of({"observation": x, "action_mask": torch.ones(2, 4)}) is x
    assert observation_of(x) is x
    encoder = build_encoder(spec_of(space), RAW)
    assert encoder({"observation": x, "action_mask": torch.ones(2, 4)}).tolist() == x.tolist()
    assert encoder(x).tolist() == x.tolist()


def test_bytes_are_scaled_to_one_and_other_integers_are_not():
    assert build_encoder(spec_of(spaces.Box(0, 255, (2,), np.uint8)), RAW)(
        torch.tensor([[255, 0]], dtype=torch.uint8)
    ).tolist() == [[1, 0]]
    assert build_encoder(spec_of(spaces.Box(0, 9, (2,), np.uint8)), RAW)(
        torch.tensor([[9, 0]], dtype=torch.uint8)
    ).tolist() == [[9, 0]]


def test_both_layouts_of_an_image_are_the_same_to_the_network():
    with seeded(0):
        last = build_encoder(spec_of(HWC), SMALL)
    with seeded(0):
        first = build_encoder(spec_of(CHW), SMALL)
    image = sample(HWC, 4)
    torch.testing.assert_close(last(image), first(image.movedim(-1, 1)))


def test_an_image_is_divided_by_255_before_the_convolutions():
    encoder = build_encoder(
        spec_of(spaces.Box(0, 255, (2, 2, 1), np.uint8)), ModelConfig(hidden=(), convs=((1, 2, 1),))
    )
    (conv,) = (part for part in encoder.modules() if isinstance(part, nn.Conv2d))
    nn.init.ones_(conv.weight)
    nn.init.zeros_(conv.bias)
    assert encoder(torch.full((1, 2, 2, 1), 51, dtype=torch.uint8)).item() == pytest.approx(0.8)  # 4 · 51 / 255


def test_no_convolutions_means_pixels_as_a_vector():
    encoder = build_encoder(spec_of(HWC), ModelConfig(hidden=(), convs=()))
    assert encoder.out_features == 360
    assert encoder(torch.full((1, 12, 10, 3), 255, dtype=torch.uint8)).min() == 1


def test_the_classic_layers_give_3136_features_of_84_by_84():
    assert build_encoder(spec_of(spaces.Box(0, 255, (4, 84, 84), np.uint8)), RAW).out_features == 64 * 7 * 7


@pytest.mark.parametrize(("sides", "convs"), [
    ((84, 84), NATURE),
    ((36, 36), NATURE),                              # 36 → 8 → 3 → 1
    ((35, 90), ((32, 3, 2), (64, 3, 2), (64, 3, 2))),  # 35 → 17 → 8 → 3
    ((20, 20), ((32, 3, 2), (64, 3, 2))),            # 20 → 9 → 4, and then 1
    ((10, 10), ((32, 3, 2),)),                       # 10 → 4
    ((7, 7), ((32, 3, 2),)),                         # 7 → 3
    ((6, 9), ((32, 3, 1),)),                         # 6 → 2 would be less than 3
    ((2, 8), ((32, 2, 1),)),
])  # fmt: skip
def test_automatic_layers_are_the_classic_ones_where_they_fit_and_smaller_ones_else(sides, convs):
    space = spec_of(spaces.Box(0, 255, (*sides, 1), np.uint8))
    with seeded(0):
        automatic = build_encoder(space, ModelConfig())
    with seeded(0):
        written = build_encoder(space, ModelConfig(convs=convs))
    image = torch.randint(0, 256, (2, *sides, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(automatic(image), written(image))
    layers = [part for part in automatic.modules() if isinstance(part, nn.Conv2d)]
    assert [(part.out_channels, part.kernel_size[0], part.stride[0]) for part in layers] == list(convs)


def test_each_image_of_an_observation_gets_layers_that_fit_it():
    space = spaces.Dict(
        {"far": spaces.Box(0, 255, (64, 64, 3), np.uint8), "near": spaces.Box(0, 255, (20, 20, 3), np.uint8)}
    )
    encoder = build_encoder(spec_of(space), RAW)
    assert encoder.out_features == 64 * 4 * 4 + 64 * 4 * 4  # 64 → 15 → 6 → 4;  20 → 9 → 4


def test_equal_seeds_give_equal_weights_and_the_callers_generator_is_untouched():
    before = torch.random.get_rng_state()
    weights = []
    for seed in (1, 1, 2):
        with seeded(seed):
            encoder = build_encoder(spec_of(NESTED), SMALL.model_copy(update={"init": "orthogonal"}))
            weights.append(torch.cat([p.detach().flatten() for p in encoder.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("normalise", [False, True])
def test_forward_can_be_traced_without_constants_random_ops_or_integer_buffers(name, normalise):
    space, _ = SPACES[name]
    encoder = build_encoder(spec_of(space), SMALL.model_copy(update={"normalise_obs": normalise}))
    numbers = {**dict(encoder.named_parameters()), **dict(encoder.named_buffers())}
    assert all(tensor.dtype == torch.float32 for tensor in numbers.values())
    obs = sample(space, 2, 3)
    graph = make_fx(lambda numbers, obs: functional_call(encoder, numbers, (obs,)))(numbers, obs)
    assert not [node for node in graph.graph.nodes if node.op == "get_attr"]
    assert not [node for node in graph.graph.nodes if "rand" in str(node.target) or "_local_scalar" in str(node.target)]
    other = tree_map(lambda x: x.flip(0), obs)
    torch.testing.assert_close(graph(numbers, other), encoder(other))


def test_inputs_are_not_modified():
    obs = sample(NESTED, 3)
    before = tree_map(lambda x: x.clone(), obs)
    build_encoder(spec_of(NESTED), SMALL.model_copy(update={"normalise_obs": True}))(obs)
    assert all(map(torch.equal, *(torch.utils._pytree.tree_leaves(tree) for tree in (obs, before))))


def test_everything_is_created_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        encoder = build_encoder(spec_of(NESTED), SMALL.model_copy(update={"normalise_obs": True, "init": "orthogonal"}))
    assert {tensor.device.type for tensor in [*encoder.parameters(), *encoder.buffers()]} == {"cpu"}


@pytest.mark.parametrize(("space", "config", "message"), [
    (spaces.Box(0, 255, (10, 10, 3), np.uint8), ModelConfig(convs=NATURE),
        r"model.convs=\[\[32, 8, 4\].*the image of shape \(10, 10, 3\).*after the layer \[64, 4, "
        r"2\].*model.convs=auto"),
    (spaces.Dict({"cam": spaces.Box(0, 255, (4, 4, 3), np.uint8)}), ModelConfig(convs=NATURE), "the image 'cam'"),
    (spaces.Box(-1, 1, (0,)), ModelConfig(), "nothing for a network to see"),
    (spaces.Dict({"action_mask": spaces.MultiBinary(2)}), ModelConfig(),
        "nothing for a network to see but its action mask"),
    (spaces.Dict({}), ModelConfig(), "nothing for a network to see"),
])  # fmt: skip
def test_what_cannot_be_encoded_is_a_config_error_that_says_what_to_do(space, config, message):
    with pytest.raises(ConfigError, match=message):
        build_encoder(spec_of(space), config)


def test_layer_normalisation_comes_before_the_activation_by_hand():
    """Features 1, 3, 5 have mean 3 and deviation √(8/3): −√1.5, 0, √1.5, of which relu leaves the positive ones."""
    encoder = build_encoder(spec_of(VECTOR), ModelConfig(hidden=(3,), layer_norm=True))
    with torch.no_grad():
        encoder.hidden[0].weight[:] = torch.eye(3)
        encoder.hidden[0].bias.zero_()
        found = encoder(torch.tensor([[1.0, 3.0, 5.0]]))
    assert found.tolist()[0] == pytest.approx([0.0, 0.0, 1.5**0.5], abs=1e-4)


def test_every_image_layer_is_normalised_too():
    encoder = build_encoder(spec_of(HWC), SMALL.model_copy(update={"layer_norm": True}))
    norms = [part.normalized_shape for part in encoder.modules() if isinstance(part, nn.LayerNorm)]
    assert norms == [(4, 5, 4), (3, 4, 3), (5,)]
    assert encoder(sample(HWC, 2)).shape == (2, 5)
