"""Our changes to inductor are there with the tested torch; with another each may be missing, and the run says so."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import lowering
from torch._inductor.codegen import common, cpp_wrapper_cpu, cpp_wrapper_cpu_array_ref
from torch._inductor.codegen.cpp_template import CppTemplate
from torch._inductor.codegen.cpp_template_kernel import CppTemplateKernel
from torch.fx.experimental import proxy_tensor

from learning.toys import Toy, distance, learner, toy_batch
from rookery.core.errors import CompileError
from rookery.learning import compiled as ours
from rookery.learning.compiled import build, internals, matmul, stack_buffers
from rookery.learning.compiled.artefact import unavailable
from rookery.learning.compiled.changes import CHANGES, decompositions, in_words, options, usable
from rookery.learning.compiled.internals import HINT, TESTED, no_export, untested

LOOPS, PRODUCTS, STACK = CHANGES
ROOT = Path(__file__).parents[3]


def test_the_tested_torch_has_all_of_them() -> None:
    assert internals.tested(), f"these tests run with torch {TESTED}, as constraints.txt says"
    assert usable() == (CHANGES, {})
    assert untested() is None
    assert unavailable() is None
    assert options(CHANGES) == {
        "compile_threads": 1,
        "epilogue_fusion": False,
        "aot_inductor.allow_stack_allocation": True,
        "aot_inductor.precompile_headers": False,
    }
    assert len(decompositions(CHANGES)) == 3


def test_the_constraints_name_the_tested_torch() -> None:
    assert f"torch=={TESTED}" in (ROOT / "constraints.txt").read_text().split()


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [("2.13.0", True), ("2.13.1+cpu", True), ("2.14.0a0+git12", False), ("2.6.0", False), ("3.13.0", False)],
)
def test_what_counts_as_tested(version: str, is_tested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "version", lambda: version)
    assert internals.tested() is is_tested
    assert (untested() is None) is is_tested
    assert no_export() is None


def gone(patch: pytest.MonkeyPatch, module: str) -> None:
    """As if torch had no such module, and ours were imported for the first time."""
    package, _, name = module.rpartition(".")
    patch.setitem(sys.modules, module, None)
    patch.delattr(sys.modules[package], name)
    for change in (PRODUCTS, STACK):
        patch.delitem(sys.modules, f"{ours.__name__}.{change.module}")
        patch.delattr(ours, change.module)


def narrow(function: Any) -> Any:
    return lambda fn: function(fn)


MISSING = {
    "a module of products": (PRODUCTS, lambda m: gone(m, "torch._inductor.kernel.mm_common"), "mm_common"),
    "a method of kernels": (PRODUCTS, lambda m: m.delattr(CppTemplateKernel, "def_kernel"), "has no def_kernel"),
    "an argument of templates": (
        PRODUCTS,
        lambda m: m.setattr(CppTemplate, "__init__", lambda self, name, input_nodes, layout: None),
        "takes no num_threads",
    ),
    "an argument of mm_args": (PRODUCTS, lambda m: m.setattr(matmul, "mm_args", lambda a, b: None), "takes no layout"),
    "the lowering": (
        PRODUCTS,
        lambda m: m.delitem(lowering.lowerings, torch.ops.aten.mm.default),
        "no lowering of aten.mm",
    ),
    "a module of the stack": (
        STACK,
        lambda m: gone(m, "torch._inductor.codegen.cpp_wrapper_cpu_array_ref"),
        "cpp_wrapper_cpu_array_ref",
    ),
    "a method of the stack": (  # as torch 2.6
        STACK,
        lambda m: m.delattr(cpp_wrapper_cpu.CppWrapperCpu, "create_tmp_raii_handle_var_if_needed"),
        "has no create_tmp_raii_handle_var_if_needed",
    ),
    "a limit": (STACK, lambda m: m.delattr(cpp_wrapper_cpu_array_ref, "MAX_STACK_ALLOCATION_SIZE"), "has no MAX_"),
    "a place to hang it": (STACK, lambda m: m.delattr(common, "device_codegens"), "has no device_codegens"),
    "an option": (
        STACK,
        lambda m: m.setattr(stack_buffers, "OPTIONS", {"aot_inductor.no_such": True}),
        "no option aot_inductor.no_such",
    ),
    "a table of decompositions": (
        LOOPS,
        lambda m: m.setattr(proxy_tensor, "make_fx", narrow(proxy_tensor.make_fx)),
        "takes no decomposition_table",
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_one_that_torch_cannot_have_is_left_out_and_the_others_are_not(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, take_away, reason = MISSING[case]
    with monkeypatch.context() as patch:
        take_away(patch)
        found, left_out = usable()
        assert change not in found
        assert reason in left_out[change.name]
        if not case.startswith("a module"):  # which several may import
            assert set(found) == set(CHANGES) - {change}
        line = in_words(left_out)
    assert usable() == (CHANGES, {})
    assert "\n" not in line
    assert change.name in line
    assert line.startswith(f"with torch {torch.__version__} compiled updates go without ")
    assert line.endswith(HINT)
    assert f"pip install torch=={TESTED}" in HINT


def test_options_that_inductor_does_not_have_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = importlib.import_module("rookery.learning.compiled.changes")
    monkeypatch.setattr(changes, "OPTIONS", {"compile_threads": 1, "aot_inductor.no_such": 1, "nothing.at.all": 1})
    assert options(()) == {"compile_threads": 1}


@pytest.mark.parametrize(
    "left", [(), (LOOPS,), (PRODUCTS,), (STACK,)], ids=lambda left: "+".join(c.module for c in left)
)
def test_only_what_is_chosen_is_applied(left: Any) -> None:
    before = lowering.lowerings[torch.ops.aten.mm.default], common.device_codegens.get("cpu")
    changes = importlib.import_module("rookery.learning.compiled.changes")
    with changes.applied(left):
        assert (lowering.lowerings[torch.ops.aten.mm.default] is not before[0]) == (PRODUCTS in left)
        codegen = getattr(common.device_codegens.get("cpu"), "cpp_wrapper_codegen", None)
        assert (codegen is stack_buffers.OnStack) == (STACK in left)
    assert lowering.lowerings[torch.ops.aten.mm.default] is before[0]
    assert bool(decompositions(left)) == (LOOPS in left)
    assert ("epilogue_fusion" in options(left)) == (PRODUCTS in left)
    assert ("aot_inductor.allow_stack_allocation" in options(left)) == (STACK in left)


def test_a_torch_that_cannot_export_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "version", lambda: "2.5.1")
    assert unavailable() == f"torch 2.5.1 is older than 2.6; {HINT}"
    monkeypatch.undo()
    monkeypatch.delattr(torch._C._aoti, "AOTIModelContainerRunnerCpu")
    assert unavailable() == f"torch {torch.__version__} cannot load what AOTInductor builds for CPUs; {HINT}"
    monkeypatch.undo()
    monkeypatch.setattr(internals.importlib.util, "find_spec", lambda name: None)
    assert unavailable() == f"torch {torch.__version__} has no torch.export or no AOTInductor; {HINT}"


def same_as_eager(it: Any) -> bool:
    """One update of a compiled learner, against the eager one from the same state."""
    eager = learner(Toy())
    it.restore(eager.state())
    it.generator.set_state(eager.generator.get_state())
    eager.step(toy_batch())
    it.step(toy_batch())
    return all(distance(it.tensors[key], tensor) < 1e-5 for key, tensor in eager.tensors.items())


@pytest.mark.slow
def test_an_update_without_any_of_them_is_right_and_every_run_says_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(build, "usable", lambda: ((), {change.name: "taken away" for change in CHANGES}))
    caplog.set_level(logging.WARNING, "rookery.learning")
    for built in (True, False):  # from the cache as well
        caplog.clear()
        it = learner(Toy(), "compiled", tmp_path)
        assert same_as_eager(it)
        assert it.compiled["update"].built is built
        assert caplog.messages == [in_words({change.name: "taken away" for change in CHANGES})]


@pytest.mark.matrix
def test_one_that_makes_an_untested_compiler_fail_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)

    @contextlib.contextmanager
    def broken() -> Any:
        raise TypeError("no such place")
        yield

    monkeypatch.setattr(stack_buffers, "applied", broken)
    with pytest.raises(CompileError, match="no such place"):  # a tested torch has no excuse
        learner(Toy(), "compiled", tmp_path).step(toy_batch())
    monkeypatch.setattr(internals, "version", lambda: "2.99.0")
    it = learner(Toy(), "compiled", tmp_path)
    assert same_as_eager(it)
    assert list(it.compiled["update"].left_out) == [STACK.name]
    assert it.compiled["update"].left_out[STACK.name] == "tried, and failed: no such place"
    assert [r.levelname for r in caplog.records if r.name == "rookery.learning"] == ["WARNING"]


def graph(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Writes into its input and returns something, as the trace of an update does."""
    x.mul_(2.0)
    return (x.sum(),)


@pytest.mark.parametrize("wrong", ["returned", "written", "cannot be run", None])
def test_with_an_untested_torch_machine_code_that_computes_something_else_is_refused(
    wrong: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        if wrong == "cannot be run":
            raise RuntimeError("no such symbol")
        factor = 3.0 if wrong == "written" else 2.0
        return [inputs[0].mul_(factor).sum() * (1.1 if wrong == "returned" else 1.0 + 1e-6)]

    monkeypatch.setattr(build, "_compile", lambda *args: tried.append(args[-1]))
    monkeypatch.setattr(build, "load", lambda path: run)
    attempt = graph, (torch.ones(3),), tmp_path / "artefact" / "update.so", CHANGES
    assert build._compile_trying(*attempt) == {}  # a tested torch is not asked
    monkeypatch.setattr(internals, "version", lambda: "2.99.0")
    tried.clear()
    if wrong is None:
        assert build._compile_trying(*attempt) == {}
        assert tried == [CHANGES]
        return
    with pytest.raises(CompileError, match="compiled updates are tested with torch"):
        build._compile_trying(*attempt)
    assert tried == [CHANGES, (LOOPS, PRODUCTS), (LOOPS, STACK), (LOOPS,)]


def test_only_what_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: Any) -> None:
        if PRODUCTS in args[-1]:
            raise CompileError("the update cannot be compiled here") from RuntimeError("no template\nin many lines")

    monkeypatch.setattr(build, "_compile", compiled)
    monkeypatch.setattr(build, "_compare", lambda *args: None)
    attempt = graph, (torch.ones(3),), tmp_path / "artefact" / "update.so", CHANGES
    with pytest.raises(CompileError):
        build._compile_trying(*attempt)
    monkeypatch.setattr(internals, "version", lambda: "2.99.0")
    left_out = build._compile_trying(*attempt)
    assert left_out == {PRODUCTS.name: "tried, and failed: no template"}


def test_without_its_loops_an_update_is_traced_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_tensor, "make_fx", narrow(proxy_tensor.make_fx))
    graph, _, _ = build.trace(learner(Toy()), "update", toy_batch(), usable()[0])
    assert torch.ops.aten.addmm.default in [node.target for node in graph.graph.nodes]
