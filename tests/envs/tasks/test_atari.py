"""The Atari chain on real games, against a slow reference; and that a snapshot puts a game back to the bit."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rookery.core import registry
from rookery.core.errors import ConfigError
from rookery.core.rng import Streams
from rookery.envs import EnvConfig, make
from rookery.envs.builders.single import single
from rookery.envs.tasks.atari_screen import shrink
from selection import slow_but

ale_py = pytest.importorskip("ale_py")
NOOP, FIRE = 0, 1
SIGN = {"name": "reward_clip", "kwargs": {"sign": True}}


def game(name="Breakout", *outer, **kwargs):
    """The chain around one game, outer wrappers included."""
    return single(EnvConfig(id=f"ALE/{name}-v5", wrappers=({"name": "atari", "kwargs": kwargs}, *outer)))


def vector(name, purpose="train", count=2):
    config = EnvConfig(id=f"ALE/{name}-v5", wrappers=("atari",), train_wrappers=("life_loss", SIGN))
    return make(config, count=count, purpose=purpose, streams=Streams(0))


# --- screens ---


def small(first, second, shape):
    first, second = np.array(first, np.uint8), np.array(second, np.uint8)
    out = np.zeros(shape, np.uint8)
    shrink(first, second, np.zeros((shape[0], first.shape[1]), np.int32), out)
    return out.tolist()


def test_a_pixel_is_the_mean_of_the_brighter_ones_of_two_screens():
    assert small([[0, 2], [4, 6]], [[1, 1], [1, 9]], (1, 1)) == [[4]]  # (1 + 2 + 4 + 9) / 4


def test_halves_are_rounded_up():
    assert small([[0, 1], [0, 1]], [[0, 0], [0, 0]], (1, 1)) == [[1]]
    assert small([[0, 1], [0, 0]], [[0, 0], [0, 0]], (1, 1)) == [[0]]


def test_a_pixel_counts_with_the_share_that_lies_in_the_area():
    column = [[10], [20], [50], [100], [200]]
    assert small(column, column, (2, 1)) == [[22], [130]]  # (10 + 20 + 25) / 2.5 and (25 + 100 + 200) / 2.5


def area_mean(screen):
    """210 × 160 → 84 × 84 by repeating pixels until the areas are whole ones: 210 · 2 = 84
    · 5 and 160 · 21 = 84 · 40."""
    fine = screen.repeat(2, 0).repeat(21, 1).astype(np.int64)
    sums = fine.reshape(84, 5, 84, 40).sum((1, 3))
    return ((sums + 100) // 200).astype(np.uint8)


def test_screens_of_full_size_agree_with_the_slow_reference():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 256, (2, 210, 160), np.uint8)
    assert small(first, second, (84, 84)) == area_mean(np.maximum(first, second)).tolist()


# --- the chain ---


class Slow:
    """The same game, frame by frame, with a fresh emulator and nothing kept between episodes."""

    def __init__(self, name, seed):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", 0)
        self.ale.loadROM(ale_py.roms.get_rom_path(name))
        self.actions = self.ale.getMinimalActionSet()
        self.ale.reset_game()
        for _ in range(np.random.Generator(np.random.PCG64(seed)).integers(1, 31)):
            self.ale.act(self.actions[NOOP])
        self.reward, self.obs = self.hold(FIRE)

    def hold(self, action):
        reward, screens = 0, []
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            screens.append(self.ale.getScreenGrayscale())
        return reward, area_mean(np.maximum(screens[-2], screens[-1]))


@pytest.mark.parametrize(("name", "rom"), slow_but([("Breakout", "breakout"), ("Pong", "pong")], ("Pong", "pong")))
def test_the_chain_agrees_with_the_slow_reference(name, rom):
    env, slow = game(name), Slow(rom, seed=7)
    obs, _ = env.reset(seed=7)
    assert np.array_equal(obs, slow.obs)
    rng, paid = np.random.default_rng(3), 0.0
    for action in rng.integers(0, env.action_space.n, 200):
        lives = slow.ale.lives()
        reward, expected = slow.hold(action)
        over = slow.ale.game_over()
        if slow.ale.lives() < lives and not over:  # FIRE is pressed at once, in the same step
            more, expected = slow.hold(FIRE)
            reward += more
        obs, got, terminated, truncated, _ = env.step(action)
        assert (got, terminated, truncated) == (reward, over, False)
        assert np.array_equal(obs, expected)
        paid += abs(got)
        if over:
            break
    assert paid > 0, "nothing happened, so the rewards were not tested"


def test_an_episode_depends_on_its_seed_alone():
    env, other = game(), game()
    first, _ = env.reset(seed=5)
    for _ in range(20):
        env.step(2)
    assert np.array_equal(env.reset(seed=5)[0], first)
    assert np.array_equal(other.reset(seed=5)[0], first)


def test_no_op_starts_differ_from_seed_to_seed():
    env, frames = game(), set()
    for seed in range(12):
        env.reset(seed=seed)
        frames.add(env.unwrapped.ale.getEpisodeFrameNumber() - 4)  # FIRE takes four
    assert len(frames) > 4
    assert min(frames) >= 1
    assert max(frames) <= 30


def steps_until_a_life_is_lost(env, most=120):
    lives = env.unwrapped.ale.lives()
    for step in range(most):
        env.step(NOOP)
        if env.unwrapped.ale.lives() < lives:
            return step
    return None


def test_fire_is_pressed_at_the_start_and_after_every_life():
    env = game("Breakout")
    env.reset(seed=0)
    assert steps_until_a_life_is_lost(env) is not None
    assert steps_until_a_life_is_lost(env) is not None  # without FIRE the ball would not come again


def test_without_fire_breakout_waits():
    env = game("Breakout", fire=False)
    env.reset(seed=0)
    assert steps_until_a_life_is_lost(env) is None


def test_fire_is_not_pressed_where_a_game_has_no_such_action():
    env = game("Freeway", noops=0)
    env.reset(seed=0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() == 0


def test_a_lost_life_ends_an_episode_but_not_the_game():
    env = game("Breakout", "life_loss")
    env.reset(seed=0)
    found = []
    for _ in range(600):
        _, _, terminated, truncated, info = env.step(NOOP)
        if terminated or truncated:
            found.append((info["lives"], truncated))
            env.reset(seed=0)
    assert found[:6] == [(4, False), (3, False), (2, False), (1, False), (0, False), (4, False)]


def test_a_reset_in_the_middle_of_a_life_begins_a_new_game():
    env = game("Breakout", "life_loss")
    env.reset(seed=0)
    while not env.step(NOOP)[2]:
        pass
    env.reset()
    assert env.unwrapped.ale.lives() == 4
    env.step(NOOP)
    env.reset(seed=0)
    assert env.unwrapped.ale.lives() == 5


@pytest.mark.slow
def test_evaluation_plays_whole_games_with_raw_rewards():
    names = [layer.__class__.__name__ for layer in layers(vector("Breakout", "eval", 1).envs[0])]
    assert names == ["Atari", "AtariEnv"]
    env = vector("Breakout", "eval", 1)
    env.reset()
    ended = [end for _ in range(400) for end in env.step(np.array([NOOP])).ended]
    assert ended
    assert all(end.info["lives"] == 0 for end in ended)


def layers(env):
    found = [env]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        found.append(env)
    return found


def test_the_time_limit_counts_frames_and_truncates():
    env = game("Pong", max_frames=100)
    env.reset(seed=3)
    start = env.unwrapped.ale.getEpisodeFrameNumber()
    for step in range(1, 30):
        *_, terminated, truncated, _ = env.step(NOOP)
        assert truncated == (start + 4 * step >= 100)
        assert not terminated
        if truncated:
            break
    assert truncated


@pytest.mark.slow
def test_sticky_actions_are_drawn_from_the_seed_of_the_episode():
    def played(sticky):
        env = game("Pong", sticky=sticky)
        env.reset(seed=2)
        return np.stack([env.step(2 + (k // 3) % 2)[0] for k in range(40)])

    assert np.array_equal(played(0.5), played(0.5))
    assert not np.array_equal(played(0.5), played(0.0))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"id": "CartPole-v1", "wrappers": ("atari",)}, "ale-py"),
        ({"id": "ALE/Pong-v5", "wrappers": ("atari",), "max_episode_steps": 50}, "max_frames"),
        ({"id": "ALE/Pong-v5", "wrappers": ({"name": "atari", "kwargs": {"skip": 0}},)}, "skip=0"),
        ({"id": "ALE/Pong-v5", "wrappers": ("life_loss",)}, "env.wrappers=.atari."),
    ],
)
def test_what_the_chain_cannot_do_is_refused(config, told):
    with pytest.raises(ConfigError, match=told):
        single(EnvConfig(**config))


# --- going on exactly ---


@pytest.mark.parametrize("name", slow_but(["Breakout", "Pong", "Seaquest"], "Pong"))
def test_a_restored_game_goes_on_to_the_bit(name):
    env, rng = vector(name), np.random.default_rng(0)
    env.reset()
    for _ in range(60):
        env.step(rng.integers(0, env.action_space.n, 2))
    state = env.state()
    actions = rng.integers(0, env.action_space.n, (100, 2))
    straight = [flat(env.step(action)) for action in actions]
    other = vector(name)
    other.restore(state)
    assert [flat(other.step(action)) for action in actions] == straight
    assert other.exactness == "exact"
    if name == "Breakout":
        assert any(ended for *_, ended in straight), "no life was lost after the restore"


def flat(step):
    return step.obs.tobytes(), step.reward.tolist(), step.terminated.tolist(), [end.total for end in step.ended]


@pytest.mark.slow
def test_sticky_actions_go_on_to_the_bit():
    env = game("Pong", sticky=0.5)
    env.reset(seed=4)
    for _ in range(10):
        env.step(2)
    state = env.snapshot()
    straight = [env.step(k % 6)[0].tobytes() for k in range(30)]
    other = game("Pong", sticky=0.5)
    other.reset(seed=9)
    other.restore_snapshot(state)
    assert [other.step(k % 6)[0].tobytes() for k in range(30)] == straight


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("rookery.envs.builders.single.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "rookery\[atari\]"'):
        game()


PRESETS = ["pong-ppo", "pong-dqn", "breakout-dqn", "qbert-ppo", "spaceinvaders-dqn"]


@pytest.mark.parametrize("preset", slow_but(PRESETS, "pong-ppo"))
def test_a_preset_trains_on_signs_and_lives_and_is_judged_on_whole_games(preset):
    config = EnvConfig(**registry.lookup("preset", preset)["env"])
    train, judged = (single(config, purpose=purpose) for purpose in ("train", "eval"))
    assert [layer.__class__.__name__ for layer in layers(train)] == ["RewardClip", "LifeLoss", "Atari", "AtariEnv"]
    assert train.get_wrapper_attr("layer").sign is True
    assert [layer.__class__.__name__ for layer in layers(judged)] == ["Atari", "AtariEnv"]
    assert config.stack == 4
