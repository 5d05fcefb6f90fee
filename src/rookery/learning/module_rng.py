"""Modules that draw random numbers by themselves (dropout):
their draws are seeded, saved and kept from the caller's generator.

An update that touches torch's global generator when it runs first does so ever after inside a swap of generator states.
It stands alone because updates otherwise draw from the learner's own generator: this is for modules that cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rookery.core.errors import CheckpointError
from rookery.core.rng import seeded


class OwnDraws:
    """The private state of torch's global generator for updates that use it."""

    def __init__(self, seed: int):
        with seeded(seed):
            self._state = torch.random.get_rng_state()
        self._draws: dict[str, bool] = {}  # update → whether it uses the global generator

    def run(self, name: str, update: Callable[..., Any], *args: Any) -> Any:
        """update(*args); the caller's generator is as before afterwards."""
        if self._draws.get(name) is False:
            return update(*args)
        outside = torch.random.get_rng_state()
        torch.random.set_rng_state(self._state)
        try:
            return update(*args)
        finally:
            after = torch.random.get_rng_state()
            self._draws[name] = self._draws.get(name, False) or not torch.equal(after, self._state)
            self._state = after
            torch.random.set_rng_state(outside)

    def state(self) -> dict[str, Any]:
        return {"generator": self._state.clone(), "draws": dict(self._draws)}

    def restore(self, state: dict[str, Any]) -> None:
        generator = torch.as_tensor(state["generator"], device="cpu")
        if generator.dtype != torch.uint8 or generator.shape != self._state.shape:
            raise CheckpointError(
                f"own_draws/generator of the checkpoint is no state of torch's generator: expected uint8 "
                f"{tuple(self._state.shape)}, got {generator.dtype} {tuple(generator.shape)}."
            )
        self._state = generator.clone()
        self._draws = {name: bool(value) for name, value in state["draws"].items()}
