"""OneAgent: a VectorEnv at the table, as an env whose only agent is called `agent`, or as the env calls it. AsVector:
the way back.

Nothing is copied, nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rookery.core.tree import Tree
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.vector import Step, VectorEnv


def _of(owner: str, name: str) -> Any:
    """An attribute that is the owner's."""
    return property(
        lambda self: getattr(getattr(self, owner), name), lambda self, value: setattr(getattr(self, owner), name, value)
    )


class OneAgent(MultiEnv):
    """Every step is a row, unless it is a hole of the VectorEnv itself: a dead step, a busy env, a dropped episode."""

    waits = False

    def __init__(self, vector: Any):
        """A VectorEnv; one that steps a worker's envs has `begin` and `episodes`, too."""
        agent = vector.agent
        super().__init__(vector.num, {agent: vector.obs_space}, {agent: vector.action_space}, vector.name)
        self.vector, self._agent = vector, agent
        self._out = MultiStep({})
        self._look(vector.obs)

    def _look(self, obs: Tree) -> None:
        """Whoever is busy does not act."""
        self.obs[self._agent] = obs
        busy = self.vector.busy
        self.everyone = busy is None or not busy.any()
        self.acting[self._agent][:] = True if busy is None else ~busy

    def reset(self) -> None:
        self._look(self.vector.reset())

    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        step, out = self.vector.step(action[self._agent], steps, episodes), self._out
        out.agents[self._agent], out.ended, out.stepped = step, step.ended, step.valid if step.marked else None
        if step.busy is None:
            self.obs[self._agent] = step.obs
        else:
            self._look(step.obs)
        return out

    def summary(self, out: MultiStep) -> Step:
        return out.agents[self._agent]

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        return self.vector.call(name, *args, **kwargs)

    def method(self, name: str) -> Callable[..., Any] | None:
        return self.vector.method(name)

    def state(self) -> dict[str, Any]:
        return self.vector.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.vector.restore(_without_table(state, self._agent))
        self.renewed = self.vector.renewed
        self._look(self.vector.obs)

    def close(self) -> None:
        self.vector.close()

    def begin(self, episodes: list[int]) -> None:
        """As `reset`, but with these episodes."""
        self._look(self.vector.begin(episodes))

    # what is known of the envs is known of the VectorEnv
    exactness, given_up, pids, doing = (_of("vector", name) for name in ("exactness", "given_up", "pids", "doing"))
    wants_infos, renewals, episodes = (_of("vector", name) for name in ("wants_infos", "renewals", "episodes"))
    limited = _of("vector", "limited")


class AsVector(VectorEnv):
    """The other way round: a table with one agent that acts in every step, for whoever wants a VectorEnv."""

    def __init__(self, table: Any):
        """`table.out` is what every step of it gives."""
        (agent,) = table.agents
        super().__init__(table.num, table.obs_spaces[agent], table.action_spaces[agent], table.name)
        self.agent = agent
        self.table, self.renewed, self._agent, self._out = table, table.renewed, agent, table.out.agents[agent]

    def reset(self) -> Tree:
        self.table.reset()
        return self._out.obs

    def step(self, action: Tree, steps: int | None = None, episodes: int | None = None) -> Step:
        return self.table.step({self._agent: action}, steps, episodes).agents[self._agent]

    def call(self, name: str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        return self.table.call(name, *args, **kwargs)

    def method(self, name: str) -> Callable[..., Any] | None:
        return self.table.method(name)

    def state(self) -> dict[str, Any]:
        return self.table.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.table.restore(state)

    def close(self) -> None:
        self.table.close()

    exactness, given_up, pids, limited = (_of("table", name) for name in ("exactness", "given_up", "pids", "limited"))
    wants_infos, renewals = (_of("table", name) for name in ("wants_infos", "renewals"))


def _without_table(state: dict[str, Any], agent: str) -> dict[str, Any]:
    """Before 0.2 an only agent that had a name sat at a table, and its envs were saved so."""
    envs = {
        i: saved | {"total": saved["totals"][agent]} | {k: saved[k][agent] for k in ("obs", "actions") if k in saved}
        for i, saved in state.get("envs", {}).items()
        if "totals" in saved
    }
    return state | {"envs": state["envs"] | envs} if envs else state


def at_table(env: VectorEnv | MultiEnv) -> MultiEnv:
    """The env as a table, whatever it was."""
    if isinstance(env, AsVector):
        return env.table
    return env if isinstance(env, MultiEnv) else OneAgent(env)
