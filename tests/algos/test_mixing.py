"""VDN and QMIX: numbers worked out by hand, members that are not there, memories; MAPPO's critic and its scale."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from algos.team_batches import CHOICES, replay_rows, seen_by, team_sequences
from algos.test_updates import learner
from rookery.acting.rules import EpsilonGreedy, EpsilonGreedyParts
from rookery.algos.qmix import QMIX, QMIXConfig
from rookery.algos.vdn import VDN, VDNConfig
from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.core.team import Team
from rookery.learning.compiled.build import trace
from rookery.nets import ModelConfig
from rookery.nets.heads import QNetwork
from rookery.nets.normalise import Scale
from rookery.nets.teams import Members, Monotone
from rookery.run.config.resolve import load_config

LINEAR = ModelConfig(hidden=())
REMEMBERS = ModelConfig(hidden=(4,), core={"kind": "gru", "size": 3})
MASKED = seen_by(mask=True)


def mixed(kind=QMIX, model=None, **options):
    config = {QMIX: QMIXConfig, VDN: VDNConfig}[kind]
    tiny = {"sequence": 3, "overlap": 1, "burn_in": 2} | ({"embed": 4, "hyper": 8} if kind is QMIX else {}) | options
    return kind(config(**tiny), MASKED, CHOICES, model or ModelConfig(hidden=(8,)))


def steps(i):
    return replay_rows(i, MASKED, CHOICES)


def recalled(i):
    return team_sequences(i, MASKED, CHOICES, mixed(model=REMEMBERS).memory())


CASES = {
    "vdn": (lambda: mixed(VDN, n_step=2), steps),
    "vdn-normalised": (lambda: mixed(VDN, ModelConfig(hidden=(8,), normalise_obs=True)), steps),
    "vdn-gru": (lambda: mixed(VDN, REMEMBERS, dueling=True), recalled),
    "qmix": (lambda: mixed(shared=False), steps),
    "qmix-gru": (lambda: mixed(model=REMEMBERS), recalled),
    "qmix-optimistic": (lambda: mixed(weighting="optimistic"), steps),
    "qmix-central": (lambda: mixed(weighting="central"), steps),
    "qmix-central-gru": (lambda: mixed(model=REMEMBERS, weighting="central"), recalled),
}


def specs(members=2, choices=(2, 2), mask=False):
    parts = {"agents": spaces.Box(-9, 9, (members, 3)), "present": spaces.MultiBinary(members)}
    parts |= {"world": spaces.Box(-9, 9, (2,))}
    parts |= {"action_mask": spaces.MultiBinary(sum(choices))} if mask else {}
    return spec_of(spaces.Dict(parts)), spec_of(spaces.MultiDiscrete(choices))


def made(kind, config, model=LINEAR, **shape):
    return learner(kind(config, *specs(**shape), model))


def team_obs(rows=4, seed=0, members=2, mask=None):
    g = torch.Generator().manual_seed(seed)
    obs = {"agents": torch.randn(rows, members, 3, generator=g), "present": torch.ones(rows, members, dtype=torch.int8)}
    obs |= {"world": torch.randn(rows, 2, generator=g)}
    return obs | ({} if mask is None else {"action_mask": torch.tensor(mask, dtype=torch.int8).repeat(rows, 1)})


def batch(rows=4, action=(0, 1), **changes):
    same = {
        "obs": team_obs(rows, mask=changes.pop("mask", None)),
        "next_obs": team_obs(rows, 1, mask=changes.pop("next_mask", None)),
    }
    same |= {"action": torch.tensor(action).repeat(rows, 1), "reward": torch.ones(rows), "weight": torch.ones(rows)}
    return same | {"discount": torch.full((rows,), 0.9)} | changes


def constant(it, name, values):
    """Every member's Q are these numbers, whatever it sees."""
    module = it.nets[name].module
    value = it.nets[name].value
    value.zero_()
    heads = [p for n, p in zip(it.nets[name].params, it.nets[name].views(value)) if n.endswith("head.bias")]
    assert heads
    for bias in heads:
        bias.copy_(torch.tensor(values))
    return module


def test_the_target_of_vdn_by_hand():
    """Q_i = [1, 2] of both members. Q_tot(0, 1) = 1 + 2 = 3; y = 1 + 0.9 (2 + 2) = 4.6; L = ½ · 1.6² = 1.28."""
    it = made(VDN, VDNConfig())
    for name in ("team", "team_target"):
        constant(it, name, [1.0, 2.0])
    out = it.step(batch())[0]
    assert out.metrics["q_mean"] == pytest.approx(3.0)
    assert out.metrics["target_mean"] == pytest.approx(4.6)
    assert out.metrics["team/loss"] == pytest.approx(1.28)
    assert out.arrays["priority"].tolist() == pytest.approx([1.6] * 4)


def test_members_that_are_not_present_count_nothing():
    """Only the first acts: Q_tot = 1. Only the second is there afterwards: y = 1 + 0.9 · 2 = 2.8."""
    it = made(VDN, VDNConfig())
    for name in ("team", "team_target"):
        constant(it, name, [1.0, 2.0])
    rows = batch()
    rows["obs"]["present"][:, 1] = 0
    rows["next_obs"]["present"][:, 0] = 0
    out = it.step(rows)[0]
    assert (out.metrics["q_mean"], out.metrics["target_mean"]) == (pytest.approx(1.0), pytest.approx(2.8))


def test_masks_of_every_member_count_in_the_target():
    """The first may only do 0 then: y = 1 + 0.9 (1 + 2) = 3.7."""
    it = made(VDN, VDNConfig(), mask=True)
    for name in ("team", "team_target"):
        constant(it, name, [1.0, 2.0])
    out = it.step(batch(mask=[1, 1, 1, 1], next_mask=[1, 0, 1, 1]))[0]
    assert out.metrics["target_mean"] == pytest.approx(3.7)


@pytest.mark.parametrize(("double", "target"), [(True, 1.0 + 0.9 * (5.0 + 5.0)), (False, 1.0 + 0.9 * (7.0 + 7.0))])
def test_double_chooses_with_one_network_and_judges_with_the_other(double, target):
    """Online prefers action 1, which the target judges 5; the target's own best is 7."""
    it = made(VDN, VDNConfig(double=double))
    constant(it, "team", [1.0, 2.0])
    constant(it, "team_target", [7.0, 5.0])
    assert it.step(batch())[0].metrics["target_mean"] == pytest.approx(target)


def test_own_numbers_of_actions_are_kept():
    """Two and three choices: the best of the first are its first two. Q = [1, 2, 9]: y = 1 + 0.9 (2 + 9)."""
    it = made(VDN, VDNConfig(), choices=(2, 3))
    for name in ("team", "team_target"):
        constant(it, name, [1.0, 2.0, 9.0])
    assert it.step(batch())[0].metrics["target_mean"] == pytest.approx(1.0 + 0.9 * 11.0)


def test_the_monotone_mixer_by_hand():
    """W₁ = |−1|, b₁ = 0, w₂ = |2|, b₂ = ½, whatever the world: 2 elu(1 + 2) + ½ = 6.5, and 2 (e⁻³ − 1) + ½ at −3."""
    mixer = Monotone(2, 2, embed=1, hidden=4)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.zero_()
        for layer, bias in ((mixer.weight_1, -1.0), (mixer.weight_2, 2.0), (mixer.bias_2, 0.5)):
            layer[-1].bias.fill_(bias)
        world = torch.randn(1, 2)
        assert mixer(torch.tensor([[1.0, 2.0]]), world).item() == pytest.approx(6.5)
        assert mixer(torch.tensor([[-1.0, -2.0]]), world).item() == pytest.approx(2 * (np.exp(-3) - 1) + 0.5, abs=1e-6)


def test_the_mixed_value_never_falls_when_a_members_rises():
    torch.manual_seed(0)
    for _ in range(50):
        mixer = Monotone(3, 5, embed=8, hidden=16)
        q = torch.randn(64, 3, requires_grad=True)
        (slope,) = torch.autograd.grad(mixer(q, 3 * torch.randn(64, 5)).sum(), q)
        assert (slope >= 0).all()
        assert (slope > 0).any()


@pytest.mark.parametrize(
    ("weighting", "action", "counts"),
    [
        ("optimistic", (0, 1), 1.0),  # Q_tot = 3 < y
        ("optimistic", (1, 1), 0.25),  # Q_tot = 60 > y
        ("central", (1, 1), 1.0),  # what the team would do
        ("central", (0, 1), 0.25),  # it would not, and y = 1.9 is below Q* = 4 of what it would do
    ],
)
def test_rows_of_weighted_qmix_count_by_hand(weighting, action, counts, monkeypatch):
    """Sums as mixers; Q_i = [1, 2] (or [30, 30]) of the team, [½, 2] of the central value, [½, ½] of its target:
    y = 1 + 0.9 · 1 = 1.9, Q* of the best = 4."""
    from rookery.nets.teams import Sum

    monkeypatch.setattr("rookery.algos.qmix.Monotone", lambda *a: Sum())
    monkeypatch.setattr("rookery.algos.qmix.Free", lambda *a: Sum())
    it = made(QMIX, QMIXConfig(weighting=weighting, alpha=0.25))
    high = weighting == "optimistic" and action == (1, 1)
    values = {"team": [1.0, 2.0] if not high else [30.0, 30.0], "central": [0.5, 2.0], "central_target": [0.5, 0.5]}
    values["team"] = [0.2, 0.3] if weighting == "optimistic" and not high else values["team"]
    for name, numbers in values.items():
        constant(it, name, numbers)
    out = it.step(batch(action=action))[0]
    q = sum(values["team"][a] for a in action)
    assert out.metrics["target_mean"] == pytest.approx(1.9)
    assert out.metrics["team/loss"] == pytest.approx(counts * 0.5 * (1.9 - q) ** 2, rel=1e-5)
    central = sum(values["central"][a] for a in action)
    assert out.metrics["central/loss"] == pytest.approx(0.5 * (1.9 - central) ** 2, rel=1e-5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("model", [LINEAR, REMEMBERS], ids=["plain", "memory"])
def test_what_an_absent_member_sees_changes_nothing(shared, model):
    def learnt(noise):
        it = made(VDN, VDNConfig(shared=shared, sequence=3, burn_in=1, overlap=0), model)
        rows = sequences() if model.core else batch(8)
        rows["obs"]["present"][..., 1] = 0
        rows["next_obs"]["present"][..., 1] = 0
        rows["obs"]["agents"][..., 1, :] += noise
        rows["next_obs"]["agents"][..., 1, :] -= noise
        it.step(rows)
        return it.nets["team"].value.clone()

    assert torch.equal(learnt(0.0), learnt(100.0))


def sequences(rows=4, length=4, seed=3):
    g = torch.Generator().manual_seed(seed)
    flat = [team_obs(rows * length, seed + k) for k in range(2)]
    obs, next_obs = ({key: x.unflatten(0, (length, rows)) for key, x in part.items()} for part in flat)
    made_up = {"obs": obs, "next_obs": next_obs, "action": torch.randint(2, (length, rows, 2), generator=g)}
    marks = {name: torch.zeros(length, rows, dtype=torch.bool) for name in ("terminated", "done", "first")}
    marks["valid"] = torch.ones(length, rows, dtype=torch.bool)
    made_up |= {"reward": torch.randn(length, rows, generator=g), "weight": torch.ones(rows)} | marks
    return made_up | {"state": {"h": torch.randn(1, rows, 2, 3, generator=g)}}


@pytest.mark.parametrize("shared", [True, False])
def test_memories_unroll_as_they_are_stepped_and_a_late_member_begins_with_zeros(shared):
    torch.manual_seed(0)
    team = Team.of(*specs())
    net = Members(team, lambda spec: QNetwork(spec, 2, REMEMBERS), shared)
    rows = sequences()
    obs, first, valid = rows["obs"], rows["first"], rows["valid"]
    first[0] = True
    obs["present"][:2, :, 1] = 0  # the second comes late: its memory begins then, not with what was there before
    state = {"h": torch.randn(4, 2, 3)}
    q, after = net.unroll(obs, state, first, valid)
    now = {"h": torch.zeros(4, 2, 3)}
    for t in range(4):
        each, now = net.step({key: x[t] for key, x in obs.items()}, now)
        there = obs["present"][t].bool()
        assert torch.allclose(q[t][there], each[there], atol=1e-6)
        assert torch.allclose(after["h"][t][there], now["h"][there], atol=1e-6)
    assert torch.equal(now["h"][:, 1] != 0, torch.ones(4, 3, dtype=torch.bool))


@pytest.mark.parametrize("config", [VDNConfig(), QMIXConfig(), QMIXConfig(weighting="central")], ids=str)
def test_updates_can_be_traced(config):
    it = made(VDN if config.name == "vdn" else QMIX, config)
    rows = batch(8)
    trace(it, "update", rows)


def test_a_single_agent_is_no_team():
    with pytest.raises(ConfigError, match=r"algo.name=vdn learns a team, but it sits for a single agent"):
        VDN(VDNConfig(), spec_of(spaces.Box(-1, 1, (3,))), spec_of(spaces.MultiDiscrete([2, 2])), LINEAR)


def test_a_mixer_without_a_world_is_refused():
    with pytest.raises(ConfigError, match=r"algo.name=qmix has a part that sees the world, but env.world=none"):
        load_config(algo="qmix", env="rookery/TwoStep-v0", overrides=["env.api=parallel", "env.world=none"])


def test_every_member_explores_by_itself_among_its_own_choices():
    rule = EpsilonGreedyParts(EpsilonGreedy(), (2, 3))
    q, rng = np.zeros((4000, 2, 3), np.float32), np.random.default_rng(0)
    action = rule({"q": q}, rng, {"epsilon": 1.0}, None, False)["action"]
    shares = [np.bincount(action[:, k], minlength=3) / 4000 for k in range(2)]
    assert shares[0] == pytest.approx([0.5, 0.5, 0.0], abs=0.03)
    assert shares[1] == pytest.approx([1 / 3] * 3, abs=0.03)
    assert abs(np.corrcoef(action[:, 0], action[:, 1])[0, 1]) < 0.05
    legal = np.array([[0, 1, 1, 0, 0]] * 4000, np.int8)
    assert rule({"q": q}, rng, {"epsilon": 0.5}, legal, False)["action"].tolist() == [[1, 0]] * 4000


def test_the_scale_of_returns_by_hand():
    """Returns 1, 3: mean 2, deviation 1. 5 is 3 deviations above; told 3, the critic means 5."""
    scale = Scale()
    scale.observe(torch.tensor([1.0, 3.0]))
    assert scale.into(torch.tensor(5.0)).item() == pytest.approx(3.0)
    assert scale.back(torch.tensor(3.0)).item() == pytest.approx(5.0)
