"""Policy: a trained actor in a user's own loop: `policy(obs).action`, and what can be seen of it from outside.

What it takes is checked against the spec of the observations it was trained on: keys, shape, dtype, range, finiteness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rookery.acting.actor import Actor
from rookery.acting.frames import Frames
from rookery.core.batch.batch import Batch
from rookery.core.errors import UsageError
from rookery.core.spec import Leaf, describe, mask_of, stacked_spec, zeros
from rookery.core.team import AGENTS, REWARDS, WORLD
from rookery.core.tree import Tree, leaves, tree_map, walk

Critic = Callable[[Any, Tree, Any], Tensor]


class Policy:
    """Acts greedily, or (`greedy=False`) as in training with its own random stream.

    Every method takes one observation, or a batch of them [N, …], by itself or as `Batch(obs=…)`; of one observation
    the answer is one, too. A policy with memory, or with stacked frames (env.stack; it is given single ones), remembers
    from call to call, per row of the batch: pass `Batch(obs=…, first=…)` with `first` true where an episode begins, or
    call `reset()`. `values` and `distribution` remember nothing: they look at the step that would come next.

    Args:
        actor: networks and rule.
        obs_spec: of one observation, a single frame where the actor stacks them.
        action_spec: of one action.
        seed: of the random stream for `greedy=False`.
        critic: (reader, obs, state) → expected returns; None: nothing is known of them.
    """

    def __init__(
        self, actor: Actor, obs_spec: Tree, action_spec: Tree, seed: int = 0, critic: Critic | None = None
    ) -> None:
        self.actor, self.obs_spec, self.action_spec, self.critic = actor, obs_spec, action_spec, critic
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self._frames: Frames | None = None
        self._reset: Any = None  # rows that begin anew at the next call: True for all, or indices

    def __call__(self, batch: Any, *, greedy: bool = True) -> Batch:
        """Observations [N, …] → Batch(action=[N, …]) as the env wants it; of one observation, one action. The parts of
        a Tuple are called "0", "1", …"""
        obs, first, one = self._read(batch)
        self._reset = None
        if self.actor.stack > 1:
            obs = self._stacked(obs, first)
        out = self.actor.act(obs, self.rng, first, greedy=greedy)
        action = self.actor.rule.to_env(out["action"])
        action = tree_map(lambda leaf, x: x + leaf.start if leaf.start else x, self.action_spec, action)
        answer = Batch(action=action, **{k: v for k, v in out.items() if k not in ("action", "state")})
        return answer[0] if one else answer

    def values(self, batch: Any) -> np.ndarray:
        """The expected return of observations: Q(s, ·) [N, A] where actions are chosen by it, else V(s) or that of the
        greedy action, Q(s, μ(s)) [N]. Of K choices [N, K, A], with −∞ where a choice has fewer than A actions.
        """
        if self.critic is None:
            raise UsageError("this policy was made without a critic, so it has no values: load_policy(run) gives one")
        obs, state, one = self._looked_at(batch)
        if isinstance(self.obs_spec, dict) and obs.keys() != self.obs_spec.keys():
            raise UsageError(f"this critic looks at the {WORLD!r}, too: give it as part of the observation")
        with torch.inference_mode():
            value = self.critic(self.actor.quiet, obs, state).cpu().numpy()
        return value[0] if one else value

    def distribution(self, batch: Any) -> Any:
        """What `greedy=False` draws from, warm-up and noisy layers apart: a distribution of torch over the env's
        actions, choices counted from 0. For MultiDiscrete a list, one per choice; for Dict and Tuple a dict, one per
        part.
        """
        drawn_from = getattr(self.actor.rule, "distribution", None)
        if drawn_from is None:
            raise UsageError(
                f"expected a policy that draws its actions, but the rule {type(self.actor.rule).__name__} adds noise "
                "to one that it computes: there is only policy(obs).action, and policy.values(obs) to judge it"
            )
        obs, state, one = self._looked_at(batch)
        with torch.inference_mode():
            out, _ = self.actor.outputs(self.actor.quiet, obs, state, None)
        rows = 0 if one else slice(None)
        mask = mask_of(obs)
        parts = {name: tensor.cpu()[rows] for name, tensor in out.items()}
        return drawn_from(parts, self.actor.knobs, None if mask is None else mask.cpu()[rows])

    def module(self) -> nn.Module:
        """The networks that decide, as an ordinary module with weights of its own: tensors of observations [N, …] as
        networks see them (`module().example()`) → the outputs by name (q, logits, mean …); with memory (obs, state) →
        (outputs, next state).
        """
        example = zeros(stacked_spec(self.obs_spec, self.actor.stack), 1)
        state = None if self.actor.memory_spec is None else zeros(self.actor.memory_spec, 1)
        return PolicyModule(self.actor, _tensors(example), _tensors(state))

    def reset(self, seats: Any = None) -> None:
        """Forget what was seen, in all rows or in these."""
        if seats is None or self._reset is True:
            self._reset = True
        else:
            rows = np.asarray(seats)
            self._reset = [*(self._reset or []), *(np.flatnonzero(rows) if rows.dtype == bool else np.atleast_1d(rows))]

    def _read(self, batch: Any) -> tuple[Tree, np.ndarray | None, bool]:
        """(observations [N, …], where episodes begin, whether it was one observation)."""
        spec, starts = self.obs_spec, None
        whole = isinstance(spec, dict) and isinstance(batch, Mapping) and set(spec) <= set(batch)
        if isinstance(batch, Batch) or (isinstance(batch, Mapping) and "obs" in batch and not whole):
            if "obs" not in batch:
                raise UsageError(
                    f"expected an observation ({describe(spec)}), or a Batch with the field obs, got one with "
                    f"{', '.join(batch.keys()) or 'no field'}. Write policy(obs) or policy(Batch(obs=[obs]))"
                )
            batch, starts = batch["obs"], batch.get("first", None)
        if isinstance(spec, dict) and isinstance(batch, Mapping):
            unseen = {WORLD, REWARDS if AGENTS in spec else WORLD}.difference(
                batch
            )  # only critics and mixers need them
            spec = {key: part for key, part in spec.items() if key not in unseen}
        obs, one = checked(spec, batch)
        return obs, self._first(len(leaves(obs)[0]), starts), one

    def _first(self, rows: int, starts: Any) -> np.ndarray | None:
        """Where an episode begins: as the batch says, and where `reset` was called since."""
        if starts is not None and np.size(starts) != rows:
            raise UsageError(f"first: expected one entry per observation, {rows}, got {np.size(starts)}")
        begins = None if starts is None else np.asarray(starts, bool).reshape(rows)
        if self._reset is None:
            return begins
        if self._reset is not True and (beyond := [int(row) for row in self._reset if not -rows <= row < rows]):
            seats, self._reset = beyond[0], None
            raise UsageError(f"reset: expected rows of the next batch, which has {rows}, got {seats}")
        first = np.zeros(rows, bool)
        first[slice(None) if self._reset is True else self._reset] = True
        return first if begins is None else first | begins

    def _stacked(self, obs: Tree, first: Any) -> Tree:
        rows = len(leaves(obs)[0])
        if self._frames is None or len(leaves(self._frames.stacked)[0]) != rows:
            self._frames, first = Frames(self.obs_spec, rows, self.actor.stack), np.ones(rows, bool)
        return self._frames.push(obs, first)

    def _looked_at(self, batch: Any) -> tuple[Tree, Tree, bool]:
        """(observations as networks would see them next, memory, whether it was one): tensors; nothing is changed."""
        obs, first, one = self._read(batch)
        if self.actor.stack > 1:
            frames = self._frames
            before = None if frames is None else frames.state()
            obs = tree_map(np.copy, self._stacked(obs, first))
            if frames is not None and before is not None:
                frames.restore(before)
            self._frames = frames
        state = self.actor.peek(len(leaves(obs)[0]), first)
        return _tensors(obs, self.actor.device), _tensors(state, self.actor.device), one


class PolicyModule(nn.Module):
    """A copy of the networks that a policy acts with. Nothing else of the run lives in it, so torch's own ways work:
    `.to()`, `state_dict()`, `deepcopy`, export.
    """

    def __init__(self, actor: Actor, obs: Tree, state: Tree):
        super().__init__()
        self._outputs, self._example, self._state = actor.outputs, obs, state
        reads: dict[str, Any] = {}

        class Noted:
            """The actor's reader; what is read of it is noted."""

            def __getattr__(self, name: str) -> Any:
                reads[name] = getattr(actor.quiet, name)
                return reads[name]

        with torch.inference_mode():
            actor.outputs(Noted(), _moved(obs, actor.device), _moved(state, actor.device), None)
        known = actor.quiet._nets
        self.networks = nn.ModuleDict({name: known[name].alone() for name in reads if name in known})
        self._others = {name: part for name, part in reads.items() if name not in known}  # scheduled numbers

    def forward(self, obs: Tree, state: Tree = None) -> Any:
        out, after = self._outputs(SimpleNamespace(**self.networks, **self._others), obs, state, None)
        return out if self._state is None else (out, after)

    def example(self) -> tuple[Tree, ...]:
        """Arguments of `forward` for one observation: zeros."""
        return (self._example,) if self._state is None else (self._example, self._state)


def _tensors(arrays: Tree, device: torch.device | str = "cpu") -> Tree:
    """Copies of these arrays; None stays None."""
    return None if arrays is None else tree_map(lambda x: torch.from_numpy(np.array(x)).to(device), arrays)


def _moved(tensors: Tree, device: torch.device) -> Tree:
    return None if tensors is None else tree_map(lambda t: t.to(device), tensors)


def checked(spec: Tree, obs: Any) -> tuple[Tree, bool]:
    """(arrays [N, …] of the dtypes that networks were built for, whether `obs` was one observation).

    A Tuple observation may be given as a tuple, several Dict or Tuple observations as a list.
    """
    if isinstance(spec, dict) and isinstance(obs, list) and obs and isinstance(obs[0], tuple):
        obs = [{str(i): part for i, part in enumerate(row)} for row in obs]
    if isinstance(spec, dict) and isinstance(obs, list) and obs and isinstance(obs[0], Mapping):
        obs = Batch(obs=obs)["obs"]
    arrays = _checked(spec, obs, "the observation")
    shapes, wanted = [x.shape for x in leaves(arrays)], [leaf.shape for leaf in leaves(spec)]
    one = shapes == wanted
    rows = {shape[:1] for shape in shapes}  # the batch's length, if all agree
    if not one and (len(rows) > 1 or rows & {(), (0,)} or any(s[1:] != w for s, w in zip(shapes, wanted))):
        got = ", ".join(f"{path} {x.shape}".strip() for path, x in walk(arrays))
        raise UsageError(
            f"expected one observation ({describe(spec)}) or a batch of them [N, …] with N ≥ 1, got the shape {got}. "
            "Give what the env's reset and step gave, or several of those stacked along a new first axis"
        )
    return (tree_map(lambda x: x[None], arrays) if one else arrays), one


def _checked(spec: Tree, value: Any, where: str) -> Tree:
    if not isinstance(spec, dict):
        return _array(spec, value, where)
    named = {str(i): part for i, part in enumerate(value)} if isinstance(value, tuple | list) else value
    if isinstance(named, Batch):
        named = named.to_dict()
    if not isinstance(named, Mapping) or {str(key) for key in named} != set(spec):
        got = f"the keys {', '.join(map(str, named))}" if isinstance(named, Mapping) else f"a {type(value).__name__}"
        raise UsageError(f"{where}: expected {describe(spec)}, got {got}. Give every part that the env gives")
    parts = {str(key): part for key, part in named.items()}
    return {key: _checked(part, parts[key], f"{where}[{key!r}]") for key, part in spec.items()}


def _array(leaf: Leaf, value: Any, where: str) -> np.ndarray:
    """The value in the leaf's dtype, choices counted from 0; what would be changed by that is refused."""

    def refuse(got: str, advice: str) -> UsageError:
        return UsageError(f"{where}: expected {describe(leaf)}, got {got}. {advice}")

    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except ValueError:
        raise refuse("lists of different lengths", "Give arrays of equal shape") from None
    if array.dtype.kind not in "biuf":
        raise refuse(f"{type(value).__name__} of {array.dtype}", "Give numbers")
    with np.errstate(invalid="ignore", over="ignore"):
        cast = np.asarray(array, leaf.dtype, order="C")  # torch takes no reversed arrays
    if leaf.dtype.kind == "f" and not np.isfinite(cast).all():
        raise refuse(f"{array[~np.isfinite(cast)].flat[0]}", "Networks give NaN for it: mend the observation")
    if leaf.dtype.kind != "f" and not np.array_equal(cast, array):
        wrong = array[cast != array].flat[0]
        raise refuse(f"{array.dtype} with {wrong}", f"{leaf.dtype} cannot hold it: give it as the env does, unscaled")
    if leaf.kind in ("discrete", "multi_discrete", "multi_binary"):
        cast = np.asarray(cast - leaf.start)  # of one number minus would make no array
        size = np.reshape(leaf.sizes, leaf.shape)
        fits = cast.shape[cast.ndim - len(leaf.shape) :] == leaf.shape  # else the shape is complained about
        if fits and not ((cast >= 0) & (cast < size)).all():
            wrong = (cast + leaf.start)[(cast < 0) | (cast >= size)].flat[0]
            raise refuse(f"{wrong}", f"Choices are counted from {leaf.start}")
    return cast
