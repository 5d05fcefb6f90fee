"""Transitions as a vector env gives them, and the slow reference that steps one env by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rookery.core.tree import leaves


class Transition(NamedTuple):
    """One valid step, comparable with ==."""

    obs: tuple
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    successor: tuple


def plain(tree: Any, i: int | None = None) -> tuple:
    """An observation (or row i of a batch of them) as nested tuples of numbers."""
    rows = (leaf if i is None else leaf[i] for leaf in leaves(tree))
    return tuple(tuple(np.ravel(row).tolist()) for row in rows)


class Recorder:
    """Steps a vector env and keeps the valid transitions and episode ends of each env."""

    def __init__(self, env):
        self.env = env
        self.rows: list[list[Transition]] = [[] for _ in range(env.num)]
        self.ends: list[list[tuple]] = [[] for _ in range(env.num)]

    def step(self, action, **limits):
        before = [plain(self.env.obs, i) for i in range(self.env.num)]
        out = self.env.step(action, **limits)
        final = {i: plain(tree) for i, tree in out.final}
        for i in np.flatnonzero(out.valid).tolist():
            successor = final.get(i, plain(out.obs, i))
            flags = bool(out.terminated[i]), bool(out.truncated[i])
            self.rows[i].append(Transition(before[i], plain(action, i), float(out.reward[i]), *flags, successor))
        for end in out.ended:
            self.ends[end.env].append((end.episode, end.seed, end.length, end.total, end.terminated, end.truncated))
        return out


def reference(env, seed_of, actions) -> tuple[list[Transition], list[tuple]]:
    """One env, one loop, a copy of everything: what `Recorder` must find for that env."""
    rows: list[Transition] = []
    ends: list[tuple] = []
    episode, total, length = 0, 0.0, 0
    obs = np.array(env.reset(seed=seed_of(episode))[0])
    for action in actions:
        after, reward, terminated, truncated, _ = env.step(int(action))
        after, reward = np.array(after), float(np.ravel(reward)[0])
        flags = bool(terminated), bool(truncated)
        given = (tuple(obs.tolist()),), ((int(action),),), float(np.float32(reward))
        rows.append(Transition(*given, *flags, (tuple(after.tolist()),)))
        total, length, obs = total + reward, length + 1, after
        if terminated or truncated:
            ends.append((episode, seed_of(episode), length, total, *flags))
            episode, total, length = episode + 1, 0.0, 0
            obs = np.array(env.reset(seed=seed_of(episode))[0])
    return rows, ends
