"""The normaliser against numpy, and its place inside a network."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.core.spec import spec_of
from rookery.nets import ActorCritic, Critic, ModelConfig, Normalise, QNetwork, build_encoder, observe
from rookery.nets.normalise import MOST

CONFIG = ModelConfig(hidden=(4,), normalise_obs=True)


def test_two_merges_by_hand():
    norm = Normalise((1,))
    norm.observe(torch.tensor([[1.0], [3.0]]))
    assert (norm.mean.item(), norm.var.item(), norm.count.item()) == (2.0, 1.0, 2.0)
    norm.observe(torch.tensor([[8.0]]))  # 1 3 8: mean 4, variance (9 + 1 + 16) / 3
    assert norm.mean.item() == 4.0
    assert norm.var.item() == pytest.approx(26 / 3, rel=1e-6)
    assert norm(torch.tensor([[4.0], [8.0]])).flatten().tolist() == pytest.approx([0, 4 / (26 / 3) ** 0.5], rel=1e-6)


def test_many_uneven_merges_equal_numpy_over_everything():
    rng = np.random.default_rng(0)
    parts = [rng.normal(1e3, 2.0, (n, 2, 3)).astype(np.float32) for n in (1, 7, 128, 1, 1000, 3)]
    norm = Normalise((2, 3))
    for part in parts:
        norm.observe(part)
    everything = np.concatenate(parts).astype(np.float64)
    np.testing.assert_allclose(norm.mean.numpy(), everything.mean(0), rtol=1e-7)
    np.testing.assert_allclose(
        norm.var.numpy(), everything.var(0), rtol=1e-4
    )  # the mean of 1000 is rounded to 6e-5 between merges
    assert norm.count.item() == len(everything)


def test_leading_dimensions_do_not_matter_and_no_rows_change_nothing():
    x = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
    one, two = Normalise((2,)), Normalise((2,))
    one.observe(x)
    two.observe(x.flatten(0, 1).numpy())
    two.observe(x[:0])
    for name in ("mean", "var", "count"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert one.count.item() == 20


def test_it_is_the_identity_before_the_first_observation():
    x = torch.tensor([[-50.0, 0.1, 1e6]])
    assert torch.equal(Normalise((3,))(x), x)


def test_results_are_clipped_at_ten_and_constant_features_are_zero():
    norm = Normalise((2,))
    norm.observe(torch.tensor([[1.0, 5.0], [-1.0, 5.0]]))
    assert norm(torch.tensor([[99.0, 5.0], [-99.0, 5.0]])).tolist() == [[10, 0], [-10, 0]]


def test_the_count_is_capped_so_that_new_data_always_moves_the_statistics():
    norm = Normalise(())
    norm.observe(torch.zeros(int(MOST)))
    norm.observe(torch.zeros(1000))
    assert norm.count.item() == MOST
    norm.observe(torch.ones(1000))
    assert norm.mean.item() == pytest.approx(1000 / (MOST + 1000), rel=1e-6)


def test_statistics_are_float32_buffers_written_in_place():
    norm = Normalise((2,))
    buffers = dict(norm.named_buffers())
    assert set(buffers) == {"mean", "var", "count"}
    places = {name: tensor.data_ptr() for name, tensor in buffers.items()}
    norm.observe(torch.ones(3, 2))
    assert {name: tensor.data_ptr() for name, tensor in norm.named_buffers()} == places
    assert {tensor.dtype for tensor in norm.buffers()} == {torch.float32}


def test_training_and_evaluation_are_the_same():
    norm = Normalise((1,))
    norm.observe(torch.tensor([[1.0], [3.0]]))
    x = torch.tensor([[5.0]])
    assert torch.equal(norm.train()(x), norm.eval()(x))
    assert norm.count.item() == 2


def test_only_float_boxes_of_a_nested_observation_are_normalised():
    space = spaces.Dict(
        {
            "x": spaces.Box(-9, 9, (2,)),
            "k": spaces.Discrete(2),
            "n": spaces.Box(0, 9, (1,), np.int64),
            "action_mask": spaces.MultiBinary(3),
        }
    )
    encoder = build_encoder(spec_of(space), ModelConfig(hidden=(), normalise_obs=True))
    rows = {
        "x": np.array([[1, 0], [3, 4]], np.float32),
        "k": np.array([0, 1]),
        "n": np.array([[7], [9]]),
        "action_mask": np.ones((2, 3), np.int8),
    }
    observe(encoder, rows)
    assert sum(buffer.numel() for buffer in encoder.buffers()) == 2 + 2 + 1
    out = encoder({key: torch.from_numpy(value) for key, value in rows.items()})
    parts = {"x": [[-1, -1], [1, 1]], "k": [[1, 0], [0, 1]], "n": [[7], [9]], "action_mask": [[], []]}
    assert out.tolist() == [[number for key in spec_of(space) for number in parts[key][row]] for row in (0, 1)]


def test_observe_reaches_every_normaliser_inside_a_network():
    obs_spec, action_spec = spec_of(spaces.Box(-9, 9, (2,))), spec_of(spaces.Box(-1, 1, (3,)))
    for network, count in (
        (ActorCritic(obs_spec, action_spec, CONFIG), 2),
        (Critic(obs_spec, action_spec, CONFIG), 1),
        (QNetwork(obs_spec, 2, CONFIG), 1),
    ):
        observe(network, np.full((4, 5, 2), 3.0, np.float32))
        means = [buffer.tolist() for name, buffer in network.named_buffers() if name.endswith("mean")]
        assert means == [[3, 3]] * count


def test_without_float_boxes_there_is_nothing_to_normalise():
    encoder = build_encoder(spec_of(spaces.Discrete(3)), CONFIG)
    assert not list(encoder.buffers())
    observe(encoder, np.array([1, 2]))
