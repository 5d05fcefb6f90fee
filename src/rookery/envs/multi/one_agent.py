"""OneAgent: a VectorEnv at the table, as an env whose only agent is called `agent`. Nothing is copied, nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rookery.core.tree import Tree
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.vector import Step, VectorEnv

AGENT = "agent"


class OneAgent(MultiEnv):
    """Every step is a row, unless it is a hole of the VectorEnv itself: a dead step, a busy env, a dropped episode."""

    waits = False

    def __init__(self, vector: VectorEnv):
        super().__init__(vector.num, {AGENT: vector.obs_space}, {AGENT: vector.action_space}, vector.name)
        self.vector = vector
        self._out = MultiStep({})
        self._look(vector.obs)

    def _look(self, obs: Tree) -> None:
        """Whoever is busy does not act."""
        self.obs[AGENT] = obs
        busy = self.vector.busy
        self.everyone = busy is None or not busy.any()
        self.acting[AGENT][:] = True if busy is None else ~busy

    def reset(self) -> None:
        self._look(self.vector.reset())

    def step(self, action: dict[str, Tree], steps: int | None = None, episodes: int | None = None) -> MultiStep:
        step, out = self.vector.step(action[AGENT], steps, episodes), self._out
        out.agents[AGENT], out.ended, out.stepped = step, step.ended, step.valid if step.marked else None
        if step.busy is None:
            self.obs[AGENT] = step.obs
        else:
            self._look(step.obs)
        return out

    def summary(self, out: MultiStep) -> Step:
        return out.agents[AGENT]

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        return self.vector.call(name, *args, **kwargs)

    def method(self, name: str) -> Callable[..., Any] | None:
        return self.vector.method(name)

    def state(self) -> dict[str, Any]:
        return self.vector.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.vector.restore(state)
        self.renewed = self.vector.renewed
        self._look(self.vector.obs)

    def close(self) -> None:
        self.vector.close()

    # what is known of the envs is known of the VectorEnv

    @property
    def exactness(self) -> str:  # type: ignore[override]
        return self.vector.exactness

    @property
    def renewals(self) -> int:  # type: ignore[override]
        return self.vector.renewals

    @property
    def given_up(self) -> int:  # type: ignore[override]
        return self.vector.given_up

    @property
    def pids(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.vector.pids

    @property
    def wants_infos(self) -> bool:
        return self.vector.wants_infos

    @wants_infos.setter
    def wants_infos(self, wanted: bool) -> None:
        self.vector.wants_infos = wanted


def at_table(env: VectorEnv | MultiEnv) -> MultiEnv:
    """The env as a table, whatever it was."""
    return env if isinstance(env, MultiEnv) else OneAgent(env)
