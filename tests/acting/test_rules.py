"""Rules: how outputs become actions."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.acting.initial_priority import _Best
from rookery.acting.noise import Deterministic, DriftingGaussian, GaussianNoise, OrnsteinUhlenbeck
from rookery.acting.rules import (
    Bernoulli,
    Categorical,
    EpsilonGreedy,
    Gaussian,
    Joint,
    SquashedGaussian,
    draw,
    legal,
    rule_for,
)
from rookery.core.errors import ConfigError
from rookery.core.spec import Leaf, spec_of
from rookery.core.tree import flatten, tree_map
from rookery.equations.distributions import joint_logp_entropy, logp_entropy


def rng(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def test_greedy_takes_the_best_action_and_draws_nothing():
    q, generator = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32), rng()
    before = generator.bit_generator.state
    assert EpsilonGreedy()({"q": q}, generator, {"epsilon": 1.0}, None, True)["action"].tolist() == [1, 0]
    assert generator.bit_generator.state == before


def test_every_element_has_its_own_coin():
    q = np.tile(np.array([0.0, 1.0, 0.0], np.float32), (20_000, 1))
    action = EpsilonGreedy()({"q": q}, rng(), {"epsilon": 0.3}, None, False)["action"]
    # P(greedy action) = 0.7 + 0.3 / 3 = 0.8, the others 0.1 each; four standard deviations of 20 000 coins are 0.011
    assert np.bincount(action, minlength=3) / 20_000 == pytest.approx([0.1, 0.8, 0.1], abs=0.012)
    assert action.dtype == np.int64


def test_random_actions_are_uniform_over_the_legal_ones_only():
    q = np.tile(np.array([9.0, 1.0, 2.0, 3.0], np.float32), (20_000, 1))
    mask = np.tile(np.array([0, 1, 1, 0], np.int8), (20_000, 1))
    action = EpsilonGreedy()({"q": q}, rng(), {"epsilon": 0.5}, mask, False)["action"]
    assert np.bincount(action, minlength=4) / 20_000 == pytest.approx([0.0, 0.25, 0.75, 0.0], abs=0.012)


def test_the_kth_legal_action_by_hand():
    mask = np.array([[0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 1, 0]])
    assert legal(np.array([0.0, 0.99, 0.5]), mask).tolist() == [1, 3, 2]
    assert legal(np.array([0.5, 0.25, 0.999]), mask).tolist() == [3, 1, 2]


def test_epsilon_per_column_follows_ape_x():
    # ε^(1 + α i / (N − 1)) with ε = 0.4, α = 7, N = 8 over two collectors of four columns
    first, second = (EpsilonGreedy(7.0, column, 8).epsilon(0.4, 4) for column in (0, 4))
    assert first.tolist() == pytest.approx([0.4 ** (1 + i) for i in range(4)])
    assert second.tolist() == pytest.approx([0.4 ** (1 + i) for i in range(4, 8)])
    assert EpsilonGreedy(0.0).epsilon(0.4, 4) == 0.4


def test_outputs_are_never_modified():
    out = {"q": np.array([[1.0, 2.0]], np.float32), "logits": np.array([[1.0, 2.0]], np.float32)}
    mask = np.array([[1, 0]], np.int8)
    EpsilonGreedy()(out, rng(), {"epsilon": 0.5}, mask, False)
    Categorical((2,), single=True)(out, rng(), {}, mask, False)
    assert out["q"].tolist() == out["logits"].tolist() == [[1.0, 2.0]]


def test_a_categorical_draw_by_hand():
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32)).repeat(4, 0)
    action, logp = draw(logits, np.array([0.1, 0.2, 0.69, 0.71]))
    assert action.tolist() == [0, 1, 1, 2]  # edges of the cumulative distribution: 0.2 and 0.7
    assert np.exp(logp) == pytest.approx([0.2, 0.5, 0.5, 0.3], rel=1e-5)


def test_masked_actions_have_no_probability():
    rule, logits = Categorical((3,), single=True), np.zeros((5_000, 3), np.float32)
    mask = np.tile(np.array([1, 0, 1], np.int8), (5_000, 1))
    out = rule({"logits": logits}, rng(), {}, mask, False)
    assert set(out["action"].tolist()) == {0, 2}
    assert out["logp"] == pytest.approx(np.full(5_000, math.log(0.5)), rel=1e-5)


def test_a_head_without_a_legal_action_counts_as_all_legal_as_in_the_losses():
    leaf = spec_of(spaces.MultiDiscrete([2, 2]))
    logits = np.array([[0.0, 2.0, 1.0, 0.0]], np.float32)
    mask = np.array([[1, 1, 0, 0]], np.int8)
    acted = rule_for(leaf)({"logits": logits}, rng(), {}, mask, True)
    logp, _ = logp_entropy(
        leaf.kind,
        leaf.sizes,
        {"logits": torch.from_numpy(logits)},
        torch.from_numpy(acted["action"]),
        torch.from_numpy(mask),
    )
    assert acted["logp"] == pytest.approx(logp.numpy(), rel=1e-5)
    nothing = EpsilonGreedy()({"q": logits}, rng(), {"epsilon": 0.0}, np.zeros((1, 4), np.int8), False)
    assert nothing["action"].tolist() == [1]


def test_several_heads_are_drawn_side_by_side_and_their_log_probabilities_summed():
    rule = Categorical((2, 3), single=False)
    logits = np.log(np.array([[0.25, 0.75, 0.1, 0.2, 0.7]], np.float32))
    out = rule({"logits": logits}, rng(), {}, None, True)
    assert out["action"].tolist() == [[1, 2]]
    assert out["logp"].tolist() == pytest.approx([math.log(0.75 * 0.7)], rel=1e-5)
    many = rule({"logits": logits.repeat(20_000, 0)}, rng(), {}, None, False)["action"]
    assert many[:, 0].mean() == pytest.approx(0.75, abs=0.013)
    assert (many[:, 1] == 2).mean() == pytest.approx(0.7, abs=0.013)


def test_coins_of_a_multi_binary_action():
    logits = np.array([[0.0, 100.0, -100.0]], np.float32)
    out = Bernoulli(spec_of(spaces.MultiBinary(3)))({"logits": logits}, rng(), {}, None, False)
    assert out["action"][0, 1:].tolist() == [1, 0]
    assert out["logp"].tolist() == pytest.approx([math.log(0.5)], abs=1e-6)
    assert out["action"].dtype == np.int8


def test_a_matrix_of_coins_keeps_its_shape():
    logits = np.array([[100.0, -100.0, 100.0, -100.0, 0.0, 100.0]], np.float32)
    out = rule_for(spec_of(spaces.MultiBinary((2, 3))))({"logits": logits}, rng(), {}, None, True)
    assert out["action"].tolist() == [[[1, 0, 1], [0, 0, 1]]]
    assert out["logp"].tolist() == pytest.approx([math.log(0.5)], abs=1e-6)  # one coin is fair, five are certain


def test_a_gaussian_action_is_stored_unclipped_with_its_density_and_clipped_for_the_env():
    rule = Gaussian(spec_of(spaces.Box(-1, 1, (2,), np.float32)))
    out = {"mean": np.array([[5.0, 0.0]], np.float32), "log_std": np.zeros((1, 2), np.float32)}
    greedy = rule(out, None, {}, None, True)
    assert greedy["action"].tolist() == [[5.0, 0.0]]
    assert greedy["logp"].tolist() == pytest.approx([-math.log(2 * math.pi)])  # two standard normals at their mean
    assert rule.to_env(greedy["action"]).tolist() == [[1.0, 0.0]]
    drawn = rule(out, rng(), {}, None, False)
    eps = rng().standard_normal((1, 2), dtype=np.float32)
    assert drawn["action"][0].tolist() == pytest.approx([5.0 + eps[0, 0], eps[0, 1]])
    assert drawn["logp"].tolist() == pytest.approx([-0.5 * float((eps**2).sum()) - math.log(2 * math.pi)], rel=1e-5)


def test_a_squashed_action_is_rescaled_to_the_bounds():
    rule = SquashedGaussian(spec_of(spaces.Box(np.array([-2, 0], "f"), np.array([2, 10], "f"))))
    out = {"mean": np.array([[0.0, 50.0]], np.float32), "log_std": np.zeros((1, 2), np.float32)}
    action = rule(out, None, {}, None, True)["action"]
    assert action.tolist() == [[0.0, 1.0]]
    assert rule.to_env(action).tolist() == [[0.0, 10.0]]
    assert rule.to_env(np.array([[-1.0, -1.0]])).tolist() == [[-2.0, 0.0]]


def test_warm_up_actions_are_uniform():
    rule = SquashedGaussian(spec_of(spaces.Box(-1, 1, (1,), np.float32)))
    out = {"mean": np.full((20_000, 1), 9.0, np.float32), "log_std": np.zeros((20_000, 1), np.float32)}
    action = rule(out, rng(), {"random": 1.0}, None, False)["action"]
    assert np.quantile(action, [0.25, 0.5, 0.75]) == pytest.approx([-0.5, 0.0, 0.5], abs=0.03)


def test_a_squashed_policy_needs_bounds():
    with pytest.raises(ConfigError, match=r"finite bounds.*Use ppo, a2c or trpo"):
        SquashedGaussian(spec_of(spaces.Box(-np.inf, np.inf, (1,), np.float32)))


def test_the_wrapper_that_is_recommended_gives_bounds():
    class Free(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (1,), np.float32)
        action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    bounded = gymnasium.wrappers.TransformAction(Free(), lambda action: action, spaces.Box(-2, 2, (1,), np.float32))
    assert SquashedGaussian(spec_of(bounded.action_space)).to_env(np.ones((1, 1), np.float32)).tolist() == [[2.0]]


def test_the_rule_fits_the_action_space():
    assert isinstance(rule_for(spec_of(spaces.Discrete(2))), Categorical)
    assert isinstance(rule_for(spec_of(spaces.MultiDiscrete([2, 3]))), Categorical)
    assert isinstance(rule_for(spec_of(spaces.MultiBinary(3))), Bernoulli)
    assert isinstance(rule_for(spec_of(spaces.Box(-1, 1, (1,)))), Gaussian)
    assert isinstance(rule_for(spec_of(spaces.Dict({"a": spaces.Discrete(2)}))), Joint)


def test_the_behaviour_density_equals_the_learners():
    generator = rng(3)

    def numbers(width):
        return generator.normal(size=(6, width)).astype(np.float32)

    cases = [
        (spaces.Discrete(4), {"logits": numbers(4)}),
        (spaces.MultiDiscrete([2, 3]), {"logits": numbers(5)}),
        (spaces.MultiBinary(3), {"logits": numbers(3)}),
        (spaces.Box(-1, 1, (2,)), {"mean": numbers(2), "log_std": numbers(2)}),
    ]
    for space, out in cases:
        leaf = spec_of(space)
        acted = rule_for(leaf)(out, generator, {}, None, False)
        tensors = {key: torch.from_numpy(value) for key, value in out.items()}
        logp, _ = logp_entropy(leaf.kind, leaf.sizes, tensors, torch.from_numpy(acted["action"]))
        assert acted["logp"] == pytest.approx(logp.numpy(), rel=1e-4, abs=1e-5), space


PARTS = spaces.Dict({
    "arm": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.MultiBinary(3))),
    "go": spaces.Discrete(3),
    "pair": spaces.MultiDiscrete([2, 2]),
})  # fmt: skip


def outputs_of_parts(rows, generator):
    widths = {"arm/0/mean": 2, "arm/0/log_std": 2, "arm/1/logits": 3, "go/logits": 3, "pair/logits": 4}
    return {name: generator.normal(size=(rows, width)).astype(np.float32) for name, width in widths.items()}


def test_each_part_of_a_dict_acts_by_its_own_rule_and_their_densities_multiply():
    spec, generator = spec_of(PARTS), rng(4)
    rule, out = rule_for(spec), outputs_of_parts(50, rng(5))
    mask = np.tile(np.array([0, 1, 0, 1, 1, 0, 1]), (50, 1))  # go: only 1; pair: all, and only 1
    acted = rule(out, generator, {}, mask, False)
    action = acted["action"]
    shapes = {path: x.shape for path, x in flatten(action).items()}
    assert shapes == {"arm/0": (50, 2), "arm/1": (50, 3), "go": (50,), "pair": (50, 2)}
    assert set(action["go"].tolist()) == set(action["pair"][:, 1].tolist()) == {1}
    assert set(action["pair"][:, 0].tolist()) == {0, 1}
    tensors = {key: torch.from_numpy(value) for key, value in out.items()}
    logp, _ = joint_logp_entropy(spec, tensors, tree_map(torch.from_numpy, action), torch.from_numpy(mask))
    assert acted["logp"] == pytest.approx(logp.numpy(), rel=1e-4, abs=1e-5)
    clipped = rule.to_env(action)
    assert np.abs(action["arm"]["0"]).max() > 1 == np.abs(clipped["arm"]["0"]).max()
    assert all(np.array_equal(clipped[key], action[key]) for key in ("go", "pair"))
    assert tree_map(np.shape, rule.from_env(clipped)) == tree_map(np.shape, action)


def test_the_greedy_action_of_parts_is_that_of_each():
    out = outputs_of_parts(4, rng(6))
    action = rule_for(spec_of(PARTS))(out, None, {}, None, True)["action"]
    assert np.array_equal(action["arm"]["0"], out["arm/0/mean"])
    assert np.array_equal(action["go"], out["go/logits"].argmax(-1))
    assert np.array_equal(action["arm"]["1"], (out["arm/1/logits"] > 0).astype(np.int8))


def everywhere(low: float, high: float) -> Leaf:
    return spec_of(spaces.Box(np.float32(low), np.float32(high), (2,), np.float32))


RULES = {  # every rule of the library with the actions that its env takes
    "epsilon_greedy": (EpsilonGreedy(), spaces.Discrete(4)),
    "epsilon_greedy_from_3": (EpsilonGreedy(), spaces.Discrete(4, start=3)),
    "best_of_initial_priorities": (_Best(), spaces.Discrete(4)),
    "categorical": (rule_for(spec_of(spaces.Discrete(4))), spaces.Discrete(4)),
    "categorical_from_minus_2": (rule_for(spec_of(spaces.Discrete(4, start=-2))), spaces.Discrete(4, start=-2)),
    "several_heads": (rule_for(spec_of(spaces.MultiDiscrete([2, 5]))), spaces.MultiDiscrete([2, 5])),
    "bernoulli": (rule_for(spec_of(spaces.MultiBinary((2, 3)))), spaces.MultiBinary((2, 3))),
    "gaussian": (rule_for(everywhere(-2, 2)), spaces.Box(-2, 2, (2,))),
    "gaussian_without_bounds": (rule_for(everywhere(-np.inf, np.inf)), spaces.Box(-np.inf, np.inf, (2,))),
    "squashed_gaussian": (SquashedGaussian(everywhere(-2, 6)), spaces.Box(-2, 6, (2,))),
    "drifting_gaussian": (DriftingGaussian(everywhere(-2, 6), 0.5), spaces.Box(-2, 6, (2,))),
    "deterministic": (Deterministic(everywhere(-2, 6)), spaces.Box(-2, 6, (2,))),
    "gaussian_noise": (GaussianNoise(everywhere(0, 9)), spaces.Box(0, 9, (2,))),
    "ornstein_uhlenbeck": (OrnsteinUhlenbeck(everywhere(-7, -3)), spaces.Box(-7, -3, (2,))),
}


@pytest.mark.parametrize("name", RULES)
def test_what_the_env_was_given_comes_back_from_the_stored_action(name):
    rule, space = RULES[name]
    space.seed(0)
    start = space.start if isinstance(space, spaces.Discrete) else 0  # rules count from 0, the engine adds the start
    given = np.stack([np.asarray(space.sample()) - start for _ in range(200)])
    stored = rule.from_env(given)
    assert stored.shape == given.shape
    assert np.allclose(rule.to_env(stored), given, rtol=1e-6, atol=1e-6)  # rescaling rounds the last bits of a float32
    if given.dtype.kind == "i":
        assert np.array_equal(rule.to_env(stored), given)


@pytest.mark.parametrize("name", RULES)
def test_a_stored_action_comes_back_from_what_the_env_was_given(name):
    rule, space = RULES[name]
    space.seed(1)
    if isinstance(rule, SquashedGaussian | Deterministic):
        stored = rng(2).uniform(-1, 1, (200, 2)).astype(np.float32)
    else:
        start = space.start if isinstance(space, spaces.Discrete) else 0
        stored = np.stack([np.asarray(space.sample()) - start for _ in range(200)])
    assert np.allclose(rule.from_env(rule.to_env(stored)), stored, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", [SquashedGaussian, Deterministic, GaussianNoise, OrnsteinUhlenbeck])
def test_half_the_way_to_the_bound_is_one_half(rule):
    leaf = spec_of(spaces.Box(-2, 2, (1,), np.float32))
    assert rule(leaf).from_env(np.array([[1.0], [-2.0], [0.0]], np.float32)).tolist() == [[0.5], [-1.0], [0.0]]
    assert rule(leaf).from_env(np.array([[5.0]], np.float32)).tolist() == [[1.0]]  # beyond the bounds: at the bound


def test_a_dimension_without_room_is_stored_as_zero():
    leaf = spec_of(spaces.Box(np.array([3, 0], "f"), np.array([3, 4], "f")))
    stored = SquashedGaussian(leaf).from_env(np.array([[3.0, 3.0]], np.float32))
    assert stored.tolist() == [[0.0, 0.5]]  # not 0 / 0
    assert SquashedGaussian(leaf).to_env(stored).tolist() == [[3.0, 3.0]]
