"""Randomness from named generators that are split from one seed; the caller's global generators are never changed.

Equal (seed, name) gives an equal stream, whatever else is drawn elsewhere, so adding a consumer changes nobody's
numbers.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rookery.core.restoring import check_restored


def _entropy(seed: int, *names: Any) -> int:
    text = json.dumps([str(part) for part in (seed, *names)])  # unlike a joined string: ("a/b",) and ("a", "b") differ
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


class Streams:
    """Named generators of one run. Asking twice for a name gives the same object.

    Args:
        seed: from which all of them are split.
    """

    def __init__(self, seed: int):
        self.seed = seed
        self._numpy: dict[str, np.random.Generator] = {}
        self._torch: dict[str, Any] = {}

    def numpy(self, name: str) -> np.random.Generator:
        if name not in self._numpy:
            self._numpy[name] = np.random.Generator(self._fresh_numpy(name))
        return self._numpy[name]

    def torch(self, name: str) -> Any:
        import torch

        if name not in self._torch:
            self._torch[name] = torch.Generator(device="cpu").manual_seed(self._fresh_torch(name))
        return self._torch[name]

    def _fresh_numpy(self, name: str) -> np.random.PCG64:
        return np.random.PCG64(_entropy(self.seed, "numpy", name))

    def _fresh_torch(self, name: str) -> int:
        return _entropy(self.seed, "torch", name) % 2**63

    def seed_of(self, *names: Any) -> int:
        """A 31-bit number for APIs that want a seed (`env.reset(seed=…)`); stateless."""
        return _entropy(self.seed, "seed", *names) % 2**31

    def __reduce__(self) -> Any:
        """In another process the seeds are the same; generators begin anew."""
        return Streams, (self.seed,)

    def branch(self, name: str) -> Streams:
        """The same streams under a name, for one of several equals; their state stays here."""
        return _Branch(self, name)

    @property
    def names(self) -> set[str]:
        """Of the generators that somebody has asked for."""
        return {*self._numpy, *self._torch}

    def state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "numpy": {name: generator.bit_generator.state for name, generator in self._numpy.items()},
            "torch": {name: generator.get_state() for name, generator in self._torch.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """In place: whoever holds a generator goes on with it.

        A stream that the state does not know starts from its beginning, as it did in the run that wrote the state.
        """
        self.seed = int(state["seed"])
        known_numpy, known_torch = state.get("numpy", {}), state.get("torch", {})
        for name in {**self._numpy, **known_numpy}:
            fresh = self._fresh_numpy(name).state
            check_restored(known := known_numpy.get(name, fresh), fresh, f"streams/numpy/{name}")
            self.numpy(name).bit_generator.state = known
        for name in {**self._torch, **known_torch}:
            if name in known_torch:
                generator, saved = self.torch(name), _tensor(known_torch[name])
                check_restored(saved, generator.get_state(), f"streams/torch/{name}")
                generator.set_state(saved)
            else:
                self.torch(name).manual_seed(self._fresh_torch(name))


class _Branch(Streams):
    """Asks its trunk for `name/…`."""

    def __init__(self, trunk: Streams, name: str):
        super().__init__(trunk.seed)
        self._trunk, self._name = trunk, name

    def numpy(self, name: str) -> np.random.Generator:
        return self._trunk.numpy(f"{self._name}/{name}")

    def torch(self, name: str) -> Any:
        return self._trunk.torch(f"{self._name}/{name}")

    def seed_of(self, *names: Any) -> int:
        return self._trunk.seed_of(self._name, *names)

    def __reduce__(self) -> Any:
        return _Branch, (self._trunk, self._name)


def _tensor(value: Any) -> Any:
    """A generator's state as torch wants it, from a tensor or an array."""
    import torch

    return torch.as_tensor(value, device="cpu")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the global generators of torch, numpy and random are seeded; afterwards they are as they were.

    For code that draws by itself and takes no generator: initialisation of networks, users' modules.
    """
    import torch

    # the legacy global generator is what users' modules draw from, so it is what has to be kept
    before_numpy = np.random.get_state()  # noqa: NPY002
    before_python, before_torch = random.getstate(), torch.random.get_rng_state()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.random.default_generator.manual_seed(seed)
        yield
    finally:
        random.setstate(before_python)
        np.random.set_state(before_numpy)  # noqa: NPY002
        torch.random.set_rng_state(before_torch)
