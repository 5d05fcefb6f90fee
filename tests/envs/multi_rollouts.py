"""Transitions of every agent as a MultiEnv gives them, and the slow references that step one raw env by hand."""

from __future__ import annotations

import numpy as np

from envs.rollouts import Transition, plain


class Recorder:
    """Steps a MultiEnv with random actions and keeps the rows of every agent in every env, as (episode, Transition)."""

    def __init__(self, env, seed=0):
        self.env, self.rng = env, [np.random.default_rng((seed, i)) for i in range(env.num)]
        self.rows = {agent: [[] for _ in range(env.num)] for agent in env.agents}
        self.ends = [[] for _ in range(env.num)]
        self.held = {agent: [None] * env.num for agent in env.agents}  # (obs, action) of agents that wait

    def actions(self, count=None):
        """Masked random actions; env i draws from its own generator, agents in order, only for those who act."""
        env, given = self.env, {}
        for agent in env.agents:
            if env.acting[agent].any():
                given[agent] = np.zeros(env.num, np.int64)
        for i in range(env.num if count is None else count):
            for agent in env.agents:
                if env.acting[agent][i]:
                    given[agent][i] = choose(self.rng[i], env.action_spaces[agent].n, env.obs[agent], i)
        return given

    def step(self, given=None, **limits):
        env = self.env
        given = self.actions() if given is None else given
        before = {a: [plain(env.obs[a], i) if env.acting[a][i] else None for i in range(env.num)] for a in env.agents}
        episodes = [table.episode for table in env._tables]
        lengths = [(table.episode, table.length) for table in env._tables]
        out = env.step(given, **limits)
        ended = {end.env for end in out.ended}
        for i, table in enumerate(env._tables):
            if (table.episode, table.length) == lengths[i]:
                continue  # not stepped
            for agent in env.agents:
                if before[agent][i] is not None:
                    self.held[agent][i] = before[agent][i], int(given[agent][i])
        for agent, step in out.agents.items():
            final = {i: plain(tree) for i, tree in step.final}
            assert step.marked == (bool(final) or not step.valid.all())
            for i in range(env.num):
                if not step.valid[i]:
                    assert step.reward[i] == 0.0
                    assert (step.terminated[i], step.truncated[i]) == (False, False)
                    continue
                flags = bool(step.terminated[i]), bool(step.truncated[i])
                assert (i in final) == any(flags)
                successor = final.get(i, plain(step.obs, i))
                obs, action = self.held[agent][i]
                self.held[agent][i] = None
                row = Transition(obs, action, float(step.reward[i]), *flags, successor)
                self.rows[agent][i].append((episodes[i], row))
            for i in ended:
                assert self.held[agent][i] is None  # nobody waits across episodes
        for end in out.ended:
            numbers = end.episode, end.seed, end.length, end.total, end.terminated, end.truncated
            self.ends[end.env].append((*numbers, end.info["returns"], end.info["lengths"]))
        return out


def choose(rng, n, obs, i=None):
    mask = None
    if isinstance(obs, dict) and "action_mask" in obs:
        mask = np.asarray(obs["action_mask"] if i is None else obs["action_mask"][i])
    return int(rng.choice(n) if mask is None else rng.choice(np.flatnonzero(mask)))


class Ledger:
    """The rows of one episode of one raw env, kept by hand: what is received is added to
    whatever the agent did last."""

    def __init__(self, agents):
        self.open = dict.fromkeys(agents)  # agent → [obs, action, reward]
        self.rows = {agent: [] for agent in agents}
        self.returns = {}
        self.lengths = {}

    def appears(self, agent):
        self.returns.setdefault(agent, 0.0)
        self.lengths.setdefault(agent, 0)

    def acts(self, agent, obs, action):
        self.appears(agent)
        self.lengths[agent] += 1
        self.open[agent] = [obs, action, 0.0]

    def earns(self, agent, reward):
        if reward or agent in self.returns:
            self.appears(agent)
            self.returns[agent] += float(reward)
        if self.open[agent]:
            self.open[agent][2] += float(reward)

    def closes(self, agent, obs, terminated=False, truncated=False):
        if self.open[agent]:
            before, action, reward = self.open[agent]
            done = Transition(seen(before), action, float(np.float32(reward)), terminated, truncated, seen(obs))
            self.rows[agent].append(done)
            self.open[agent] = None


def seen(obs):
    return plain({k: np.asarray(v) for k, v in sorted(obs.items())} if isinstance(obs, dict) else np.asarray(obs))


def parallel_episode(env, seed, rng):
    book, length = Ledger(env.possible_agents), 0
    obs, _ = env.reset(seed=seed)
    flags = [set(), set()]
    while env.agents:
        there = [agent for agent in env.possible_agents if agent in env.agents]
        given = {a: choose(rng, env.action_space(a).n, obs[a]) for a in there}
        for agent, action in given.items():
            book.acts(agent, obs[agent], action)
        obs, reward, terminated, truncated, _ = env.step(given)
        length += 1
        for agent in given:
            book.earns(agent, reward[agent])
            book.closes(agent, obs[agent], terminated[agent], truncated[agent])
            flags[0] |= {agent} if terminated[agent] else set()
            flags[1] |= {agent} if truncated[agent] else set()
        for agent in env.agents:
            book.appears(agent)
    return book, length, bool(flags[0]), bool(flags[1])


def turns_episode(env, seed, rng):
    """PettingZoo's own loop over agents; the reward of a row is what `last` gives at the agent's next turn."""
    book, length, terminates, truncates = Ledger(env.possible_agents), 0, False, False
    env.reset(seed=seed)
    while env.agents:
        agent = env.agent_selection
        obs, reward, terminated, truncated, _ = env.last()
        book.earns(agent, reward)
        book.closes(agent, obs, terminated, truncated)
        if terminated or truncated:
            terminates, truncates = terminates or terminated, truncates or truncated
            env.step(None)
            continue
        action = choose(rng, env.action_space(agent).n, obs)
        book.acts(agent, obs, action)
        env.step(action)
        length += 1
    return book, length, terminates, truncates


def dict_episode(env, seed, rng):
    book, length, last = Ledger(env.possible_agents), 0, {}
    obs, _ = env.reset(seed=seed)
    while True:
        given = {a: choose(rng, env.action_spaces[a].n, obs[a]) for a in env.possible_agents if a in obs}
        for agent, action in given.items():
            book.acts(agent, obs[agent], action)
            last[agent] = obs[agent]
        obs, reward, terminated, truncated, _ = env.step(given)
        length += 1
        for agent, value in reward.items():
            book.earns(agent, value)
        over = terminated["__all__"], truncated["__all__"]
        for agent in env.possible_agents:
            if agent in obs or any(over):
                book.closes(agent, obs.get(agent, last.get(agent)), *over)
        if any(over):
            return book, length, *over


def reference(episode_of, env, seed_of, rng, episodes):
    """(rows by agent as (episode, Transition), ends) of one env over whole episodes."""
    rows, ends = {}, []
    for episode in range(episodes):
        book, length, terminated, truncated = episode_of(env, seed_of(episode), rng)
        for agent, own in book.rows.items():
            rows.setdefault(agent, []).extend((episode, row) for row in own)
        total = sum(book.returns.values())
        ends.append((episode, seed_of(episode), length, total, terminated, truncated, book.returns, book.lengths))
    return rows, ends
