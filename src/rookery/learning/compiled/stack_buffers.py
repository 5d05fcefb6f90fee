"""Intermediate results of an artefact on the stack: imported when an update is built, with the compiler.

A small update has some 25 of them; as tensors each is made and freed in every call, 15 to 20 of the 150 µs
of a DQN update. An update whose intermediate results are more than MOST numbers, or that calls the library
in between, keeps its tensors.

What such an artefact returns is kept per thread and overwritten by the next call, also by that of another learner with
the same artefact: whoever calls it copies the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch._inductor import lowering  # noqa: F401  first: its modules import one another
from torch._inductor.codegen import common, cpp_wrapper_cpu_array_ref

from rookery.learning.compiled.internals import lacking, refusing, unknown

OPTIONS = {"aot_inductor.allow_stack_allocation": True}
MOST = 1 << 18  # 1 MB of float32, 2 of float64; with a smaller stack than artefact.STACK updates are not compiled
LINE = 64  # bytes of a cache line, where each array starts


class OnStack(cpp_wrapper_cpu_array_ref.CppWrapperCpuArrayRef):
    """torch's, with aligned arrays."""

    @staticmethod
    def create(*_: Any, **__: Any) -> OnStack:
        return OnStack()

    def make_allocation(self, name: str, *args: Any, **options: Any) -> str:
        line = super().make_allocation(name, *args, **options)
        written = self.wrapper_call._lines
        if line.startswith("ArrayRefTensor"):
            written[-1] = f"alignas({LINE}) {written[-1]}"
        return line

    def generate_return(self, output_refs: list[str]) -> None:
        """All views are taken before the first result is handed over, as torch does where nothing is on the stack:
        afterwards there is no tensor to take one of.
        """
        super().generate_return([self.create_tmp_raii_handle_var_if_needed(r, self.wrapper_call) for r in output_refs])


def problem() -> str | None:
    """Why this torch cannot have them, or None."""
    theirs = cpp_wrapper_cpu_array_ref.CppWrapperCpuArrayRef
    return (
        lacking(theirs, "create", "make_allocation", "generate_return", "create_tmp_raii_handle_var_if_needed")
        or refusing(theirs.generate_return, "output_refs")
        or refusing(theirs.make_allocation, "name")
        or lacking(cpp_wrapper_cpu_array_ref, "MAX_STACK_ALLOCATION_SIZE")
        or lacking(common, "init_backend_registration", "device_codegens")
        or refusing(common.DeviceCodegen, "cpp_wrapper_codegen")
        or unknown(OPTIONS)
    )


@contextmanager
def applied() -> Iterator[None]:
    """While inductor compiles for the CPU.

    Its option alone counts only until it has compiled for the first time in this process.
    """
    common.init_backend_registration()
    ours = dataclasses.replace(common.device_codegens["cpu"], cpp_wrapper_codegen=OnStack)
    limit = patch.object(cpp_wrapper_cpu_array_ref, "MAX_STACK_ALLOCATION_SIZE", MOST)
    with limit, patch.dict(common.device_codegens, {"cpu": ours}):
        yield
