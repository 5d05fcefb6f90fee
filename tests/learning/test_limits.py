"""Limits of the gradient (NET-5): numbers worked out by hand, and both executions."""

import pytest
import torch

from learning.toys import Toy, distance, learner, toy_batch
from rookery.core.errors import ConfigError
from rookery.learning.optim import SGD, Adam, Optimiser, RMSprop, limit, once, shortened
from rookery.learning.update_words import Rows

KINDS = [
    "clip_value",
    "clip_norm",
    "clip_momentum",
    "clip_momentum_norm",
    "ignore_value",
    "ignore_norm",
    "ignore_momentum",
    "ignore_momentum_norm",
]
GRAD = torch.tensor([3.0, -4.0])


def history(optimiser, *grads):
    """What the limit makes of each of these gradients in turn."""
    made = optimiser.init(torch.zeros(len(grads[0])))
    kept, out = tuple(made[slot] for slot in optimiser.limit_slots), []
    for grad in grads:
        limited, norm, *kept = optimiser.limited(torch.tensor(grad), tuple(kept))
        assert norm.item() == pytest.approx(
            torch.tensor(grad).norm().item()
        )  # the metric is that of the whole gradient
        out.append(limited.tolist())
    return out, kept


@pytest.mark.parametrize(
    ("kind", "most", "wanted"),
    [
        ("clip_value", 3.5, [3.0, -3.5]),
        ("clip_norm", 2.5, [1.5, -2.0]),
        ("clip_norm", 5.1, [3.0, -4.0]),
        ("ignore_value", 4.0, [3.0, -4.0]),
        ("ignore_value", 3.9, [0.0, 0.0]),
        ("ignore_norm", 5.0, [3.0, -4.0]),
        ("ignore_norm", 4.9, [0.0, 0.0]),
        ("clip_momentum", torch.tensor([5.0, 1.0]), [3.0, -1.0]),
        ("ignore_momentum", torch.tensor([5.0, 4.0]), [3.0, -4.0]),
        ("ignore_momentum", torch.tensor([5.0, 3.0]), [0.0, 0.0]),
        ("clip_momentum_norm", torch.tensor(2.5), [1.5, -2.0]),
        ("ignore_momentum_norm", torch.tensor(2.5), [0.0, 0.0]),
    ],
)
def test_each_kind_by_hand(kind, most, wanted):
    assert limit(kind, GRAD, most).tolist() == pytest.approx(wanted, rel=1e-6)


def test_a_gradient_is_shortened_to_the_same_bits_on_plain_numbers_and_on_tensors():
    g = torch.Generator().manual_seed(0)
    for i in range(300):
        grad = torch.randn(7, generator=g) * 10.0 ** (i % 9 - 4)
        length, most = torch.linalg.vector_norm(grad), (0.5, 10.0, 40.0)[i % 3]
        assert torch.equal(shortened(grad, length, most), grad * once((most / (length + 1e-6)).clamp(max=1.0)))
    for bad in (torch.nan, torch.inf):
        assert not torch.isfinite(shortened(torch.tensor([1.0, bad]), torch.tensor(bad), 1.0)).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("ignore")])
def test_an_infinite_gradient_is_ignored_without_a_nan(kind):
    assert limit(kind, torch.tensor([1.0, -torch.inf]), 10.0).tolist() == [0.0, 0.0]


def test_the_moment_of_each_element_by_hand():
    # β = ½, c = 1. t = 1: v̂ = g²: nothing is cut. t = 2: v = ½ · ½ g₁² + ½ g₂², v̂ = v / ¾ = (g₁² + 2 g₂²) / 3
    # element 0: (1 + 2 · 16) / 3 = 11: 4 → √11; element 1: (16 + 2 · 1) / 3 = 6: −1 stays;
    # element 2: (4 + 2 · 64) / 3 = 44
    first, second = [1.0, 4.0, 2.0], [4.0, -1.0, -8.0]
    out, (v, count) = history(SGD(limit="clip_momentum", limit_at=1.0, limit_beta=0.5), first, second)
    assert out[0] == pytest.approx(first)
    assert out[1] == pytest.approx([11**0.5, -1.0, -(44**0.5)], rel=1e-6)
    assert v.tolist() == pytest.approx(
        [0.75 * 11, 0.75 * 6, 0.75 * 44]
    )  # of the gradient as it came, not as it was cut
    assert count.item() == 2


def test_one_element_beyond_its_moment_ignores_the_whole_gradient():
    optimiser = SGD(limit="ignore_momentum", limit_at=1.1, limit_beta=0.5)
    out, _ = history(optimiser, [1.0, -4.0], [4.0, -1.0], [1.0, -1.0])  # 4 > 1.1 √11 = 3.65
    assert out == [[1.0, -4.0], [0.0, 0.0], [1.0, -1.0]]


def test_the_running_norm_by_hand():
    # norms 5, then 10: v̂ = (25 + 2 · 100) / 3 = 75; c = 1: 10 is cut to √75
    pair = [3.0, -4.0], [-6.0, 8.0]
    out, (v, count) = history(SGD(limit="clip_momentum_norm", limit_at=1.0, limit_beta=0.5), *pair)
    assert out[0] == pytest.approx([3.0, -4.0], rel=1e-5)
    assert out[1] == pytest.approx([-0.6 * 75**0.5, 0.8 * 75**0.5], rel=1e-5)
    assert (v.item(), count.item()) == (pytest.approx(0.75 * 75), 2)
    out, _ = history(SGD(limit="ignore_momentum_norm", limit_at=1.1, limit_beta=0.5), *pair)  # 10 > 1.1 · 8.66
    assert out == [[3.0, -4.0], [0.0, 0.0]]
    out, _ = history(SGD(limit="ignore_momentum_norm", limit_at=1.2, limit_beta=0.5), *pair)
    assert out[1] == [-6.0, 8.0]


def test_the_limit_comes_before_the_clipping():
    both, _ = Optimiser(limit="ignore_norm", limit_at=4.0, clip_norm=1.0).limited(GRAD)
    assert both.tolist() == [0.0, 0.0]
    both, norm = Optimiser(limit="clip_value", limit_at=3.0, clip_norm=1.0).limited(GRAD)
    assert both.tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], rel=1e-5)
    assert norm.item() == 5.0


def test_wrong_limits_are_refused():
    with pytest.raises(ConfigError, match="known: clip_value, clip_norm"):
        Adam(limit="clip_nrom")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="limit_at=0"):
        Adam(limit="clip_norm", limit_at=0)
    with pytest.raises(ConfigError, match="limit_beta=1"):
        Adam(limit="clip_norm", limit_beta=1.0)


class Limited(Toy):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def optimisers(self):
        tight = 0.5 if self.kind.startswith("clip") and not self.kind.endswith("momentum") else 1.2
        options = {"limit": self.kind, "limit_at": tight, "limit_beta": 0.9}
        return {"q": Adam(**options, clip_norm=1.0), "p": RMSprop(**options)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_traced_execution_equals_the_eager_one(kind):
    """The same words on pure tensors, without compiling them."""
    eager, words, steps = learner(Limited(kind)), learner(Limited(kind)), 6
    for i in range(steps):
        words.restore(eager.state())
        words.eager._tensors["knobs"].copy_(eager.tensors["knobs"])
        state = eager.generator.get_state()
        eager.run("update", toy_batch(i))
        traced = words.dry_run("update", toy_batch(i))
        g = torch.Generator().manual_seed(0)
        g.set_state(state)
        shapes = traced.drawn()
        noise = [(torch.randn if how == "normal" else torch.rand)(shape, generator=g) for how, shape in shapes]
        made = type(traced)(words.nets, words.optimisers, dict(words.tensors), words.knob_names, noise=noise)
        words.algo.update(made, Rows(toy_batch(i)))
        for key, tensor in eager.tensors.items():
            assert distance(made._tensors[key], tensor) < 1e-5, (i, key)
    remembered = {"q.limit_v", "q.limit_count", "p.limit_v", "p.limit_count"}
    assert (remembered <= set(eager.tensors)) == ("momentum" in kind)
    if "momentum" in kind:
        assert eager.tensors["q.limit_count"].item() == steps


@pytest.mark.parametrize("kind", ["clip_momentum", "ignore_momentum_norm"])
def test_what_a_limit_remembers_is_saved_and_restored(kind):
    a, b = learner(Limited(kind)), learner(Limited(kind), seed=1)
    for i in range(4):
        a.step(toy_batch(i))
    b.restore(a.state())
    b.generator.set_state(a.generator.get_state())
    for i in range(4, 8):
        a.step(toy_batch(i))
        b.step(toy_batch(i))
    assert all(torch.equal(t, b.tensors[key]) for key, t in a.tensors.items())


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["clip_momentum", "ignore_momentum_norm"])
def test_the_compiled_execution_equals_the_eager_one(kind, artefacts):
    eager, compiled = learner(Limited(kind)), learner(Limited(kind), "compiled", artefacts)
    for i in range(10):
        compiled.restore(eager.state())
        compiled.generator.set_state(eager.generator.get_state())
        eager.step(toy_batch(i))
        compiled.step(toy_batch(i))
        assert "update" in compiled.compiled
        for key, tensor in eager.tensors.items():
            assert distance(compiled.tensors[key], tensor) < 1e-5, (i, key)


def test_the_default_has_no_limit_and_no_memory():
    assert not any(made().limit_slots for made in (Adam, RMSprop, SGD))
    assert Optimiser().limited(GRAD)[0] is GRAD
