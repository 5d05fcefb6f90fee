"""Atari 2600 games as the field trains on them (Mnih 2015, Machado 2018):
`env.id=ALE/Pong-v5 env.wrappers=[atari] env.stack=4`.

    reset   the start of the game, 1 … `noops` frames without action, then FIRE where the game waits for it
    step    the action for `skip` frames; reward = their sum; observation = the brighter of the last two frames, grey,
            `size` × `size`
    end     terminated: the game is over; truncated: `max_frames` frames after the start

One frame comes out; `env.stack` gives the networks the last four. `life_loss`, in `env.train_wrappers`, ends
an episode with every life; the game goes on in the next one. Evaluation plays whole games, and FIRE is
pressed for it after a lost life.

The wrapper drives the emulator itself. What the id says of frame skip, sticky actions and time limit has no
effect: they are arguments of the wrapper. The emulator draws no random numbers; no-ops and sticky actions come
from a generator of the episode's seed. A seeded reset of ale-py loads the game anew (129 ms), so a game begins
from a kept copy of its start instead.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.envs.tasks.atari_screen import shrink

Five = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class Atari(gymnasium.Wrapper):
    """No-op starts, frame skip, grey small screens, FIRE where needed; around a bare ALE env."""

    snapshot_is_whole = True  # its snapshot covers the emulator inside

    def __init__(
        self,
        env: gymnasium.Env,
        skip: int = 4,
        noops: int = 30,
        size: int = 84,
        fire: bool = True,
        sticky: float = 0.0,
        max_frames: int = 108_000,
    ):
        super().__init__(env)
        self._check(skip, noops, size, sticky, max_frames)
        self.skip, self.noops, self.sticky, self.max_frames = skip, noops, sticky, max_frames
        self.time_limit = -(-max_frames // skip)
        self.ale = env.unwrapped.ale  # type: ignore[attr-defined]  # checked above
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)
        least, every = self.ale.getMinimalActionSet(), self.ale.getLegalActionSet()
        self._actions = every if env.action_space.n == len(every) else least  # type: ignore[attr-defined]
        waits = len(least) >= 3 and least[1].name == "FIRE"
        self._serve = least[1] if fire and waits else None
        self.serves_lives = True  # press FIRE after a lost life, inside the step; `life_loss` does it in its reset
        self._screens = np.zeros((2, *self.ale.getScreenDims()), np.uint8)
        self._between = np.zeros((size, self._screens.shape[2]), np.int32)
        self._rng = np.random.Generator(np.random.PCG64(0))
        self._start = self._loaded()
        self._previous = self._actions[0]  # the action of the last frame
        self.lives, self.over, self.lost_life = 0, True, False

    def _check(self, skip: int, noops: int, size: int, sticky: float, max_frames: int) -> None:
        inner = self.env
        if (
            inner is not inner.unwrapped
            or not hasattr(inner, "ale")
            or not isinstance(inner.action_space, spaces.Discrete)
        ):
            raise ConfigError(
                f"the wrapper atari needs a bare env of ale-py with discrete actions, got {inner}. Put it first in "
                "env.wrappers, use an id like ALE/Pong-v5, and set its max_frames in place of env.max_episode_steps."
            )
        if skip < 1 or noops < 0 or not 1 <= size <= 160 or not 0.0 <= sticky < 1.0 or max_frames < 1:
            raise ConfigError(
                "the wrapper atari: expected skip ≥ 1, noops ≥ 0, 1 ≤ size ≤ 160, 0 ≤ sticky < 1 and max_frames ≥ 1, "
                f"got skip={skip}, noops={noops}, size={size}, sticky={sticky}, max_frames={max_frames}"
            )

    def _loaded(self) -> Any:
        """The start of the game, the same in every process: ale-py seeds the memory of the machine from the clock."""
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", 0)  # no limit but our own
        self.ale.setInt("random_seed", 0)
        self.env.unwrapped.load_game()  # type: ignore[attr-defined]
        self.ale.reset_game()
        self.ale.getScreenGrayscale(self._screens[0])
        self._first_screen = self._screens[0].copy()  # it is not part of the emulator's state
        return self.ale.cloneState(include_rng=True)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.Generator(np.random.PCG64(seed))
        self.ale.restoreState(self._start)
        self._screens[:] = self._first_screen
        for _ in range(int(self._rng.integers(1, self.noops + 1)) if self.noops else 0):
            self.ale.act(self._actions[0])
            if self.ale.game_over(with_truncation=False):
                self.ale.restoreState(self._start)
            self.ale.getScreenGrayscale(self._screens[0])
        self._screens[1] = self._screens[0]
        self._previous = self._actions[0]
        self.over = False
        if self._serve is not None:
            self._frames(self._serve)
        self.lives = self.ale.lives()
        return self._seen(), self._info()

    def go_on(self) -> tuple[np.ndarray, dict[str, Any]]:
        """The game after a lost life: FIRE where it is needed, else one step without action."""
        self._frames(self._serve or self._actions[0])
        self.lives = self.ale.lives()
        return self._seen(), self._info()

    def step(self, action: Any) -> Five:
        reward = self._frames(self._actions[action])
        self.lost_life = (
            0 < self.ale.lives() < self.lives
        )  # some games stay at 0 lives for a while before they are over
        if self.lost_life and self.serves_lives and self._serve is not None and not self.over:
            reward += self._frames(self._serve)
        self.lives = self.ale.lives()
        truncated = not self.over and self.ale.getEpisodeFrameNumber() >= self.max_frames
        return self._seen(), float(reward), self.over, truncated, self._info()

    def _frames(self, action: Any) -> int:
        """Hold the action for `skip` frames; the sum of the rewards. The last two screens are kept."""
        reward, act = 0, self.ale.act
        draws = self._rng.random(self.skip) if self.sticky else None
        for k in range(self.skip):
            if draws is None or draws[k] >= self.sticky:
                self._previous = action
            reward += act(self._previous)
            if k >= self.skip - 2:
                self.ale.getScreenGrayscale(self._screens[self.skip - 1 - k])
        if self.skip == 1:
            self._screens[1] = self._screens[0]
        self.over = self.ale.game_over(with_truncation=False)
        return reward

    def _seen(self) -> np.ndarray:
        out = np.empty((len(self._between),) * 2, np.uint8)
        shrink(self._screens[0], self._screens[1], self._between, out)
        return out

    def _info(self) -> dict[str, Any]:
        return {"lives": self.lives}

    def snapshot(self) -> dict[str, Any]:
        machine = self.ale.cloneState(include_rng=True).serialize()
        now = {"lives": self.lives, "over": self.over, "previous": int(self._previous.value)}
        return now | {"machine": np.frombuffer(machine, np.uint8).copy(), "rng": self._rng.bit_generator.state}

    def restore_snapshot(self, state: dict[str, Any]) -> None:
        self.ale.restoreState(type(self._start)(np.asarray(state["machine"], np.uint8).tobytes()))
        self.lives, self.over = int(state["lives"]), bool(state["over"])
        self._previous = type(self._previous)(int(state["previous"]))
        self._rng.bit_generator.state = state["rng"]


class LifeLoss(gymnasium.Wrapper):
    """Every lost life ends an episode; the next one goes on with the game. For training only, around `atari`."""

    stateless = True  # `_goes_on` is used up by the reset that follows, and snapshots are taken after it

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        if not isinstance(env, Atari):
            raise ConfigError(
                f"the wrapper life_loss goes directly around the wrapper atari, got {env}. "
                "Set env.wrappers=[atari] and env.train_wrappers=[life_loss]."
            )
        self._game = env
        self._goes_on = False  # the game is not over, though the episode is
        env.serves_lives = False

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        goes_on, self._goes_on = self._goes_on, False
        if goes_on:
            seen = self._game.go_on()
            if not self._game.over:
                return seen
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Five:
        obs, reward, terminated, truncated, info = self._game.step(action)
        self._goes_on = self._game.lost_life and not (terminated or truncated)
        return obs, reward, terminated or self._goes_on, truncated, info
