"""The updates of the algorithms: numbers worked out by hand, and both executions equal at fifty states."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError

from rookery.algos.dqn import DQN, DQNConfig
from rookery.algos.ppo import PPO, PPOConfig
from rookery.algos.sac import SAC, SACConfig
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.learning.compiled.build import trace
from rookery.learning.learner import Learner
from rookery.nets import ModelConfig
from selection import matrix_but, slow_but

OBS = spec_of(spaces.Box(-1, 1, (3,), np.float32))
TWO, BOX = spec_of(spaces.Discrete(2)), spec_of(spaces.Box(-1, 1, (2,), np.float32))
MASKED = spec_of(spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(2)}))
SMALL = ModelConfig(hidden=(16,))


def learner(algo, mode="eager", cache=None, seed=0):
    it = Learner(algo, Streams(seed), mode=mode, cache=cache)
    it.set_knobs({name: schedule.resolved(1000).at(0) for name, schedule in algo.knobs().items()})
    return it


def replay_batch(seed, action, rows=8):
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    chosen = torch.randint(0, 2, (rows,), generator=g) if action == "discrete" else r(rows, 2).tanh()
    discount = 0.9 * (torch.rand(rows, generator=g) > 0.3).float()
    return {
        "obs": r(rows, 3),
        "action": chosen,
        "reward": r(rows),
        "next_obs": r(rows, 3),
        "discount": discount,
        "weight": torch.rand(rows, generator=g),
    }


def rollout(seed, space, rows=6, columns=4):
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    action = torch.randint(0, 2, (rows, columns), generator=g) if space is TWO else r(rows, columns, 2)
    terminated = torch.rand(rows, columns, generator=g) < 0.1
    truncated = (torch.rand(rows, columns, generator=g) < 0.1) & ~terminated
    valid = torch.rand(rows, columns, generator=g) > 0.1
    at = torch.nonzero((terminated | truncated) & valid)
    flags = {"terminated": terminated & valid, "truncated": truncated & valid, "valid": valid}
    return {
        "obs": r(rows, columns, 3), "action": action, "reward": r(rows, columns), "logp": -0.7 + 0.1 * r(rows, columns),
        "last_obs": r(columns, 3), "final_obs": r(len(at), 3), "final_at": at, **flags,
    }  # fmt: skip


@pytest.mark.parametrize(("double", "expected"), [(True, 1.0 + 0.9 * 5.0), (False, 1.0 + 0.9 * 7.0)])
def test_the_target_of_dqn_by_hand(double, expected):
    algo = DQN(DQNConfig(double=double), OBS, TWO, SMALL)
    it = learner(algo)
    for name, head in (("q", [3.0, 2.0]), ("q_target", [5.0, 7.0])):  # Q = bias: the online network prefers action 0
        value = it.nets[name].value
        value.zero_()
        value[-2:] = torch.tensor(head)
    batch = replay_batch(0, "discrete") | {
        "reward": torch.ones(8),
        "discount": torch.full((8,), 0.9),
        "weight": torch.ones(8),
    }
    out = it.step(batch | {"action": torch.zeros(8, dtype=torch.int64)})[0]
    assert out.metrics["target_mean"] == pytest.approx(expected)
    assert out.arrays["priority"].tolist() == pytest.approx([expected - 3.0] * 8)
    assert out.metrics["q/loss"] == pytest.approx(expected - 3.0 - 0.5)  # Huber beyond 1


def test_the_weights_of_prioritised_replay_reach_both_losses():
    for kind in ("huber", "squared"):
        algo = DQN(DQNConfig(loss=kind), OBS, TWO, SMALL)
        batch = replay_batch(0, "discrete")
        half = learner(algo).step(batch | {"weight": torch.full((8,), 0.5)})[0].metrics["q/loss"]
        whole = learner(algo).step(batch | {"weight": torch.ones(8)})[0].metrics["q/loss"]
        assert half == pytest.approx(0.5 * whole)


def test_masked_actions_are_not_chosen_for_the_bootstrap():
    algo = DQN(DQNConfig(), MASKED, TWO, SMALL)
    it = learner(algo)
    for name in ("q", "q_target"):
        it.nets[name].value.zero_()
        it.nets[name].value[-2:] = torch.tensor([5.0, 1.0])
    plain = replay_batch(0, "discrete") | {"reward": torch.zeros(8), "discount": torch.ones(8)}
    mask = torch.tensor([[0, 1]] * 8, dtype=torch.int8)
    nested = {
        "obs": {"obs": plain["obs"], "action_mask": mask},
        "next_obs": {"obs": plain["next_obs"], "action_mask": mask},
    }
    assert it.step(plain | nested)[0].metrics["target_mean"] == pytest.approx(1.0)


def test_the_first_minibatch_of_ppo_has_ratio_one():
    algo = PPO(PPOConfig(normalise_advantage=False), OBS, TWO, SMALL)
    it, batch = learner(algo), rollout(0, TWO)
    with torch.no_grad():
        logits = it.eager.ac.policy(batch["obs"])["logits"].log_softmax(-1)
    batch["logp"] = logits.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)
    rows = it.prepare(batch)
    out = it.step(rows)[0].metrics
    valid, advantage = rows["valid"], rows["advantage"]
    assert out["kl"] == pytest.approx(0.0, abs=1e-6)
    assert out["clip_fraction"] == 0.0
    assert out["policy_loss"] == pytest.approx(-(advantage * valid).sum().item() / valid.sum().item(), abs=1e-5)


def test_ppo_bootstraps_a_truncated_step_from_its_true_final_observation():
    algo = PPO(PPOConfig(gamma=0.5, lam=1.0, normalise_advantage=False), OBS, TWO, SMALL)
    it = learner(algo)
    one = {
        "action": torch.zeros(1, 1, dtype=torch.int64),
        "reward": torch.tensor([[1.0]]),
        "logp": torch.zeros(1, 1),
        "valid": torch.ones(1, 1, dtype=torch.bool),
    }
    obs = {
        "obs": torch.zeros(1, 1, 3),
        "last_obs": torch.ones(1, 3),
        "final_obs": torch.full((1, 3), 2.0),
        "final_at": torch.tensor([[0, 0]]),
    }
    ends = {}
    for name, terminated in (("terminated", True), ("truncated", False)):
        flags = {"terminated": torch.tensor([[terminated]]), "truncated": torch.tensor([[not terminated]])}
        ends[name] = it.prepare(one | obs | flags)["target"].item()
    with torch.no_grad():
        final = it.eager.ac.value(torch.full((1, 3), 2.0)).item()
    assert ends["terminated"] == pytest.approx(1.0)
    assert ends["truncated"] == pytest.approx(1.0 + 0.5 * final)


def test_an_algorithm_says_which_actions_it_cannot_act_in():
    with pytest.raises(
        ConfigError, match=r"algo\.name=sac acts in spaces of kind box, but the env's action space is discrete"
    ):
        SAC(SACConfig(), OBS, TWO, SMALL)
    with pytest.raises(ConfigError, match=r"algo\.name=dqn acts in spaces of kind discrete"):
        DQN(DQNConfig(), OBS, BOX, SMALL)


def test_a_mask_that_does_not_fit_the_actions_is_refused():
    wrong = spec_of(spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(3)}))
    with pytest.raises(ConfigError, match=r"`action_mask` of shape \(3,\).*one entry per choice, \(2,\) here"):
        DQN(DQNConfig(), wrong, TWO, SMALL)
    with pytest.raises(
        ConfigError, match=r"only Discrete and MultiDiscrete actions can be masked\. Rename the entry\."
    ) as error:
        PPO(PPOConfig(), MASKED, BOX, SMALL)
    assert "one entry per choice" not in str(error.value)  # there are no choices to count


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DQNConfig(epsilon=2.0), "algo.epsilon: expected values that are between 0 and 1"),
        (lambda: DQNConfig(lr=-1.0), "algo.lr: expected values that are not negative"),
        (lambda: PPOConfig(clip={"kind": "linear", "start": 0.2, "end": -0.1, "steps": 5}), "algo.clip"),
        (lambda: SACConfig(log_std_min=3.0), "algo.log_std_min=3.0 must be below algo.log_std_max=2.0"),
    ],
)
def test_values_out_of_range_are_refused(make, words):
    with pytest.raises(ValidationError) as error:
        make()
    assert words in str(error.value)


CASES = {
    "dqn": (lambda: DQN(DQNConfig(dueling=True, target_every=7), OBS, TWO, SMALL),
        lambda i: replay_batch(i, "discrete")),
    "ppo": (lambda: PPO(PPOConfig(entropy_bonus=0.01, value_clip=0.2, dual_clip=3.0), OBS, BOX,
        ModelConfig(hidden=(16,), init="orthogonal", normalise_obs=True)), lambda i: rollout(i, BOX)),
    "sac": (lambda: SAC(SACConfig(), OBS, BOX, SMALL), lambda i: replay_batch(i, "box")),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(CASES, "dqn"))
def test_every_update_can_be_traced(name):
    algo = CASES[name][0]()
    it = learner(algo)
    batch = CASES[name][1](0)
    graph, _, _ = trace(it, "update", it.prepare(batch) if name == "ppo" else batch)
    assert len(list(graph.graph.nodes)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", matrix_but(CASES, "ppo"))
def test_compiled_equals_eager_at_fifty_states(name, artefacts):
    make, batch_of = CASES[name]
    eager, compiled = learner(make()), learner(make(), "compiled", artefacts)
    prepared = (lambda i: eager.prepare(batch_of(i))) if name == "ppo" else batch_of
    compiled.step(prepared(0))
    assert set(compiled.compiled) == {"update"}
    for i in range(50):
        batch = prepared(i)
        state = eager.state()
        compiled.restore(state)
        compiled.generator.set_state(eager.generator.get_state())
        ours, theirs = eager.step(batch)[0], compiled.step(batch)[0]
        for key, tensor in eager.tensors.items():
            far = (compiled.tensors[key] - tensor).norm() / tensor.norm().clamp(min=1e-9)
            assert far < 1e-5 or (compiled.tensors[key] - tensor).norm() < 1e-9, (i, key, far.item())
        assert theirs.names == ours.names
        assert theirs.metrics == pytest.approx(ours.metrics, rel=1e-3, abs=1e-5)


def test_an_option_that_an_algorithm_lacks_is_read_from_one_table_and_cannot_be_set():
    assert DQNConfig(n_step=3).n_step == 3
    assert (DQNConfig().minibatches, DQNConfig().sequence, PPOConfig().n_step) == (None, None, 1)
    with pytest.raises(AttributeError, match="DQNConfig has no option 'gama'"):
        DQNConfig().gama
    with pytest.raises(ValidationError):
        DQNConfig(minibatches=2)


def test_a_config_of_ones_own_may_keep_private_attributes():
    class Own(DQNConfig):
        _seen: int = 3

    assert Own()._seen == 3


def test_own_on_policy_algorithms_know_how_many_updates_they_plan():
    """Else `learning.mode=auto` would never compile them."""
    from rookery.algos.base import AlgoConfig, Algorithm

    class Bare(Algorithm):
        name, store_kind = "bare", "rollout"

        class Config(AlgoConfig):
            rollout: int = 8

    class Epochs(Bare):
        class Config(AlgoConfig):
            rollout: int = 8
            epochs: int = 3
            minibatches: int = 4

    def planned(kind, mode="sync", steps=1000, most=None):
        run = SimpleNamespace(
            algo=kind.Config(name="bare"),
            env=SimpleNamespace(num=2),
            pool=SimpleNamespace(mode=mode, workers=3),
            train=SimpleNamespace(max_steps=steps, max_updates=most),
        )
        return kind.planned_updates(run)

    assert planned(Bare) == 1000 // (2 * 3 * 8)
    assert planned(Bare, "async") == 1000 // (2 * 8)
    assert planned(Epochs) == 1000 // (2 * 3 * 8) * 3 * 4
    assert planned(Epochs, steps=None) == 0
    assert planned(Epochs, steps=None, most=7) == 7
