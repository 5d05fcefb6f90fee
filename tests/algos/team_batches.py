"""Batches of a team of three for the tests: members of own sizes, with masks, some of them absent."""

import numpy as np
import torch
from gymnasium import spaces

from rookery.core.spec import spec_of
from rookery.core.tree import tree_map

SIZES = (3, 2, 4)
CHOICES = spec_of(spaces.MultiDiscrete(SIZES))
VECTORS = spec_of(spaces.Box(-1, 1, (3, 2), np.float32))


def seen_by(world=True, mask=False, members=3, width=4):
    """The spec of what a team sees."""
    parts = {"agents": spaces.Box(-9, 9, (members, width), np.float32), "present": spaces.MultiBinary(members)}
    parts |= {"world": spaces.Box(-9, 9, (5,), np.float32)} if world else {}
    parts |= {"action_mask": spaces.MultiBinary(sum(SIZES))} if mask else {}
    return spec_of(spaces.Dict(parts))


class Draw:
    """Random tensors by one generator."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.g)

    def coin(self, *shape, p=0.5):
        return torch.rand(*shape, generator=self.g) < p

    def obs(self, spec, *lead):
        """Somebody is always present; their masks have a legal action now and then."""
        out = {name: self.normal(*lead, *leaf.shape) for name, leaf in spec.items()}
        out["present"] = self.coin(*lead, 3, p=0.6).to(torch.int8)
        out["present"][..., 1] = torch.where(out["present"].any(-1), out["present"][..., 1], 1)
        if "action_mask" in spec:
            out["action_mask"] = self.coin(*lead, sum(SIZES), p=0.6).to(torch.int8)
        return out

    def actions(self, space, *lead):
        if space is VECTORS:
            return self.normal(*lead, 3, 2).tanh()
        return torch.stack([torch.randint(0, n, lead, generator=self.g) for n in SIZES], -1)


def replay_rows(seed, spec, space, rows=8):
    d = Draw(seed)
    return {
        "obs": d.obs(spec, rows), "action": d.actions(space, rows), "reward": d.normal(rows),
        "next_obs": d.obs(spec, rows), "discount": 0.9 * d.coin(rows, p=0.7).float(),
        "weight": torch.rand(rows, generator=d.g),
    }  # fmt: skip


def team_rollout(seed, spec, space, rows=6, columns=4, memory=None):
    d = Draw(seed)
    terminated, truncated, valid = (d.coin(rows, columns, p=p) for p in (0.15, 0.15, 0.85))
    terminated, truncated = terminated & valid, truncated & valid & ~terminated
    at = torch.nonzero(terminated | truncated)
    first = torch.cat([torch.ones(1, columns, dtype=torch.bool), (terminated | truncated)[:-1]])
    batch = {
        "obs": d.obs(spec, rows, columns), "action": d.actions(space, rows, columns), "reward": d.normal(rows, columns),
        "logp": d.normal(rows, columns), "last_obs": d.obs(spec, columns), "final_obs": d.obs(spec, len(at)),
        "final_at": at, "terminated": terminated, "truncated": truncated, "valid": valid, "first": first,
    }  # fmt: skip
    if memory is not None:
        batch["state"] = tree_map(lambda leaf: d.normal(rows, columns, *leaf.shape), memory)
    return batch


def team_sequences(seed, spec, space, memory, rows=5, columns=4):
    d = Draw(seed)
    done = d.coin(rows, columns, p=0.2)
    none = torch.zeros(rows, columns, dtype=torch.bool)
    return {
        "obs": d.obs(spec, rows, columns), "next_obs": d.obs(spec, rows, columns), "reward": d.normal(rows, columns),
        "action": d.actions(space, rows, columns), "weight": torch.ones(columns), "done": done, "first": none.clone(),
        "terminated": done & d.coin(rows, columns), "valid": ~none,
        "state": tree_map(lambda leaf: d.normal(1, columns, *leaf.shape), memory),
    }  # fmt: skip


def absent_changed(batch, seed=99):
    """The same batch, but whoever is not present sees and does something else."""
    d = Draw(seed)
    changed = dict(batch)
    for name in batch:
        if name == "obs" or name.endswith("_obs"):
            there = batch[name]["present"].bool().unsqueeze(-1)
            agents = batch[name]["agents"]
            changed[name] = batch[name] | {"agents": torch.where(there, agents, d.normal(*agents.shape))}
    there, action = batch["obs"]["present"].bool(), batch["action"]
    space = VECTORS if action.dtype == torch.float32 else CHOICES
    other = d.actions(space, *there.shape[:-1])
    changed["action"] = torch.where(there.unsqueeze(-1) if space is VECTORS else there, action, other)
    assert not torch.equal(changed["action"], action)
    return changed


def same_after(make, batches, learner):
    """Whether learners of one seed end with the same bits, each fed with another batch."""
    ends = []
    for batch in batches:
        it = learner(make())
        out = it.step(it.prepare(batch) if it.algo.store_kind == "rollout" else batch)[0]
        ends.append((out.metrics, {key: x.clone() for key, x in it.tensors.items()}))
    (first, ours), (second, theirs) = ends
    assert first == second
    return all(torch.equal(x, theirs[key]) for key, x in ours.items())
