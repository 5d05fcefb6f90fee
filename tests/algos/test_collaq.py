"""CollaQ: attention and MARA by hand, what others are, members that are not there, memory."""

import pytest
import torch

from algos.team_batches import CHOICES, replay_rows, seen_by, team_sequences
from algos.test_updates import learner
from rookery.algos.collaq import CollaQ, CollaQConfig
from rookery.core.errors import ConfigError
from rookery.core.tree import tree_map
from rookery.learning.compiled.build import trace
from rookery.nets import ModelConfig

SMALL = ModelConfig(hidden=(8,))
GRU = ModelConfig(hidden=(8,), core={"kind": "gru", "size": 6})
SEEN = seen_by(mask=True)


def made(model=SMALL, **options):
    tiny = {"attention": 4, "embed": 4, "hyper": 4, "sequence": 3, "overlap": 1, "burn_in": 2} | options
    return CollaQ(CollaQConfig(**tiny), SEEN, CHOICES, model)


CASES = {
    "collaq": (made, lambda i: replay_rows(i, SEEN, CHOICES)),
    "collaq-slices": (
        lambda: made(others=[[1, 2], [2, 4]], shared=False, n_step=2),
        lambda i: replay_rows(i, SEEN, CHOICES),
    ),
    "collaq-gru": (lambda: made(GRU), lambda i: team_sequences(i, SEEN, CHOICES, made(GRU).memory())),
}


def test_the_loss_of_q_collab_without_others_by_hand():
    # every weight 0, the last bias of Q_collab 3: Q_collab² = 9, α = ½; Q_tot is 0 with a mixer of zeros and y = R = 2:
    # L = ½ 4 + ½ 9, whoever is present
    it = learner(made(mara=0.5, lr=0.0))
    for net in it.nets.values():
        net.value.zero_()
    it.nets["team"].module.collab.networks[0].head.bias.detach().fill_(3.0)
    batch = replay_rows(0, SEEN, CHOICES)
    batch |= {"reward": torch.full((8,), 2.0), "discount": torch.zeros(8), "weight": torch.ones(8)}
    out = it.step(batch)[0].metrics
    assert out["team/mara"] == pytest.approx(9.0)
    assert out["team/loss"] == pytest.approx(2.0 + 4.5)


def test_attention_is_to_the_other_members_that_are_present():
    """With equal scores and values 1, 2, 4 each hears the mean of the others: (2 + 4) / 2, (1 + 4) / 2, (1 + 2) / 2."""
    it = learner(made())
    attention = it.eager.team.attention
    attention.encoder.forward = lambda obs: obs["agents"]  # not the network's business here
    for layer in (attention.query, attention.tokens[0]):
        layer.weight.detach().zero_()
        layer.bias.detach().zero_()
    attention.tokens[0].weight.detach()[4:, 0] = 1.0  # every value is the first number that is seen
    seen = torch.zeros(2, 3, 8)
    seen[..., 0] = torch.tensor([1.0, 2.0, 4.0])
    present = torch.tensor([[1, 1, 1], [1, 0, 1]], dtype=torch.int8)
    heard = attention({"agents": seen, "present": present})[..., 0]
    assert heard[0].tolist() == pytest.approx([3.0, 2.5, 1.5])
    assert heard[1, [0, 2]].tolist() == pytest.approx([4.0, 1.0])
    alone = attention({"agents": seen[:1], "present": torch.tensor([[1, 0, 0]], dtype=torch.int8)})
    assert alone[0, 0].tolist() == [0.0] * 4


def test_with_slices_each_acts_by_what_it_sees_and_alone_means_zeros_there():
    algo = made(others=[[1, 2], [2, 4]])
    team = learner(algo).eager.team
    obs = replay_rows(0, SEEN, CHOICES)["obs"]
    obs["present"] = torch.ones(8, 3, dtype=torch.int8)
    other = obs | {"agents": torch.cat([obs["agents"][:, :2], obs["agents"][:, 2:] + 1.0], 1)}
    with torch.no_grad():
        assert torch.equal(team(obs)[:, :2], team(other)[:, :2])  # nobody hears what the third sees
    assert team._alone(obs)["agents"][..., 1:].abs().sum() == 0
    assert torch.equal(team._alone(obs)["agents"][..., 0], obs["agents"][..., 0])


def test_slices_beyond_what_is_seen_are_refused():
    with pytest.raises(ConfigError, match=r"algo\.others=\[\[2, 5\]\] must be \[start, stop\] of numbers"):
        made(others=[[2, 5]]).networks()


def test_a_step_with_memory_gives_what_a_sequence_gives():
    algo = made(GRU)
    team, batch = learner(algo).eager.team, team_sequences(0, SEEN, CHOICES, algo.memory())
    state = tree_map(lambda x: x[0], batch["state"])
    with torch.no_grad():
        q, _ = team.unroll(batch["obs"], state, batch["first"], batch["valid"])
        for t in range(5):
            now, state = team.step(tree_map(lambda x, t=t: x[t], batch["obs"]), state)
            there = batch["obs"]["present"][t].bool()
            assert torch.allclose(now[there], q[t][there], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_its_update_can_be_traced(name):
    make, batch_of = CASES[name]
    graph, _, _ = trace(learner(make()), "update", batch_of(0))
    assert len(list(graph.graph.nodes)) > 10
