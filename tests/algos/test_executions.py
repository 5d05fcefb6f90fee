"""One definition, two executions: at each of fifty states of an eager run, gradient and parameters agree to 1e-5."""

import pytest
import torch

from algos.test_collaq import CASES as COLLABORATIVE
from algos.test_coma import CASES as COUNTERFACTUAL
from algos.test_maddpg import CASES as CENTRAL
from algos.test_memory import GRU, TWO, windows
from algos.test_memory import OBS as SEEN
from algos.test_mixing import CASES as MIXED
from algos.test_policy_gradients import CASES as GRADIENTS
from algos.test_updates import CASES, learner
from algos.test_values import CASES as VALUES
from rookery.algos.r2d2 import R2D2, R2D2Config

WITH_MEMORY = {
    "r2d2": (lambda: R2D2(R2D2Config(n_step=2, burn_in=1, sequence=3, overlap=1), SEEN, TWO, GRU),
        lambda i: windows(4, 5, ("h",), i)),
} | {name: case for name, case in GRADIENTS.items() if name != "a2c-rmsprop"}  # fmt: skip


TEAMS = COLLABORATIVE | CENTRAL | MIXED | {name: case for name, case in COUNTERFACTUAL.items() if name == "coma-gru"}
ALL = CASES | WITH_MEMORY | VALUES | TEAMS


# Δ, which the labels of ATOC's attention are made of, is the difference of two Q that are 50 to 100 times as large:
# their rounding (6e-8 of Q) is up to 1.7e-5 of Δ and of the attention's gradient, in the eager update itself, measured
# against float64; no gate flips. Eager and compiled are 1.3e-5 apart at the worst of fifty states.
WITHIN = {"atoc": 5e-5, "atoc-choices": 5e-5}


def gradients(tensors, before):
    """Of every network with Adam, from its first moment m' = 0.9 m + 0.1 g; not of the second optimiser of one."""
    names = [key.removesuffix(".m") for key in tensors if key.endswith(".m") and key[:-1] + "value" in tensors]
    return {name: 10 * tensors[f"{name}.m"].double() - 9 * before[f"{name}.m"].double() for name in names}


def far(a, b):
    return ((a - b).norm() / b.norm().clamp(min=1e-9)).item()


BUILT = ["dqn"]  # the compiled builds of every run of the tests; the others are part of the full matrix
MATRIX = [pytest.param(name, marks=pytest.mark.matrix) for name in ALL if name not in BUILT]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BUILT, *MATRIX])
def test_gradient_and_parameters_agree_at_fifty_states_of_an_eager_run(name, artefacts):
    (make, batch_of), within = ALL[name], WITHIN.get(name, 1e-5)
    eager, compiled = learner(make()), learner(make(), "compiled", artefacts)
    prepared = (lambda i: eager.prepare(batch_of(i))) if eager.algo.store_kind == "rollout" else batch_of
    assert eager.mode != compiled.mode
    for i in range(50):
        batch = prepared(i)
        compiled.restore(eager.state())
        compiled.generator.set_state(eager.generator.get_state())
        before = {key: tensor.clone() for key, tensor in eager.tensors.items()}
        eager.step(batch)
        compiled.step(batch)
        assert set(compiled.compiled) == {"update"}
        wanted, got = gradients(eager.tensors, before), gradients(compiled.tensors, before)
        assert wanted
        for net, gradient in wanted.items():
            assert gradient.norm() > 0
            assert far(got[net], gradient) < within, (i, net)
        for key, tensor in eager.tensors.items():
            assert far(compiled.tensors[key], tensor) < within or torch.equal(tensor, compiled.tensors[key]), (i, key)
        assert not torch.equal(before[f"{net}.value"], eager.tensors[f"{net}.value"])
