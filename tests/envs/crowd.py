"""Crowd: episodes of several agents by a random plot, told in any of the four APIs; and what rows of a team must be,
worked out from the plot alone.

A plot has moments 0 … T. In each some agents must act; between two moments anybody may be paid; agents come late, leave
early (terminated or truncated) and may wait for their turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from gymnasium import spaces

AGENTS = ("a", "b", "c", "d")
WIDTH = {"a": 2, "b": 3, "c": 1, "d": 2}
CHOICES = {"a": 3, "b": 2, "c": 4, "d": 2}
START = {"a": 0, "b": 0, "c": 1, "d": 0}


@dataclass
class Plot:
    """Everything that happens in one episode."""

    acting: list[list[str]] = field(default_factory=list)  # per moment; empty in the last
    paid: list[dict[str, float]] = field(default_factory=list)  # between a moment and the next
    ends: list[dict[str, str]] = field(default_factory=list)  # at a moment: agent → terminated or truncated
    there: list[list[str]] = field(default_factory=list)
    noise: np.ndarray = field(default_factory=lambda: np.zeros(0))
    legal: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of b

    def obs(self, agent, t):
        k = AGENTS.index(agent)
        seen = np.array([t + 1, k + 1, self.noise[t, k]][: WIDTH[agent]], np.float32)
        return seen if agent != "b" else {"observation": seen, "action_mask": self.legal[t]}


def plot(api, seed):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(2, 9))
    story = Plot(noise=rng.random((length + 1, 4)).astype(np.float32), legal=np.ones((length + 1, 2), np.int8))
    story.legal[np.arange(length + 1), rng.integers(2, size=length + 1)] = rng.integers(2, size=length + 1)
    comes = {a: 0 if api in ("tuple", "turns") or rng.random() < 0.6 else int(rng.integers(length)) for a in AGENTS}
    comes["abcd"[rng.integers(4)]] = 0
    gone = {}
    last = str(rng.choice(["terminated", "truncated"]))
    for t in range(length + 1):
        ends = {}
        known = [a for a in AGENTS if comes[a] <= t and a not in gone]
        for agent in known:
            if t == length:
                ends[agent] = (
                    last if api == "tuple" or rng.random() < 0.7 else str(rng.choice(["terminated", "truncated"]))
                )
            elif t > comes[agent] and api != "tuple" and rng.random() < 0.1 and len(known) - len(ends) > 1:
                ends[agent] = str(rng.choice(["terminated", "truncated"]))
        gone |= ends
        there = [a for a in known if a not in gone]
        if api in ("parallel", "tuple"):
            acting = there
        elif api == "turns":
            acting = [str(rng.choice(there))] if there else []
        else:
            new = [a for a in there if comes[a] == t]
            acting = [a for a in there if a in new or rng.random() < 0.6] or there[:1]
        story.ends.append(ends)
        story.there.append(there)
        story.acting.append(acting)
        story.paid.append({a: float(rng.integers(-4, 5)) / 4 for a in there})
    return story


class Crowd:
    """What the APIs share. `seen`: the observations that the env showed, for the reference."""

    metadata: dict = {"render_modes": [], "name": "crowd"}
    render_mode = None
    api = ""

    def __init__(self):
        self.possible_agents, self.agents = list(AGENTS), []
        box = {a: spaces.Box(0, 10, (WIDTH[a],), np.float32) for a in AGENTS}
        box["b"] = spaces.Dict({"observation": box["b"], "action_mask": spaces.Box(0, 1, (2,), np.int8)})
        self.observation_spaces = box
        self.action_spaces = {a: spaces.Discrete(CHOICES[a], start=START[a]) for a in AGENTS}
        self.state_space = spaces.Box(0, 10, (2,), np.float32)

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def state(self):
        return np.array([self.time, self.story.noise[self.time, 0]], np.float32)

    def begin(self, seed):
        self.story, self.time = plot(self.api, seed), 0
        self.agents = list(self.story.there[0])

    def advance(self, actions):
        story = self.story
        assert sorted(actions) == sorted(story.acting[self.time]), (actions, story.acting[self.time])
        for agent, action in actions.items():
            assert action.__class__ is int
            assert self.action_spaces[agent].contains(action)
            legal = story.legal[self.time]
            assert agent != "b" or legal[action] or not legal.any()
        paid = story.paid[self.time]
        self.time += 1
        self.agents = list(story.there[self.time])
        return paid

    @property
    def unwrapped(self):
        return self

    def close(self):
        """Nothing is held."""


def flags(story, t, agents):
    return [{a: story.ends[t].get(a) == kind for a in agents} for kind in ("terminated", "truncated")]


class ParallelCrowd(Crowd):
    api = "parallel"

    def reset(self, seed=None, options=None):
        self.begin(seed)
        return {a: self.story.obs(a, 0) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        before = list(self.agents)
        paid, t = self.advance(actions), self.time
        who = list(dict.fromkeys([*before, *self.agents]))
        obs = {a: self.story.obs(a, t) for a in who}
        return obs, paid, *flags(self.story, t, who), {a: {} for a in who}


class DictCrowd(Crowd):
    api = "dict"

    def reset(self, seed=None, options=None):
        self.begin(seed)
        return {a: self.story.obs(a, 0) for a in self.story.acting[0]}, {}

    def step(self, actions):
        paid, t, story = self.advance(actions), self.time, self.story
        shown = [*story.acting[t], *story.ends[t]]
        terminated, truncated = flags(story, t, story.ends[t])
        over = t == len(story.acting) - 1
        all_of = {"__all__": False}
        obs = {a: story.obs(a, t) for a in shown}
        assert over or story.acting[t]
        return obs, paid, terminated | all_of, truncated | all_of, {}


class TupleCrowd(Crowd):
    api = "tuple"

    def __init__(self):
        super().__init__()
        self.spaces = self.observation_spaces, self.action_spaces
        self.observation_space, self.action_space = (spaces.Tuple([part[a] for a in AGENTS]) for part in self.spaces)

    def reset(self, seed=None, options=None):
        self.begin(seed)
        return tuple(self.story.obs(a, 0) for a in AGENTS), {}

    def step(self, actions):
        paid, t = self.advance(dict(zip(AGENTS, actions))), self.time
        over = t == len(self.story.acting) - 1
        kind = next(iter(self.story.ends[t].values()), "")
        obs = tuple(self.story.obs(a, t) for a in AGENTS)
        return obs, [paid[a] for a in AGENTS], over and kind == "terminated", over and kind == "truncated", {}


class TurnsCrowd(Crowd):
    """As PettingZoo's AECEnv: ended agents stay in `agents` until they are stepped with None."""

    api = "turns"

    def reset(self, seed=None, options=None):
        self.begin(seed)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0)
        self.terminations, self.truncations = dict.fromkeys(AGENTS, False), dict.fromkeys(AGENTS, False)
        self.infos = {a: {} for a in AGENTS}
        self._next()

    def _next(self):
        dead = [a for a in self.agents if self.terminations[a] or self.truncations[a]]
        self.agent_selection = dead[0] if dead else (self.story.acting[self.time] or [None])[0]

    def observe(self, agent):
        return self.story.obs(agent, self.time)

    def last(self):
        a = self.agent_selection
        return self.observe(a), self._cumulative_rewards[a], self.terminations[a], self.truncations[a], {}

    def step(self, action):
        agent = self.agent_selection
        self._cumulative_rewards[agent] = 0.0
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self.agents.remove(agent)
        else:
            before = list(self.agents)
            for payee, reward in self.advance({agent: action}).items():
                self._cumulative_rewards[payee] += reward
            for ended, kind in self.story.ends[self.time].items():
                (self.terminations if kind == "terminated" else self.truncations)[ended] = True
            self.agents = before
        self._next()


CROWDS = {kind.api: kind for kind in (ParallelCrowd, TurnsCrowd, DictCrowd, TupleCrowd)}


def team_rows(story, members, api):
    """(obs, present, mask, world, reward, terminated, truncated, successor) of every row of a team, by hand."""

    def look(t, present):
        agents = np.zeros((len(members), max(WIDTH[m] for m in members)), np.float32)
        masks = []
        for k, m in enumerate(members):
            over = [s for s in range(t + 1) if m in story.ends[s]]
            shown = [s for s in range(t + 1) if m in story.acting[s] or m in story.ends[s]]
            if shown and not (over and story.ends[over[0]][m] == "terminated"):
                seen = story.obs(m, shown[-1])
                seen = seen["observation"] if m == "b" else seen
                agents[k, : len(seen)] = seen
            legal = (
                (story.legal[shown[-1]] if m == "b" else np.ones(CHOICES[m])) if m in present else np.zeros(CHOICES[m])
            )
            masks += list(legal)
        world = [t, story.noise[t, 0]]
        return (
            agents.tolist(),
            [int(m in present) for m in members],
            np.int8(masks).tolist(),
            np.float32(world).tolist(),
        )

    final = len(story.acting) - 1
    turns = [t for t in range(final) if set(story.acting[t]) & set(members)]
    ended = [max((s for s in range(final + 1) if m in story.ends[s]), default=None) for m in members]
    came = [m for m in members if any(m in there for there in story.there) or any(m in e for e in story.ends)]
    whole = len(came) == len(members) and None not in ended
    end = max(ended) if whole else final
    rows = []
    for k, t in enumerate(turns):
        following = turns[k + 1] if k + 1 < len(turns) else None
        until = end if following is None else following
        reward = sum(story.paid[s].get(m, 0.0) for s in range(t, until) for m in members)
        obs = look(t, set(story.acting[t]) & set(members))
        if following is not None:
            rows.append((obs, reward, False, False, look(until, set(story.acting[until]) & set(members))))
            continue
        cut = {m for m in members if any(story.ends[s].get(m) == "truncated" for s in range(end + 1))}
        rows.append((obs, reward, not cut, bool(cut), look(end, cut)))
    return rows
