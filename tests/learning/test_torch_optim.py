"""Any optimiser of torch by name (NET-5): the same steps as torch's on the module itself, checkpoints, refusals."""

import pytest
import torch
from torch import nn

from learning.toys import Toy, learner, toy_batch
from rookery import ConfigError, Trainer, load_config
from rookery.core.registry import lookup
from rookery.core.rng import Streams
from rookery.learning.learner import Learner
from rookery.learning.optim import SGD, Adam, RMSprop
from rookery.learning.torch_optim import TorchOptimiser, chosen, torchs
from rookery.run.execution import choose_mode

RATE = 2.0**-7  # the same in float32 and float64
NEED_MORE = ("lbfgs", "sparseadam", "muon")  # a closure, sparse gradients, matrices only
CASES = [(name, {}) for name in torchs() if name not in NEED_MORE]
CASES += [
    ("torch.optim:Adam", {"amsgrad": True, "betas": [0.8, 0.99]}),
    ("torch.optim:SGD", {"momentum": 0.9, "nesterov": True}),
    ("torch.optim:RMSprop", {"centered": True, "momentum": 0.5}),
]


class Chosen(Toy):
    def __init__(self, name, options):
        super().__init__()
        self.name, self.options = name, options

    def chosen(self, own):
        return chosen(own, self.name, self.options)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_it_takes_the_steps_that_torch_takes_on_the_module_itself(name, options):
    kind = torchs().get(name) or lookup_torch(name)
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    shapes = tuple(p.shape for p in module.parameters())
    mine = TorchOptimiser(kind=kind, options=settings).fitted(shapes)
    flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    slots, theirs = mine.init(flat), kind(module.parameters(), lr=RATE, **settings)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        grad = torch.randn(flat.shape, generator=generator)
        for p, part in zip(module.parameters(), grad.split([shape.numel() for shape in shapes])):
            p.grad = part.view(p.shape)
        theirs.step()
        mine.step_(flat, grad.clone(), tuple(slots[name] for name in mine.slots), torch.tensor(RATE))
    wanted = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    torch.testing.assert_close(flat, wanted, rtol=1e-6, atol=1e-7)  # vectors that begin elsewhere round otherwise
    assert slots["count"] == 5


def lookup_torch(name):
    return getattr(torch.optim, name.partition(":")[2])


@pytest.mark.parametrize("name", ["nadam", "Adafactor", "rprop"])
def test_a_restored_learner_goes_on_exactly(name):
    straight, first, second = (learner(Chosen(name, {})) for _ in range(3))
    for i in range(6):
        straight.step(toy_batch(i))
    for i in range(3):
        first.step(toy_batch(i))
    second.restore(first.state())
    second.generator.set_state(first.generator.get_state())
    for i in range(3, 6):
        second.step(toy_batch(i))
    assert second.weights_sha256() == straight.weights_sha256()
    assert all(torch.equal(second.tensors[key], tensor) for key, tensor in straight.tensors.items())


def test_a_name_takes_the_place_with_rate_and_limits_and_what_both_know():
    own = Adam(lr="policy_lr", clip_norm=2.0, limit="clip_value", eps=1e-5)
    assert chosen(own, None, {}) is own
    assert chosen(own, "adam", {}) == own
    assert chosen(own, None, {"beta1": 0.5}) == Adam(
        lr="policy_lr", clip_norm=2.0, limit="clip_value", eps=1e-5, beta1=0.5
    )
    assert chosen(own, "RMSprop", {"alpha": 0.9}) == RMSprop(
        lr="policy_lr", clip_norm=2.0, limit="clip_value", eps=1e-5, alpha=0.9
    )
    assert chosen(own, "sgd", {}) == SGD(lr="policy_lr", clip_norm=2.0, limit="clip_value")
    torchs_own = chosen(own, "AdamW", {"betas": [0.9, 0.95]})
    assert isinstance(torchs_own, TorchOptimiser)
    assert (torchs_own.kind, torchs_own.options) == (torch.optim.AdamW, {"betas": (0.9, 0.95)})
    assert (torchs_own.lr, torchs_own.clip_norm, torchs_own.limit) == ("policy_lr", 2.0, "clip_value")
    temperature = Adam(lr="alpha_lr", fixed=True)
    assert chosen(temperature, "sgd", {}) is temperature


def test_a_limited_gradient_is_what_it_sees():
    limited = learner(Chosen("torch.optim:SGD", {}))
    before = limited.tensors["p.value"].clone()
    limited.step(toy_batch())
    moved = (limited.tensors["p.value"] - before).abs().max().item()
    assert 0 < moved <= 0.1 * 1e-2 + 1e-7  # clip_value of the toy times its rate


def test_decoupled_decay_of_an_algorithm_s_own_optimiser_stays():
    mine = chosen(SGD(decay=0.5), "torch.optim:SGD", {}).fitted((torch.Size([2]),))
    p = torch.tensor([1.0, -2.0])
    mine.step_(p, torch.tensor([1.0, 0.0]), tuple(mine.init(p)[name] for name in mine.slots), torch.tensor(0.1))
    torch.testing.assert_close(p, torch.tensor([0.85, -1.9]))  # p (1 − 0.1 · 0.5) − 0.1 g


class Counting(torch.optim.SGD):
    """Counts outside of its state."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class Apart(torch.optim.SGD):
    """Keeps something that belongs to no parameter."""

    def step(self, closure=None):
        self.state["all"] = {"steps": torch.ones(())}
        return super().step(closure)


class Forgetful(torch.optim.SGD):
    """Counts in its settings, which no checkpoint keeps."""

    def step(self, closure=None):
        self.param_groups[0]["steps"] = self.param_groups[0].get("steps", 0) + 1
        return super().step(closure)


@pytest.mark.parametrize(("name", "options", "sentence"), [
    ("lbfgs", {}, r"algo\.optimiser=LBFGS .*cannot move these networks: TypeError: .*closure"),
    ("muon", {}, r"algo\.optimiser=Muon .*cannot move these networks: ValueError: .*2D"),
    ("nadam", {"betta": 1}, r"algo\.optimiser_options=\{'betta': 1\} cannot move .*'betta'"),
    ("adam", {"betas": [0.9, 0.9]}, r"adam has no 'betas'; it has beta1, beta2, decay, eps.*torch\.optim:Adam"),
    ("nadam", {"betas": [0.9]}, r"cannot move these networks: IndexError"),
    ("adam", {"beta1": 1.5}, r"expected a number in \[0, 1\) as beta1, got 1\.5"),
    ("adam", {"eps": -1.0}, r"expected a number ≥ 0 as eps, got -1\.0"),
    ("sgd", {"momentum": "high"}, r"expected a number in \[0, 1\) as momentum, got 'high'"),
    ("rmsprop", {"decay": [1]}, r"expected a number ≥ 0 as decay, got \[1\]"),
    ("learning.test_torch_optim:Forgetful", {}, r"remembers more than its `state`"),
    ("learning.test_torch_optim:Counting", {}, r"remembers more than its `state`"),
    ("learning.test_torch_optim:Apart", {}, r"remembers more than its `state`"),
    ("learning.test_torch_optim:Chosen", {}, r"is no class of torch\.optim\.Optimizer"),
])  # fmt: skip
def test_what_cannot_be_used_is_said_before_the_first_step(name, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        learner(Chosen(name, options))


def config(*words, algo="dqn"):
    tree = {
        "algo": {"name": algo},
        "env": {"id": "CartPole-v1", "num": 1},
        "model": {"hidden": [8]},
        "train": {"max_steps": 64},
        "eval": {"every_steps": 0, "at_end": False},
    }
    tree |= {"store": {"min_fill": 32, "batch_size": 8}} if algo == "dqn" else {}
    return load_config(tree=tree, overrides=list(words))


def test_a_run_with_one_is_resumed_exactly_and_says_why_it_is_not_compiled(tmp_path):
    words = ["algo.optimiser=nadam", "algo.optimiser_options={betas: [0.8, 0.99]}", "learning.compile_after=1"]
    made = config(*words)
    assert load_config(tree=made.dump()).sha256() == made.sha256()
    assert choose_mode(made) == ("eager", "algo.optimiser=nadam is torch's, which runs eagerly")
    with pytest.raises(ConfigError, match=r"learning\.mode=compiled is not possible: algo\.optimiser=nadam is torch's"):
        choose_mode(config(*words, "learning.mode=compiled"))
    with Trainer(made) as straight:
        for _ in straight:
            pass
    with Trainer(made) as first:
        for _ in range(45):
            first.round()
        first.save(tmp_path)
    with Trainer(made) as second:
        second.load(tmp_path)
        for _ in second:
            pass
    assert second.learner.weights_sha256() == straight.learner.weights_sha256()
    assert second.learner.tensors["q.count"] == second.learner.updates > 0


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"algo\.optimiser=nadm is no optimiser; .*Did you mean 'nadam'\?"):
        config("algo.optimiser=nadm")


@pytest.mark.parametrize("name", ["sac", "fqf"])
def test_temperatures_and_fractions_keep_their_own(name):
    from gymnasium import spaces

    from rookery.core.spec import spec_of
    from rookery.nets import ModelConfig

    cls = lookup("algo", name)
    space = spaces.Box(-1, 1, (2,)) if name == "sac" else spaces.Discrete(2)
    algo = cls(
        cls.Config(optimiser="radam"), spec_of(spaces.Box(-1, 1, (3,))), spec_of(space), ModelConfig(hidden=(4,))
    )
    optimisers = Learner(algo, Streams(0)).optimisers
    kinds = {key: type(value) for key, value in optimisers.items()}
    kept = {"sac": ("log_alpha", Adam), "fqf": ("fraction", RMSprop)}[name]
    assert kinds.pop(kept[0]) is kept[1]
    assert set(kinds.values()) == {TorchOptimiser}
