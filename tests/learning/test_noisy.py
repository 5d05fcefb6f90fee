"""Noisy networks: the noise is an input that the learner draws, greedy acting does not see it, runs resume exactly."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from learning.toys import Toy, distance, toy_batch
from learning.toys import learner as toy_learner
from rookery.acting.actor import Actor
from rookery.algos.dqn import DQN, DQNConfig
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig, Noisy, noisy, resample
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer

OBS, ACTIONS = spec_of(spaces.Box(-1, 1, (3,))), spec_of(spaces.Discrete(4))
LAYERS = ModelConfig(layers=[{"type": "noisy", "size": 8, "activation": "tanh"}])


def dqn(mode="eager", cache=None, seed=0, model=LAYERS, **options):
    algo = DQN(DQNConfig(noisy=True, target_every=2, **options), OBS, ACTIONS, model)
    it = Learner(algo, Streams(seed), mode=mode, cache=cache)
    it.set_knobs({"lr": 1e-2, "epsilon": 0.0})
    return it


def batch(seed=0, rows=16):
    g = torch.Generator().manual_seed(seed)
    numbers = {key: torch.randn(rows, generator=g) for key in ("reward", "weight")}
    tables = {key: torch.randn(rows, 3, generator=g) for key in ("obs", "next_obs")}
    action = torch.randint(0, 4, (rows,), generator=g)
    return numbers | tables | {"action": action, "discount": torch.full((rows,), 0.9)}


def set_(layer, **numbers):
    for name, value in numbers.items():
        getattr(layer, name).data.copy_(torch.tensor(value))


def test_the_output_by_hand():
    layer = Noisy(2, 1)
    set_(layer, weight=[[1.0, 2.0]], bias=[3.0], weight_sigma=[[0.5, 0.25]], bias_sigma=[2.0])
    x = torch.tensor([[1.0, -1.0]])
    assert layer(x).item() == 2.0  # no noise yet: 1 − 2 + 3
    set_(layer, eps_in=[2.0, -4.0], eps_out=[-1.0])
    # weights 1 + 0.5 · (−1)(2) = 0 and 2 + 0.25 · (−1)(−4) = 3, bias 3 + 2 · (−1) = 1
    assert layer(x).item() == 0.0 * 1 + 3.0 * -1 + 1.0


def test_fresh_parameters_are_those_of_the_paper():
    layer = Noisy(16, 3)
    assert layer.weight.abs().max() <= 0.25
    assert torch.equal(layer.weight_sigma, torch.full((3, 16), 0.125))  # 0.5 / √16
    assert torch.equal(layer.bias_sigma, torch.full((3,), 0.125))
    assert not noisy(16, 3, "orthogonal").bias.any()


def test_resampling_draws_signed_roots_from_the_generator_in_order():
    net = nn.Sequential(Noisy(3, 2), nn.ReLU(), Noisy(2, 1))
    g = torch.Generator().manual_seed(5)
    resample(net, g)
    again = torch.Generator().manual_seed(5)
    for buffer in (net[0].eps_in, net[0].eps_out, net[2].eps_in, net[2].eps_out):
        eps = torch.randn(buffer.shape, generator=again)
        torch.testing.assert_close(buffer * buffer.abs(), eps)  # f(ε)|f(ε)| = ε
    assert torch.equal(g.get_state(), again.get_state())


def test_two_updates_see_different_noise_and_the_target_has_its_own():
    it, seen = dqn(), []
    for i in range(3):
        it.step(batch(i))
        seen.append(it.tensors["q.stats"].clone())
    assert not torch.equal(seen[0], seen[1])
    it.resample()
    assert not torch.equal(it.tensors["q.stats"], it.tensors["q_target.stats"])
    assert it.tensors["q.stats"].abs().min() > 0


def test_the_scale_of_the_noise_is_learned():
    it = dqn()
    before = it.nets["q"].module.head.weight_sigma.detach().clone()
    it.step(batch())
    assert not torch.equal(before, it.nets["q"].module.head.weight_sigma)


@pytest.mark.parametrize("dueling", [False, True])
def test_greedy_acting_does_not_depend_on_the_noise_and_other_acting_does(dueling):
    it = dqn(dueling=dueling)
    actor, obs = Actor(it.algo.outputs, it.algo.rule(), it.eager), np.ones((2, 3), np.float32)
    quiet, loud = [], []
    for _ in range(3):
        it.resample()
        quiet.append(actor.outputs(actor.quiet, torch.from_numpy(obs), None, None)[0]["q"])
        loud.append(actor.outputs(actor.reader, torch.from_numpy(obs), None, None)[0]["q"])
    assert torch.equal(quiet[0], quiet[1])
    assert torch.equal(quiet[1], quiet[2])
    assert not torch.equal(loud[0], loud[1])
    mu = {name: torch.zeros_like(t) if "eps" in name else t for name, t in it.nets["q"].module.named_buffers()}
    wanted = torch.func.functional_call(it.nets["q"].module, mu, (torch.from_numpy(obs),))
    assert torch.equal(quiet[0], wanted)


def test_the_actor_itself_reads_the_right_numbers_live_and_without_torch():
    it = dqn()
    actor, obs = Actor(it.algo.outputs, lambda out, *_: out, it.eager), np.ones((2, 3), np.float32)

    def q(greedy):
        found = actor.act(obs, None, greedy=greedy)["q"].copy()
        assert actor._quick is not None  # noisy layers are plain enough for the kernel
        reader = it.eager.quiet if greedy else it.eager
        assert found == pytest.approx(reader.q(torch.from_numpy(obs)).detach().numpy(), rel=1e-4, abs=1e-5)
        return found

    it.resample()
    greedy, noisy_one = q(True), q(False)
    it.resample()
    assert (q(True) == greedy).all()
    assert (q(False) != noisy_one).any()
    it.step(batch())
    assert (q(True) != greedy).any()  # the weights are live


def test_networks_without_noise_have_one_reader_and_draw_nothing():
    it = toy_learner(Toy())
    before = it.generator.get_state()
    it.resample()
    assert torch.equal(before, it.generator.get_state())
    assert it.eager.quiet is it.eager


def test_a_restored_learner_goes_on_bit_for_bit():
    a, b = dqn(), dqn(seed=1)
    for i in range(5):
        a.step(batch(i))
    b.restore(a.state())
    assert torch.equal(a.tensors["q.stats"], b.tensors["q.stats"])
    b.generator.set_state(a.generator.get_state())
    for i in range(5, 9):
        a.step(batch(i))
        b.step(batch(i))
    assert a.weights_sha256() == b.weights_sha256()


@pytest.mark.matrix
def test_compiled_equals_eager_with_the_same_noise(artefacts):
    eager, compiled = dqn(), dqn("compiled", artefacts)
    for i in range(10):
        compiled.restore(eager.state())
        compiled.generator.set_state(eager.generator.get_state())
        ours, theirs = eager.step(batch(i)), compiled.step(batch(i))
        assert "update" in compiled.compiled
        assert torch.equal(eager.tensors["q.stats"], compiled.tensors["q.stats"])
        assert theirs[0].metrics == pytest.approx(ours[0].metrics, rel=1e-4, abs=1e-6)
        for key, tensor in eager.tensors.items():
            assert distance(compiled.tensors[key], tensor) < 1e-5, (i, key)


class NoisyToy(Toy):
    def networks(self):
        return {"q": nn.Sequential(Noisy(4, 8), nn.ReLU(), Noisy(8, 2)), "p": nn.Linear(4, 3)}


def test_noise_and_other_draws_come_from_one_stream():
    a, b = toy_learner(NoisyToy()), toy_learner(NoisyToy())
    a.step(toy_batch())
    b.resample()
    b.run("update", toy_batch())
    assert torch.equal(a.tensors["q.value"], b.tensors["q.value"])


def test_epsilon_is_zero_with_a_noisy_head_unless_given():
    assert DQNConfig(noisy=True).epsilon.at(0) == 0.0
    assert DQNConfig(noisy=True, epsilon=0.1).epsilon.at(0) == 0.1
    assert DQNConfig().epsilon.at(0) == 1.0
    config = load_config(algo="dqn", env="CartPole-v1", overrides=["algo.noisy=true"])
    assert load_config(tree=config.dump()) == config
    assert config.algo.epsilon.at(0) == 0.0


def run_config(**extra):
    tree = {
        "algo": {"name": "dqn", "noisy": True},
        "env": {"id": "CartPole-v1"},
        "model": {"hidden": [16]},
        "store": {"min_fill": 40, "batch_size": 16, "capacity": 500},
        "train": {"max_steps": 200},
        "eval": {"every_steps": 100, "episodes": 2, "num": 2},
        "learning": {"mode": "eager"},
        "log": {"every_steps": 50, "sinks": []},
    }
    return load_config(tree=tree | extra)


def test_every_round_acts_with_new_noise_also_before_the_first_update():
    with Trainer(run_config()) as trainer:
        seen = []
        for _ in range(3):
            trainer.round()
            seen.append(trainer.learner.tensors["q.stats"].clone())
    assert trainer.learner.updates == 0
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_an_evaluation_changes_nothing_and_does_not_see_the_noise():
    with Trainer(run_config()) as trainer:
        for _ in range(60):
            trainer.round()
        first = trainer.evaluate()
        trainer.learner.resample()
        before = trainer.learner.generator.get_state()
        second = trainer.evaluate()
        assert torch.equal(before, trainer.learner.generator.get_state())
    assert first.returns == second.returns


@pytest.mark.slow
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path):
    with Trainer(run_config()) as straight:
        for progress in straight:
            if progress.steps == 100:
                straight.save(tmp_path)
        wanted = straight.learner.weights_sha256()
    with Trainer(run_config()) as resumed:
        resumed.load(tmp_path)
        assert resumed.steps == 100
        list(resumed)
        assert resumed.learner.weights_sha256() == wanted
