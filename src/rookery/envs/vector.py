"""VectorEnv: B copies of a task, stepped together.

`Step.obs` holds the observation to act on next, `Step.final` the true successor of every step that ended an
episode: the two never mix, so truncation is right by construction. Engines: `inprocess.InProcess`,
`native.Native`, `gymvector.FromVector`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from rookery.core.chunk import EpisodeEnd
from rookery.core.errors import ConfigError
from rookery.core.spec import describe, spec_of
from rookery.core.tree import Tree
from rookery.envs.actions import action_spec_of
from rookery.envs.boundary import Receiver

SeedOf = Callable[[int, Any], int | None]  # (env, episode) → seed of its reset
CLOSELY = 16  # observations of each env that get the full check
DROPS = 100  # dropped episodes in a row until an env that is told to drop is given up
ENDLESS = 2**62  # the time limit of an env that has none
AGENT = "agent"  # of an env that has no name for it
ABNORMAL = "abnormal"  # key of an info: the step is not to be believed, and what is left of its episode is dropped
Writer = Callable[[int, Any], None]  # of the observation of env i


@dataclass(slots=True)
class Step:
    """What one step of all envs gave. The object and its arrays belong to the env and are valid until its next call."""

    obs: Tree  # [B, …] to act on next; a reset observation where an episode ended
    reward: np.ndarray  # f32 [B]
    terminated: np.ndarray  # bool [B]
    truncated: np.ndarray  # bool [B]
    valid: np.ndarray  # bool [B]; false: a hole
    final: list[tuple[int, Tree]] = field(default_factory=list)  # (env, true last observation), copies
    ended: list[EpisodeEnd] = field(default_factory=list)
    infos: list[dict[str, Any]] | None = None
    cut: list[int] = field(
        default_factory=list
    )  # holes after which these envs do not go on where they were: a dropped episode
    busy: np.ndarray | None = None  # bool [B]: envs still at it, whose step comes in a later row; None: nobody ever is
    marked: bool = False  # false: nothing ended, nothing was cut and there is no hole, so nobody need look at the flags

    def clear(self) -> None:
        """Undo the marks of the last step: they are rare, so they are not written anew in each."""
        self.marked = False
        self.terminated[:], self.truncated[:], self.valid[:] = False, False, True
        self.final, self.ended, self.cut = [], [], []

    def hole(self, where: int | slice) -> None:
        """There is no row there."""
        self.marked = True
        self.valid[where], self.reward[where] = False, 0.0
        self.terminated[where], self.truncated[where] = False, False


class VectorEnv(ABC):
    """B copies of one task."""

    exactness: str = "exact"  # or the reason why a resumed run is only approximate
    renewals: int = 0  # envs that failed and were replaced
    given_up: int = 0  # envs that failed too often: their rows are holes for ever
    wants_infos: bool = False  # set by whoever reads `Step.infos`: otherwise they do not travel between processes
    pids: tuple[int, ...] = ()  # of processes that step the envs, if others than this one do
    agent: str = AGENT  # what its only agent is called at a table
    limited: bool = True  # false: nothing is known that would end an episode which does not end by itself

    def __init__(self, num: int, obs_space: gymnasium.Space, action_space: gymnasium.Space, name: str):
        self.num = num
        self.name = name
        self.obs_space, self.action_space = obs_space, action_space  # of one env
        self.obs_spec = spec_of(obs_space, f"the observation space of {name}")
        self.action_spec = action_spec_of(action_space, f"the action space of {name}")
        self._receiver = Receiver(obs_space, self.obs_spec, num)
        flags = (np.zeros(num, np.bool_), np.zeros(num, np.bool_), np.ones(num, np.bool_))
        self.renewed = np.zeros(num, np.bool_)  # envs that `restore` could not put back: another episode has begun
        self._infos: list[dict[str, Any]] = [{} for _ in range(num)]
        self._out = Step(self._receiver.obs, np.zeros(num, np.float32), *flags, infos=self._infos)

    @property
    def obs(self) -> Tree:
        """The observations to act on next, as after `reset`, `step` or `restore`."""
        return self._out.obs

    @property
    def busy(self) -> np.ndarray | None:
        """bool [B]: envs whose step is not done yet; None: the engine waits for all."""
        return self._out.busy

    @abstractmethod
    def reset(self) -> Tree:
        """Start episode 0 of every env; observations [B, …]."""

    @abstractmethod
    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        """Step with action [B, …]:
        only the first `steps` envs, or until `episodes` of them ended; the others are holes.
        """

    @abstractmethod
    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every env, or read an attribute; or call a function with every env, where it lives."""

    def method(self, name: str) -> Callable[..., Any] | None:
        """A method of the first env, to be called by someone else; None if there is none or the engine hides it."""
        return None

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that `restore` needs; changes nothing."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; where that is impossible, `exactness` becomes the reason."""

    @abstractmethod
    def close(self) -> None:
        """Close every env."""


def closely(receiver: Receiver, i: int, writers: list[Writer]) -> Writer:
    """A writer of env i with the full check,
    which gives way to the plain one in `writers` after the first observations.
    """
    left = CLOSELY

    def write(i: int, obs: Any) -> None:
        nonlocal left
        receiver.write(i, obs)
        receiver.look_closely(i)
        left -= 1
        if left <= 0:
            writers[i] = receiver.write

    return write


def same_spaces(envs: Sequence[gymnasium.Env], name: str) -> None:
    """Envs of one run must have equal spaces."""
    spaces, expected = envs[0].action_space, (spec_of(envs[0].observation_space), spec_of(envs[0].action_space))
    for i, env in enumerate(envs):
        spec = spec_of(env.observation_space), spec_of(env.action_space)
        if spec != expected or env.action_space != spaces:
            raise ConfigError(
                f"env {i} ({name}) has other spaces than env 0: observations {describe(spec[0])}, "
                f"actions {env.action_space}; expected {describe(expected[0])} and {spaces}. Envs of "
                "one run must have equal spaces."
            )
