"""The built-in wrappers around envs with several agents: the same for every agent as around an env with one, in all
three APIs."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery.core.errors import ConfigError, EnvError
from rookery.core.registry import register, unregister
from rookery.core.rng import Streams
from rookery.core.tree import flatten
from rookery.envs import EnvConfig, make, make_multi
from rookery.envs.tasks.games import Game, Shifts, Verdicts

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
THREE = spaces.Discrete(3)
WIDE = spaces.Box(np.float32([0, -4]), np.float32([10, 4]))


class Parallel(Game):
    """a and b act at once; a earns 3 per step, b loses 2; six steps."""

    def __init__(self, observation=BOX, action=THREE):
        self.possible_agents, self.got = ["a", "b"], []
        self.observation_spaces, self.action_spaces = (dict.fromkeys("ab", s) for s in (observation, action))

    def reset(self, seed=None, options=None):
        self.agents, self.time = ["a", "b"], 0
        return self._seen(), {}

    def _seen(self):
        return {x: self.observation_spaces[x].sample() for x in "ab"}

    def step(self, actions):
        self.got.append(actions)
        self.time += 1
        over = dict.fromkeys("ab", self.time == 6)
        self.agents = [] if over["a"] else self.agents
        return self._seen(), {"a": 3.0, "b": -2.0}, over, dict.fromkeys("ab", False), {}


class Dicts(Parallel):
    """a sees every step, b every second one, from the second on; both are paid in every step."""

    def reset(self, seed=None):
        obs, info = super().reset(seed)
        return {"a": obs["a"]}, info

    def step(self, actions):
        obs, reward, over, _, info = super().step(actions)
        seen = obs if self.time % 2 == 0 else {"a": obs["a"]}
        return seen, reward, {"__all__": over["a"]}, {"__all__": False}, info


def called(name, **kwargs):
    return {"name": name, "kwargs": kwargs}


def built(factory, api, *wrappers, num=1, **config):
    config = EnvConfig(api=api, wrappers=wrappers, **config)
    env = make_multi(config, count=num, purpose="train", streams=Streams(0), factory=factory)
    env.reset()
    return env


def zeros(env):
    """The action 0 of everybody who must act."""
    return {
        agent: np.zeros((env.num, *env.action_spec[agent].shape), env.action_spec[agent].dtype)
        for agent, acting in env.acting.items()
        if acting.any()
    }


def played(env, steps):
    """Rewards of complete rows by agent, and the ends."""
    rows, ends = {agent: [] for agent in env.agents}, []
    for _ in range(steps):
        out = env.step(zeros(env))
        ends += out.ended
        for agent, step in out.agents.items():
            rows[agent] += step.reward[step.valid].tolist()
    return rows, ends


def test_rewards_are_scaled_and_clipped_per_agent_innermost_first():
    env = built(Parallel, "parallel", called("reward_scale", factor=0.5), called("reward_clip", low=-0.75, high=2.0))
    rows, ends = played(env, 6)
    assert rows == {"a": [1.5] * 6, "b": [-0.75] * 6}
    assert ends[0].info["returns"] == {"a": 9.0, "b": -4.5}
    rows, _ = played(built(Parallel, "parallel", called("reward_clip", sign=True)), 6)
    assert rows == {"a": [1.0] * 6, "b": [-1.0] * 6}


def test_with_dicts_every_reward_of_a_step_is_changed_before_it_is_added_to_the_row():
    rows, ends = played(built(Dicts, "dict", called("reward_clip", low=-1.0, high=1.0)), 6)
    assert rows == {"a": [1.0] * 6, "b": [-2.0, -2.0]}  # b acts after steps 2 and 4: two clipped rewards each
    assert ends[0].info["returns"] == {"a": 6.0, "b": -6.0}


def test_in_turns_what_an_agent_received_until_its_turn_is_changed():
    plain, scaled = built(Verdicts, "turns"), built(Verdicts, "turns", called("reward_scale", factor=10.0))
    (rows, ends), (ours, our_ends) = played(plain, 60), played(scaled, 60)
    assert {agent: [10 * reward for reward in own] for agent, own in rows.items()} == ours
    assert [10 * end.total for end in ends] == [end.total for end in our_ends]


@pytest.mark.parametrize(("factory", "api"), [(Parallel, "parallel"), (Dicts, "dict")])
def test_actions_of_minus_one_to_one_reach_the_bounds_of_the_env(factory, api):
    env = built(lambda: factory(action=WIDE), api, "action_rescale")
    assert (env.action_spec["b"].low.tolist(), env.action_spec["b"].high.tolist()) == ([-1, -1], [1, 1])
    action = {agent: np.array([[1.0, -0.5]], np.float32) for agent in zeros(env)}
    env.step(action)
    assert {agent: got.tolist() for agent, got in env.envs[0].got[0].items()} == {key: [10.0, -2.0] for key in action}


@pytest.mark.parametrize(("factory", "api", "acted"), [(Parallel, "parallel", 1), (Dicts, "dict", 2)])
def test_the_time_left_goes_on_for_those_who_wait(factory, api, acted):
    env = built(factory, api, "time_awareness", max_episode_steps=4)
    assert env.obs_spec["a"].shape == env.obs_spec["b"].shape == (3,)
    assert env.obs["a"][0, 2] == 1.0
    seen = {"a": [], "b": []}
    for _ in range(4):
        out = env.step(zeros(env))
        for agent, step in out.agents.items():
            seen[agent] += [float(obs[2]) for _, obs in step.final]
            seen[agent] += [float(env.obs[agent][0, 2])] if env.acting[agent][0] and not out.ended else []
    assert seen["a"] == [0.75, 0.5, 0.25, 0.0]
    assert seen["b"] == [0.75, 0.5, 0.25, 0.0][acted - 1 :: acted]
    assert (len(out.ended), out.ended[0].truncated, float(env.obs["a"][0, 2])) == (1, True, 1.0)


def test_a_time_limit_cuts_everybody_and_is_known_to_time_awareness():
    env = built(Verdicts, "turns", called("time_limit", max_episode_steps=3), "time_awareness")
    _, ends = played(env, 7)
    assert [(end.length, end.terminated, end.truncated) for end in ends] == [(3, False, True)] * 2
    assert float(env.obs["second"][0, -1]) == pytest.approx(2 / 3)
    both = built(Parallel, "parallel", called("time_limit", max_episode_steps=5), max_episode_steps=2)
    assert [end.length for end in played(both, 6)[1]] == [2, 2, 2]  # the shorter one


def test_the_previous_step_is_that_of_the_agent_with_all_it_received_since():
    env = built(Dicts, "dict", "previous_step")
    assert set(env.obs_spec["b"]) == {"obs", "previous_action", "previous_reward"}
    previous = lambda agent: (  # noqa: E731
        env.obs[agent]["previous_action"][0].tolist(),
        env.obs[agent]["previous_reward"][0].tolist(),
    )
    assert previous("a") == ([0, 0, 0], [0.0])
    env.step({"a": np.array([2])})
    assert previous("a") == ([0, 0, 1], [3.0])
    env.step({"a": np.array([0])})
    assert previous("a") == ([1, 0, 0], [3.0])
    assert previous("b") == ([0, 0, 0], [0.0])  # it was paid before it ever acted: that belongs to no decision
    env.step({"a": np.array([0]), "b": np.array([1])})
    env.step({"a": np.array([0])})
    assert previous("b") == ([0, 1, 0], [-4.0])  # two steps
    env.step({"a": np.array([0]), "b": np.array([1])})
    out = env.step({"a": np.array([0])})
    final = dict(out.agents["a"].final)[0]
    assert (final["previous_action"].tolist(), final["previous_reward"].tolist()) == ([1, 0, 0], [3.0])
    assert previous("a") == ([0, 0, 0], [0.0])


class OneAgent(gymnasium.Env):
    """What agent a of `Parallel` sees, as an env of its own."""

    observation_space, action_space = BOX, WIDE

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.time += 1
        obs = (self.np_random.uniform(-1, 1, 2) * action.sum() / 20).astype(np.float32)
        return obs, float(obs[0] * 3), self.time == 6, False, {}


class AsDicts:
    """Two copies of it with one seed, as a dict env or a parallel one."""

    def __init__(self, copies=2):
        self.envs = {f"agent {k}": OneAgent() for k in range(copies)}
        self.possible_agents, self.agents = list(self.envs), []
        self.observation_spaces, self.action_spaces = (dict.fromkeys(self.envs, space) for space in (BOX, WIDE))

    def observation_space(self, agent):
        return BOX

    def action_space(self, agent):
        return WIDE

    def reset(self, seed=None, options=None):
        self.agents = list(self.envs)
        return {name: env.reset(seed=seed)[0] for name, env in self.envs.items()}, {}

    def step(self, actions):
        results = {name: self.envs[name].step(action) for name, action in actions.items()}
        obs, reward, terminated, truncated = ({name: part[k] for name, part in results.items()} for k in range(4))
        self.agents = [name for name in self.agents if not terminated[name]]
        everybody = {"__all__": not self.agents}
        return obs, reward, terminated | everybody, truncated | {"__all__": False}, {}


class AsParallel(AsDicts):
    def step(self, actions):
        obs, reward, *flags, info = super().step(actions)
        return obs, reward, *({k: v for k, v in part.items() if k != "__all__"} for part in flags), info


WRAPPERS = {
    "reward_scale": (called("reward_scale", factor=0.3),),
    "reward_clip": (called("reward_clip", low=-0.2, high=0.1),),
    "action_rescale": ("action_rescale",),
    "time_awareness": (called("time_awareness", limit=8),),
    "previous_step": ("previous_step",),
    "time_limit": (called("time_limit", max_episode_steps=4),),
    "all": (
        called("time_limit", max_episode_steps=4),
        "action_rescale",
        called("reward_scale", factor=0.3),
        "previous_step",
        "time_awareness",
        "reward_clip",
    ),
}


@pytest.mark.parametrize("chosen", WRAPPERS)
@pytest.mark.parametrize(("factory", "api"), [(AsParallel, "parallel"), (AsDicts, "dict")])
def test_every_agent_gets_to_the_bit_what_the_only_agent_of_an_env_gets(chosen, factory, api):
    wrappers = WRAPPERS[chosen]
    alone = make(EnvConfig(wrappers=wrappers), count=2, purpose="train", streams=Streams(0), factory=OneAgent)
    alone.reset()
    env = built(factory, api, *wrappers, num=2)
    rng = np.random.default_rng(0)
    bits = lambda obs: {path: leaf.tobytes() for path, leaf in flatten(obs).items()}  # noqa: E731
    for _ in range(15):
        action = rng.uniform(-1.5, 1.5, (2, 2)).astype(np.float32)
        one, several = alone.step(action), env.step(dict.fromkeys(env.agents, action))
        for agent, step in several.agents.items():
            assert bits(env.obs[agent]) == bits(one.obs)
            assert step.reward.tobytes() == one.reward.tobytes()
            assert (step.terminated.tolist(), step.truncated.tolist()) == (
                one.terminated.tolist(),
                one.truncated.tolist(),
            )
            assert [(i, bits(obs)) for i, obs in step.final] == [(i, bits(obs)) for i, obs in one.final]


@pytest.mark.parametrize(("factory", "api"), [(AsParallel, "parallel"), (AsDicts, "dict"), (Verdicts, "turns")])
def test_a_restored_env_goes_on_bit_for_bit_in_its_wrappers(factory, api):
    wrappers = ("previous_step", called("time_awareness", limit=9), called("reward_scale", factor=3.0))
    env, again = built(factory, api, *wrappers, num=2), built(factory, api, *wrappers, num=2)
    played(env, 15)
    again.restore(env.state())
    assert again.exactness == "exact"
    assert played(env, 20)[0] == played(again, 20)[0]
    for agent in env.agents:
        assert {k: v.tobytes() for k, v in env.obs[agent].items()} == {
            k: v.tobytes() for k, v in again.obs[agent].items()
        }


class Own:
    """A wrapper of a user's, around the env itself."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)


class Doubled(Own):
    def step(self, actions):
        obs, reward, *rest = self.env.step(actions)
        return obs, {agent: 2 * value for agent, value in reward.items()}, *rest


HERE = "envs.multi.test_wrapped:"


def test_wrappers_of_ones_own_are_inside_built_in_ones():
    env = built(Parallel, "parallel", HERE + "Own", HERE + "Doubled", called("reward_clip", low=-3.0, high=5.0))
    assert played(env, 3)[0] == {"a": [5.0] * 3, "b": [-3.0] * 3}  # 6 and −4, clipped
    assert type(env.envs[0]).__name__ == "Doubled"


@pytest.mark.parametrize(
    ("wrappers", "told"),
    [
        (("reward_clip", HERE + "Own"),
            "'envs.multi.test_wrapped:Own' is put around the env itself, .*outside 'reward_clip'"),
        (("atari",), "the wrapper 'atari' is for one agent, env.api=parallel has several"),
        (("life_loss",), "the wrapper 'life_loss' is for one agent"),
        (("gymnasium.wrappers:FlattenObservation",), "is for one agent"),
        (("rewardclip",), "unknown wrapper 'rewardclip'. Did you mean 'reward_clip'"),
        (("action_rescale",), r"action_rescale maps .*Discrete\(3\).* \(agent 'a'\)"),
        (("time_awareness",), r"no time limit.* \(agent 'a'\)"),
        ((called("reward_scale"),), "the wrapper 'reward_scale' cannot be built with {}"),
        ((called("reward_scale", scale=3),), "cannot be built with {'scale': 3}"),
        ((called("time_limit"),), "the wrapper 'time_limit' cannot be built with {}"),
        ((called("time_limit", max_episode_steps=0),), "expected a number of steps from 1 on, got 0"),
        ((called("reward_clip", low=2.0),), "low=2.0 must be smaller than high=1.0"),
    ],
)  # fmt: skip
def test_what_cannot_be_wrapped_is_told(wrappers, told):
    with pytest.raises(ConfigError, match=told):
        built(Parallel, "parallel", *wrappers)


def test_a_registered_wrapper_of_ones_own_is_put_around_the_env_itself():
    register("wrapper", "doubled", Doubled)
    try:
        assert played(built(Parallel, "parallel", "doubled"), 2)[0] == {"a": [6.0] * 2, "b": [-4.0] * 2}
    finally:
        unregister("wrapper", "doubled")


def test_wrappers_differ_between_training_and_evaluation():
    config = EnvConfig(
        api="parallel", train_wrappers=("reward_clip",), eval_wrappers=(called("reward_scale", factor=2),)
    )
    for purpose, reward in (("train", 1.0), ("eval", 6.0)):
        env = make_multi(config, count=1, purpose=purpose, streams=Streams(0), factory=Parallel)
        env.reset()
        assert env.step(zeros(env)).agents["a"].reward.tolist() == [reward]


def test_nan_goes_through_the_wrappers_and_is_noticed():
    class Rotten(Parallel):
        def step(self, actions):
            obs, reward, *rest = super().step(actions)
            return obs, reward | {"b": np.nan}, *rest

    env = built(Rotten, "parallel", "reward_clip", "previous_step")
    with pytest.raises(EnvError, match=r"agent 'b'.* the reward is nan"):
        env.step(zeros(env))


def test_an_agent_that_nobody_knows_is_told_in_wrappers_too():
    class Ghost(Shifts):
        def step(self, actions):
            obs, *rest = super().step(actions)
            return obs | {"ghost": np.zeros(1, np.float32)}, *rest

    env = built(Ghost, "dict", "previous_step", "reward_clip")
    with pytest.raises(EnvError, match="it speaks of an agent 'ghost'"):
        env.step(zeros(env))
