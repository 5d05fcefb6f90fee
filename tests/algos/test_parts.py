"""Dict and Tuple actions (ENV-10): every algorithm of the policy-gradient family learns, resumes and is evaluated with
them, in one process and in several, with and without memory, curiosity and masks."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from interrupted import straight_and_resumed
from learning.toys import distance
from rookery import Batch, ConfigError, Trainer, load_config
from rookery.core.spec import spec_of
from rookery.envs.check.checker import check_env
from rookery.nets import ActorCritic, ModelConfig
from selection import slow_but

SHORT = ["env.num=2", "algo.rollout=8", "model.hidden=[8]", "eval.every_steps=0", "eval.at_end=false", "log.sinks=[]"]
WORDS = {
    "ppo": ["algo.minibatches=2"],
    "appo": ["algo.minibatches=2"],
    "trpo": ["algo.minibatches=2", "algo.epochs=1"],
    "ppg": ["algo.minibatches=2", "algo.phase=2", "algo.auxiliary_minibatches=2", "algo.auxiliary_epochs=1"],
    "a2c": [],
    "impala": [],
    "reinforce": [],
    "ppo-lstm": ["algo.minibatches=2", "model.core={kind: lstm, size: 4}"],
    "ppo-icm": ["algo.minibatches=2", "algo.curiosity={kind: icm, features: 4}"],
}


class Masked(gymnasium.Env):
    """A Tuple of a number, a choice and two choices; what the mask forbids raises."""

    def __init__(self):
        self.action_space = spaces.Tuple((
            spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3), spaces.MultiDiscrete([2, 2])
        ))  # fmt: skip
        inside = {"obs": spaces.Box(-1, 1, (1,), np.float32), "action_mask": spaces.MultiBinary(3 + 4)}
        self.observation_space = spaces.Dict(inside)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.legal = 0, self._draw()
        return self._seen(), {}

    def step(self, action):
        number, one, pair = action
        chosen = [int(one), 3 + int(pair[0]), 5 + int(pair[1])]
        if not all(self.legal[chosen]) or number.shape != (2,):
            raise ValueError(f"{action} is illegal, the mask is {self.legal}")
        self.time, self.legal = self.time + 1, self._draw()
        return self._seen(), float(number[0]), False, self.time == 5, {}

    def _draw(self):
        legal = self.np_random.integers(0, 2, 7).astype(np.int8)
        legal[[self.np_random.integers(3), 3 + self.np_random.integers(2), 5 + self.np_random.integers(2)]] = 1
        return legal

    def _seen(self):
        return {"obs": np.zeros(1, np.float32), "action_mask": self.legal.copy()}


if "Parts-Masked-v0" not in gymnasium.registry:  # imported once more by its name
    gymnasium.register("Parts-Masked-v0", Masked)


def trainer_of(name, *words, env="rookery/ProbeParts-v0", steps=96, mode="eager"):
    algo = name.partition("-")[0]
    overrides = [*SHORT, *WORDS[name], f"train.max_steps={steps}", f"learning.mode={mode}", *words]
    return Trainer(load_config(algo=algo, env=env, overrides=overrides))


@pytest.mark.parametrize("name", slow_but(list(WORDS), "ppo"))
def test_a_run_with_parts_is_resumed_exactly_and_evaluated(name, tmp_path):
    with straight_and_resumed(lambda: trainer_of(name), tmp_path, rounds=3) as (straight, resumed):
        assert resumed.evaluate().returns == straight.evaluate().returns


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_processes_and_env_workers_learn_the_same_as_one_process(name):
    found = []
    for words in (["pool=local"], ["pool=process"], ["pool=local", "env.workers=subprocess"]):
        with trainer_of(name, *words, "pool.workers=2") as trainer:
            for _ in trainer:
                pass
            found.append(trainer.players.weights_sha256())
    assert len(set(found)) == 1


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["ppo", "ppg"])
def test_compiled_updates_learn_nearly_the_same(name, tmp_path):
    found = []
    for mode in ("eager", "compiled"):
        with trainer_of(name, f"learning.cache={tmp_path}", steps=32, mode=mode) as trainer:
            for _ in trainer:
                pass
            assert trainer.updates > 3
            found.append(torch.cat([tensor.reshape(-1) for _, tensor in trainer.learner.learned()]))
    assert distance(*found) < 1e-2


def test_masks_of_the_choices_among_the_parts_are_kept_in_training_and_evaluation():
    assert check_env("Parts-Masked-v0").ok
    with trainer_of("ppo", env="algos.test_parts:Parts-Masked-v0", steps=160) as trainer:
        for _ in trainer:
            pass
        assert trainer.steps == 160
        assert len(trainer.evaluate().returns) > 0


def test_a_policy_gives_actions_in_the_form_of_the_space():
    with trainer_of("ppo") as trainer:
        policy = trainer.policy()
        action = policy(Batch(obs=np.zeros((4, 6), np.float32)), greedy=False).action
        assert action["arm"]["0"].shape == (4, 2)
        assert set(np.asarray(action["button"]).tolist()) <= {1, 2, 3}  # a Discrete space that starts at 1
        assert np.abs(np.asarray(action["arm"]["1"])).max() <= 1


def test_every_part_has_a_head_of_its_own():
    spec = spec_of(spaces.Dict({"aim": spaces.Box(-1, 1, (2, 2)), "go": spaces.Tuple((spaces.Discrete(3),))}))
    net = ActorCritic(spec_of(spaces.Box(-1, 1, (3,))), spec, ModelConfig(hidden=(4,)), log_std=-1.0)
    params, value = net(torch.zeros(5, 3))
    assert {name: tuple(x.shape) for name, x in params.items()} == {
        "aim/mean": (5, 4), "aim/log_std": (5, 4), "go/0/logits": (5, 3)
    }  # fmt: skip
    assert set(params["aim/log_std"].flatten().tolist()) == {-1.0}
    assert value.shape == (5,)


@pytest.mark.parametrize(("mask", "sentence"), [
    (spaces.MultiBinary(2), r"an `action_mask` of shape \(2,\), .*one entry per choice, \(3,\) here"),
    (spaces.Dict({"go": spaces.MultiBinary(3)}), r"an `action_mask` with parts, .*one entry per choice, \(3,\) here"),
])  # fmt: skip
def test_a_mask_that_does_not_fit_is_refused(mask, sentence):
    from rookery.algos.ppo import PPO

    obs = spec_of(spaces.Dict({"obs": spaces.Box(-1, 1, (2,)), "action_mask": mask}))
    action = spec_of(spaces.Dict({"aim": spaces.Box(-1, 1, (2,)), "go": spaces.Discrete(3)}))
    with pytest.raises(ConfigError, match=sentence):
        PPO(PPO.Config(), obs, action, ModelConfig())


def test_an_action_space_without_parts_is_refused():
    from rookery.algos.ppo import PPO

    with pytest.raises(ConfigError, match="the env's action space is"):
        PPO(PPO.Config(), spec_of(spaces.Box(-1, 1, (2,))), spec_of(spaces.Dict({})), ModelConfig())
