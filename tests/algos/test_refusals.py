"""An algorithm that cannot act in a space says in one sentence which ones can."""

import numpy as np
import pytest
from gymnasium import spaces

from rookery.algos.base import Algorithm
from rookery.algos.choice import instead
from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.spec import spec_of
from rookery.nets import ModelConfig

OBS = spec_of(spaces.Box(-1, 1, (3,), np.float32))
SPACES = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "nested": spaces.Dict({"go": spaces.Discrete(2), "aim": spaces.Box(-1, 1, (2,), np.float32)}),
}
SHIPPED = [entry.name for entry in registry.entries("algo") if entry.where.startswith("rookery.")]
ALGOS = [name for name in SHIPPED if registry.lookup("algo", name).sits == "agent"]


def made(name, space):
    cls = registry.lookup("algo", name)
    core = {"kind": "gru", "size": 4} if cls.recurrent == "must" else None
    return cls(cls.Config(), OBS, spec_of(space), ModelConfig(hidden=(4,), core=core))


def able(kind):
    known = {name: registry.lookup("algo", name) for name in registry.names("algo")}
    return [name for name, cls in known.items() if kind in cls.actions and cls.sits == "agent"]


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("name", ALGOS)
def test_every_algorithm_acts_in_a_space_or_names_those_that_do(name, kind):
    if kind in registry.lookup("algo", name).actions:
        it = made(name, SPACES[kind])
        assert it.rule() is not None
        return
    with pytest.raises(ConfigError) as error:
        made(name, SPACES[kind])
    told = str(error.value)
    assert told.startswith(f"algo.name={name} acts in spaces of kind ")
    assert f"the env's action space is {'{' if kind == 'nested' else kind}" in told
    *others, last = able(kind)
    wanted = f"{', '.join(others)} or {last}" if others else last
    assert f": use {wanted} (`rookery list algos`), or wrap the env." in told
    assert told.count(". ") == 0  # one sentence


def test_the_algorithms_that_can_are_the_right_ones():
    assert {"dqn", "ppo", "r2d2", "sac-discrete"} <= set(able("discrete"))
    assert {"ddpg", "td3", "sac", "redq", "tqc", "crossq", "ppo"} <= set(able("box"))
    assert not {"ddpg", "td3", "sac"} & set(able("discrete"))


def test_a_registered_algorithm_of_the_user_is_named_too():
    class Mine(Algorithm):
        name, actions = "mine-for-multi", ("multi_discrete",)

    registry.register("algo", "mine-for-multi", Mine)
    try:
        with pytest.raises(ConfigError, match=r"use .*mine-for-multi.* \(`rookery list algos`\)"):
            made("ddpg", SPACES["multi_discrete"])
    finally:
        registry.unregister("algo", "mine-for-multi")


def test_one_that_cannot_be_imported_is_left_out():
    registry.register("algo", "broken", "no_such_module_anywhere:Thing")
    try:
        with pytest.raises(ConfigError, match=r"use (?!.*broken).* or wrap the env"):
            made("ddpg", SPACES["discrete"])
    finally:
        registry.unregister("algo", "broken")


def test_a_space_that_nobody_acts_in_is_said_to_be_one():
    assert instead("graph") == "no algorithm here can (`rookery list algos`);"
