"""Normalisers of teams: statistics over members who are there, by hand; every network of a team has one."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from algos.team_batches import CHOICES, VECTORS, Draw, seen_by
from algos.test_updates import learner
from rookery.algos.atoc import ATOC, ATOCConfig
from rookery.algos.collaq import CollaQ, CollaQConfig
from rookery.algos.coma import COMA, COMAConfig
from rookery.algos.maddpg import MADDPG, MADDPGConfig
from rookery.algos.qmix import QMIX, QMIXConfig
from rookery.core.spec import spec_of
from rookery.core.team import Team
from rookery.nets import ModelConfig
from rookery.nets.normalise import NormaliseTeam

PAIR = spec_of(
    spaces.Dict(
        {
            "agents": spaces.Box(-99, 99, (2, 1), np.float32),
            "present": spaces.MultiBinary(2),
            "world": spaces.Box(-99, 99, (1,), np.float32),
        }
    )
)
TWICE = spec_of(spaces.MultiDiscrete([2, 2]))


def test_absent_members_are_not_counted_and_zeros_of_who_is_not_there_stay_zeros():
    it = NormaliseTeam(Team.of(PAIR, TWICE))
    obs = {"agents": np.float32([[[1], [0]], [[3], [5]]]), "present": np.int8([[1, 0], [1, 1]])}
    obs["world"] = np.float32([[10], [30]])
    it.observe(obs)
    # members: 1, 3, 5 → mean 3, variance 8/3; the world: 10, 30 → mean 20, deviation 10
    seen = it({key: torch.as_tensor(x) for key, x in obs.items()})
    unit = (8 / 3) ** -0.5
    assert seen["agents"].flatten().tolist() == pytest.approx([-2 * unit, 0.0, 0.0, 2 * unit])
    assert seen["world"].flatten().tolist() == pytest.approx([-1.0, 1.0])
    assert seen["present"].tolist() == [[1, 0], [1, 1]]
    waits = {"agents": torch.tensor([[[5.0], [1.0]]]), "present": torch.zeros(1, 2, dtype=torch.int8)}
    waits["world"] = torch.zeros(1, 1)
    assert it(waits)["agents"].flatten().tolist() == pytest.approx([2 * unit, -2 * unit])  # what it saw last


MODEL = ModelConfig(hidden=(8,), normalise_obs=True)
MEMORY = MODEL.model_copy(update={"core": ModelConfig(core={"kind": "gru", "size": 4}).core})
MASKED, OPEN = seen_by(False, mask=True), seen_by()
MADE = {
    "qmix": lambda: QMIX(QMIXConfig(weighting="central"), MASKED, CHOICES, MEMORY),
    "collaq": lambda: CollaQ(CollaQConfig(attention=4), MASKED, CHOICES, MEMORY),
    "coma": lambda: COMA(COMAConfig(), MASKED, CHOICES, MEMORY),
    "maddpg": lambda: MADDPG(MADDPGConfig(), OPEN, VECTORS, MODEL),
    "atoc": lambda: ATOC(ATOCConfig(channel=4), OPEN, VECTORS, MODEL),
}


@pytest.mark.parametrize("name", MADE)
def test_every_network_sees_its_team_in_deviations_from_the_mean(name):
    """What is observed, ten times as large and moved by five, is seen as the same once statistics say so."""
    ends = []
    for scale, shift in ((1.0, 0.0), (10.0, 5.0)):
        it = learner(MADE[name]())
        obs = Draw(0).obs(it.algo.obs_spec, 64)
        for key in {"agents", "world"} & obs.keys():
            obs[key] = obs[key] * scale + shift
        obs["agents"] = torch.where(obs["present"].bool().unsqueeze(-1), obs["agents"], 0.0)
        it.observe(obs)
        memory = it.algo.memory()
        state = None if memory is None else _zeros(memory, 64)
        with torch.no_grad():
            out = it.algo.outputs(it.eager, obs, state, None)[0]
        ends.append(next(iter(out.values())))
        counted = [part.count.item() for net in it.nets.values() if not net.is_target for part in _parts(net.module)]
        assert len(counted) >= (2 if name != "collaq" else 1)
        assert set(counted) <= {float(obs["present"].sum()), 64.0}
    assert torch.allclose(*ends, atol=1e-4)


def _parts(module):
    return [part for each in module.modules() if isinstance(each, NormaliseTeam) for part in each.parts]


def _zeros(spec, rows):
    if isinstance(spec, dict):
        return {key: _zeros(part, rows) for key, part in spec.items()}
    return torch.zeros(rows, *spec.shape)
