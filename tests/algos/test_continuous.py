"""SAC, DDPG, TD3, discrete SAC, REDQ, TQC and CrossQ: numbers worked out by hand, and both executions equal.

A model without hidden layers is one linear layer, so that values and gradients can be written down.
"""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError

from algos.test_executions import far, gradients
from algos.test_updates import BOX, MASKED, OBS, SMALL, TWO, learner, replay_batch
from rookery.acting.noise import GaussianNoise, OrnsteinUhlenbeck
from rookery.algos.sac import SAC, SACConfig
from rookery.core.errors import ConfigError
from rookery.core.registry import lookup
from rookery.core.spec import spec_of
from rookery.equations.distributions import squashed_gaussian
from rookery.learning.compiled.build import trace
from rookery.learning.group.all_reduce import row_axis
from rookery.learning.update_words import Eager
from rookery.nets import BatchRenorm, ModelConfig

ONE = spec_of(spaces.Box(-1, 1, (1,), np.float32))
SHAPED = spec_of(spaces.Box(-1, 1, (2, 2), np.float32))
LINEAR = ModelConfig(hidden=())
CONTINUOUS = ["ddpg", "td3", "redq", "tqc", "crossq", "sac"]
SMALLER = {"redq": {"critics": 3, "policy_every": 2}, "tqc": {"critics": 2, "quantiles": 4, "drop": 1}}
SMALLER |= {"crossq": {"policy_every": 2, "renorm_warmup": 20, "renorm_momentum": 0.1}}


def made(name, obs=OBS, actions=None, model=SMALL, **options):
    cls = lookup("algo", name)
    space = actions or (TWO if name == "sac-discrete" else BOX)
    return cls(cls.Config(**SMALLER.get(name, {}) | options), obs, space, model)


def constant(it, name, *biases):
    """Make every network of an ensemble give its bias, whatever it sees."""
    net = it.nets[name]
    net.value.zero_()
    heads = [view for key, view in zip(net.params, net.views(net.value)) if key.endswith("head.bias")]
    for head, bias in zip(heads, biases, strict=True):
        head.copy_(torch.as_tensor(bias))


def number(it, name, key, value):
    """Set one parameter of a network."""
    net = it.nets[name]
    dict(zip(net.params, net.views(net.value)))[key].copy_(torch.as_tensor(value))


def batch(action=0.0, reward=1.0, discount=0.9, rows=8, width=1):
    one = {"reward": torch.full((rows,), reward), "discount": torch.full((rows,), discount), "weight": torch.ones(rows)}
    return one | {
        "obs": torch.zeros(rows, 3),
        "next_obs": torch.zeros(rows, 3),
        "action": torch.full((rows, width), action),
    }


# --- targets and losses by hand ---


def test_the_target_and_temperature_of_sac_by_hand():
    algo = SAC(SACConfig(alpha=0.5, tau=1.0, alpha_lr=0.1), OBS, BOX, SMALL)
    it = learner(algo)
    batch = replay_batch(0, "box")
    generator = torch.Generator()
    generator.set_state(it.generator.get_state())
    with torch.no_grad():  # y = r + d (min Q' − α log π), with the same noise
        eps = torch.randn(8, 2, generator=generator)
        action, logp = squashed_gaussian(*it.eager.policy(batch["next_obs"]), eps)
        y = batch["reward"] + batch["discount"] * (it.eager.q_target.least(batch["next_obs"], action) - 0.5 * logp)
    out = it.step(batch)[0].metrics
    assert out["target_mean"] == pytest.approx(y.mean().item(), rel=1e-5)
    assert out["alpha"] == pytest.approx(0.5)
    # Adam's first step of log α is lr · sign of the gradient −(E[log π] + H̄) = entropy + 2
    step = it.tensors["log_alpha.value"].item() - np.log(0.5)
    assert step == pytest.approx(-0.1 * np.sign(out["entropy"] + 2.0), abs=1e-4)
    assert torch.equal(it.nets["q"].value, it.nets["q_target"].value)  # τ = 1


def test_ddpg_bootstraps_from_the_target_policy_judged_by_the_target_critic():
    it = learner(made("ddpg", actions=ONE, model=LINEAR, tau=0.25))
    for name in ("q", "q_target", "policy", "policy_target"):
        it.nets[name].value.zero_()
    number(it, "q_target", "head.weight", [[0.0, 0.0, 0.0, 2.0]])  # Q'(s, a) = 2 a + 1
    number(it, "q_target", "head.bias", [1.0])
    number(it, "policy_target", "head.bias", [math.atanh(0.5)])  # μ' = 0.5
    number(it, "q", "head.bias", [0.3])
    out = it.step(batch())[0]
    y = 1.0 + 0.9 * (2 * 0.5 + 1.0)  # 2.8
    assert out.metrics["target_mean"] == pytest.approx(y)
    assert out.metrics["q/loss"] == pytest.approx(0.5 * (y - 0.3) ** 2)
    assert out.arrays["priority"].tolist() == pytest.approx([y - 0.3] * 8)
    # Adam's first step of the critic's bias is lr = 1e-3; a quarter of it reaches the target: 1 + ¼ (0.301 − 1)
    assert it.nets["q"].value[-1].item() == pytest.approx(0.301, abs=1e-6)
    assert it.nets["q_target"].value[-1].item() == pytest.approx(1 + 0.25 * (0.301 - 1), abs=1e-6)


def test_the_gradient_of_the_critic_flows_through_the_action_into_the_policy():
    it = learner(made("ddpg", actions=ONE, model=LINEAR, lr=0.0))
    for name in ("q", "policy"):
        it.nets[name].value.zero_()
    number(it, "q", "head.weight", [[0.0, 0.0, 0.0, 2.0]])  # Q = 2 a
    number(it, "policy", "head.bias", [math.atanh(0.5)])
    out = it.step(batch())[0].metrics
    # L = −2 tanh(b): value −1, gradient −2 (1 − 0.5²) = −1.5; the observation is 0, so the weights have none
    assert out["policy/loss"] == pytest.approx(-1.0)
    assert out["policy/grad_norm"] == pytest.approx(1.5)
    assert it.nets["policy"].value[-1].item() > math.atanh(0.5)


def test_td3_takes_the_smaller_critic_and_weighs_both_losses():
    it = learner(made("td3", actions=ONE))
    constant(it, "q_target", [5.0], [7.0])
    constant(it, "q", [3.0], [2.0])
    out = it.step(batch() | {"weight": torch.full((8,), 0.5)})[0]
    y = 1.0 + 0.9 * 5.0
    assert out.metrics["target_mean"] == pytest.approx(y)
    assert out.metrics["q/loss"] == pytest.approx(0.5 * (0.5 * (y - 3.0) ** 2 + 0.5 * (y - 2.0) ** 2))
    assert out.arrays["priority"].tolist() == pytest.approx([y - 3.0] * 8)


def test_td3_smooths_target_actions_within_the_clip_and_the_bounds():
    it = learner(made("td3", actions=ONE, model=LINEAR, smoothing=1e6, smoothing_clip=0.3))
    for name in ("q_target", "policy_target"):
        it.nets[name].value.zero_()
    for member in (0, 1):
        number(it, "q_target", f"members.{member}.head.weight", [[0.0, 0.0, 0.0, 1.0]])  # Q' = a'
    number(it, "policy_target", "head.bias", [math.atanh(0.9)])
    constant(it, "q", [0.0], [0.0])
    found = it.step(batch(reward=0.0, discount=1.0, rows=64))[0].arrays["priority"]
    # 0.9 ± 0.3 within ±1: either 1 or 0.6
    assert sorted(set(found.round(decimals=5).tolist())) == pytest.approx([0.6, 1.0])


def test_the_policy_and_the_targets_of_td3_wait_for_their_turn():
    it = learner(made("td3", policy_every=3))
    before = {name: it.nets[name].value.clone() for name in it.nets}
    moved = lambda: {name for name in it.nets if not torch.equal(it.nets[name].value, before[name])}  # noqa: E731
    for i in range(2):
        it.step(replay_batch(i, "box"))
    assert moved() == {"q"}
    assert set(it.step(replay_batch(2, "box"))[1].metrics) == {"policy/loss", "policy/grad_norm"}
    assert moved() == {"q", "policy", "q_target", "policy_target"}


def test_td3_judges_its_policy_by_the_first_critic_alone():
    it = learner(made("td3", actions=ONE, policy_every=1, lr=0.0))
    constant(it, "q", [3.0], [2.0])
    assert it.step(batch())[1].metrics["policy/loss"] == pytest.approx(-3.0)


def test_the_target_of_discrete_sac_is_an_expectation_over_the_actions():
    it = learner(made("sac-discrete", alpha=0.5))
    constant(it, "q_target", [1.0, 3.0], [2.0, 2.5])  # the smaller: 1 and 2.5
    constant(it, "policy", [0.0, math.log(3.0)])  # π = (¼, ¾): E = 2.125, H = 0.562335
    constant(it, "q", [0.0, 0.5], [0.0, 0.0])
    out = it.step(batch() | {"action": torch.ones(8, dtype=torch.int64)})[0]
    y = 1.0 + 0.9 * (0.25 * 1.0 + 0.75 * 2.5 + 0.5 * 0.562335)
    assert out.metrics["target_mean"] == pytest.approx(y, abs=1e-5)
    assert out.arrays["priority"].tolist() == pytest.approx([y - 0.5] * 8, abs=1e-5)
    assert out.metrics["entropy"] == pytest.approx(0.562335, abs=1e-5)


@pytest.mark.parametrize(("wanted", "sign"), [(0.98, 1), (0.5, -1)])
def test_the_temperature_rises_when_there_is_too_little_entropy_and_falls_when_too_much(wanted, sign):
    it = learner(made("sac-discrete", alpha=0.5, alpha_lr=0.1, target_entropy=wanted, lr=0.0))
    constant(it, "policy", [0.0, math.log(3.0)])  # H = 0.562, of at most ln 2 = 0.693: 81 %
    it.step(batch() | {"action": torch.ones(8, dtype=torch.int64)})
    assert it.tensors["log_alpha.value"].item() - math.log(0.5) == pytest.approx(sign * 0.1, abs=1e-4)


def test_illegal_actions_have_no_part_in_discrete_sac():
    it = learner(made("sac-discrete", MASKED, alpha=0.5, alpha_lr=0.1))
    constant(it, "q_target", [1.0, 1e6], [1.0, 1e6])
    constant(it, "policy", [0.0, 50.0])
    plain, mask = batch(), torch.tensor([[1, 0]] * 8, dtype=torch.int8)
    nested = {key: {"obs": plain[key], "action_mask": mask} for key in ("obs", "next_obs")}
    out = it.step(plain | nested | {"action": torch.zeros(8, dtype=torch.int64)})[0].metrics
    assert out["target_mean"] == pytest.approx(1.0 + 0.9 * 1.0)  # one legal action: its value, without entropy
    assert out["entropy"] == 0.0
    assert out["log_alpha/loss"] == 0.0  # H̄ = 0.98 · ln 1: nothing to wish for


@pytest.mark.parametrize(("subset", "expected"), [(1, {1.0, 2.0, 3.0}), (2, {1.0, 2.0}), (3, {1.0})])
def test_the_target_of_redq_is_the_smallest_of_a_random_subset(subset, expected):
    it = learner(made("redq", actions=ONE, subset=subset, lr=0.0, tau=1e-9, alpha=1e-9, tune_alpha=False))
    constant(it, "q_target", [1.0], [2.0], [3.0])
    found = [round(it.step(batch(reward=0.0, discount=1.0))[0].metrics["target_mean"], 4) for _ in range(90)]
    assert set(found) == expected
    if subset == 2:  # of the pairs 12, 13, 23 two contain the 1: 60 ± 4.5 of 90
        assert 42 <= found.count(1.0) <= 78


def test_learners_that_share_a_batch_draw_one_subset_also_with_as_many_rows_as_critics(monkeypatch):
    shapes, draw = [], Eager.uniform
    monkeypatch.setattr(Eager, "uniform", lambda self, *shape: shapes.append(shape) or draw(self, *shape))
    learner(made("redq", actions=ONE)).step(batch(rows=3))  # of three critics
    assert [row_axis(shape, rows=3, axis=0) for shape in shapes] == [None]


def test_all_critics_of_redq_learn_and_their_mean_judges_the_policy():
    it = learner(made("redq", actions=ONE, policy_every=1, lr=0.0, alpha=1e-9, tune_alpha=False))
    constant(it, "q", [1.0], [2.0], [6.0])
    constant(it, "q_target", [4.0], [4.0], [4.0])
    first, second = it.step(batch())
    y = 1.0 + 0.9 * 4.0  # 4.6
    assert first.metrics["q/loss"] == pytest.approx(0.5 * (3.6**2 + 2.6**2 + 1.4**2))
    assert first.arrays["priority"].tolist() == pytest.approx([(3.6 + 2.6 + 1.4) / 3] * 8)
    assert first.metrics["q_spread"] == pytest.approx(math.sqrt(14 / 3))  # of 1, 2, 6: (4 + 1 + 9) / 3
    assert first.metrics["target_mean"] == pytest.approx(y)
    assert second.metrics["policy/loss"] == pytest.approx(-3.0)


def test_the_target_of_tqc_leaves_out_the_largest_quantiles_of_all_critics():
    it = learner(made("tqc", actions=ONE, quantiles=3, drop=1, lr=0.0, alpha=1e-9, tune_alpha=False))
    constant(it, "q_target", [1.0, 9.0, 4.0], [8.0, 7.0, 2.0])  # left: 1 2 4 7
    constant(it, "q", [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    out = it.step(batch())[0]
    assert out.metrics["target_mean"] == pytest.approx(1.0 + 0.9 * 3.5)
    # targets 1.9, 2.8, 4.6, 7.3 are above 0 and 1, so |τ − 0| = τ with mean ½; huber = u − ½, but ½ 0.9² for 1.9 − 1
    zero = 0.5 * (1.4 + 2.3 + 4.1 + 6.8) / 4
    one = 0.5 * (0.405 + 1.3 + 3.1 + 5.8) / 4
    assert out.metrics["q/loss"] == pytest.approx(zero + one, rel=1e-5)
    assert out.arrays["priority"].tolist() == pytest.approx([4.15 - 0.5] * 8, rel=1e-5)
    assert out.metrics["policy/loss"] == pytest.approx(-0.5)


def test_crossq_judges_both_states_in_one_pass_and_only_the_first_learns():
    it = learner(made("crossq", actions=ONE, model=LINEAR, lr=0.0, alpha=1e-9, tune_alpha=False, renorm_momentum=0.5))
    for member in (0, 1):
        number(it, "q", f"members.{member}.head.weight", [[1.0, 0.0, 0.0, 0.0]])  # Q = the first feature, normalised
        number(it, "q", f"members.{member}.head.bias", [10.0 * member])
    rows = batch(reward=0.0, discount=1.0)
    rows["obs"][:, 0], rows["next_obs"][:, 0] = 2.0, 6.0
    out = it.step(rows)[0]
    # mean 4, variance 4 over both: −2 / √4.001 and +2 / √4.001 of the first critic, which is the smaller
    unit = 2.0 / math.sqrt(4.001)
    assert out.metrics["q_mean"] == pytest.approx(-unit)
    assert out.metrics["target_mean"] == pytest.approx(unit, abs=1e-6)
    assert out.metrics["q/loss"] == pytest.approx(0.5 * (2 * unit) ** 2 + 0.5 * (2 * unit - 10.0) ** 2, rel=1e-5)
    names = list(it.nets["q"].buffers)
    stats = dict(zip(names, it.nets["q"].stat_views(it.nets["q"].stats)))
    mean = next(stats[name] for name in names if name.endswith("mean"))
    assert mean[0].item() == pytest.approx(2.0)  # half of 4


def test_the_statistics_of_crossq_are_in_its_state():
    one, two = learner(made("crossq")), learner(made("crossq"), seed=5)
    for i in range(3):
        one.step(replay_batch(i, "box"))
    two.restore(one.state())
    assert one.tensors["q.stats"].abs().sum() > 0
    for key in ("q.stats", "policy.stats"):
        assert torch.equal(one.tensors[key], two.tensors[key])
    assert "q_target.value" not in one.tensors


def test_acting_with_crossq_does_not_move_its_statistics():
    it = learner(made("crossq"))
    before = it.tensors["policy.stats"].clone()
    it.algo.outputs(it.eager, torch.randn(5, 3), None, None)
    assert torch.equal(it.tensors["policy.stats"], before)


@pytest.mark.parametrize("model", [{"layers": [{"type": "linear", "size": 4}]}])
def test_crossq_without_renormalisation_is_refused(model):
    with pytest.raises(ConfigError, match=r"needs batch renormalisation, but model\.layers .* or use sac"):
        learner(made("crossq", model=ModelConfig(**model)))


def test_crossq_takes_layers_that_renormalise_and_wider_critics():
    layers = [{"type": "batch_renorm"}, {"type": "linear", "size": 4}]
    networks = made("crossq", model=ModelConfig(layers=layers)).networks()
    assert sum(isinstance(part, BatchRenorm) for part in networks["q"].modules()) == 2
    networks = made("crossq", critic_hidden=(9, 9), renorm_policy=False).networks()
    assert networks["q"].members[0].head.in_features == 9
    assert networks["policy"].head.in_features == 16
    assert not any(isinstance(part, BatchRenorm) for part in networks["policy"].modules())


# --- what all have in common ---


@pytest.mark.parametrize("name", CONTINUOUS)
def test_actions_of_any_shape_are_learnt_and_handed_out_in_that_shape(name):
    it = learner(made(name, actions=SHAPED))
    rows = replay_batch(0, "box") | {"action": torch.rand(8, 2, 2)}
    assert it.step(rows)[0].arrays["priority"].shape == (8,)
    out, _ = it.algo.outputs(it.eager, rows["obs"], None, None)
    arrays = {key: value.detach().numpy() for key, value in out.items()}
    for greedy in (True, False):
        rng, knobs = np.random.default_rng(0), {"noise": 0.1, "random": 0.0}
        acted = it.algo.rule()(arrays, rng, knobs, None, greedy)["action"]
        assert acted.shape == (8, 2, 2)
        assert np.abs(acted).max() <= 1.0


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_first_steps_are_uniform_and_the_later_ones_are_not(name):
    knobs = made(name, warmup=100).knobs()
    assert [knobs["random"].at(step) for step in (0, 99, 100, 1_000)] == [1.0, 1.0, 0.0, 0.0]
    assert made(name, warmup=0).knobs()["random"].at(0) == 0.0


@pytest.mark.parametrize("name", [*CONTINUOUS, "sac-discrete"])
def test_dict_observations_and_normalisation_are_understood(name):
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)})
    it = learner(made(name, spec_of(space), model=ModelConfig(hidden=(8,), normalise_obs=True)))
    rows = replay_batch(0, "discrete" if name == "sac-discrete" else "box")
    seen = {"a": torch.randn(8, 2), "b": torch.arange(8) % 3}
    it.observe(seen)
    out = it.step(rows | {"obs": seen, "next_obs": seen})[0].metrics
    assert all(math.isfinite(value) for value in out.values())


@pytest.mark.parametrize("name", [*CONTINUOUS, "sac-discrete"])
def test_the_metrics_of_the_updates_are_those_of_the_table(name):
    it = learner(made(name))
    seen = set()
    for i in range(2):
        for out in it.step(replay_batch(i, "discrete" if name == "sac-discrete" else "box")):
            seen |= set(out.names)
    assert seen == set(it.algo.metrics)


def test_ddpg_explores_with_the_noise_that_was_asked_for():
    assert isinstance(made("ddpg").rule(), GaussianNoise)
    rule = made("ddpg", noise_kind="ornstein_uhlenbeck", theta=0.3).rule()
    assert isinstance(rule, OrnsteinUhlenbeck)
    assert rule.theta == 0.3


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ddpg", {"theta": 0.3}, "algo.theta=0.3 would be ignored: set algo.noise_kind=ornstein_uhlenbeck"),
        ("redq", {"critics": 2, "subset": 3}, "algo.subset=3 must not be larger than algo.critics=2"),
        ("tqc", {"quantiles": 4, "drop": 4}, "algo.drop=4 must be smaller than algo.quantiles=4"),
        ("td3", {"noise": -0.1}, "algo.noise: expected values that are not negative"),
        ("crossq", {"log_std_min": 3.0}, "algo.log_std_min=3.0 must be below algo.log_std_max=2.0"),
        ("crossq", {"tau": 0.1}, "tau"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, words):
    with pytest.raises(ValidationError) as error:
        made(name, **options)
    assert words in str(error.value)


# --- one definition, two executions ---

CASES = {
    "ddpg": lambda: made("ddpg"),
    "td3": lambda: made("td3", policy_every=1),
    "sac-discrete": lambda: made("sac-discrete", target_entropy=0.5),
    "redq": lambda: made("redq", policy_every=1),
    "tqc": lambda: made("tqc"),
    "crossq": lambda: made("crossq", policy_every=1),
}


def rows_of(name, seed):
    return replay_batch(seed, "discrete" if name == "sac-discrete" else "box")


def by_trace(it, name, batch):
    """The update as the compiler would see it, executed without a compiler: all named tensors afterwards."""
    graph, inputs, found = trace(it, name, batch)
    for i, (kind, shape) in enumerate(found["noise"]):
        draw = torch.randn if kind == "normal" else torch.rand
        inputs[f"noise{i}"].copy_(draw(tuple(shape), generator=it.generator))
    graph(*inputs.values())
    return inputs


@pytest.mark.slow  # a trace takes seconds; the fast part has that of DQN
@pytest.mark.parametrize("name", CASES)
def test_the_traced_update_equals_the_eager_one(name):
    eager, traced = learner(CASES[name]()), learner(CASES[name]())
    for i in range(3):  # moments, targets and statistics that are not fresh
        eager.step(rows_of(name, i))
    traced.restore(eager.state())
    traced.generator.set_state(eager.generator.get_state())
    batch = rows_of(name, 7)
    for update in eager.algo.schedule:
        after = by_trace(traced, update, batch)
        eager.run(update, batch)
        changed = 0
        for key in set(after) & set(eager.tensors):
            changed += not torch.equal(after[key], traced.tensors[key])
            assert far(after[key], eager.tensors[key]) < 1e-5 or torch.equal(after[key], eager.tensors[key]), (
                update,
                key,
            )
            traced.tensors[key].copy_(after[key])
        assert changed >= 3  # value and both moments at least


@pytest.mark.matrix  # ten builds; what is built is compared above
@pytest.mark.parametrize("name", CASES)
def test_gradient_and_parameters_agree_at_fifty_states_of_an_eager_run(name, artefacts):
    eager, compiled = learner(CASES[name]()), learner(CASES[name](), "compiled", artefacts)
    for i in range(50):
        batch = rows_of(name, i)
        compiled.restore(eager.state())
        compiled.generator.set_state(eager.generator.get_state())
        before = {key: tensor.clone() for key, tensor in eager.tensors.items()}
        ours, theirs = eager.step(batch), compiled.step(batch)
        assert set(compiled.compiled) == set(eager.algo.schedule)
        if name != "crossq":  # whose Adam has another memory
            wanted, got = gradients(eager.tensors, before), gradients(compiled.tensors, before)
            assert all(gradient.norm() > 0 and far(got[net], gradient) < 1e-5 for net, gradient in wanted.items()), i
        for key, tensor in eager.tensors.items():
            assert far(compiled.tensors[key], tensor) < 1e-5 or torch.equal(tensor, compiled.tensors[key]), (i, key)
        for mine, other in zip(ours, theirs, strict=True):
            assert other.metrics == pytest.approx(mine.metrics, rel=1e-3, abs=1e-4)
        assert not torch.equal(before["policy.value"], eager.tensors["policy.value"])
