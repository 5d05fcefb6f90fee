"""InProcess: seeds, buffers, actions, state and restore."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import NormalizeReward, TimeLimit

from envs.rollouts import Recorder
from envs.sample_envs import CountingEnv, OldStyle, Scripted, WithSnapshot
from rookery.core.errors import CheckpointError, ConfigError, UsageError
from rookery.core.rng import Streams
from rookery.core.tree import flatten
from rookery.envs import EnvConfig, InProcess, action_log, make


def by_stream(i, episode):
    return Streams(3).seed_of("train", 0, i, episode)


def walks(folder, num=2, cls=CountingEnv, **kwargs):
    return InProcess([cls(str(folder / f"{i}.log"), **kwargs) for i in range(num)], by_stream)


def test_every_episode_is_reset_with_the_seed_of_its_purpose_worker_env_and_number():
    envs = []

    def factory(index):
        envs.append(Scripted([[(0.0, True, False)]]))
        return envs[-1]

    env = make(EnvConfig(), count=2, purpose="eval", streams=Streams(9), worker=4, factory=factory)
    env.reset()
    ended = env.step(np.zeros(2, np.int64)).ended
    for i in range(2):
        assert envs[i].seeds == [Streams(9).seed_of("eval", 4, i, episode) for episode in (0, 1)]
        assert (ended[i].env, ended[i].episode, ended[i].seed) == (i, 0, envs[i].seeds[0])


def test_reset_starts_again_with_episode_0(tmp_path):
    env = walks(tmp_path)
    first = env.reset().copy()
    for _ in range(30):
        env.step(np.ones(2, np.int64))
    assert np.array_equal(env.reset(), first)
    assert env.state()["envs"]["0"]["episode"] == 0


def test_returns_add_up_in_float64_and_lengths_count_real_steps():
    script = [[(0.1, False, False)] * 9 + [(1e8, False, True)]]
    env = InProcess([Scripted(script)], by_stream)
    env.reset()
    ended = [end for _ in range(10) for end in env.step(np.array([0])).ended]
    assert [(end.length, end.total) for end in ended] == [(10, sum([0.1] * 9) + 1e8)]  # float32 would lose the tenths
    assert ended[0].info == {"time": 10}


def test_marks_of_one_step_do_not_stay_for_the_next():
    env = InProcess(
        [Scripted([[(1.0, True, True), (1.0, True, True)]]), Scripted([[(1.0, False, False)] * 9])], by_stream
    )
    env.reset()
    assert env.step(np.zeros(2, np.int64)).terminated.tolist() == [True, False]
    env.envs[0].script = [[(1.0, False, False)] * 9]
    env.envs[0].episode = 0
    out = env.step(np.zeros(2, np.int64))
    assert out.terminated.tolist() == out.truncated.tolist() == [False, False]
    assert (out.final, out.ended, out.cut) == ([], [], [])
    assert not env.step(np.zeros(2, np.int64), steps=1).valid[1]
    assert env.step(np.zeros(2, np.int64)).valid.all()


def test_the_env_gets_start_plus_a_and_clipped_boxes_in_arrays_of_its_own():
    class Keep(gymnasium.Env):
        observation_space = spaces.Box(0, 1, (1,), np.float32)
        action_space = spaces.Dict(
            {
                "pick": spaces.Discrete(3, start=-1),
                "move": spaces.Tuple(
                    (spaces.Box(np.array([-1, 0.0]), np.array([1, 0.5]), dtype=np.float64), spaces.MultiBinary(2))
                ),
                "many": spaces.MultiDiscrete([2, 3]),
            }
        )

        def reset(self, *, seed=None, options=None):
            self.got = []
            return np.zeros(1, np.float32), {}

        def step(self, action):
            assert self.action_space.contains(action), action
            self.got.append(action)
            return np.zeros(1, np.float32), 0.0, False, False, {}

    env = InProcess([Keep(), Keep()], by_stream)
    env.reset()
    move = np.array([[5.0, -5.0], [0.25, 0.25]], np.float32)
    action = {
        "pick": np.array([0, 2]),
        "move": {"0": move, "1": np.array([[0, 1], [1, 1]], np.int64)},
        "many": np.array([[1, 2], [0, 0]]),
    }
    env.step(action)
    move[:] = 9.0  # the caller's buffer is used again
    first, second = env.envs[0].got[0], env.envs[1].got[0]
    assert (first["pick"], second["pick"]) == (-1, 1)
    assert first["move"][0].tolist() == [1.0, 0.0]
    assert second["move"][0].tolist() == [0.25, 0.25]
    assert first["move"][0].dtype == np.float64
    assert first["many"].tolist() == [1, 2]
    assert second["move"][1].tolist() == [1, 1]


@pytest.mark.parametrize("cls", [CountingEnv, WithSnapshot])
def test_a_restored_env_goes_on_bit_for_bit_and_the_state_survives_json_and_arrays(tmp_path, cls):
    actions = np.random.default_rng(0).integers(0, 2, (90, 2))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    straight = Recorder(walks(tmp_path / "a", cls=cls))
    straight.env.reset()
    for k in range(53):
        straight.step(actions[k])
    saved = straight.env.state()
    again = Recorder(walks(tmp_path / "b", cls=cls))
    again.env.restore(saved_and_loaded(saved))
    assert np.array_equal(again.env.obs, straight.env.obs)
    before = [len(rows) for rows in straight.rows]
    for k in range(53, 90):
        straight.step(actions[k])
        again.step(actions[k])
    assert again.env.exactness == "exact"
    assert again.rows == [rows[n:] for rows, n in zip(straight.rows, before)]
    ends = [[end for end in own if end in other] for own, other in zip(again.ends, straight.ends)]
    assert ends == again.ends
    assert any(ends)
    replayed = [len((tmp_path / "b" / f"{i}.log").read_text().splitlines()) - 37 for i in range(2)]
    running = [saved["envs"][str(i)]["length"] if cls is CountingEnv else 0 for i in range(2)]
    assert replayed == running  # nothing but the running episode is played again; from a snapshot not even that


def saved_and_loaded(state):
    """Through arrays and JSON, as a checkpoint does it."""
    arrays = {path: leaf for path, leaf in flatten(state).items() if isinstance(leaf, np.ndarray)}
    rest = json.loads(json.dumps({path: leaf for path, leaf in flatten(state).items() if path not in arrays}))
    tree: dict = {}
    for path, leaf in {**arrays, **rest}.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


def test_state_changes_nothing_and_is_a_copy(tmp_path):
    env = walks(tmp_path)
    env.reset()
    env.step(np.array([0, 1]))
    saved = env.state()
    kept = json.dumps(saved, default=lambda array: array.tolist())
    for _ in range(30):
        env.step(np.array([1, 0]))
    assert json.dumps(saved, default=lambda array: array.tolist()) == kept


def test_the_time_limit_around_a_snapshot_env_is_restored_too(tmp_path):
    def build(name):
        return InProcess([TimeLimit(WithSnapshot(str(tmp_path / name), length=99), 10)], by_stream)

    env, again = build("a"), build("b")
    env.reset()
    for _ in range(4):
        env.step(np.array([0]))
    again.restore(env.state())
    ended = [k for k in range(1, 12) if again.step(np.array([1])).truncated[0]]
    assert ended == [6]  # 4 + 6 = 10


def test_an_env_inside_a_wrapper_with_unknown_state_is_replayed_instead(tmp_path):
    env = InProcess([NormalizeReward(WithSnapshot(str(tmp_path / "a")))], by_stream)
    env.reset()
    env.step(np.array([0]))
    assert "actions" in env.state()["envs"]["0"]


@pytest.mark.parametrize(
    ("leak", "told"), [("obs", "last observation differs"), ("reward", "return differs"), ("end", "ended earlier")]
)
def test_an_env_that_ignores_its_seed_makes_the_resumed_run_approximate_with_the_reason(tmp_path, leak, told):
    class Careless(CountingEnv):
        made = 0

        def __init__(self, *args):
            super().__init__(*args)
            Careless.made += 1
            self.number = Careless.made

        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            if leak == "obs":
                obs[0] += self.number
            if leak == "reward":
                reward += self.number
            return obs, reward, terminated or (leak == "end" and self.number == 2 and self.time == 2), truncated, info

    env, again = (InProcess([Careless(str(tmp_path / "log"))], by_stream) for _ in range(2))
    env.reset()
    for _ in range(3):
        env.step(np.array([0]))
    again.restore(env.state())
    assert told in again.exactness
    assert "env 0 of worker 0" in again.exactness
    assert again.state()["envs"]["0"]["episode"] == (1 if leak == "end" else 0)
    again.step(np.array([0]))
    third = InProcess([Careless(str(tmp_path / "log"))], by_stream)
    third.restore(again.state())
    assert told in third.exactness  # once approximate, always approximate


def test_an_episode_too_long_to_be_replayed_says_so_and_is_begun_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(action_log, "LONGEST", 128)
    env, again = walks(tmp_path, 1, length=500), walks(tmp_path, 1, length=500)
    env.reset()
    actions = [k % 2 for k in range(129)]
    for k in range(128):
        env.step(np.array([actions[k]]))
    assert env.exactness == "exact"
    assert len(env.state()["envs"]["0"]["actions"]) == env.state()["envs"]["0"]["length"] == 128
    env.step(np.array([1]))
    assert "too long" in env.exactness
    again.restore(env.state())
    assert again.state()["envs"]["0"]["episode"] == 1


def test_a_checkpoint_of_another_number_of_envs_is_refused(tmp_path):
    env = walks(tmp_path, 2)
    env.reset()
    with pytest.raises(CheckpointError, match=r"holds 2 envs .* has 3"):
        walks(tmp_path, 3).restore(env.state())


def test_envs_of_one_run_must_have_equal_spaces():
    with pytest.raises(ConfigError, match=r"env 1 .* other spaces"):
        InProcess([gymnasium.make("CartPole-v1"), gymnasium.make("Acrobot-v1")], by_stream)


def test_wrong_use_is_told(tmp_path):
    env = walks(tmp_path)
    with pytest.raises(UsageError, match="before reset"):
        env.step(np.zeros(2, np.int64))
    env.reset()
    with pytest.raises(UsageError, match="3 actions for 2 envs"):
        env.step(np.zeros(3, np.int64))


def test_call_reaches_methods_and_attributes_of_every_env(tmp_path):
    env = make(EnvConfig(id="CartPole-v1"), count=2, purpose="train", streams=Streams(0))
    assert env.call("gravity") == [9.8, 9.8]
    old = make(EnvConfig(), count=1, purpose="train", streams=Streams(0), factory=OldStyle)
    assert old.call("limit") == [5]


def test_closing_goes_on_after_an_env_that_fails_to_close(caplog):
    closed = []

    class Door(Scripted):
        def close(self):
            closed.append(self)
            raise RuntimeError("stuck")

    env = InProcess([Door([[(0.0, True, False)]]) for _ in range(3)], by_stream)
    env.close()
    assert len(closed) == 3
    assert caplog.text.count("close failed: RuntimeError: stuck") == 1
