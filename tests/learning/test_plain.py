"""A short way is chosen by what a class promises: a copy of ours goes it, too, a method written anew does not."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import rookery.nets
from rookery.acting import fast_forward
from rookery.acting.actor import Actor
from rookery.algos import dqn
from rookery.algos.base import Algorithm
from rookery.algos.dqn import DQN
from rookery.algos.ppo import PPO
from rookery.core.catalogue import BUILTIN
from rookery.core.plain import plain_method, plain_module
from rookery.core.registry import lookup
from rookery.core.rng import Streams
from rookery.core.spec import spec_of
from rookery.learning import short_path
from rookery.learning.learner import Learner
from rookery.learning.short_path import chain_of
from rookery.nets import QNetwork, encoders, heads
from rookery.nets.config import ModelConfig

OBS, ACTIONS = spec_of(spaces.Box(-1.0, 1.0, (4,), np.float32)), spec_of(spaces.Discrete(3))
MODEL = ModelConfig(hidden=[16, 8])


def copied(module: ModuleType, folder: Path, name: str, *changes: tuple[str, str]) -> Any:
    """A copy of a source file of ours as a module of a user's."""
    text = Path(str(module.__file__)).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Any]:
    """Copies of an algorithm, its network and its encoder that use one another and nothing of the originals."""
    yours = copied(encoders, tmp_path, "my_encoders")
    yours = copied(heads, tmp_path, "my_heads", ("from rookery.nets.build import build_encoder", _BUILD))
    yours = copied(dqn, tmp_path, "my_dqn", ("from rookery.nets import QNetwork", "from my_heads import QNetwork"))
    yield yours
    for name in ("my_encoders", "my_heads", "my_dqn"):
        del sys.modules[name]


_BUILD = "from my_encoders import Encoder as build_encoder"


def made(algorithm: Any) -> tuple[Actor, Learner]:
    it = algorithm(algorithm.Config(), OBS, ACTIONS, MODEL)
    learner = Learner(it, Streams(0))
    learner.set_knobs(dict.fromkeys(it.knobs(), 0.01))
    return Actor(it.outputs, it.rule(), learner.eager), learner


def batch() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, 32, 4, generator=g)
    reward, action = torch.randn(32, generator=g), torch.arange(32) % 3
    return {
        "obs": obs,
        "next_obs": next_obs,
        "action": action,
        "reward": reward,
        "discount": torch.full((32,), 0.99),
        "weight": torch.ones(32),
    }


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The short ways that were gone, in order."""
    gone: list[str] = []

    def recorded(place: Any, name: str) -> None:
        was = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *args: gone.append(name) or was(*args))

    recorded(short_path.Chain, "forward")
    recorded(short_path.Chain, "backward")
    recorded(fast_forward, "perceptron")
    return gone


def walk(algorithm: Any, gone: list[str]) -> tuple[list[str], str]:
    """(the ways it goes when it acts and learns, its weights afterwards)."""
    actor, learner = made(algorithm)
    gone.clear()
    for _ in range(3):
        actor.act(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), None, greedy=True)
        learner.step(batch())
    return list(gone), learner.weights_sha256()


def test_a_users_copy_goes_the_short_ways_of_ours_to_the_same_bits(mine: Any, ways: list[str]) -> None:
    ours, weights = walk(DQN, ways)
    assert {"forward", "backward", "perceptron"} == set(ours)
    assert walk(mine.DQN, ways) == (ours, weights)
    assert made(mine.DQN)[1].nets["q"].module.encoder.__module__ == "my_encoders"  # type: ignore[union-attr]


class OwnForward(QNetwork):
    def forward(self, obs: Any) -> Tensor:
        return 2.0 * super().forward(obs)


class OwnNetwork(DQN):
    def networks(self) -> dict[str, nn.Module]:
        return {"q": OwnForward(self.obs_spec, self.action_spec.sizes[0], self.model)}


class OwnOutputs(DQN):
    def outputs(self, s: Any, obs: Any, state: Any, first: Any) -> Any:
        return super().outputs(s, obs, state, first)


class OwnUpdate(DQN):
    def update(self, s: Any, b: Any) -> dict[str, Tensor]:
        return super().update(s, b)


class Declared(OwnOutputs):
    plain = True

    def outputs(self, s: Any, obs: Any, state: Any, first: Any) -> Any:
        return {"q": 1.0 * s.q(obs)}, state


def test_a_network_with_its_own_forward_goes_none_of_them(ways: list[str]) -> None:
    assert walk(OwnNetwork, ways)[0] == []


def test_each_method_counts_for_itself(ways: list[str]) -> None:
    assert "perceptron" not in walk(OwnOutputs, ways)[0]
    assert "backward" in walk(OwnOutputs, ways)[0]
    assert "perceptron" in walk(OwnUpdate, ways)[0]
    assert "backward" not in walk(OwnUpdate, ways)[0]
    assert "perceptron" in walk(Declared, ways)[0]


def test_the_bits_are_the_same_without_the_short_way(ways: list[str]) -> None:
    assert walk(OwnUpdate, ways)[1] == walk(DQN, ways)[1]


def it(kind: type[Algorithm]) -> Algorithm:
    return object.__new__(kind)


def test_a_method_that_a_plain_one_calls_must_be_promised_as_well() -> None:
    class Whole(Algorithm):
        plain = True

        def outputs(self, s: Any, obs: Any, state: Any, first: Any) -> Any:
            return {"q": self._scaled(s.q(obs))}, state

        def _scaled(self, q: Tensor) -> Tensor:
            return q / self.width

        @property
        def width(self) -> float:
            return 2.0

    class OwnScale(Whole):
        def _scaled(self, q: Tensor) -> Tensor:
            return q if q.sum() > 0 else -q

    class OwnWidth(Whole):
        @property
        def width(self) -> float:
            return 3.0

    class OwnRule(Whole):
        def rule(self, column: int = 0, columns: int | None = None) -> Any:
            return None

    promised = [plain_method(it(kind), "outputs") for kind in (Whole, OwnRule, OwnScale, OwnWidth)]
    assert promised == [True, True, False, False]


def test_a_method_that_was_put_in_place_of_a_promised_one_is_not_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    algo, other = it(DQN), it(DQN)
    other.outputs = lambda *_: ({}, None)  # type: ignore[method-assign]
    assert plain_method(algo, "outputs")
    assert not plain_method(other, "outputs")
    monkeypatch.setattr(DQN, "update", OwnUpdate.update)
    assert not plain_method(algo, "update")


class Counting(nn.Linear):
    """A layer whose subclass changes no method."""

    def __init__(self, *sizes: int):
        super().__init__(*sizes)
        self.made = True


class Doubling(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


class Plain(nn.Module):
    plain = True

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class Helped(Plain):
    def extra(self) -> None:
        return None


def test_modules() -> None:
    patched = Plain()
    patched.forward = torch.zeros_like  # type: ignore[method-assign]
    found = [plain_module(m) for m in (nn.Linear(2, 2), Counting(2, 2), Plain(), Doubling(2, 2), Helped(), patched)]
    assert found == [True, True, True, False, False, False]


def test_a_layer_that_changes_no_method_of_torchs_is_one_of_a_chain() -> None:
    module = QNetwork(OBS, 3, MODEL)
    module.head = Counting(8, 3)
    assert chain_of(module) is not None
    module.head = Doubling(8, 3)
    assert chain_of(module) is None


def test_all_algorithms_and_networks_of_ours_promise() -> None:
    for name in BUILTIN["algo"]:
        algo = it(lookup("algo", name))
        assert [m for m in ("outputs", *algo.schedule) if not plain_method(algo, m)] == [], name
    for info in pkgutil.iter_modules(rookery.nets.__path__, "rookery.nets."):
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == info.name:
                assert plain_module(object.__new__(value)), value
    assert plain_method(it(PPO), "outputs")
