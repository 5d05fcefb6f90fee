"""The cousins of DQN: numbers worked out by hand, and every update can be traced."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError

from algos.test_updates import MASKED, OBS, SMALL, TWO, learner, replay_batch, rollout
from rookery.algos.c51 import C51, C51Config
from rookery.algos.fqf import FQF, FQFConfig
from rookery.algos.iqn import IQN, IQNConfig
from rookery.algos.mdqn import MDQN, MDQNConfig
from rookery.algos.pqn import PQN, PQNConfig
from rookery.algos.qrdqn import QRDQN, QRDQNConfig
from rookery.algos.rainbow import Rainbow, RainbowConfig
from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.learning.compiled.build import trace
from rookery.nets import ModelConfig
from rookery.nets.distributional import AtomNetwork, Fractions, QuantileFunction
from rookery.run.config.resolve import load_config
from selection import slow_but


def constant(it, **heads):
    """Networks whose outputs are their last bias."""
    for name, head in heads.items():
        value, bias = it.nets[name].value, torch.tensor(head).flatten()
        value.zero_()
        value[-len(bias) :] = bias


def plain(seed=0, **changes):
    """Eight samples of action 0 with reward 1, discount ½, weight 1."""
    batch = replay_batch(seed, "discrete")
    same = {"reward": torch.ones(8), "discount": torch.full((8,), 0.5), "weight": torch.ones(8)}
    return batch | same | {"action": torch.zeros(8, dtype=torch.int64)} | changes


SURE = 50.0  # a logit that leaves nothing to the others


@pytest.mark.parametrize(("double", "wanted"), [(False, [0.0, 0.0, 1.0]), (True, [0.0, 0.5, 0.5])])
def test_the_target_of_c51_by_hand(double, wanted):
    """Atoms 0, 1, 2. Target network: action 0 is surely worth 1, action 1 surely 2; the
    online network prefers action 0.

    Action 1: 1 + ½ · 2 = 2, an atom. Action 0: 1 + ½ · 1 = 1.5, half to 1, half to 2.
    """
    it = learner(C51(C51Config(atoms=3, v_min=0.0, v_max=2.0, double=double), OBS, TWO, SMALL))
    constant(it, q=[[0.0, 0.0, 0.0], [SURE, 0.0, 0.0]], q_target=[[0.0, SURE, 0.0], [0.0, 0.0, SURE]])
    out = it.step(plain())[0]
    # log p = −log 3 of action 0, and the entropy of the target comes off
    divergence = math.log(3.0) + sum(m * math.log(m) for m in wanted if m)
    assert out.metrics["q/loss"] == pytest.approx(divergence, abs=1e-5)
    assert out.arrays["priority"].tolist() == pytest.approx([divergence] * 8, abs=1e-5)
    assert out.metrics["target_mean"] == pytest.approx(wanted[1] + 2 * wanted[2], abs=1e-5)
    assert out.metrics["q_mean"] == pytest.approx(1.0)
    assert out.metrics["edge_mass"] == pytest.approx(wanted[0] + wanted[2], abs=1e-5)


def test_a_divergence_that_is_zero_but_for_rounding_is_no_negative_priority():
    """Reward 0, discount 1, next_obs = obs, one action: the target is the prediction itself, Σ
    p log p − Σ p log p = ±1e-8."""
    it = learner(C51(C51Config(v_min=0.0, v_max=50.0), OBS, spec_of(spaces.Discrete(1)), SMALL))
    lows = []
    for seed in range(20):
        batch = plain(seed, reward=torch.zeros(8), discount=torch.ones(8))
        out = it.step(batch | {"next_obs": batch["obs"]})[0]
        lows.append(out.arrays["priority"].min().item())
        it.nets["q_target"].value.copy_(it.nets["q"].value)
    assert min(lows) == 0.0


@pytest.mark.parametrize(("double", "target"), [(False, [1.0, 3.0]), (True, [1.5, 1.5])])
def test_the_target_of_qrdqn_by_hand(double, target):
    """Target quantiles: action 0: 1, 1; action 1: 0, 4 (better in the mean). Online quantiles of action 0: 0, 2."""
    it = learner(QRDQN(QRDQNConfig(quantiles=2, double=double), OBS, TWO, SMALL))
    constant(it, q=[[0.0, 2.0], [-1.0, -1.0]], q_target=[[1.0, 1.0], [0.0, 4.0]])
    out = it.step(plain())[0]
    huber = lambda u: 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5  # noqa: E731
    loss = sum(
        abs(tau - (y < theta)) * huber(y - theta) / 2 for theta, tau in ((0.0, 0.25), (2.0, 0.75)) for y in target
    )
    assert out.arrays["priority"].tolist() == pytest.approx([loss] * 8)
    assert out.metrics["q/loss"] == pytest.approx(loss)
    assert out.metrics["target_mean"] == pytest.approx(sum(target) / 2)
    assert out.metrics["td_abs"] == pytest.approx(abs(sum(target) / 2 - 1.0))


def test_the_target_and_loss_of_iqn_by_hand():
    """All quantiles of an action are equal: only the drawn τ enter the loss, and they can be drawn again."""
    it = learner(IQN(IQNConfig(samples=3, target_samples=2, acting_samples=4, cosines=5), OBS, TWO, SMALL))
    constant(it, q=[0.0, 9.0], q_target=[1.0, 3.0])
    generator = torch.Generator()
    generator.set_state(it.generator.get_state())
    tau = torch.rand(8, 3, generator=generator)
    out = it.step(plain())[0]
    # y = 1 + ½ · 3 = 2.5 > 0: slope τ, huber 2.5 − ½ = 2
    assert out.metrics["target_mean"] == pytest.approx(2.5)
    assert out.arrays["priority"].tolist() == pytest.approx((2.0 * tau).sum(-1).tolist(), rel=1e-5)
    assert out.metrics["q/loss"] == pytest.approx((2.0 * tau).sum(-1).mean().item(), rel=1e-5)


def test_fractions_become_a_quantile_function_by_hand():
    net = QuantileFunction(OBS, 1, 2, ModelConfig(hidden=()))
    with torch.no_grad():
        net.embedding.weight[:] = torch.tensor([[1.0, 1.0]] * 3)  # cos 0 + cos πτ, for each of three features
        net.embedding.bias.zero_()
        net.head.weight.fill_(1.0)
        net.head.bias.fill_(0.5)
        found = net(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.5, 1.0]]))
    # φ = 2, 1, 0; Z = (1 + 2 + 3) φ + ½
    assert found.tolist()[0][0] == pytest.approx([12.5, 6.5, 0.5], abs=1e-5)


@pytest.mark.parametrize(("risk", "action"), [("neutral", 1), ("cvar", 0)])
def test_a_policy_that_avoids_risk_takes_the_safe_action(risk, action):
    """ψ = 1, φ(τ) = relu(−cos πτ) grows over the upper half. Action 0 is always worth 0.2, action 1
    that growth: mean 1/π = 0.32, but
    nothing in the worst quarter.
    """
    algo = IQN(IQNConfig(risk=risk, cosines=2), OBS, TWO, ModelConfig(hidden=()))
    it = learner(algo)
    net = it.nets["q"].module
    with torch.no_grad():
        it.nets["q"].value.zero_()
        net.embedding.weight[0, 1] = -1.0
        net.head.weight[1, 0] = 1.0
        net.head.bias[0] = 0.2
        q = algo.outputs(it.eager, torch.ones(1, 3), None, None)[0]["q"]
    assert q[0, 0].item() == pytest.approx(0.2)
    assert q[0, 1].item() == pytest.approx(1 / math.pi if risk == "neutral" else 0.0, abs=1e-3)
    assert q.argmax(-1).tolist() == [action]


def test_the_fractions_of_fqf_by_hand():
    net = Fractions(2, 3)
    with torch.no_grad():
        net.propose.weight.zero_()
        net.propose.bias[:] = torch.tensor([2.0, 5.0, 3.0]).log()
        log_p, tau, middle = net(torch.randn(4, 2))
    assert log_p[0].exp().tolist() == pytest.approx([0.2, 0.5, 0.3])
    assert tau[0].tolist() == pytest.approx([0.0, 0.2, 0.7, 1.0])
    assert middle[3].tolist() == pytest.approx([0.1, 0.45, 0.85])


def test_the_fraction_network_gets_the_explicit_gradient():
    """θ(τ) = 1 − relu(cos πτ), one inner fraction τ₁ = 0.2: dW₁/dτ₁ = 2 θ(0.2) − θ(0.6) − θ(0.1) = −2
    cos 36° + 0 + cos 18° + 1 − 1.

    L_P = τ₁ · that; RMSprop moves the logit of p₁ = τ₁ against p₁ (1 − p₁) times it.
    """
    algo = FQF(FQFConfig(fractions=2, cosines=2, fraction_lr=0.1), OBS, TWO, ModelConfig(hidden=()))
    it = learner(algo)
    q, fraction = it.nets["q"].module, it.nets["fraction"].module
    with torch.no_grad():
        it.nets["q"].value.zero_()
        q.embedding.weight[0, 1] = 1.0
        q.head.weight[:, 0] = -1.0
        q.head.bias[:] = 1.0
        it.nets["fraction"].value.zero_()
        fraction.propose.bias[:] = torch.tensor([0.2, 0.8]).log()
    out = it.step(plain(obs=torch.ones(8, 3), next_obs=torch.ones(8, 3)))[0]
    cos = lambda degrees: math.cos(math.radians(degrees))  # noqa: E731
    slope = 2 * (1 - cos(36)) - 1.0 - (1 - cos(18))
    assert out.metrics["fraction/loss"] == pytest.approx(0.2 * slope, abs=1e-5)
    gradient = (
        0.16 * slope
    )  # of the first logit; the second has its negative, and so have the weights of three inputs of 1
    assert out.metrics["fraction/grad_norm"] == pytest.approx(abs(gradient) * math.sqrt(8), rel=1e-4)
    step = 0.1 * gradient / (math.sqrt(0.05) * abs(gradient) + 1e-5)
    assert fraction.propose.bias[0].item() == pytest.approx(math.log(0.2) - step, abs=1e-4)
    assert out.metrics["fraction_entropy"] == pytest.approx(-0.2 * math.log(0.2) - 0.8 * math.log(0.8), abs=1e-5)


def test_the_target_of_fqf_by_hand():
    """All quantiles of an action are equal: y = 1 + ½ · 3; τ̂ = ¼, ¾; slopes τ̂, huber 2.5 − ½."""
    it = learner(FQF(FQFConfig(fractions=2, cosines=3), OBS, TWO, SMALL))
    constant(it, q=[0.0, 9.0], q_target=[1.0, 3.0], fraction=[0.0, 0.0])
    out = it.step(plain())[0]
    assert out.metrics["target_mean"] == pytest.approx(2.5)
    assert out.arrays["priority"].tolist() == pytest.approx([2.0] * 8)


def test_the_target_of_munchausen_dqn_by_hand():
    """Q' = (0, ½ log 3), τ = ½: π = (1, 3) / 4. Bonus of action 0: 0.9 · ½ log ¼; soft value: ½ log(1 + 3)."""
    it = learner(MDQN(MDQNConfig(temperature=0.5, floor=-1.0), OBS, TWO, SMALL))
    constant(it, q=[1.0, 7.0], q_target=[0.0, 0.5 * math.log(3.0)])
    out = it.step(plain())[0]
    bonus = 0.9 * 0.5 * math.log(0.25)
    y = 1.0 + bonus + 0.5 * 0.5 * math.log(4.0)
    assert out.metrics["bonus_mean"] == pytest.approx(bonus, abs=1e-6)
    assert out.metrics["target_mean"] == pytest.approx(y, abs=1e-6)
    assert out.arrays["priority"].tolist() == pytest.approx([abs(y - 1.0)] * 8, abs=1e-6)


def test_the_target_of_pqn_by_hand():
    """V = 2 everywhere, γ = ½, λ = ½: three rows of one env, of which the second is truncated.

    Row 2 (last): 1 + ½ · 2 = 2. Row 1 (truncated): the same, from its own successor. Row 0: 1 + ½ (½
    · 2 + ½ · 2) = 2; with rewards
    4, 8, 1: row 1: 8 + 1 = 9; row 0: 4 + ½ (1 + 4.5) = 6.75.
    """
    it = learner(PQN(PQNConfig(gamma=0.5, lam=0.5), OBS, TWO, SMALL))
    constant(it, q=[2.0, -1.0])
    flag = lambda *at: torch.tensor([[i in at] for i in range(3)])  # noqa: E731
    batch = {
        "obs": torch.zeros(3, 1, 3), "last_obs": torch.zeros(1, 3), "final_obs": torch.ones(1, 3),
        "final_at": torch.tensor([[1, 0]]),
        "reward": torch.tensor([[4.0], [8.0], [1.0]]), "action": torch.tensor([[0], [1], [0]]), "valid": flag(0, 1, 2),
        "terminated": flag(), "truncated": flag(1),
    }  # fmt: skip
    rows = it.prepare(batch)
    assert rows["target"].tolist() == pytest.approx([6.75, 9.0, 2.0])
    out = it.step(rows)[0].metrics
    assert out["q/loss"] == pytest.approx(0.5 * (4.75**2 + 10.0**2 + 0.0) / 3)
    assert out["td_abs"] == pytest.approx((4.75 + 10.0) / 3)
    again = it.prepare(batch | {"terminated": flag(1), "truncated": flag()})
    assert again["target"].tolist()[1] == pytest.approx(8.0)  # an end does not bootstrap


def test_holes_of_a_rollout_are_not_learnt_by_pqn():
    algo = PQN(PQNConfig(), OBS, TWO, SMALL)
    batch, one, two = rollout(3, TWO), learner(algo), learner(algo)
    assert not batch["valid"].all()
    changed = batch | {"reward": torch.where(batch["valid"], batch["reward"], 1e6)}
    assert one.step(one.prepare(batch))[0].metrics == two.step(two.prepare(changed))[0].metrics


def test_dueling_atoms_by_hand():
    """Two numbers per action: V = (1, 2), A = (3, 0) and (5, 4), whose mean (4, 2) comes off."""
    net = AtomNetwork(OBS, 2, 2, ModelConfig(hidden=()), dueling=True)
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.bias[:] = torch.tensor([1.0, 2.0, 3.0, 0.0, 5.0, 4.0])
        assert net(torch.zeros(1, 3)).tolist() == [[[0.0, 0.0], [2.0, 4.0]]]


REPLAYED = {
    "c51": lambda **o: C51(C51Config(atoms=7, **o), OBS, TWO, SMALL),
    "rainbow": lambda **o: Rainbow(RainbowConfig(atoms=7, **o), OBS, TWO, SMALL),
    "qrdqn": lambda **o: QRDQN(QRDQNConfig(quantiles=5, **o), OBS, TWO, SMALL),
    "iqn": lambda **o: IQN(
        IQNConfig(samples=4, target_samples=3, acting_samples=5, cosines=6, risk="wang", **o), OBS, TWO, SMALL
    ),
    "fqf": lambda **o: FQF(FQFConfig(fractions=4, cosines=6, fraction_lr=1e-4, **o), OBS, TWO, SMALL),
    "mdqn": lambda **o: MDQN(MDQNConfig(**o), OBS, TWO, SMALL),
}
CASES = {name: (make, lambda i: replay_batch(i, "discrete")) for name, make in REPLAYED.items()} | {
    "pqn": (lambda: PQN(PQNConfig(), OBS, TWO, ModelConfig(hidden=(16,), layer_norm=True)), lambda i: rollout(i, TWO)),
}


@pytest.mark.parametrize("name", slow_but(CASES, "c51"))
def test_every_update_can_be_traced(name):
    it = learner(CASES[name][0]())
    graph, _, found = trace(it, "update", it.prepare(CASES[name][1](0)))
    assert len(list(graph.graph.nodes)) > 10
    assert len(found["noise"]) == (2 if name == "iqn" else 0)


@pytest.mark.parametrize("name", REPLAYED)
def test_the_weights_of_prioritised_replay_reach_the_loss_and_every_sample_has_a_priority(name):
    batch = replay_batch(0, "discrete")
    half = learner(REPLAYED[name]()).step(batch | {"weight": torch.full((8,), 0.5)})[0]
    whole = learner(REPLAYED[name]()).step(batch | {"weight": torch.ones(8)})[0]
    assert half.metrics["q/loss"] == pytest.approx(0.5 * whole.metrics["q/loss"])
    assert half.arrays["priority"].tolist() == pytest.approx(whole.arrays["priority"].tolist())
    assert whole.arrays["priority"].shape == (8,)
    assert (whole.arrays["priority"] >= 0).all()


DOUBLE = [name for name in REPLAYED if name != "mdqn"]


OPTIONS = [(n, {"double": True}) for n in DOUBLE] + [(n, {"dueling": True, "noisy": True}) for n in REPLAYED]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_double_dueling_and_noisy_updates_can_be_traced(name, options):
    it = learner(REPLAYED[name](**options))
    it.resample()
    out = it.step(replay_batch(0, "discrete"))[0]
    assert all(math.isfinite(x) for x in out.metrics.values())
    trace(it, "update", replay_batch(0, "discrete"))


@pytest.mark.parametrize("name", REPLAYED)
def test_an_illegal_action_is_not_chosen_for_the_bootstrap(name):
    """Action 0 would be worth more, and is illegal: the target is the same as if it were worth nothing."""
    make = {"c51": C51, "rainbow": Rainbow, "qrdqn": QRDQN, "iqn": IQN, "fqf": FQF, "mdqn": MDQN}[name]
    options = {
        "c51": {"atoms": 3},
        "rainbow": {"atoms": 3, "dueling": False, "noisy": False},
        "qrdqn": {"quantiles": 2},
    }
    found = []
    for better in (0.0, SURE):
        it = learner(make(make.Config(**options.get(name, {})), MASKED, TWO, SMALL))
        heads = {
            "c51": [[0.0, 0.0, better], [0.0, SURE, 0.0]], "rainbow": [[0.0, 0.0, better], [0.0, SURE, 0.0]],
            "qrdqn": [[better, better], [1.0, 1.0]],
        }.get(name, [better, 1.0])  # fmt: skip
        constant(it, q=heads, q_target=heads)
        mask = torch.tensor([[0, 1]] * 8, dtype=torch.int8)
        batch = plain(action=torch.ones(8, dtype=torch.int64))
        nested = {key: {"obs": batch[key], "action_mask": mask} for key in ("obs", "next_obs")}
        found.append(it.step(batch | nested)[0].metrics["target_mean"])
    wanted = (
        1.0 if name in ("c51", "rainbow") else 1.5
    )  # 1 + ½ · 0 or 1 + ½ · 1; without a choice Munchausen adds nothing
    assert found == pytest.approx([wanted] * 2, abs=1e-4)


def test_nested_observations_reach_distributions():
    parts = spec_of(spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)}))
    obs = {"a": torch.randn(8, 2), "b": torch.randint(0, 3, (8,))}
    for make, config in (
        (C51, C51Config()),
        (IQN, IQNConfig(samples=4, target_samples=4)),
        (FQF, FQFConfig(fractions=4)),
    ):
        it = learner(make(config, parts, TWO, SMALL))
        assert math.isfinite(it.step(plain() | {"obs": obs, "next_obs": obs})[0].metrics["q/loss"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: C51Config(v_min=3.0, v_max=3.0), "algo.v_min=3 must be below algo.v_max=3"),
        (lambda: IQNConfig(risk_eta=0.5), "algo.risk_eta=0.5 would be ignored: algo.risk=neutral has no parameter"),
        (lambda: IQNConfig(risk="cvar", risk_eta=1.5), "algo.risk_eta=1.5: algo.risk=cvar needs 0 < η ≤ 1"),
        (lambda: IQNConfig(risk="cpw", risk_eta=-1.0), "algo.risk_eta=-1: algo.risk=cpw needs η > 0"),
        (
            lambda: ModelConfig(layer_norm=True, layers=[{"type": "linear", "size": 4}]),
            "model.layer_norm belongs to hidden",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(make, words):
    with pytest.raises(ValidationError) as error:
        make()
    assert words in str(error.value)


def test_priorities_of_two_kinds_are_not_mixed():
    words = ["store.priority={initial: actor}", "train.max_steps=2000"]
    with pytest.raises(
        ConfigError, match=r"store\.priority\.initial=actor gives new steps their TD error, but algo\.name=c51"
    ):
        load_config(algo="c51", env="CartPole-v1", overrides=words)
    load_config(algo="mdqn", env="CartPole-v1", overrides=words)  # its priorities are TD errors


def test_minibatches_of_pqn_must_be_equal():
    with pytest.raises(ConfigError, match=r"algo\.minibatches=7 must divide .* = 1024 into equal parts"):
        load_config(algo="pqn", env="CartPole-v1", overrides=["algo.minibatches=7", "train.max_steps=4096"])


def test_rainbow_is_c51_with_everything_on():
    config = load_config(algo="rainbow", env="CartPole-v1", overrides=["train.max_steps=4096"])
    c = config.algo
    assert (c.double, c.dueling, c.noisy, c.n_step, c.epsilon.start) == (True, True, True, 3, 0.0)
    assert config.store.priority.alpha == 0.5
    assert load_config(algo="rainbow", env="CartPole-v1", overrides=["algo.noisy=false"]).algo.epsilon.start == 1.0
