"""The learner in eager mode: words, flat parameters, signatures, state."""

import numpy as np
import pytest
import torch
from torch import nn

from learning.toys import Plain, Toy, learner, toy_batch
from rookery.core.errors import BatchError, BrokenView, CheckpointError, ConfigError
from rookery.core.schedule import Schedule
from rookery.learning.optim import SGD, Adam, Optimiser, RMSprop


def test_one_step_of_gradient_descent_by_hand():
    it = learner(Plain())
    out = it.step({"x": torch.tensor([[1.0], [2.0]]), "y": torch.tensor([[1.0], [1.0]])})[0]
    # q(x) = 2x: errors 1 and 3; loss = (1 + 9) / 4 = 2.5; dw = (1·1 + 3·2) / 2 = 3.5; db = (1 + 3) / 2 = 2
    assert out.metrics["q/loss"] == 2.5
    assert out.metrics["q/grad_norm"] == pytest.approx((3.5**2 + 2.0**2) ** 0.5)
    assert it.tensors["q.value"].tolist() == pytest.approx([2 - 0.35, -0.2])


def test_reading_a_network_gives_its_parameters_no_gradient_but_its_inputs_one():
    it = learner(Plain())
    x = torch.ones(1, 1, requires_grad=True)
    it.eager.q(x).sum().backward()
    assert x.grad.item() == 2.0
    assert it.nets["q"].grad.abs().sum() == 0


def test_a_target_follows_by_tau_and_shares_the_module_but_not_the_numbers():
    it = learner(Toy())
    before, source = it.nets["q_target"].value.clone(), it.nets["q"].value
    source.add_(1.0)
    assert torch.equal(it.nets["q_target"].value, before)
    it.eager.follow("q_target", "q", 0.5)
    assert torch.allclose(it.nets["q_target"].value, 0.5 * before + 0.5 * source)


def test_named_updates_run_by_their_schedule():
    it, batch = learner(Toy()), toy_batch()
    moved = []
    for _ in range(6):
        before = it.nets["q_target"].value.clone()
        it.step(batch)
        moved.append(not torch.equal(before, it.nets["q_target"].value))
    assert moved == [False, False, True, False, False, True]
    assert it.updates == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b | {"x": b["x"][:31]}, "x: torch.float32 (32, 4), got torch.float32 (31, 4)"),
        (lambda b: b | {"x": b["x"].double()}, "got torch.float64"),
        (lambda b: b | {"x": b["x"].long()}, "got torch.int64"),
        (lambda b: b | {"x": b["x"].t().contiguous().t()}, "not contiguous"),
        (lambda b: {"x": b["x"]}, "y: torch.float32 (32, 2), got nothing"),
        (lambda b: b | {"z": b["x"]}, "without the fields ['z']"),
    ],
)
def test_a_batch_unlike_the_first_is_refused(change, words):
    it, batch = learner(Toy()), toy_batch()
    it.step(batch)
    with pytest.raises(BatchError) as error:
        it.step(change(batch))
    assert words in str(error.value)


@pytest.mark.parametrize("act", [lambda m: m.zero_grad(), lambda m: m.half().float()], ids=["zero_grad", "half"])
def test_a_module_that_leaves_its_flat_vector_is_noticed(act):
    it = learner(Toy())
    it.check()
    act(it.nets["q"].module)
    with pytest.raises(BrokenView, match="left its flat vector"):
        it.check()


def test_a_bound_method_kept_as_an_attribute_is_refused():
    class Sneaky(nn.Linear):
        def __init__(self):
            super().__init__(1, 1)
            self.go = self.forward

    class Bad(Plain):
        def networks(self):
            return {"q": Sneaky()}

    with pytest.raises(BrokenView, match=r"Sneaky\.go is a bound method"):
        learner(Bad())


def test_modules_in_a_plain_list_are_refused():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(1, 1)
            self.sequence = [self.a]

        def forward(self, x):
            return self.sequence[0](x)

    class Bad(Plain):
        def networks(self):
            return {"q": Listed()}

    with pytest.raises(BrokenView, match=r"Listed\.sequence keeps modules or parameters in a plain list"):
        learner(Bad())


def test_numbers_of_another_type_are_refused():
    class Counts(nn.Linear):
        def __init__(self):
            super().__init__(1, 1)
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    class Bad(Plain):
        def networks(self):
            return {"q": Counts()}

    with pytest.raises(ConfigError, match=r"buffer 'count' is torch\.int64"):
        learner(Bad())


def test_an_optimiser_for_a_network_that_does_not_exist_is_refused():
    class Bad(Plain):
        def optimisers(self):
            return {"policy": SGD()}

    with pytest.raises(ConfigError, match="no such network"):
        learner(Bad())


def test_a_modules_own_loss_and_metrics_are_added():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1, 1)
            nn.init.constant_(self.linear.weight, 3.0)
            nn.init.zeros_(self.linear.bias)

        def forward(self, x):
            return self.linear(x)

        def own_loss(self, batch):
            penalty = 0.5 * self.linear.weight.pow(2).sum()
            return penalty, {"penalty": penalty, "rows": torch.tensor(float(len(batch.x)))}

    class WithOwn(Plain):
        def networks(self):
            return {"q": Own()}

    it = learner(WithOwn())
    out = it.step({"x": torch.zeros(2, 1), "y": torch.zeros(2, 1)})[0].metrics
    assert (out["q/loss"], out["q/penalty"], out["q/rows"]) == (4.5, 4.5, 2.0)
    assert it.tensors["q.value"][0].item() == pytest.approx(3.0 - 0.1 * 3.0)  # gradient of ½w² is w


@pytest.mark.parametrize("optimiser", [Adam(), Adam(decay=0.1), RMSprop(), SGD(momentum=0.9)], ids=str)
def test_the_step_in_place_equals_the_equation(optimiser: Optimiser):
    g = torch.Generator().manual_seed(0)
    p, lr = torch.linspace(-1, 1, 100), torch.tensor(1e-2)
    q = p.clone()
    mine, other = optimiser.init(p), optimiser.init(q)
    for _ in range(50):
        grad = torch.randn(100, generator=g)
        optimiser.step_(p, grad, tuple(mine.values()), lr)
        q, *slots = optimiser.pure(q, grad, tuple(other.values()), lr)
        other = dict(zip(optimiser.slots, slots))
    assert torch.allclose(p, q, rtol=1e-5, atol=1e-7)


def test_adam_in_place_is_torchs_adam_bit_for_bit():
    g = torch.Generator().manual_seed(0)
    p, q = torch.linspace(-1, 1, 1000), nn.Parameter(torch.linspace(-1, 1, 1000))
    adam, theirs = Adam(), torch.optim.Adam([q], lr=torch.tensor(1e-3), fused=True)
    slots = tuple(adam.init(p).values())
    for _ in range(100):
        q.grad = torch.randn(1000, generator=g)
        theirs.step()
        adam.step_(p, q.grad, slots, torch.tensor(1e-3))
    assert torch.equal(p, q.data)


def test_adams_first_step_by_hand():
    p, lr = torch.tensor([1.0]), torch.tensor(0.1)
    new, m, v, count = Adam().pure(p, torch.tensor([2.0]), tuple(Adam().init(p).values()), lr)
    # m = 0.2, v = 0.004; unbiased: 2 and 4; step = 0.1 · 2 / (2 + 1e-8) = 0.1
    assert m.item() == pytest.approx(0.2)
    assert v.item() == pytest.approx(0.004)
    assert count.item() == 1
    assert new.item() == pytest.approx(0.9, abs=1e-6)


def test_gradients_are_limited_by_value_then_by_norm():
    grad = torch.tensor([3.0, -4.0])
    clipped, norm = Optimiser(clip_norm=1.0).limited(grad)
    assert norm.item() == 5.0
    assert clipped.tolist() == pytest.approx([0.6, -0.8], abs=1e-5)
    clipped, norm = Optimiser(clip_value=1.0).limited(grad)
    assert clipped.tolist() == [1.0, -1.0]
    assert norm.item() == 5.0
    both, _ = Optimiser(clip_value=1.0, clip_norm=1.0).limited(grad)
    assert both.tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)
    inside, _ = Optimiser(clip_norm=10.0).limited(grad)
    assert torch.equal(inside, grad)


def test_a_restored_learner_goes_on_bit_for_bit():
    a, b = learner(Toy()), learner(Toy(), seed=1)
    for i in range(5):
        a.step(toy_batch(i))
    b.restore(a.state())
    b.generator.set_state(a.generator.get_state())
    for i in range(5, 10):
        a.step(toy_batch(i))
        b.step(toy_batch(i))
    assert a.weights_sha256() == b.weights_sha256()
    for key, tensor in a.tensors.items():
        assert torch.equal(tensor, b.tensors[key]), key


def test_state_is_a_copy():
    it = learner(Toy())
    state, before = it.state(), it.nets["q"].value.clone()
    it.step(toy_batch())
    assert torch.equal(state["tensors"]["q.value"], before)


def test_weights_that_do_not_fit_are_listed():
    class Wide(Plain):
        def networks(self):
            return {"q": nn.Linear(2, 1)}

    with pytest.raises(CheckpointError, match="q: expected"):
        learner(Wide()).set_weights(learner(Plain()).weights())


def test_networks_depend_on_the_seed_only_and_leave_global_generators_alone():
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    a, b, c = learner(Toy(), seed=3), learner(Toy(), seed=3), learner(Toy(), seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert a.weights_sha256() == b.weights_sha256() != c.weights_sha256()


def test_knobs_reach_the_update():
    it = learner(Plain())
    it.set_knobs({"lr": 0.0})
    it.step({"x": torch.ones(1, 1), "y": torch.zeros(1, 1)})
    assert it.tensors["q.value"].tolist() == [2.0, 0.0]
    assert Schedule(start=0.5).at(10) == 0.5


def test_buffers_of_a_learning_module_live_in_the_flat_vector():
    class Normed(Plain):
        def networks(self):
            norm = nn.BatchNorm1d(1)
            norm.num_batches_tracked = None
            return {"q": nn.Sequential(norm, nn.Linear(1, 1))}

    it = learner(Normed())
    it.step({"x": torch.tensor([[0.0], [2.0]]), "y": torch.zeros(2, 1)})
    # running mean: 0.9 · 0 + 0.1 · 1; running variance: 0.9 · 1 + 0.1 · 2 (unbiased)
    assert it.tensors["q.stats"].tolist() == pytest.approx([0.1, 1.1])
    assert np.isfinite(it.eager.q(torch.zeros(2, 1)).detach().numpy()).all()


class Two(Toy):
    """A second optimiser of the same network."""

    def optimisers(self):
        return super().optimisers() | {"again": Adam(of="q")}

    def update(self, s, b):
        s.minimise("q", lambda q: q(b.x).square().mean())

    def again(self, s, b):
        s.minimise("q", lambda q: q(b.x).square().mean(), by="again")


def test_a_second_optimiser_moves_the_same_network_with_moments_of_its_own():
    it = learner(Two())
    value = it.tensors["q.value"].clone()
    out = it.step(toy_batch(), "again")
    assert [o.names for o in out] == [("again/loss", "again/grad_norm")]
    assert not torch.equal(value, it.tensors["q.value"])
    assert it.tensors["again.count"] == 1
    assert it.tensors["q.count"] == 0
    assert it.updates == 1


def test_an_optimiser_must_not_have_the_name_of_another_network():
    class Wrong(Toy):
        def optimisers(self):
            return {"p": Adam(of="q")}

    with pytest.raises(ConfigError, match="optimiser 'p' moves 'q', but there is a network 'p'"):
        learner(Wrong())


def test_what_an_algorithm_keeps_is_part_of_the_state_and_a_copy():
    one, two = learner(Toy()), learner(Toy())
    assert one.state()["kept"] == {}
    one.kept = {"0": {"obs": torch.arange(3.0)}}
    state = one.state()
    one.kept["0"]["obs"].zero_()
    two.restore(state)
    assert two.kept["0"]["obs"].tolist() == [0.0, 1.0, 2.0]
    two.restore(learner(Toy()).state())
    assert two.kept == {}
