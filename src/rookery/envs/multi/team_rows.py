"""The spaces of a team and the buffers of its rows: what a member sees is written straight into its place in [B, G, …].

Members of one kind may differ in size: who sees or decides less is filled up with zeros. Discrete parts of what they
see become one-hot, so that every part is a box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rookery.core.errors import ConfigError
from rookery.core.spec import MASK, Leaf, describe, is_mask, spec_of, without_mask, zeros
from rookery.core.team import AGENTS, PRESENT, REWARDS, WORLD
from rookery.core.tree import Tree, flatten, unflatten
from rookery.envs.boundary import Part, Receiver, all_of, finite_test

Pair = tuple[spaces.Space, spaces.Space]  # of observations and actions


@dataclass(slots=True)
class Seen:
    """What a team sees, for `TeamReceiver` to write."""

    members: Mapping[str, Any]  # member → its observation, None: it has none; who is missing sees what it saw before
    present: list[bool] | None  # None: everybody
    world: Any
    rewards: list[float] | None = None  # of each member; None: they are not told


class TeamSpaces:
    """From the spaces of the members to those of the team."""

    def __init__(self, team: str, members: dict[str, Pair], world: spaces.Space | None, own: bool = False):
        """`own`: rewards of each member are told."""
        self.team, self.members, self.world = team, members, world
        self.specs = {m: spec_of(obs, f"the observation space of {m!r}") for m, (obs, _) in members.items()}
        self.action, self._own = self._joint_action()
        # whether everybody chooses, counting from 0: then its actions are plain lists
        self.counted = all(isinstance(action, spaces.Discrete) and not action.start for _, action in members.values())
        parts: dict[str, spaces.Space] = {AGENTS: self._filled_up(), PRESENT: spaces.MultiBinary(len(members))}
        parts |= {} if world is None else {WORLD: world}
        parts |= {REWARDS: spaces.Box(-np.inf, np.inf, (len(members),), np.float32)} if own else {}
        if any(isinstance(spec, dict) and MASK in spec for spec in self.specs.values()):
            parts[MASK] = self._mask()
        self.obs = spaces.Dict(parts)

    def apart(self, action: Any, acting: set[str] | None) -> dict[str, Any]:
        """The actions of those who must act (None: everybody), each as its own space holds it."""
        if acting is None and self.counted:
            return dict(zip(self._own, action))
        each = enumerate(self._own.items())
        return {m: own(action[k]) for k, (m, own) in each if acting is None or m in acting}

    def _joint_action(self) -> tuple[Any, dict[str, Callable[[Any], Any]]]:
        """(space of the team, member → its own action from its part of the team's)."""
        own: dict[str, Any] = {m: action for m, (_, action) in self.members.items()}
        kinds = {type(action) for action in own.values()}
        if kinds == {spaces.Discrete}:
            return spaces.MultiDiscrete([int(action.n) for action in own.values()]), {
                m: partial(_choice, int(action.start)) for m, action in own.items()
            }
        if kinds != {spaces.Box} or len({action.dtype for action in own.values()}) > 1:
            named = ", ".join(f"{m}: {action}" for m, action in own.items())
            raise ConfigError(
                f"the members of team {self.team!r} act in {named}: expected all Discrete, or all Box of one dtype. "
                "Make a team of those that are alike, or give each a player of its own."
            )
        most, dtype = max(math.prod(action.shape) for action in own.values()), next(iter(own.values())).dtype
        low, high = (np.zeros((len(own), most), dtype) for _ in range(2))
        for k, action in enumerate(own.values()):
            n = math.prod(action.shape)
            low[k, :n], high[k, :n] = action.low.ravel(), action.high.ravel()
        return spaces.Box(low, high, dtype=dtype.type), {m: partial(_move, a.shape) for m, a in own.items()}

    def _filled_up(self) -> spaces.Space:
        """Of what all members see, [G, …] of the largest of them."""
        seen = {m: flatten(without_mask(spec)) for m, spec in self.specs.items()}
        first, *_ = seen
        for m, parts in seen.items():
            unlike = parts.keys() != seen[first].keys() or any(
                (len(a.shape), a.dtype) != (len(b.shape), b.dtype)
                for a, b in zip(map(boxed, parts.values()), map(boxed, seen[first].values()))
            )
            if unlike:
                forms = [describe(without_mask(self.specs[name])) for name in (first, m)]
                raise ConfigError(
                    f"the members of team {self.team!r} see things of unlike kinds: {first!r} {forms[0]}, {m!r} "
                    f"{forms[1]}. Make a team of those that are alike, or give each a player of its own."
                )
        boxes = {}
        for path in seen[first]:
            each = [boxed(parts[path]) for parts in seen.values()]
            shape = tuple(int(n) for n in np.max([leaf.shape for leaf in each], axis=0)) if each[0].shape else ()
            low = min(np.min(np.asarray(leaf.low), initial=0) for leaf in each)  # what fills up is 0
            high = max(np.max(np.asarray(leaf.high), initial=0) for leaf in each)
            boxes[path] = spaces.Box(low, high, (len(seen), *shape), each[0].dtype.type)
        return _nested(unflatten(boxes))

    def _mask(self) -> spaces.Space:
        if not isinstance(self.action, spaces.MultiDiscrete):
            raise ConfigError(
                f"members of team {self.team!r} have an action_mask, but act in {self.action}: only Discrete actions "
                "can be masked."
            )
        for m, n in zip(self.members, self.action.nvec):
            mask = self.specs[m].get(MASK) if isinstance(self.specs[m], dict) else None
            if mask is not None and (isinstance(mask, dict) or mask.shape != (n,)):
                form = "with parts" if isinstance(mask, dict) else f"of shape {mask.shape}"
                raise ConfigError(
                    f"{m!r} of team {self.team!r} has an action_mask {form}, but {n} actions: expected ({n},)."
                )
        return spaces.MultiBinary(int(self.action.nvec.sum()))


def _choice(start: int, choice: Any) -> int:
    return int(choice) + start


def _move(shape: tuple[int, ...], row: np.ndarray) -> np.ndarray:
    return row[: math.prod(shape)].reshape(shape)


def boxed(leaf: Leaf) -> Leaf:
    """As a box: discrete values one-hot."""
    if leaf.kind == "box":
        return leaf
    shape = leaf.shape if leaf.kind == "multi_binary" else (sum(leaf.sizes),)
    return Leaf("box", shape, np.dtype(np.float32), low=np.zeros(shape, np.float32), high=np.ones(shape, np.float32))


def write_one_hot(out: np.ndarray, leaf: Leaf, values: np.ndarray) -> None:
    """Discrete values as `boxed` shows them."""
    if leaf.kind == "multi_binary":
        out[...] = values
        return
    out[...] = 0.0
    out[np.cumsum((0, *leaf.sizes[:-1])) + values] = 1.0  # where the choices of each part begin


def _nested(tree: Tree) -> spaces.Space:
    return spaces.Dict({key: _nested(part) for key, part in tree.items()}) if isinstance(tree, dict) else tree


class TeamReceiver(Receiver):
    """Buffers of B rows of a team, and the checks on what its members see."""

    def __init__(self, team: TeamSpaces, spec: Tree, num: int):
        self._begin(spec, num)
        self._full = [False] * num  # everybody is present there
        self._present: np.ndarray = self.obs[PRESENT]
        self._mask: np.ndarray | None = self.obs.get(MASK)
        self._rewards: np.ndarray | None = self.obs.get(REWARDS)
        edges = np.cumsum([0, *team.action.nvec]) if self._mask is not None else [0] * (len(team.members) + 1)
        self._members: dict[str, _Member] = {}
        for k, (m, (space, _)) in enumerate(team.members.items()):
            mask = None if self._mask is None else self._mask[:, edges[k] : edges[k + 1]]
            self._members[m] = self._member(m, k, space, team.specs[m], mask)
        self._writers = [(name, one.write, one.hot) for name, one in self._members.items()]
        self._world = None
        if team.world is not None:
            self._world = self._compile(team.world, spec[WORLD], self.obs[WORLD], "the state of the env")[0]
        floats = [buffer for buffer in flatten(self.obs).values() if buffer.dtype.kind == "f"]
        in_range = [part.sound for part in self.parts if part.leaf.kind not in ("box", "discrete")]
        self.sound = all_of([*map(finite_test, floats), *in_range])
        self.write = self._write

    def _member(self, name: str, k: int, space: spaces.Space, spec: Tree, mask: np.ndarray | None) -> _Member:
        """Its writer, on views of the team's buffers; through an array of its own where values become one-hot."""
        agents, views = iter(flatten(self.obs[AGENTS]).values()), dict[str, Any]()
        hot: list[_OneHot] = []
        for path, leaf in flatten(spec).items():
            if is_mask(path):
                views[path] = mask
                continue
            view = next(agents)[(slice(None), k, *(slice(n) for n in boxed(leaf).shape))]
            views[path] = view if leaf.kind == "box" else zeros(leaf, self.num)
            hot += [] if leaf.kind == "box" else [_OneHot(views[path], view, leaf)]
        before = len(self.parts)
        write = self._compile(space, spec, unflatten(views), f"the observation of {name!r}")[0]
        buffers = [*(view for path, view in views.items() if not is_mask(path)), *(each.view for each in hot)]
        return _Member(write, self.parts[before:], hot, buffers, mask, any(map(is_mask, views)))

    def _write(self, i: int, seen: Seen) -> None:
        """Row i."""
        if seen.present is None and self._full[i]:
            shown = seen.members
            for name, write, hot in self._writers:
                write(i, shown[name])
                for each in hot:
                    each.put(i)
        else:
            self._write_some(i, seen)
        if self._world is not None:
            self._world(i, seen.world)
        if self._rewards is not None:
            self._rewards[i] = seen.rewards

    def _write_some(self, i: int, seen: Seen) -> None:
        present = seen.present or [True] * len(self._members)
        for there, (name, member) in zip(present, self._members.items()):
            if name in seen.members:
                member.see(i, seen.members[name])
            if member.mask is not None and (not there or not member.masked):
                member.mask[i] = there
        self._present[i] = present
        self._full[i] = all(present)

    def look_closely(self, i: int) -> None:
        for k, member in enumerate(self._members.values()):
            if self._present[i, k]:  # else it is filled up with zeros, which its space need not hold
                self._look(i, member.parts)


class _OneHot(NamedTuple):
    """Discrete values [B, …] of a member, and where they stand in the team's buffer."""

    values: np.ndarray
    view: np.ndarray
    leaf: Leaf

    def put(self, i: int) -> None:
        write_one_hot(self.view[i], self.leaf, self.values[i])


class _Member(NamedTuple):
    """Where one member's part of a row goes."""

    write: Callable[[int, Any], None]
    parts: list[Part]
    hot: list[_OneHot]
    buffers: list[np.ndarray]
    mask: np.ndarray | None  # its entries of the team's mask
    masked: bool  # whether it says itself what is legal

    def see(self, i: int, obs: Any) -> None:
        if obs is None:
            for buffer in self.buffers:
                buffer[i] = 0
            return
        self.write(i, obs)
        for each in self.hot:
            each.put(i)
