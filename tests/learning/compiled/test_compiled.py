"""The compiled execution of the toys: equals the eager one, is keyed by all it depends on,
refuses what it would freeze."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import rookery
from learning import toys
from learning.toys import Plain, Toy, distance, learner, toy_batch
from rookery.core.errors import BatchError, CompileError
from rookery.core.rng import Streams
from rookery.learning.compiled.artefact import PARTS, unavailable
from rookery.learning.compiled.build import trace
from rookery.learning.compiled.key import key_of
from rookery.learning.compiled.loading import CODE, Damaged, examine
from rookery.learning.learner import Learner, signature

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled(artefacts):
    assert unavailable() is None
    it = learner(Toy(), "compiled", artefacts)
    it.step(toy_batch())
    return it


def test_one_update_from_equal_states_is_equal_at_fifty_states(compiled):
    eager = learner(Toy())
    for i in range(50):
        compiled.restore(eager.state())
        compiled.generator.set_state(eager.generator.get_state())
        before = {k: t.clone() for k, t in eager.tensors.items()}
        ours, theirs = eager.step(toy_batch(i)), compiled.step(toy_batch(i))
        for key, tensor in eager.tensors.items():
            assert distance(compiled.tensors[key], tensor) < 1e-5, (i, key)
        assert not torch.equal(before["q.value"], eager.tensors["q.value"])
        assert theirs[0].metrics == pytest.approx(ours[0].metrics, rel=1e-4, abs=1e-6)
        assert torch.allclose(theirs[0].arrays["error"], ours[0].arrays["error"], rtol=1e-4, atol=1e-6)


def test_a_compiled_run_repeats_bit_for_bit_and_loads_from_the_cache(compiled, artefacts):
    runs = []
    for _ in range(2):
        it = learner(Toy(), "compiled", artefacts, seed=5)
        for i in range(20):
            it.step(toy_batch(i))
        assert not it.compiled["update"].built
        runs.append(it.weights_sha256())
    assert runs[0] == runs[1]


def test_what_an_update_gave_stays_when_it_runs_again(compiled, artefacts):
    other = learner(Toy(), "compiled", artefacts, seed=5)  # with the same artefact
    first = compiled.step(toy_batch(0))[0]
    numbers, error = first.numbers.copy(), first.arrays["error"].clone()
    for it in (compiled, other):
        it.step(toy_batch(1))
    assert (first.numbers == numbers).all()
    assert torch.equal(first.arrays["error"], error)


def test_the_draws_are_the_same_in_both_modes(compiled):
    eager = learner(Toy())
    compiled.restore(eager.state())
    compiled.generator.set_state(eager.generator.get_state())
    eager.step(toy_batch())
    compiled.step(toy_batch())
    assert torch.equal(eager.generator.get_state(), compiled.generator.get_state())


def test_a_batch_unlike_the_first_never_reaches_the_artefact(compiled):
    batch = toy_batch()
    bad = [batch["x"][:31], batch["x"].double(), batch["x"].long(), batch["x"].t().contiguous().t()]
    before = compiled.weights_sha256()
    for x in bad:
        with pytest.raises(BatchError):
            compiled.run("update", batch | {"x": x})
    assert compiled.weights_sha256() == before


def test_the_tensors_of_a_store_are_checked_once_and_any_change_of_them_again(compiled):
    batch = {
        key: torch.from_numpy(t.numpy().copy()) for key, t in toy_batch().items()
    }  # on numpy's memory, as in a store
    compiled.run("update", batch)
    artefact = compiled.compiled["update"]
    assert artefact.knows(dict(batch))
    assert not artefact.knows({"x": batch["y"], "y": batch["x"]})
    assert not artefact.knows({"y": batch["x"], "x": batch["y"]})  # the same tensors in the same order, other names
    assert not artefact.knows(batch | {"x": batch["x"].clone()})
    compiled.run("update", toy_batch())
    assert not artefact.knows(batch)  # another batch has come since
    own = toy_batch()
    compiled.run("update", own)
    assert not artefact.knows(own)  # torch's own memory could be resized in place
    own["x"].resize_(31, 4)
    with pytest.raises(BatchError):
        compiled.run("update", own)


def test_a_known_batch_is_read_anew_in_each_update(compiled):
    eager = learner(Toy())
    compiled.restore(eager.state())
    batch = {key: torch.from_numpy(t.numpy().copy()) for key, t in toy_batch().items()}
    for seed in range(3):
        for key, t in toy_batch(seed).items():
            batch[key].copy_(t)
        compiled.generator.set_state(eager.generator.get_state())
        compiled.run("update", batch)
        eager.run("update", batch)
    for (_, a), (_, b) in zip(eager.learned(), compiled.learned()):
        assert distance(a, b) < 1e-5


def test_a_plain_number_that_changes_is_noticed(compiled):
    compiled.check(deep=True)
    compiled.algo.scale = 2.0
    with pytest.raises(CompileError, match="must be a knob"):
        compiled.check(deep=True)
    compiled.algo.scale = 1.0
    compiled.check(deep=True)


def test_a_flipped_bit_in_an_artefact_is_noticed(compiled, artefacts, tmp_path):
    key = compiled.compiled["update"].key
    shutil.copytree(artefacts / key, tmp_path / key)
    examine(tmp_path / key, key)
    whole = bytearray((tmp_path / key / CODE).read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / key / CODE).write_bytes(whole)
    with pytest.raises(Damaged, match="is damaged"):
        examine(tmp_path / key, key)


TWENTY = """
import sys, torch; torch.set_num_threads(1)
from pathlib import Path
from learning.toys import Toy, learner, toy_batch
it = learner(Toy(), "compiled", Path(sys.argv[1]), seed=5)
for i in range(20):
    it.step(toy_batch(i))
print(it.compiled["update"].built, it.weights_sha256())
"""


def twenty_updates(folder):
    tests = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-c", TWENTY, str(folder)], stdout=subprocess.PIPE, text=True, cwd=tests)


@pytest.mark.matrix
def test_two_processes_that_start_at_once_build_once_and_agree_with_an_older_build_bit_for_bit(
    compiled, artefacts, tmp_path
):
    both = [twenty_updates(tmp_path) for _ in range(2)]
    answers = [process.communicate(timeout=240)[0].split() for process in both]
    assert sorted(built for built, _ in answers) == ["False", "True"]
    it = learner(Toy(), "compiled", artefacts, seed=5)
    for i in range(20):
        it.step(toy_batch(i))
    assert {sha for _, sha in answers} == {it.weights_sha256()}
    assert [path.name for path in tmp_path.iterdir()] == [it.compiled["update"].key]


class Branches(Toy):
    def update(self, s, b):
        if b.y.mean().item() > 1e9:
            return
        s.minimise("q", lambda q: (q(b.x) - b.y).pow(2).mean())


def test_a_branch_on_data_is_told_and_auto_runs_it_eagerly(tmp_path):
    with pytest.raises(CompileError, match="cannot be traced"):
        learner(Branches(), "compiled", tmp_path).step(toy_batch())
    it = Learner(Branches(), Streams(0), mode="compiled", cache=tmp_path, fall_back=True)
    it.set_knobs({"lr": 1e-2, "mix": 0.5})
    it.step(toy_batch())
    assert it.mode == "eager"
    assert "cannot be traced" in it.note


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.LSTM(4, 2, batch_first=True)

    def forward(self, x):
        return self.core(x[:, None])[0][:, -1]


class Recurrent(Plain):
    def networks(self):
        return {"q": Remembers()}


def test_an_operation_that_machine_code_cannot_reach_is_told_before_the_first_update(tmp_path):
    it = Learner(Recurrent(), Streams(0), mode="compiled", cache=tmp_path, fall_back=True)
    it.set_knobs({"lr": 1e-2})
    it.step(toy_batch())
    assert it.mode == "eager"
    assert "cannot reach" in it.note
    assert not list(tmp_path.iterdir())


class Indirect(Toy):
    def update(self, s, b):
        self.helper(s, b)

    def helper(self, s, b):
        s.minimise("q", lambda q: (q(b.x) - b.y).pow(2).mean())


def test_an_update_that_minimises_through_a_helper_is_compiled_too():
    it = learner(Indirect(), "compiled")
    assert it._minimises("update", toy_batch())
    assert not it._minimises("move", toy_batch())


def test_building_leaves_the_global_generator_alone(tmp_path):
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    with pytest.raises(CompileError, match="by itself"):
        learner(DropsWide(), "compiled", tmp_path).step(toy_batch())
    assert torch.equal(torch.random.get_rng_state(), before)


class DropsWide(Toy):
    def networks(self):
        return {"q": nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)), "p": nn.Linear(4, 3)}


class Draws(Plain):
    def update(self, s, b):
        s.minimise("q", lambda q: (q(b.x) + torch.randn(32, 1)).pow(2).mean())


class Drops(Plain):
    def networks(self):
        return {"q": nn.Sequential(nn.Linear(4, 1), nn.Dropout(0.5))}

    def update(self, s, b):
        s.minimise("q", lambda q: q(b.x).pow(2).mean())


class Captures(Plain):
    scale = torch.ones(1)

    def update(self, s, b):
        s.minimise("q", lambda q: (q(b.x) * self.scale).pow(2).mean())


@pytest.mark.parametrize(
    ("algo", "words"), [(Draws, "by itself"), (Drops, "by itself"), (Captures, "captures a tensor")]
)
def test_what_would_be_frozen_is_refused(algo, words):
    class Wide(algo):
        def networks(self):
            made = super().networks()
            return made if algo is Drops else {"q": nn.Linear(4, 1)}

    it, batch = learner(Wide()), toy_batch()
    with pytest.raises(CompileError, match=words):
        trace(it, "update", batch)


def test_no_random_op_is_in_the_traced_graph():
    it = learner(Toy())
    graph, inputs, found = trace(it, "update", toy_batch())
    tags = [getattr(node.target, "tags", ()) for node in graph.graph.nodes]
    assert not any(torch.Tag.nondeterministic_seeded in t for t in tags)
    assert found["noise"] == [("normal", [32, 2]), ("uniform", [32, 1])]
    assert {"noise0", "noise1", "batch.x", "batch.y", "knobs"} <= set(inputs)


class Counts(Toy):
    def update(self, s, b):
        s.minimise("q", lambda q: (q(b.x) - b.y).pow(2).mean())
        return {"rows": (b.x[:, 0] > -99).sum(), "any": (b.x > -99).any(), "exact": b.y.double().mean() * 0 + 1 / 3}


def test_the_numbers_of_an_update_are_float32_whatever_it_counts_with():
    it = learner(Counts())
    eager = it.run("update", toy_batch())
    graph, inputs, found = trace(it, "update", toy_batch())
    traced, *_ = graph(*inputs.values())
    assert traced.dtype == torch.float32
    assert eager.numbers.dtype == np.float32
    assert found["metrics"][-3:] == ["rows", "any", "exact"]
    assert traced[-3:].tolist() == eager.numbers[-3:].tolist() == [32.0, 1.0, np.float32(1 / 3)]


def closed(gamma, shape=lambda x: x):
    class Closed(Toy):
        def update(self, s, b):
            y = b.y + gamma * shape(s.q_target(b.x))
            s.minimise("q", lambda q: (q(b.x) - y).pow(2).mean())

    return Closed()


def scaled(x, by):
    return x * by


def key(algo, batch=None):
    it = learner(algo)
    it.signatures["update"] = signature(batch or toy_batch())
    return key_of(it, "update", PARTS)


def test_the_key_changes_with_what_matters_and_with_nothing_else(monkeypatch):
    base = key(Toy())
    assert key(Toy()) == base
    assert key(closed(0.99)) == key(closed(0.99))
    keys = {
        "partial 2": key(closed(0.99, functools.partial(scaled, by=2))),
        "partial 3": key(closed(0.99, functools.partial(scaled, by=3))),
        "partial of torch": key(closed(0.99, functools.partial(torch.clamp, min=0))),
        "another partial of torch": key(closed(0.99, functools.partial(torch.clamp, min=-1))),
        "cached": key(closed(0.99, functools.lru_cache(lambda x: x + 1))),
        "cached, other": key(closed(0.99, functools.lru_cache(lambda x: x + 2))),
        "a tensor as a number": key(closed(torch.tensor(0.5))),
        "another tensor as a number": key(closed(torch.tensor(0.6))),
        "base": base,
        "a plain number": key(Toy(scale=2.0)),
        "rows": key(Toy(), toy_batch(rows=16)),
        "closure .99": key(closed(0.99)),
        "closure .9": key(closed(0.9)),
        "closure over a function": key(closed(0.99, lambda x: 2 * x)),
    }
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "somewhere")  # inductor sets it while it builds
    assert key(Toy()) == base
    old = toys.linear.__code__

    def linear(inputs, outputs):
        return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))

    toys.linear.__code__ = linear.__code__  # a callee of networks()
    try:
        keys["another network"] = key(Toy())
    finally:
        toys.linear.__code__ = old
    assert len(set(keys.values())) == len(keys), keys


def test_the_key_is_the_same_in_another_process():
    code = (
        "import torch; torch.set_num_threads(1)\nfrom learning.compiled.test_compiled import key, closed\n"
        "from learning.toys import Toy\nprint(key(Toy()), key(closed(0.99)))"
    )
    found = set()
    for seed in ("0", "1"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            env={
                "PYTHONHASHSEED": seed,
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": os.pathsep.join(
                    map(str, (Path(__file__).parents[2], Path(rookery.__file__).parent.parent))
                ),
                "OMP_NUM_THREADS": "1",
            },
            check=True,
        )
        found.add(out.stdout.strip())
    assert len(found) == 1


def test_a_warm_start_imports_no_compiler(compiled, artefacts):
    code = (
        # torch imports torch.export by itself
        "import sys, torch; torch.set_num_threads(1)\nwith_torch = set(sys.modules)\n"
        "from pathlib import Path\nfrom learning.toys import Toy, learner, toy_batch\n"
        f"it = learner(Toy(), 'compiled', Path({str(artefacts)!r}))\nit.step(toy_batch())\n"
        "compilers = ('torch._inductor', 'torch._dynamo', 'sympy')\n"
        "late = [m for m in set(sys.modules) - with_torch if m.startswith('torch.export')]\n"
        "print(it.compiled['update'].built, [m for m in compilers if m in sys.modules], late)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert out.stdout.strip() == "False [] []", out.stderr


def test_machine_code_for_less_than_the_cpu_can_do_is_other_machine_code(monkeypatch):
    """ATEN_CPU_CAPABILITY=default: inductor writes no AVX2 then, and whoever wants the same
    bits everywhere must get them."""
    before = key(closed(1.0))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert key(closed(1.0)) != before


def test_an_error_of_the_compiler_is_quoted():
    from rookery.learning.compiled.build import _first_line

    error = RuntimeError(
        "C++ compile error\n\nCommand:\ng++ -c a.cpp\n\nOutput:\na.cpp:3: error: no room on the moon\na.cpp:4: error: x"
    )
    assert _first_line(error) == "C++ compile error (a.cpp:3: error: no room on the moon)"
    assert _first_line(RuntimeError("Error: one\nerror: two")) == "Error: one (error: two)"
    assert _first_line(RuntimeError("plain")) == "plain"
    assert _first_line(RuntimeError()) == "RuntimeError"
