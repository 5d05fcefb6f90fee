"""Adapters: what an env with several agents says, brought from its own API into one form.

    Parallel   PettingZoo's ParallelEnv: all agents that are there act at once
    Turns      PettingZoo's AECEnv: one agent at a time; ended agents are stepped with None until they are gone
    Dicts      reset() -> (obs, info), step(actions) -> (obs, reward, terminated, truncated, info), all dicts by agent:
               who observed must act next, whoever did not waits, and who ended may come back; `terminated` and
               `truncated` have the entry "__all__", which speaks for everybody; with one agent: OnlyAgent
    Tuples     a gymnasium env whose spaces are Tuples with a part per agent (LBF, RWARE); everybody acts in every step

Nothing here imports PettingZoo: an env only has to behave like one of its envs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.tree import Tree
from rookery.envs.actions import split
from rookery.envs.adapters import accepts
from rookery.envs.boundary import BadValue, Receiver, flag

ALL = "__all__"


@dataclass(slots=True)
class Timestep:
    """What an env said after a reset or a step, whatever its API."""

    acting: list[str]  # who must act next
    obs: Mapping[str, Any]  # of those who must act, and of those who ended as far as the env tells
    reward: dict[str, Any] = field(default_factory=dict)  # what each agent received and was not told before
    terminated: Sequence[str] = ()
    truncated: Sequence[str] = ()
    infos: dict[str, Any] = field(default_factory=dict)
    over: bool = False  # nobody is left
    plain: bool = False  # most steps: everybody observed, was paid and acts again


class ApiAdapter(ABC):
    """One env behind one common face."""

    limit: int | None = None  # env steps until everybody is cut off
    comes_back: bool = False  # whether who has ended may act again in the same episode, from a new start
    prompt: bool = False  # whether rewards are told when they are paid, also to who waits
    needs: tuple[str, ...] = ("reset", "step", "possible_agents", "observation_space", "action_space")

    def __init__(self, env: Any):
        if missing := [name for name in self.needs if not hasattr(env, name)]:
            raise ConfigError(f"{type(env).__name__} cannot be used with this env.api: it has no {', '.join(missing)}")
        self.env = env
        self.agents = self._names()
        if not self.agents or not all(isinstance(agent, str) for agent in self.agents):
            raise ConfigError(f"{type(env).__name__} has the agents {list(self.agents)}: expected names, at least one")
        self._everybody = dict.fromkeys(self.agents).keys()

    def _names(self) -> tuple[str, ...]:
        return tuple(self.env.possible_agents)

    def spaces(self, agent: str) -> tuple[spaces.Space, spaces.Space]:
        """(observation space, action space) of an agent."""
        return self.env.observation_space(agent), self.env.action_space(agent)

    @abstractmethod
    def reset(self, seed: int | None) -> Timestep:
        """Start an episode."""

    @abstractmethod
    def step(self, actions: dict[str, Any]) -> Timestep:
        """Act for those, and only those, who must."""

    def method(self, name: str) -> Callable[..., Any] | None:
        """A method of the env, as its agents know it; None if there is none."""
        method = getattr(self.env, name, None)
        return method if callable(method) else None

    def last(self, agent: str) -> tuple[Any, float]:
        """(observation or None, reward) of an agent who waits when the episode is cut, as far as they were not told
        yet."""
        return None, 0.0

    def split(self, agent: str) -> Callable[[Tree], list[Any]]:
        """From the actions [B, …] of an agent to those of every env."""
        return split(self.spaces(agent)[1])

    def receiver(self, agent: str, spec: Tree, num: int) -> Receiver:
        """Buffers for what an agent sees in `num` envs."""
        return Receiver(self.spaces(agent)[0], spec, num)

    def known(self) -> tuple[str, ...]:
        """The agents that the env itself may speak of."""
        return self.agents

    def returns(self) -> dict[str, float]:
        """What members of teams received in the episode."""
        return {}


class Parallel(ApiAdapter):
    """A ParallelEnv: whoever is in `agents` acts in the next step."""

    def __init__(self, env: Any):
        super().__init__(env)
        self._all, self._of = list(self.agents), itemgetter(*self.agents, self.agents[0])  # always a tuple
        self._nobody = (False,) * (len(self.agents) + 1)
        self._again = Timestep(self._all, {}, plain=True)  # of every plain step, for making one costs as much as a walk

    def reset(self, seed: int | None) -> Timestep:
        obs, infos = _pair(self.env.reset(seed=seed))
        return Timestep(list(self.env.agents), obs, infos=infos)

    def step(self, actions: dict[str, Any]) -> Timestep:
        obs, reward, terminated, truncated, infos = _five(self.env.step(actions))
        count, of = len(self._all), self._of
        if len(obs) == len(reward) == count == len(terminated) == len(truncated) and self._all == self.env.agents:
            try:
                if of(terminated) == self._nobody == of(truncated) and of(obs) and of(reward):
                    again = self._again
                    again.obs, again.reward, again.infos = obs, reward, infos
                    return again
            except KeyError:  # somebody is missing, and who is not known is there
                pass
        there = list(self.env.agents)
        for agent in actions:
            _has(agent, {"reward": reward, "terminated": terminated, "truncated": truncated})
        ended = _true(terminated), _true(truncated)
        acting = [agent for agent in there if agent not in ended[0] and agent not in ended[1]]
        plain = not (ended[0] or ended[1]) and self._everybody == obs.keys() == reward.keys() == set(acting)
        return Timestep(acting, obs, reward, *ended, infos, not acting, plain)


class Turns(ApiAdapter):
    """An AECEnv: `agent_selection` acts. `last()` gives what an agent received since it acted.

    `prompt`: what somebody receives in another's turn is told at once and not at its own next turn, for a team whose
    other members act in between.
    """

    needs = (*ApiAdapter.needs, "last", "observe")

    def __init__(self, env: Any):
        super().__init__(env)
        self._paid: dict[str, float] = {}  # of agents whose end was told: what they had received then
        self._early: dict[str, float] = {}  # of what an agent received since it acted, what was told already

    def reset(self, seed: int | None) -> Timestep:
        self._paid, self._early = {}, {}
        self.env.reset(seed=seed)
        return self._look()

    def step(self, actions: dict[str, Any]) -> Timestep:
        agent = self.env.agent_selection
        self.env.step(actions[agent])
        self._early.pop(agent, None)
        return self._look()

    def _look(self) -> Timestep:
        env, obs = self.env, dict[str, Any]()
        timestep = Timestep([], obs)
        for agent in env.agents:
            if agent not in self._paid and self._ended(agent):
                self._paid[agent] = env._cumulative_rewards[agent]
                timestep.reward[agent] = self._paid[agent] - self._early.get(agent, 0.0)
                obs[agent], timestep.infos[agent] = env.observe(agent), env.infos.get(agent, {})
        timestep.terminated = [agent for agent in obs if env.terminations[agent]]
        timestep.truncated = [agent for agent in obs if env.truncations[agent]]
        self._bury(timestep, obs)
        timestep.over = not env.agents
        if not timestep.over:
            agent = env.agent_selection
            timestep.acting.append(agent)
            obs[agent], reward, _, _, timestep.infos[agent] = env.last()
            timestep.reward[agent] = reward - self._early[agent] if agent in self._early else reward
        for waiting in env.agents if self.prompt else ():
            if waiting not in timestep.reward:
                received = env._cumulative_rewards[waiting]
                timestep.reward[waiting] = received - self._early.get(waiting, 0.0)
                self._early[waiting] = received
        return timestep

    def _bury(self, timestep: Timestep, obs: dict[str, Any]) -> None:
        """Step ended agents with None while it is their turn; what they received after their end is told too."""
        env = self.env
        for _ in range(len(self.agents) + 1):
            if not env.agents or not self._ended(env.agent_selection):
                return
            agent = env.agent_selection
            later = env._cumulative_rewards[agent] - self._paid.get(agent, 0.0)
            timestep.reward[agent] = timestep.reward.get(agent, 0.0) + later
            self._paid[agent] = env._cumulative_rewards[agent]
            if agent in obs:  # some envs show their best only to the agent that is selected
                obs[agent] = env.observe(agent)
            env.step(None)
        raise BadValue("an ended agent stays selected: let step(None) remove it, as AECEnv._was_dead_step does")

    def _ended(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def last(self, agent: str) -> tuple[Any, float]:
        there = agent in self.env.agents
        received = self.env._cumulative_rewards.get(agent, 0.0) - self._early.get(agent, 0.0)
        return self.env.observe(agent) if there else None, received


class Dicts(ApiAdapter):
    """An env that answers with dicts by agent. Who has ended may observe again later: it begins anew."""

    comes_back = True
    needs = ("reset", "step", "observation_spaces", "action_spaces")

    def __init__(self, env: Any):
        super().__init__(env)
        self._seeded = accepts(env.reset, "seed")
        self._there: list[str] = []  # has observed and has not ended

    def _names(self) -> tuple[str, ...]:
        return tuple(getattr(self.env, "possible_agents", self.env.observation_spaces))

    def spaces(self, agent: str) -> tuple[spaces.Space, spaces.Space]:
        return self.env.observation_spaces[agent], self.env.action_spaces[agent]

    def begin(self, seed: int | None) -> tuple[Any, Any]:
        """The two dicts of a reset."""
        if not self._seeded and hasattr(self.env, "seed"):
            self.env.seed(seed)
        return _pair(self.env.reset(seed=seed) if self._seeded else self.env.reset())

    def reset(self, seed: int | None) -> Timestep:
        obs, infos = self.begin(seed)
        self._there = list(obs)
        return Timestep(list(obs), obs, infos=infos)

    @staticmethod
    def checked(answer: Any) -> tuple[Any, Any, Any, Any, Any]:
        """The five dicts of a step, if they have their form."""
        _five(answer)
        if ALL not in answer[2] or ALL not in answer[3]:
            _has(ALL, {"terminated": answer[2], "truncated": answer[3]})
        return answer

    def step(self, actions: dict[str, Any]) -> Timestep:
        obs, reward, terminated, truncated, infos = self.checked(self.env.step(actions))
        if self._everybody == obs.keys() == reward.keys() and not (
            len(self._there) < len(obs) or any(terminated.values()) or any(truncated.values())
        ):
            return Timestep(self._there, obs, reward, (), (), infos, False, True)
        there = [*self._there, *(agent for agent in obs if agent not in self._there)]
        ended = tuple(there if flag(flags[ALL], ALL) else _true(flags) for flags in (terminated, truncated))
        self._there = [agent for agent in there if agent not in ended[0] and agent not in ended[1]]
        acting = [agent for agent in obs if agent in self._there]
        return Timestep(acting, obs, reward, ended[0], ended[1], infos, over=not self._there)


class Tuples(ApiAdapter):
    """A gymnasium env with a Tuple of agents: `agent_0`, `agent_1`, … Rewards are a list, or one number for everybody.
    They end together: `terminated` and `truncated` are one flag, or a list that counts when all of it is set."""

    needs = ("reset", "step", "observation_space", "action_space")

    def _names(self) -> tuple[str, ...]:
        observed, acted = self.env.observation_space, self.env.action_space
        if not (isinstance(observed, spaces.Tuple) and isinstance(acted, spaces.Tuple) and len(observed) == len(acted)):
            raise ConfigError(
                f"env.api=tuple: {type(self.env).__name__} observes {observed} and acts {acted}; expected two Tuples "
                "with a part per agent"
            )
        return tuple(f"agent_{i}" for i in range(len(acted)))

    def spaces(self, agent: str) -> tuple[spaces.Space, spaces.Space]:
        i = self.agents.index(agent)
        return self.env.observation_space[i], self.env.action_space[i]

    def reset(self, seed: int | None) -> Timestep:
        obs, info = self.env.reset(seed=seed)
        return Timestep(list(self.agents), self._each(obs, "observations"), infos=dict.fromkeys(self.agents, info))

    def step(self, actions: dict[str, Any]) -> Timestep:
        result = self.env.step(tuple(actions[agent] for agent in self.agents))
        if not (isinstance(result, tuple) and len(result) == 5):
            raise BadValue(f"step returned {_form(result)}, expected (obs, rewards, terminated, truncated, info)")
        obs, reward, *flags, info = result
        shared = np.ndim(reward) == 0
        rewards = dict.fromkeys(self.agents, reward) if shared else self._each(reward, "rewards")
        ends, cut = (self.agents if np.all(flag) else () for flag in flags)
        over = bool(ends or cut)
        acting, infos = [] if over else list(self.agents), dict.fromkeys(self.agents, info)
        return Timestep(acting, self._each(obs, "observations"), rewards, ends, cut, infos, over, not over)

    def _each(self, values: Any, what: str) -> dict[str, Any]:
        """By agent."""
        if not isinstance(values, tuple | list | np.ndarray) or len(values) != len(self.agents):
            raise BadValue(f"it gave {_form(values)} as {what}, expected one for each of {len(self.agents)} agents")
        return dict(zip(self.agents, values))


class OnlyAgent(gymnasium.Env):
    """An env that answers with dicts, but for one agent alone, as an ordinary env: nobody else could act, so that it
    must act in every step. It needs no table, whose price would be that of CartPole."""

    def __init__(self, env: Any):
        self._dicts = Dicts(env)
        (self.agent,) = self._dicts.agents
        self.env, self._last = env, None
        self.observation_space, self.action_space = self._dicts.spaces(self.agent)

    @classmethod
    def fits(cls, env: Any) -> bool:
        """Whether a dict env has one agent."""
        return len(getattr(env, "possible_agents", getattr(env, "observation_spaces", ()))) == 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, infos = self._dicts.begin(seed)
        self._last = self._own(obs, over=False)
        return self._last, infos.get(self.agent, {})

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        agent = self.agent
        answer = self.env.step({agent: action})
        try:  # nearly always everything is there; to ask first would cost as much as a third of CartPole
            obs, reward, terminated, truncated, infos = answer
            if len(obs) == 1:
                self._last = last = obs[agent]
                ends, cut = terminated[ALL] or terminated[agent], truncated[ALL] or truncated[agent]
                return last, reward[agent], ends, cut, infos[agent]
        except (KeyError, IndexError, TypeError, ValueError):
            pass
        return self._partial(answer)

    def _partial(self, answer: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """An answer in which something may be missing: the reason is told, or what goes without saying is added."""
        obs, reward, terminated, truncated, infos = self._dicts.checked(answer)
        agent = self.agent
        ended = terminated[ALL] or terminated.get(agent, False), truncated[ALL] or truncated.get(agent, False)
        self._last = self._own(obs, over=ended[0] or ended[1])
        return self._last, reward.get(agent, 0.0), *ended, infos.get(agent, {})

    def _own(self, obs: Mapping[str, Any], over: bool) -> Any:
        """Its observation; at the end, if it was given none, that on which it acted."""
        if others := [name for name in obs if name != self.agent]:
            raise BadValue(f"it speaks of an agent {others[0]!r}, but its agents are [{self.agent!r}]")
        if self.agent not in obs and not over:
            raise BadValue(f"nobody must act and the episode is not over; [{self.agent!r}] would wait for ever")
        return obs.get(self.agent, self._last)

    def close(self) -> None:
        getattr(self.env, "close", lambda: None)()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def _pair(result: Any) -> tuple[Any, Any]:
    if result.__class__ is tuple and len(result) == 2 and result[0].__class__ is result[1].__class__ is dict:
        return result
    if not (isinstance(result, tuple) and len(result) == 2 and all(isinstance(part, Mapping) for part in result)):
        raise BadValue(f"reset returned {_form(result)}, expected (obs, info), two dicts")
    return result


def _five(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    if result.__class__ is tuple and len(result) == 5:
        a, b, c, d, e = result
        if a.__class__ is b.__class__ is c.__class__ is d.__class__ is e.__class__ is dict:
            return result  # nearly always; asking for any Mapping is slow
    if not (isinstance(result, tuple) and len(result) == 5 and all(isinstance(part, Mapping) for part in result)):
        raise BadValue(
            f"step returned {_form(result)}, expected (obs, reward, terminated, truncated, info), five dicts by agent"
        )
    return result


def _form(result: Any) -> str:
    if isinstance(result, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in result)}"
    return f"a {type(result).__name__}"


def _has(key: str, parts: dict[str, Mapping[str, Any]]) -> None:
    for name, part in parts.items():
        if key not in part:
            raise BadValue(f"{name} has no entry for {key!r}, only for {list(part)}")


def _true(flags: Mapping[str, Any]) -> list[str]:
    some = ((agent, value) for agent, value in flags.items() if (value or value is None) and agent != ALL)
    return [agent for agent, value in some if flag(value, f"the end of {agent!r}")]
