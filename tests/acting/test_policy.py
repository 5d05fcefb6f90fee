"""Policy: what it takes, what it refuses, and what can be seen of it."""

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rookery import Batch, UsageError
from rookery.acting.actor import Actor
from rookery.acting.policy import Policy
from rookery.core import registry
from rookery.core.rng import Streams
from rookery.core.spec import spec_of, stacked_spec
from rookery.learning.learner import Learner
from rookery.nets.config import ModelConfig
from selection import slow_but

BOX = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (1, 12, 12), np.uint8)
DICT = spaces.Dict({"place": BOX, "sign": spaces.Discrete(3, start=1)})
TORQUE = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 4.0], np.float32))


def policy_of(name, obs=BOX, action=None, *, stack=1, model=None, **options):
    cls = registry.lookup("algo", name)
    if action is None:
        action = spaces.Discrete(3) if "discrete" in cls.actions else TORQUE
    if cls.recurrent == "must":
        model = {"core": {"kind": "gru", "size": 8}}
    whole = stacked_spec(spec_of(obs), stack)
    algo = cls(
        cls.Config(name=name, **options),
        whole,
        spec_of(action),
        ModelConfig(hidden=(8,), convs=((4, 3, 2),), **(model or {})),
    )
    learner = Learner(algo, Streams(0))
    knobs = {name: schedule.resolved(1000).at(10**9) for name, schedule in algo.knobs().items()}
    learner.set_knobs(knobs)
    actor = Actor(algo.outputs, algo.rule(), learner.eager, "cpu", algo.memory())
    actor.knobs, actor.stack = knobs, stack
    return Policy(actor, spec_of(obs), spec_of(action), 0, algo.expected_return)


# --- one observation or several ---


@pytest.mark.parametrize("space", [BOX, IMAGE, DICT, spaces.Discrete(5, start=2)], ids=["box", "image", "dict", "sign"])
def test_one_observation_gives_one_action_and_a_batch_as_many(space):
    space.seed(0)
    policy, several = policy_of("ppo", space), [space.sample() for _ in range(3)]
    batch = policy(Batch(obs=several))
    assert batch.action.shape == (3,)
    for i, obs in enumerate(several):
        assert policy(obs).action.shape == ()
        assert policy(obs).action == policy(Batch(obs=obs)).action == batch.action[i]
        assert policy(Batch(obs=[obs])).action.shape == (1,)
    if isinstance(space, spaces.Dict):
        assert policy(several).action.tolist() == batch.action.tolist()  # a list of dicts
    else:
        assert policy(np.stack(several)).action.tolist() == batch.action.tolist()


def test_a_list_of_tuples_is_a_batch_of_them():
    policy = policy_of("dqn", spaces.Tuple([spaces.Discrete(5), spaces.Discrete(5)]))
    rows = [(1, 2), (3, 4)]
    np.testing.assert_allclose(policy.values(rows), [policy.values(row) for row in rows], rtol=1e-5)


def test_only_rows_that_are_there_can_be_reset():
    policy = policy_of("dqn")
    policy.reset([5])
    with pytest.raises(UsageError, match="rows of the next batch, which has 2, got 5"):
        policy(np.zeros((2, 4)))
    assert policy(np.zeros((2, 4))).action.shape == (2,)


def test_an_observation_may_have_a_part_called_obs():
    space = spaces.Dict({"obs": BOX, "action_mask": spaces.Box(0, 1, (3,), np.int8)})
    one = {"obs": np.zeros(4, np.float32), "action_mask": np.array([0, 0, 1], np.int8)}
    policy = policy_of("dqn", space)
    assert policy(one).action == policy(Batch(obs=one)).action == 2
    assert policy.distribution(one).probs[:2].sum() == 0


def test_tensors_and_lists_are_taken():
    policy, obs = policy_of("dqn"), np.linspace(-1, 1, 4, dtype=np.float32)
    wanted = policy(obs).action
    assert policy(obs.tolist()).action == policy(torch.from_numpy(obs)).action == policy(obs.astype(float)).action
    assert policy(torch.from_numpy(obs).requires_grad_()).action == wanted
    assert policy(np.flip(np.flip(obs))).action == wanted


@pytest.mark.parametrize(
    ("space", "obs", "told"),
    [
        (BOX, np.zeros(5), r"expected one observation \(box float32 \(4,\)\) or a batch .*, got the shape \(5,\)"),
        (BOX, np.zeros((2, 3)), r"got the shape \(2, 3\)"),
        (BOX, np.zeros((0, 4)), "N ≥ 1"),
        (BOX, np.zeros((1, 1, 4)), r"got the shape \(1, 1, 4\)"),
        (BOX, 3.0, r"got the shape \(\)"),
        (BOX, [1.0, math.nan, 0, 0], "got nan. Networks give NaN"),
        (BOX, ["a", "b", "c", "d"], "Give numbers"),
        (BOX, [[1, 2], [3]], "different lengths"),
        (BOX, None, "got NoneType of object. Give numbers"),
        (BOX, {"x": np.zeros(4)}, "Give numbers"),
        (BOX, Batch(observation=[np.zeros(4)]), r"field obs, got one with observation\. Write policy\(obs\)"),
        (IMAGE, np.full((1, 12, 12), 0.5), r"expected box uint8 \(1, 12, 12\), got float64 with 0.5.*unscaled"),
        (IMAGE, np.full((1, 12, 12), 256), "got int64 with 256"),
        (spaces.Discrete(3, start=1), 4, "got 4. Choices are counted from 1"),
        (spaces.MultiDiscrete([2, 3]), [1, 3], "got 3. Choices are counted from 0"),
        (DICT, {"place": np.zeros(4)}, "got the keys place. Give every part"),
        (DICT, {"place": np.zeros(4), "sign": 1, "more": 0}, "got the keys place, sign, more"),
        (DICT, np.zeros(4), "got a ndarray"),
        (DICT, {"place": np.zeros((2, 4)), "sign": [1, 2, 3]}, "expected one observation"),
        (DICT, {"place": np.zeros((2, 4)), "sign": 1}, "expected one observation"),
    ],
)
def test_what_is_no_observation_is_refused_in_a_sentence(space, obs, told):
    policy = policy_of("ppo", space)
    for ask in (policy, policy.values, policy.distribution):
        with pytest.raises(UsageError, match=f"(?s){told}"):
            ask(obs)


def test_first_has_one_entry_per_observation():
    with pytest.raises(UsageError, match="one entry per observation, 2, got 3"):
        policy_of("dqn")(Batch(obs=np.zeros((2, 4)), first=[True, True, False]))


# --- what can be seen ---

ALGOS = [name for name in registry.names("algo") if registry.lookup("algo", name).sits == "agent"]


@pytest.mark.parametrize("name", slow_but(ALGOS, "dqn", "ppo", "sac", "r2d2"))
def test_every_algorithm_lets_itself_be_looked_at(name):
    policy, obs = policy_of(name), np.random.Generator(np.random.PCG64(1)).random((5, 4), dtype=np.float32)
    values, one = policy.values(obs), policy.values(obs[0])
    assert values.shape[0] == 5
    assert np.isfinite(values).all()
    np.testing.assert_allclose(one, values[0], rtol=1e-5, atol=1e-6)
    greedy = policy(obs).action
    policy.reset()
    if values.ndim == 2 and name != "sac-discrete":
        assert values.argmax(-1).tolist() == greedy.tolist()
    if name in ("ddpg", "td3"):
        with pytest.raises(UsageError, match=r"only policy\(obs\)\.action"):
            policy.distribution(obs)
        return
    drawn = policy.distribution(obs)
    assert drawn.sample().shape == greedy.shape
    assert policy.distribution(obs[0]).sample().shape == greedy[0].shape


def tensors(policy, obs):
    """Arguments of its module for these observations, at the beginning of an episode."""
    _, *state = policy.module().example()
    rows = len(obs)

    def wide(t):
        return {k: wide(v) for k, v in t.items()} if isinstance(t, dict) else t.expand(rows, *t.shape[1:]).clone()

    return torch.from_numpy(obs), *map(wide, state)


def test_the_distribution_is_what_is_drawn_from():
    obs = np.random.Generator(np.random.PCG64(1)).random((2, 4), dtype=np.float32)
    policy = policy_of("dqn", epsilon=0.3)
    policy.actor.knobs = {**policy.actor.knobs, "epsilon": 0.3}
    drawn = np.concatenate([policy(obs, greedy=False).action[:, None] for _ in range(4000)], 1)
    share = np.stack([(drawn == a).mean(1) for a in range(3)], 1)
    np.testing.assert_allclose(share, policy.distribution(obs).probs.numpy(), atol=0.03)
    assert policy.distribution(obs).probs.max() == pytest.approx(0.8)

    ppo = policy_of("ppo", action=TORQUE)
    out = ppo(obs, greedy=False)
    unclipped = ppo.distribution(obs)
    assert unclipped.log_prob(unclipped.mean).shape == (2,)
    np.testing.assert_allclose(ppo(obs).logp, unclipped.log_prob(unclipped.mean).numpy(), rtol=1e-5)
    assert out.action.shape == unclipped.sample().shape

    heads = policy_of("ppo", action=spaces.MultiDiscrete([2, 3])).distribution(obs)
    assert [head.probs.shape for head in heads] == [(2, 2), (2, 3)]
    choices = policy_of("dqn", action=spaces.MultiDiscrete([2, 3]))
    assert [choice.probs.shape for choice in choices.distribution(obs)] == [(2, 2), (2, 3)]
    assert choices.values(obs).shape == (2, 2, 3)
    assert np.isneginf(choices.values(obs)[:, 0, 2]).all()  # the first has two actions
    assert choices.values(obs).argmax(-1).tolist() == choices(obs).action.tolist()
    both = policy_of("ppo", action=spaces.Dict({"go": spaces.Discrete(3), "force": TORQUE}))
    drawn_from, out = both.distribution(obs), both(obs)
    go, force = drawn_from["go"], drawn_from["force"]
    logp = go.log_prob(torch.from_numpy(out.action.go)) + force.log_prob(force.mean)
    np.testing.assert_allclose(out.logp, logp.numpy(), rtol=1e-5)
    coins = policy_of("ppo", action=spaces.MultiBinary(3)).distribution(obs)
    assert coins.log_prob(torch.ones(2, 3)).shape == (2,)


def test_a_squashed_distribution_lies_within_the_env_s_bounds():
    samples = policy_of("sac").distribution(np.zeros(4)).sample((500,)).numpy()
    assert (samples >= TORQUE.low).all()
    assert (samples <= TORQUE.high).all()
    assert samples.std() > 0.1


def test_without_a_critic_it_says_so():
    with pytest.raises(UsageError, match=r"algo\.name=reinforce learns no value"):
        policy_of("reinforce", baseline=False).values(np.zeros(4))
    assert policy_of("reinforce", baseline=True).values(np.zeros(4)).shape == ()


def test_looking_changes_nothing_of_what_is_remembered():
    rng = np.random.Generator(np.random.PCG64(1))
    several = rng.random((4, 2, 4), dtype=np.float32)
    for make in (lambda: policy_of("r2d2"), lambda: policy_of("dqn", stack=3)):
        looked, not_looked = make(), make()
        for step, obs in enumerate(several):
            before = looked.values(obs)
            np.testing.assert_array_equal(looked.values(obs), before)
            looked.distribution(obs)
            if step == 2:
                looked.reset([1])
                not_looked.reset([1])
            fresh = looked.values(obs)
            assert (fresh[0] == before[0]).all()
            assert (fresh[1] == before[1]).all() == (step != 2)
            assert looked(obs, greedy=True).action.tolist() == not_looked(obs, greedy=True).action.tolist()
            assert looked.values(obs).tolist() == not_looked.values(obs).tolist()


@pytest.mark.parametrize("name", ["dqn", "ppo", "r2d2"])
def test_the_module_is_an_ordinary_one_of_its_own(name):
    policy, obs = policy_of(name, model={"normalise_obs": name == "ppo"}), np.eye(4, dtype=np.float32)
    module = policy.module()
    assert isinstance(module, nn.Module)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in module.parameters())
    given = tensors(policy, obs)
    out = module(*given)
    first = out[0] if policy.actor.memory_spec else out
    score = next(iter(first.values()))
    assert score.argmax(-1).tolist() == policy(obs).action.tolist()
    score.sum().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())
    twin = copy.deepcopy(module)
    twin.load_state_dict(module.state_dict())
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    policy.reset()
    assert policy(obs).action.tolist() == score.argmax(-1).tolist(), "the module shares the policy's numbers"
    again = twin(*given)
    torch.testing.assert_close((again[0] if policy.actor.memory_spec else again)[next(iter(first))], score)
    assert len(module.state_dict()) == len(list(module.named_parameters())) + len(list(module.named_buffers()))


def test_noise_of_noisy_layers_is_not_in_the_module():
    policy = policy_of("rainbow")
    obs = np.eye(4, dtype=np.float32)
    q = policy.module()(torch.from_numpy(obs))["q"].detach().numpy()
    np.testing.assert_allclose(q, policy.values(obs), rtol=1e-5, atol=1e-6)


TEAM = spaces.Dict(
    {"agents": spaces.Box(-1, 1, (2, 3)), "present": spaces.MultiBinary(2), "world": spaces.Box(-1, 1, (4,))}
)
TEAMS = [name for name in registry.names("algo") if registry.lookup("algo", name).sits == "team"]


@pytest.mark.parametrize("name", TEAMS)
def test_a_policy_of_a_team_acts_for_all_members_and_needs_no_world(name):
    policy = policy_of(name, TEAM, spaces.MultiDiscrete([2, 3]))
    seen = {"agents": np.zeros((5, 2, 3), np.float32), "present": np.ones((5, 2), np.int8)}
    action = policy(seen).action
    assert action.shape == (5, 2)
    assert (action >= 0).all()
    assert (action < [2, 3]).all()
    assert policy(seen | {"world": np.zeros((5, 4), np.float32)}).action.tolist() == action.tolist()
