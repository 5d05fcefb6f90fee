"""A toy algorithm for config tests: its section has one field of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from rookery.algos.base import AlgoConfig, Algorithm
from rookery.core import registry
from rookery.core.config.section import Section
from rookery.core.schedule import Schedule


class Inner(Section):
    """A section inside a section."""

    size: Annotated[int, Field(ge=1)] = 8  # units
    bias: bool = True  # add one


class ToyConfig(AlgoConfig):
    """One field of every kind."""

    name: Literal["toy"] = "toy"  # of the algorithm
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99  # discount
    lr: Schedule = Schedule(start=1e-3)  # learning rate
    epochs: Annotated[int, Field(ge=1)] = 4  # passes
    limit: Annotated[int, Field(ge=1)] | None = None  # optional count
    double: bool = False  # a switch
    loss: Literal["huber", "squared"] = "huber"  # a choice
    sizes: tuple[int, ...] = (1, 2)  # a list
    inner: Inner = Inner()  # a section
    layers: tuple[Inner | str, ...] = ()  # sections or names
    rollout: Annotated[int, Field(ge=1)] = 1  # env steps per env and round


class Toy(Algorithm):
    """Stands where an Algorithm stands."""

    name = "toy"
    Config = ToyConfig
    store_kind = "replay"
    defaults: dict[str, Any] = {"env": {"num": 2}, "store": {"batch_size": 32}}
    metrics = {"loss": "what is minimised"}

    @classmethod
    def rules(cls, config: Any) -> list[str]:
        if config.env.num % config.algo.epochs and config.algo.double:
            return [f"algo.epochs={config.algo.epochs} must divide env.num={config.env.num}."]
        return []


TOY_PRESET = {"algo": {"name": "toy", "gamma": 0.9}, "env": {"id": "CartPole-v1"}, "train": {"max_steps": 5000}}


@pytest.fixture(autouse=True)
def toy() -> Iterator[type[Toy]]:
    registry.register("algo", "toy", Toy, "for tests")
    registry.register("preset", "toy-preset", TOY_PRESET, "for tests")
    yield Toy
    registry.unregister("algo", "toy")
    registry.unregister("preset", "toy-preset")
