"""Matrix products inside an artefact by matmul.h instead of the library:
imported when an update is built, with the compiler.

torch's library (MKL) reaches 70 to 80 % of what the CPUs allow that we measured (AMD, AVX2 or AVX-512), matmul.h 90 to
95 %, and it needs no tensor objects: 1.1 to 1.4 times as fast at the sizes of reinforcement learning, on one thread.
With more threads, other numbers or other CPUs the library's product is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor import lowering  # first: its modules import one another
from torch._inductor.codegen.cpp_template import CppTemplate
from torch._inductor.codegen.cpp_template_kernel import CppTemplateKernel
from torch._inductor.kernel.mm_common import mm_args

from rookery.learning.compiled.internals import lacking, refusing, unknown

OPTIONS = {"epilogue_fusion": False}  # matmul.h has none
HEADER = Path(__file__).with_name("matmul.h")
WRITTEN_FOR = ("AVX2", "AVX512")  # capabilities by torch's names; the same bits on both


class Product(CppTemplate):
    """Y = A B as one call into matmul.h, which is part of the generated source."""

    def __init__(self, a: Any, b: Any, layout: Any):
        super().__init__("product", [a, b], layout, num_threads=1)

    def render(self, kernel: Any, template_buffer_node: Any = None, **_: Any) -> str:  # type: ignore[override]
        (a, b), y = self.input_nodes, template_buffer_node or self.output_node
        start = kernel.def_kernel({"A": a, "B": b}, {"Y": y})
        shape = [kernel.size(a, 0), kernel.size(a, 1), kernel.size(b, 1)]
        strides = [kernel.stride(t, i) for t, i in ((a, 0), (a, 1), (b, 0), (b, 1), (y, 0))]
        places = ", ".join(f"&({kernel.index(t, [0, 0])})" for t in (a, b, y))
        call = f"rookery::product<{', '.join(shape + strides)}>({places});"
        return f'{self.header().getvalue()}\n{source()}\nextern "C" {start}\n{{\n    {call}\n}}\n'


def problem() -> str | None:
    """Why this torch cannot have them, or None."""
    if torch.ops.aten.mm.default not in lowering.lowerings:
        return "inductor has no lowering of aten.mm"
    return (
        lacking(CppTemplate, "generate", "header")
        or lacking(CppTemplateKernel, "def_kernel", "size", "stride", "index")
        or refusing(CppTemplate.__init__, "name", "input_nodes", "layout", "num_threads")
        or refusing(mm_args, "layout")
        or unknown(OPTIONS)
    )


def source() -> str:
    """matmul.h, with wide registers only where torch may use them:
    inductor's compiler is told of all that the CPU has.
    """
    wide = "#define ROOKERY_WIDE\n" if torch.backends.cpu.get_cpu_capability() == "AVX512" else ""
    return wide + HEADER.read_text(encoding="utf-8")


def suits(a: Any, b: Any, layout: Any) -> bool:
    """Whether matmul.h is made for these matrices on this machine."""
    one = torch.get_num_threads() == 1 and torch.backends.cpu.get_cpu_capability() in WRITTEN_FOR
    plain = all(t.get_dtype() == torch.float32 and t.get_device().type == "cpu" for t in (a, b))
    known = all(str(n).isdigit() and int(n) > 0 for t in (a, b) for n in (*t.get_size(), *t.get_stride()))
    return one and plain and known and 1 in b.get_stride() and int(layout.stride[1]) == 1


@contextmanager
def applied() -> Iterator[None]:
    """While inductor compiles: its `mm` is ours where it suits."""
    mm = torch.ops.aten.mm.default
    library = lowering.lowerings[mm]

    def lowered(a: Any, b: Any, *, layout: Any = None, **options: Any) -> Any:
        *_, result_layout, x, y = mm_args(a, b, layout=layout)
        for matrix in (x, y):
            matrix.freeze_layout()
        if options or not suits(x, y, result_layout):
            return library(a, b, layout=layout, **options)
        return Product(x, y, result_layout).generate().output_node()

    with patch.dict(lowering.lowerings, {mm: lowered}):
        yield
