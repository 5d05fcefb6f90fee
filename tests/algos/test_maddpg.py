"""MADDPG and ATOC: targets and choices worked out by hand, members that are not there, own rewards, groups."""

import numpy as np
import pytest
import torch

from algos.team_batches import CHOICES, SIZES, VECTORS, replay_rows, seen_by
from algos.test_updates import learner
from rookery.algos.atoc import ATOC, ATOCConfig
from rookery.algos.maddpg import MADDPG, MADDPGConfig, soft_choice
from rookery.algos.teams import with_own
from rookery.learning.compiled.build import trace
from rookery.nets import ModelConfig
from selection import slow_but

SMALL = ModelConfig(hidden=(8,))
OPEN, MASKED, JOINED = seen_by(), seen_by(mask=True), seen_by(False)
CASES = {
    "maddpg": (lambda: MADDPG(MADDPGConfig(), OPEN, VECTORS, SMALL), lambda i: replay_rows(i, OPEN, VECTORS)),
    "maddpg-choices": (
        lambda: MADDPG(MADDPGConfig(shared=True), MASKED, CHOICES, SMALL),
        lambda i: replay_rows(i, MASKED, CHOICES),
    ),
    "maddpg-own": (
        lambda: MADDPG(MADDPGConfig(n_step=3), JOINED, VECTORS, SMALL),
        lambda i: replay_rows(i, JOINED, VECTORS) | {"reward": torch.arange(24.0).reshape(8, 3) / 10},
    ),
    "atoc": (
        lambda: ATOC(ATOCConfig(group=2, channel=4), OPEN, VECTORS, SMALL),
        lambda i: replay_rows(i, OPEN, VECTORS),
    ),
    "atoc-choices": (
        lambda: ATOC(ATOCConfig(channel=4, shared=False), MASKED, CHOICES, SMALL),
        lambda i: replay_rows(i, MASKED, CHOICES),
    ),
}


def test_others_do_what_they_did():
    taken, own = torch.tensor([[1.0], [2.0]]), torch.tensor([[8.0], [9.0]])
    assert with_own(taken, own).squeeze(-1).tolist() == [[8.0, 2.0], [1.0, 9.0]]


def test_a_choice_is_one_hot_with_the_gradient_of_a_soft_one():
    # u = 1/e gives g = 0: softmax(0, log 3) = (¼, ¾); d(¾)/d logit 1 = ¾ · ¼
    logits = torch.tensor([0.0, np.log(3.0)], dtype=torch.float32, requires_grad=True)
    choice = soft_choice(logits, torch.full((2,), float(np.exp(-1.0))), 1.0)
    assert choice.tolist() == pytest.approx([0.0, 1.0])
    choice[1].backward()
    assert logits.grad.tolist() == pytest.approx([-3 / 16, 3 / 16])
    assert torch.isfinite(soft_choice(torch.zeros(4), torch.zeros(4), 0.5)).all()  # u may be 0


def critics(it, q, name="critic_target"):
    """Own critics that always say these numbers."""
    it.nets[name].value.zero_()
    for net, value in zip(it.nets[name].frozen.members.networks, q):
        net.head.bias.detach().fill_(value)


@pytest.mark.parametrize(("own", "wanted"), [(False, [3.0, 6.0, 4.5]), (True, [3.0, 7.0, 3.0])])
def test_the_target_by_hand(own, wanted):
    # R = 1 of the team, or 1, 2, 3 of each; d = ½; Q' = 4, 10, 100, and the third is gone in the successor:
    # y = 1 + 2, 1 + 5, 1 + ½ mean(4, 10); paid by itself 1 + 2, 2 + 5, 3 + 0
    it = learner(MADDPG(MADDPGConfig(lr=0.0), OPEN, VECTORS, SMALL))
    critics(it, [4.0, 10.0, 100.0])
    critics(it, [0.0, 0.0, 0.0], "critic")
    batch = replay_rows(0, OPEN, VECTORS, rows=2)
    reward = torch.tensor([[1.0, 2.0, 3.0]] * 2) if own else torch.ones(2)
    batch |= {"reward": reward, "discount": torch.full((2,), 0.5), "weight": torch.ones(2)}
    batch["obs"]["present"] = torch.ones(2, 3, dtype=torch.int8)
    batch["next_obs"]["present"] = torch.tensor([[1, 1, 0]] * 2, dtype=torch.int8)
    out = it.step(batch)[0]
    assert out.metrics["target_mean"] == pytest.approx(sum(wanted) / 3)
    assert out.arrays["priority"].tolist() == pytest.approx([sum(wanted) / 3] * 2)
    assert out.metrics["critic/loss"] == pytest.approx(sum(0.5 * y * y for y in wanted) / 3)


def test_a_terminated_step_bootstraps_nothing_and_absent_members_are_in_no_mean():
    it = learner(MADDPG(MADDPGConfig(lr=0.0), OPEN, VECTORS, SMALL))
    critics(it, [4.0, 10.0, 100.0])
    critics(it, [2.0, 0.0, 50.0], "critic")
    batch = replay_rows(0, OPEN, VECTORS, rows=1)
    batch |= {"reward": torch.tensor([3.0]), "discount": torch.zeros(1), "weight": torch.tensor([0.5])}
    batch["obs"]["present"] = torch.tensor([[1, 1, 0]], dtype=torch.int8)
    batch["next_obs"]["present"] = torch.zeros(1, 3, dtype=torch.int8)  # everybody has ended
    out = it.step(batch)[0]
    # y = 3: errors 1 and 3, w = ½: L = ½ (½ 1 + ½ 9) / 2
    assert (out.metrics["target_mean"], out.metrics["q_mean"]) == (3.0, 1.0)
    assert out.metrics["critic/loss"] == pytest.approx(1.25)
    assert out.arrays["priority"].tolist() == [2.0]
    assert out.metrics["policy/loss"] == pytest.approx(-1.0)


@pytest.mark.parametrize("name", CASES)
def test_outputs_fit_the_rule_and_the_masks(name):
    make, batch_of = CASES[name]
    it = learner(make())
    algo, obs = it.algo, batch_of(0)["obs"]
    with torch.no_grad():
        out = algo.outputs(it.eager, obs, None, None)[0]
        assert algo.expected_return(it.eager, obs, None).shape == (8,)
    mask = obs["action_mask"].numpy() if "action_mask" in obs else None
    arrays = {key: x.numpy() for key, x in out.items()}
    action = algo.rule()(arrays, np.random.default_rng(0), {"noise": 0.1}, mask, False)["action"]
    assert action.shape == ((8, 3) if algo.chooses else (8, 3, 2))
    if algo.chooses:
        legal = np.split(mask, np.cumsum(SIZES)[:-1], -1)
        assert all(part[r, a] or not part[r].any() for part, a_s in zip(legal, action.T) for r, a in enumerate(a_s))
    else:
        assert (np.abs(action) <= 1).all()


def test_groups_are_those_who_sit_next_and_are_present():
    algo = ATOC(ATOCConfig(group=2, channel=4), OPEN, VECTORS, SMALL)
    it = learner(algo)
    obs = replay_rows(0, OPEN, VECTORS, rows=2)["obs"]
    obs["present"] = torch.tensor([[1, 1, 1], [1, 0, 1]], dtype=torch.int8)
    with torch.no_grad():
        group = it.eager.policy.think(obs).group.int()
    assert group[0].tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert group[1].tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]  # the second neither initiates nor is invited


def test_what_a_member_does_depends_on_others_only_through_an_open_group():
    algo = ATOC(ATOCConfig(group=2, channel=4), OPEN, VECTORS, SMALL)
    policy = learner(algo).eager.policy
    obs = replay_rows(0, OPEN, VECTORS, rows=1)["obs"]
    obs["present"] = torch.ones(1, 3, dtype=torch.int8)
    other = obs | {"agents": obs["agents"] + torch.tensor([[0.0], [0.0], [1.0]])}  # the third sees something else

    def moved(*initiate):
        gates = torch.tensor([initiate]).bool()
        with torch.no_grad():
            a, b = (policy.act(policy.think(seen), gates) for seen in (obs, other))
        return (a != b).any(-1)[0].tolist()

    assert moved(0, 0, 0) == [False, False, True]
    assert moved(1, 0, 0) == [False, False, True]  # first and second
    assert moved(0, 1, 0) == [False, True, True]  # second and third
    assert moved(0, 0, 1) == [True, False, True]  # third and first


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(CASES, "maddpg"))
def test_its_update_can_be_traced(name):
    make, batch_of = CASES[name]
    graph, _, _ = trace(learner(make()), "update", batch_of(0))
    assert len(list(graph.graph.nodes)) > 10
