"""ale-py's own vector engine behind `env.engine=native` for ALE ids: games stepped by threads of C++.

It is asked for single frames and raw rewards, and what differs from `rookery.envs.tasks.atari` is done here:

    life loss    its `episodic_life` begins a new game after every life; here the game goes on
    FIRE         after a lost life it is pressed in the dead step between two episodes, which is a hole
    time limit   frames of the whole game, no-ops included; its own count differs between versions

What still differs: it draws 0 … `noops` no-ops, not 1 … `noops`, and presses FIRE for one frame at the start of a game,
not for `skip`; pixels are rounded by OpenCV. It draws from generators of its own and hands out no state, so a resumed
run begins new games. A run that trains on whole games (without `life_loss`) must learn to press FIRE; in evaluation the
step after a lost life presses it, whatever was chosen.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rookery.core.errors import ConfigError
from rookery.envs.config import EnvConfig, WrapperConfig

_KWARGS = ("full_action_space", "num_threads", "thread_affinity_offset")  # of env.kwargs that reach the engine
_DEFAULTS = {"skip": 4, "noops": 30, "size": 84, "fire": True, "sticky": 0.0, "max_frames": 108_000}  # of `atari`
_NO_LIMIT = 2**30


class AtariVector(gymnasium.vector.VectorEnv):
    """The games of `count` envs; NEXT_STEP autoreset, where the dead step after a lost life goes on with the game."""

    def __init__(self, engine: Any, max_frames: int, sign: bool, lives_end: bool, serve: int | None):
        self.engine, self.max_frames, self.sign, self.lives_end = engine, max_frames, sign, lives_end
        self.num_envs = engine.num_envs
        self.single_action_space, self.action_space = engine.single_action_space, engine.action_space
        side = engine.single_observation_space.shape[1]
        self.single_observation_space = spaces.Box(0, 255, (side, side), np.uint8)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._serve = serve
        self._lives = np.zeros(self.num_envs, np.int32)
        self._dead, self._late, self._serving = (np.zeros(self.num_envs, np.bool_) for _ in range(3))

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        obs, infos = self.engine.reset(seed=seed)
        self._lives = infos["lives"].copy()
        self._dead[:], self._late[:], self._serving[:] = False, False, False
        return obs[:, 0], {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        dead = self._dead
        engine_actions = np.where(self._serving, 0 if self._serve is None else self._serve, actions)
        obs, reward, over, _, infos = self.engine.step(engine_actions)
        renew = dead & (
            self._late | over
        )  # our time limit, of which the engine knows nothing, or over while FIRE was pressed
        if renew.any():
            obs, infos = self.engine.reset(options={"reset_mask": renew})
        lives, over = infos["lives"], over & ~dead
        lost = (lives > 0) & (lives < self._lives) & ~dead & ~over
        late = ~over & ~dead & (infos["episode_frame_number"] >= self.max_frames)
        terminated = over | (lost & ~late) if self.lives_end else over
        self._serving = lost & ~late if self.lives_end or self._serve is not None else np.zeros_like(lost)
        self._lives, self._late, self._dead = lives.copy(), late, terminated | late
        return obs[:, 0], np.sign(reward) if self.sign else reward, terminated, late, {}

    def close(self, **kwargs: Any) -> None:
        self.engine.close()


def atari_vector(config: EnvConfig, game: str, count: int, purpose: Literal["train", "eval"]) -> AtariVector:
    """The engine that does what the wrappers of the config say, or a ConfigError that names what it cannot do."""
    from ale_py.vector_env import AtariVectorEnv

    options, lives_end, sign = _asked(config, purpose)
    engine = AtariVectorEnv(
        game,
        count,
        stack_num=1,
        frameskip=options["skip"],
        noop_max=options["noops"] + 1,  # it draws below this number
        img_height=options["size"],
        img_width=options["size"],
        use_fire_reset=options["fire"],
        repeat_action_probability=options["sticky"],
        max_num_frames_per_episode=_NO_LIMIT,
        reward_clipping=False,
        episodic_life=False,
        life_loss_info=False,
        **config.kwargs,
    )
    names = [action.name for action in engine.ale.get_action_set()]
    presses = options["fire"] and "FIRE" in names and (lives_end or purpose == "eval")
    return AtariVector(engine, options["max_frames"], sign, lives_end, names.index("FIRE") if presses else None)


def _asked(config: EnvConfig, purpose: Literal["train", "eval"]) -> tuple[dict[str, Any], bool, bool]:
    """(arguments of the wrapper atari, whether lives end episodes, whether rewards become their signs)."""
    own = config.train_wrappers if purpose == "train" else config.eval_wrappers
    wrappers = [one if isinstance(one, WrapperConfig) else WrapperConfig(name=one) for one in (*config.wrappers, *own)]
    options = {wrapper.name: wrapper.kwargs for wrapper in wrappers}
    clip = options.get("reward_clip")
    order = [name for name in ("atari", "life_loss", "reward_clip") if name in options]
    if [wrapper.name for wrapper in wrappers] != order or "atari" not in options or clip not in (None, {"sign": True}):
        raise ConfigError(
            f"env.engine=native of {config.id} knows the wrappers atari, life_loss and reward_clip with sign=true, in "
            f"this order and atari always; got {[wrapper.name for wrapper in wrappers]} for {purpose}. Use "
            "env.engine=gymnasium for others."
        )
    if unknown := [key for key in options["atari"] if key not in _DEFAULTS]:
        raise ConfigError(f"the wrapper atari has no argument {unknown[0]!r}; known: {', '.join(_DEFAULTS)}")
    clashes = {"per_env": config.per_env, "on_bad=drop": config.on_bad == "drop"}
    clashes |= {"max_episode_steps": config.max_episode_steps, "api=four": config.api == "four"}
    clashes |= {f"kwargs.{key}": True for key in config.kwargs if key not in _KWARGS}
    if clashing := [f"env.{name}" for name, value in clashes.items() if value]:
        raise ConfigError(
            f"{', '.join(clashing)} cannot be used with env.engine=native of {config.id}: "
            "options of a game are arguments of the wrapper atari, or use env.engine=gymnasium."
        )
    return _DEFAULTS | options["atari"], "life_loss" in options, clip is not None
