"""Exploration of deterministic policies: numbers by hand, memory per column, exact state."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rookery.acting.noise import (
    Deterministic,
    DriftingGaussian,
    GaussianNoise,
    OrnsteinUhlenbeck,
    ParameterNoise,
    squashed,
)
from rookery.acting.rules import RuleWithMemory, SquashedGaussian
from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.learning.flat import FlatNetwork

LEAF = spec_of(spaces.Box(np.array([-2, 0], "f"), np.array([2, 10], "f")))
ZERO = {"action": np.zeros((3, 2), np.float32)}


def rng(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def eps(count, shape=(3, 2), seed=0):
    generator = rng(seed)
    return [generator.standard_normal(shape, dtype=np.float32) for _ in range(count)]


RULES = {
    "none": lambda: Deterministic(LEAF),
    "gaussian": lambda: GaussianNoise(LEAF),
    "ou": lambda: OrnsteinUhlenbeck(LEAF),
}


@pytest.mark.parametrize("name", RULES)
def test_greedy_actions_are_the_networks_own_and_draw_nothing(name):
    out, generator = {"action": np.array([[0.5, -1.0]], np.float32)}, rng()
    before = generator.bit_generator.state
    rule = RULES[name]()
    assert rule(out, generator, {"noise": 1.0, "random": 1.0}, None, True)["action"].tolist() == [[0.5, -1.0]]
    assert generator.bit_generator.state == before
    assert rule.to_env(out["action"]).tolist() == [[1.0, 0.0]]  # rescaled to the bounds


@pytest.mark.parametrize("name", RULES)
def test_actions_stay_in_bounds_keep_their_shape_and_outputs_are_not_modified(name):
    out = {"action": np.full((500, 2), 0.9, np.float32)}
    action = RULES[name]()(out, rng(), {"noise": 2.0}, None, False)["action"]
    assert action.shape == (500, 2)
    assert action.dtype == np.float32
    assert np.abs(action).max() <= 1.0
    assert (out["action"] == np.float32(0.9)).all()


@pytest.mark.parametrize("name", RULES)
def test_warm_up_actions_are_uniform(name):
    out = {"action": np.full((20_000, 2), 0.9, np.float32)}
    action = RULES[name]()(out, rng(), {"noise": 0.1, "random": 1.0}, None, False)["action"]
    assert np.quantile(action, [0.25, 0.5, 0.75]) == pytest.approx([-0.5, 0.0, 0.5], abs=0.03)


def test_gaussian_noise_is_scaled_by_its_knob_and_clipped():
    (e,) = eps(1)
    assert GaussianNoise(LEAF)(ZERO, rng(), {"noise": 0.1}, None, False)["action"] == pytest.approx(0.1 * e)
    clipped = GaussianNoise(LEAF, clip=0.05)(ZERO, rng(), {"noise": 0.1}, None, False)["action"]
    assert clipped == pytest.approx(np.clip(0.1 * e, -0.05, 0.05))
    assert np.abs(0.1 * e).max() > 0.05  # else nothing was clipped


def test_ornstein_uhlenbeck_by_hand():
    # θ = ½, Δt = ¼, σ = 0.2: x₁ = 0.1 ε₁, x₂ = (1 − ⅛) x₁ + 0.1 ε₂
    rule, generator, (a, b) = OrnsteinUhlenbeck(LEAF, theta=0.5, dt=0.25), rng(), eps(2)
    first = rule(ZERO, generator, {"noise": 0.2}, None, False)["action"]
    assert first == pytest.approx(0.1 * a, rel=1e-5)
    second = rule(ZERO, generator, {"noise": 0.2}, None, False)["action"]
    assert second == pytest.approx(0.875 * 0.1 * a + 0.1 * b, rel=1e-5)


def test_a_new_episode_forgets_the_noise_of_its_column_only():
    rule, generator, (a, b) = OrnsteinUhlenbeck(LEAF, theta=0.5), rng(), eps(2)
    rule.begin(np.ones(3, bool))
    rule(ZERO, generator, {"noise": 0.1}, None, False)
    rule.begin(np.array([False, True, False]))
    second = rule(ZERO, generator, {"noise": 0.1}, None, False)["action"]
    kept = np.array([[0.5], [0.0], [0.5]])
    assert second == pytest.approx(kept * 0.1 * a + 0.1 * b, rel=1e-5)


def test_a_rule_with_memory_is_known_by_its_methods():
    assert {name for name, make in RULES.items() if isinstance(make(), RuleWithMemory)} == {"ou"}


def test_greedy_steps_do_not_move_the_noise():
    rule = OrnsteinUhlenbeck(LEAF)
    rule(ZERO, rng(), {"noise": 0.1}, None, False)
    before = rule.x.copy()
    rule(ZERO, None, {"noise": 0.1}, None, True)
    assert (rule.x == before).all()


def test_the_noise_is_correlated_in_time_with_the_deviation_of_the_process():
    rule, generator, seen = OrnsteinUhlenbeck(LEAF, theta=0.15), rng(), []
    still = {"action": np.zeros((200, 2), np.float32)}
    for _ in range(300):
        rule(still, generator, {"noise": 0.05}, None, False)
        seen.append(rule.x)
    late = np.stack(seen[100:])
    # stationary: σ² / (1 − 0.85²), and a correlation of 0.85 from step to step
    assert late.std() == pytest.approx(0.05 / (1 - 0.85**2) ** 0.5, rel=0.03)
    assert (late[1:] * late[:-1]).mean() / late.var() == pytest.approx(0.85, abs=0.01)


def test_the_state_of_the_noise_is_exact_and_a_copy():
    a, b, one, two = OrnsteinUhlenbeck(LEAF), OrnsteinUhlenbeck(LEAF), rng(), rng()
    for _ in range(3):
        a(ZERO, one, {"noise": 0.1}, None, False)
    state = a.state()
    b.restore(state)
    two.bit_generator.state = one.bit_generator.state
    for _ in range(3):
        x, y = (rule(ZERO, g, {"noise": 0.1}, None, False)["action"] for rule, g in ((a, one), (b, two)))
        assert (x == y).all()
    b.begin(np.ones(3, bool))
    assert state["x"].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianNoise(LEAF, clip=0.0), "clip > 0"),
        (lambda: OrnsteinUhlenbeck(LEAF, theta=3.0), "theta=3.0"),
        (lambda: OrnsteinUhlenbeck(LEAF, dt=0.0), "dt=0.0"),
        (lambda: ParameterNoise(torch.zeros(1), sigma=0.0), "sigma > 0"),
        (lambda: ParameterNoise(torch.zeros(1), alpha=1.0), "alpha > 1"),
        (lambda: GaussianNoise(spec_of(spaces.Box(-np.inf, np.inf, (1,)))), "finite bounds"),
    ],
)
def test_wrong_options_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def policy():
    return FlatNetwork("policy", nn.Sequential(nn.Linear(3, 2), nn.Tanh()))


def test_perturbed_weights_are_the_weights_plus_noise_and_the_weights_stay():
    net = policy()
    before, noise = net.value.clone(), ParameterNoise(net.value, sigma=0.5)
    assert torch.equal(noise.perturbed, before)
    noise.perturb(rng())
    (e,) = eps(1, tuple(before.shape))
    torch.testing.assert_close(noise.perturbed, before + 0.5 * torch.from_numpy(e))
    assert torch.equal(net.value, before)


def test_the_perturbed_network_follows_the_live_weights_when_perturbed_again():
    net = policy()
    noise = ParameterNoise(net.value, sigma=1e-9)
    acting = net.bound(net.views(noise.perturbed), net.stats, training=False)
    obs = torch.ones(1, 3)
    net.value += 1.0
    assert not torch.allclose(acting(obs), net.frozen(obs))
    noise.perturb(rng())
    torch.testing.assert_close(acting(obs), net.frozen(obs))


def test_sigma_grows_below_the_wanted_distance_and_shrinks_above_it():
    noise = ParameterNoise(torch.zeros(2), sigma=1.0, distance=0.5, alpha=2.0)
    mine, other = np.array([[0.0, 0.0]]), np.array([[0.3, -0.4]])
    assert noise.adapt(mine, other) == pytest.approx((0.125) ** 0.5)  # √((0.09 + 0.16) / 2) = 0.354 < 0.5
    assert noise.sigma == 2.0
    assert noise.adapt(mine, 2 * other) == pytest.approx(0.5**0.5)  # 0.707 > 0.5
    assert noise.sigma == 1.0


def test_sigma_settles_where_the_actions_are_as_far_apart_as_wanted():
    net, generator = policy(), rng()
    noise = ParameterNoise(net.value, sigma=1e-3, distance=0.2, alpha=1.05)
    acting = net.bound(net.views(noise.perturbed), net.stats, training=False)
    obs, found = torch.from_numpy(rng(1).standard_normal((64, 3), dtype=np.float32)), []
    with torch.no_grad():
        for _ in range(600):
            noise.perturb(generator)
            found.append(noise.adapt(net.frozen(obs).numpy(), acting(obs).numpy()))
    assert np.median(found[300:]) == pytest.approx(0.2, rel=0.15)


def test_the_state_of_parameter_noise_is_exact():
    net = policy()
    a, b = ParameterNoise(net.value), ParameterNoise(net.value)
    a.perturb(rng())
    a.adapt(np.zeros((1, 2)), np.ones((1, 2)))
    b.restore(a.state())
    assert torch.equal(a.perturbed, b.perturbed)
    assert a.sigma == b.sigma


def test_columns_that_did_not_act_go_on_where_they_were():
    rule, generator, (a, b, c) = OrnsteinUhlenbeck(LEAF, theta=0.5), rng(), eps(3)
    for _ in range(2):
        rule(ZERO, generator, {"noise": 0.1}, None, False)
    rule.undo(np.array([1]))  # the second step was none for column 1
    third = rule(ZERO, generator, {"noise": 0.1}, None, False)["action"]
    moved, waited = 0.5 * (0.5 * a + b) + c, 0.5 * a + c
    assert third == pytest.approx(0.1 * np.stack([moved[0], waited[1], moved[2]]), rel=1e-5)


def test_nothing_is_undone_where_no_noise_was_drawn():
    rule = OrnsteinUhlenbeck(LEAF)
    rule.undo(np.array([0, 2]))
    rule(ZERO, rng(), {"noise": 0.1}, None, False)
    before = rule.x.copy()
    rule(ZERO, rng(), {"noise": 0.1, "random": 1.0}, None, False)  # warming up does not move it
    rule.undo(np.array([0, 1, 2]))
    assert (rule.x == before).all()


# --- drifting noise of a squashed Gaussian ---

NORMAL = {"mean": np.zeros((3, 2), np.float32), "log_std": np.full((3, 2), np.log(0.5), np.float32)}


def test_drifting_noise_by_hand():
    # ρ = 0.6: x₁ = ε₁, x₂ = 0.6 ε₁ + 0.8 ε₂; the action is tanh(x / 2)
    rule, generator, (a, b) = DriftingGaussian(LEAF, 0.6), rng(), eps(2)
    rule.begin(np.ones(3, bool))
    assert rule(NORMAL, generator, {}, None, False)["action"] == pytest.approx(np.tanh(0.5 * a), rel=1e-5)
    rule.begin(np.array([False, True, False]))
    x = np.where([[False], [True], [False]], b, 0.6 * a + 0.8 * b)  # an episode begins in the second column
    assert rule(NORMAL, generator, {}, None, False)["action"] == pytest.approx(np.tanh(0.5 * x), rel=1e-5)


def test_each_drifting_action_alone_is_distributed_as_without_memory():
    rule, generator, many = DriftingGaussian(LEAF, 0.9), rng(), np.zeros((4_000, 2), np.float32)
    for _ in range(30):
        rule({"mean": many, "log_std": many}, generator, {}, None, False)
    before = rule.x
    rule({"mean": many, "log_std": many}, generator, {}, None, False)
    assert (rule.x.mean(), rule.x.std()) == pytest.approx((0.0, 1.0), abs=0.03)
    assert (rule.x * before).mean() == pytest.approx(0.9, abs=0.03)


def test_greedy_and_warm_up_steps_do_not_move_drifting_noise():
    rule = DriftingGaussian(LEAF, 0.6)
    rule(NORMAL, rng(), {}, None, False)
    before = rule.x.copy()
    assert (rule(NORMAL, None, {}, None, True)["action"] == 0).all()
    rule(NORMAL, rng(), {"random": 1.0}, None, False)
    assert (rule.x == before).all()


def test_drifting_noise_is_undone_and_restored_exactly():
    rule, other, generator = DriftingGaussian(LEAF, 0.6), DriftingGaussian(LEAF, 0.6), rng()
    rule(NORMAL, generator, {}, None, False)
    before = rule.x.copy()
    rule(NORMAL, generator, {}, None, False)
    rule.undo(np.array([1]))
    assert (rule.x[1] == before[1]).all()
    assert (rule.x[0] != before[0]).all()
    other.restore(rule.state())
    (one, two) = (it(NORMAL, rng(5), {}, None, False)["action"] for it in (rule, other))
    assert (one == two).all()
    assert isinstance(rule, RuleWithMemory)


def test_an_undone_first_step_is_still_a_first_step():
    rule, generator = DriftingGaussian(LEAF, 0.6), rng()
    rule(NORMAL, generator, {}, None, False)
    rule.begin(np.array([False, True, False]))
    rule(NORMAL, generator, {}, None, False)
    rule.undo(np.array([1]))
    assert np.isnan(rule.x[1]).all()


def test_without_memory_it_is_the_plain_rule():
    assert type(squashed(LEAF, 0.0)) is SquashedGaussian
    assert type(squashed(LEAF, 0.5)) is DriftingGaussian
    with pytest.raises(ConfigError, match="0 < memory < 1"):
        DriftingGaussian(LEAF, 1.0)
