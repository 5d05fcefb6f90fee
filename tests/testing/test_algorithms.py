"""Every algorithm keeps the contract of algorithms."""

from __future__ import annotations

import pytest

from rookery.core import registry
from rookery.testing.algorithm import AlgorithmContract, CompiledContract

BOX = ("env.engine=native", "algo.warmup=20")
ROLLOUT = ("algo.rollout=8",)
WORDS = {
    "a2c": (),
    "appo": (*ROLLOUT, "algo.minibatches=2"),
    "c51": ("algo.atoms=5",),
    "fqf": ("algo.fractions=4", "algo.cosines=4"),
    "impala": ROLLOUT,
    "iqn": ("algo.samples=4", "algo.target_samples=4", "algo.acting_samples=4", "algo.cosines=4"),
    "ppg": (*ROLLOUT, "algo.phase=2", "algo.minibatches=2", "algo.auxiliary_epochs=1"),
    "ppo": (*ROLLOUT, "algo.minibatches=2"),
    "pqn": (*ROLLOUT, "algo.minibatches=2"),
    "qrdqn": ("algo.quantiles=4",),
    "r2d2": (
        "model.core={kind: gru, size: 4}",
        "algo.sequence=4",
        "algo.overlap=2",
        "algo.burn_in=2",
        "store.batch_size=4",
    ),
    "rainbow": ("algo.atoms=5",),
    "redq": (*BOX, "algo.critics=3", "algo.policy_every=4"),
    "reinforce": ROLLOUT,
    "tqc": (*BOX, "algo.quantiles=4", "algo.drop=1"),
    "trpo": (*ROLLOUT, "algo.minibatches=2"),
} | dict.fromkeys(("crossq", "ddpg", "sac", "td3"), BOX)
CONTINUOUS = ("crossq", "ddpg", "redq", "sac", "td3", "tqc")
ALWAYS = (
    "dqn",
    "impala",
    "ppo",
    "r2d2",
    "rainbow",
    "sac",
    "td3",
    "trpo",
)  # one of each kind; the others in the full matrix
NAMES = [entry.name for entry in registry.entries("algo") if entry.where.startswith("rookery.")]


def named(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def members(name: str) -> dict[str, object]:
    env = "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"
    return {"algo": name, "env": env, "words": WORDS.get(name, ()), "__module__": __name__}


for _name in NAMES:
    _suite = type(f"Test{named(_name)}", (AlgorithmContract,), members(_name))
    globals()[_suite.__name__] = _suite if _name in ALWAYS else pytest.mark.matrix(_suite)


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_run_agrees_with_an_eager_one(name, artefacts):
    words = (*WORDS.get(name, ()), f"learning.cache={artefacts}")
    type(named(name), (CompiledContract,), members(name) | {"words": words})().test_compiled_equals_eager()
