"""Probe envs: each isolates one faculty, is solved in seconds, and has a value that can be worked out by hand.

    Constant     reward 1, one step                                       V(0) = 1
    Obs          reward = obs ∈ {−1, 1}, one step                         V(o) = o
    Discount     reward 1 after two steps                                 V(0) = γ, V(1) = 1
    Action       best action has reward 1, one step
    ObsAction    the best action depends on the observation
    Endless      reward 1 for ever, cut by a time limit                   V = 1 / (1 − γ), not the sum up to the limit
    Memory       the first observation tells which last action is right
    Mask         the highest legal action has reward 1; illegal ones raise
    Nested       the right action is the sum of two parts of a Dict / Tuple observation
    MultiDiscrete  two choices, each with its own right answer
    Parts        a choice, two choices at once and a number, in a Dict with a Tuple: a quarter point for each

Ids: `rookery/Probe<name>-v0`; where it makes sense also `rookery/Probe<name>Continuous-v0`.
`optimum` is the best possible return.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Result = tuple[Any, float, bool, bool, dict[str, Any]]


class Probe(gymnasium.Env):
    """Common manners: choose the action space, draw from the env's own generator."""

    metadata = {"render_modes": []}
    optimum = 1.0
    time_limit: int | None = 2  # steps after which it ends by itself, at the latest

    def __init__(self, continuous: bool = False):
        self.continuous = continuous
        self.observation_space: spaces.Space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space: spaces.Space = spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.begin(), {}

    def begin(self) -> Any:
        """Start an episode; the first observation."""
        return _one(0.0)

    def bit(self) -> int:
        """0 or 1 from the env's own generator."""
        return int(self.np_random.integers(2))

    def score(self, action: Any, right: int) -> float:
        """1 for the right choice and −1 for the wrong one; continuous: 1 − 4·(a − target)², target ±0.5."""
        if self.continuous:
            target = 0.5 if right else -0.5
            return 1.0 - 4.0 * (float(action[0]) - target) ** 2
        return 1.0 if int(action) == right else -1.0


class Constant(Probe):
    """Reward 1, whatever happens."""

    def step(self, action: Any) -> Result:
        return _one(0.0), 1.0, True, False, {}


class Obs(Probe):
    """The observation is the reward: best return 0 on average, V(o) = o."""

    optimum = 0.0

    def begin(self) -> Any:
        self._obs = 1.0 if self.bit() else -1.0
        return _one(self._obs)

    def step(self, action: Any) -> Result:
        return _one(self._obs), self._obs, True, False, {}


class Discount(Probe):
    """Two steps, reward 1 at the second."""

    def begin(self) -> Any:
        self._time = 0
        return _one(0.0)

    def step(self, action: Any) -> Result:
        self._time += 1
        return _one(1.0), float(self._time == 2), self._time == 2, False, {}


class Action(Probe):
    """One right action, whatever the observation."""

    def step(self, action: Any) -> Result:
        return _one(0.0), self.score(action, 1), True, False, {}


class ObsAction(Probe):
    """The observation tells the right action."""

    def begin(self) -> Any:
        self._right = self.bit()
        return _one(2.0 * self._right - 1.0)

    def step(self, action: Any) -> Result:
        return _one(2.0 * self._right - 1.0), self.score(action, self._right), True, False, {}


class Endless(Probe):
    """A ring of four places with reward 1 per step; it never terminates, only the time limit of its id cuts it."""

    optimum = 10.0  # the limit; but V = 1 / (1 − γ)
    time_limit = None

    def __init__(self, continuous: bool = False):
        super().__init__(continuous)
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)

    def begin(self) -> Any:
        self._place = int(self.np_random.integers(4))
        return self._seen()

    def step(self, action: Any) -> Result:
        self._place = (self._place + 1) % 4
        return self._seen(), 1.0, False, False, {}

    def _seen(self) -> np.ndarray:
        obs = np.zeros(4, np.float32)
        obs[self._place] = 1.0
        return obs


class Memory(Probe):
    """The first observation shows a bit; `delay` blank steps later the action must be that bit."""

    def __init__(self, continuous: bool = False, delay: int = 2):
        super().__init__(continuous)
        self.delay, self.time_limit = delay, delay + 1

    def begin(self) -> Any:
        self._time, self._right = 0, self.bit()
        return _one(2.0 * self._right - 1.0)

    def step(self, action: Any) -> Result:
        self._time += 1
        last = self._time > self.delay
        return _one(0.0), self.score(action, self._right) if last else 0.0, last, False, {}


class Mask(Probe):
    """A random set of legal actions; the highest legal one has reward 1, the others 0, an illegal one raises."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(4)
        inside = {"obs": spaces.Box(-1.0, 1.0, (1,), np.float32), "action_mask": spaces.MultiBinary(4)}
        self.observation_space = spaces.Dict(inside)

    def begin(self) -> Any:
        self._legal = self.np_random.integers(0, 2, 4).astype(np.int8)
        self._legal[self.np_random.integers(4)] = 1
        return self._seen()

    def step(self, action: Any) -> Result:
        if not self._legal[int(action)]:
            raise ValueError(f"action {action} is illegal, legal are {np.flatnonzero(self._legal).tolist()}")
        reward = float(int(action) == int(np.flatnonzero(self._legal)[-1]))
        return self._seen(), reward, True, False, {}

    def _seen(self) -> dict[str, np.ndarray]:
        return {"obs": _one(0.0), "action_mask": self._legal.copy()}


class Nested(Probe):
    """The right of three actions is a Discrete entry plus a bit deep inside a Tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(3)
        pair = spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.MultiBinary(2)))
        self.observation_space = spaces.Dict({"count": spaces.Discrete(2), "pair": pair})

    def begin(self) -> Any:
        self._count, self._bit = self.bit(), self.bit()
        return self._seen()

    def step(self, action: Any) -> Result:
        return self._seen(), 1.0 if int(action) == self._count + self._bit else -1.0, True, False, {}

    def _seen(self) -> dict[str, Any]:
        return {"count": self._count, "pair": (np.zeros(2, np.float32), np.array([self._bit, 1 - self._bit], np.int8))}


class MultiChoice(Probe):
    """Two choices (of 2 and of 3), half a point for each right one; the observation tells both."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([2, 3])
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def begin(self) -> Any:
        self._right = np.array([self.bit(), self.np_random.integers(3)])
        return self._seen()

    def step(self, action: Any) -> Result:
        return self._seen(), 0.5 * float(np.sum(np.asarray(action) == self._right)), True, False, {}

    def _seen(self) -> np.ndarray:
        obs = np.zeros(4, np.float32)
        obs[0] = 2.0 * self._right[0] - 1.0
        obs[1 + self._right[1]] = 1.0
        return obs


class Parts(Probe):
    """An action with parts of every kind: a quarter of a point for each that is right; the observation tells all.

    The number must be 0.5 or −0.5, and counts the less the farther it is from there.
    """

    def __init__(self) -> None:
        super().__init__()
        arm = spaces.Tuple((spaces.MultiDiscrete([2, 2]), spaces.Box(-1.0, 1.0, (1,), np.float32)))
        self.action_space = spaces.Dict({"arm": arm, "button": spaces.Discrete(3, start=1)})
        self.observation_space = spaces.Box(-1.0, 1.0, (6,), np.float32)

    def begin(self) -> Any:
        self._pair = np.array([self.bit(), self.bit()])
        self._sign, self._button = 1.0 if self.bit() else -1.0, int(self.np_random.integers(3))
        return self._seen()

    def step(self, action: Any) -> Result:
        pair, number = action["arm"]
        right = int(np.sum(np.asarray(pair) == self._pair)) + int(int(action["button"]) == 1 + self._button)
        close = 1.0 - (float(number[0]) - 0.5 * self._sign) ** 2
        return self._seen(), 0.25 * (right + close), True, False, {}

    def _seen(self) -> np.ndarray:
        obs = np.zeros(6, np.float32)
        obs[:2], obs[2] = 2.0 * self._pair - 1.0, self._sign
        obs[3 + self._button] = 1.0
        return obs


def _one(value: float) -> np.ndarray:
    return np.array([value], np.float32)


_BOTH = (Constant, Obs, Discount, Action, ObsAction, Endless, Memory)
_DISCRETE = {"Mask": Mask, "Nested": Nested, "MultiDiscrete": MultiChoice, "Parts": Parts}


def register() -> None:
    """Make the ids known to gymnasium; calling it again changes nothing."""
    if "rookery/ProbeConstant-v0" in gymnasium.registry:
        return
    for cls in _BOTH:
        limit = 10 if cls is Endless else None
        for suffix, continuous in (("", False), ("Continuous", True)):
            name, kwargs = f"rookery/Probe{cls.__name__}{suffix}-v0", {"continuous": continuous}
            gymnasium.register(
                name, f"rookery.envs.tasks.probes:{cls.__name__}", max_episode_steps=limit, kwargs=kwargs
            )
    for name, other in _DISCRETE.items():
        gymnasium.register(f"rookery/Probe{name}-v0", f"rookery.envs.tasks.probes:{other.__name__}")
