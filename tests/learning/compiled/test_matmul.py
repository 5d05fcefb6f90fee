"""matmul.h: every shape and layout gives the product, and inductor takes it where it suits and nowhere else."""

import ctypes
import subprocess
from types import SimpleNamespace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from rookery.learning.compiled import matmul
from rookery.learning.compiled.build import _compile
from rookery.learning.compiled.key import compiler, cpu_flags
from rookery.learning.compiled.loading import load

OURS = torch.backends.cpu.get_cpu_capability() in matmul.WRITTEN_FOR
pytestmark = pytest.mark.skipif("avx2" not in cpu_flags(), reason="matmul.h is written for CPUs with AVX2")

WIDTHS = {  # of registers → what the compiler is told
    "avx2": ["-mavx2", "-mfma"],
    "avx512f": ["-DROOKERY_WIDE", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"],
}

# tiles of 12, 6 and fewer rows, panels that are full, half full or not, one panel deeper than
# 256, single rows and columns
SHAPES = [
    (1, 1, 1),
    (2, 2, 2),
    (6, 8, 16),
    (7, 9, 17),
    (64, 128, 128),
    (5, 257, 33),
    (13, 512, 16),
    (31, 300, 1),
    (1, 40, 50),
    (25, 30, 48),
]
LAYOUTS = {"plain": (False, False), "a_turned": (True, False), "b_turned": (False, True), "both": (True, True)}


def strides(rows, columns, turned):
    return (1, rows) if turned else (columns, 1)


@pytest.fixture(scope="module", params=[width for width in WIDTHS if width in cpu_flags().split()])
def library(tmp_path_factory, request):
    """All shapes and layouts, compiled once for each width of registers that this CPU has."""
    folder = tmp_path_factory.mktemp(request.param)
    source = matmul.HEADER.read_text()
    for m, k, n in SHAPES:
        for name, (a, b) in LAYOUTS.items():
            numbers = (m, k, n, *strides(m, k, a), *strides(k, n, b), n)
            source += f'\nextern "C" void {name}_{m}_{k}_{n}(const float* a, const float* b, float* y) '
            source += f"{{ rookery::product<{', '.join(map(str, numbers))}>(a, b, y); }}"
    (folder / "all.cpp").write_text(source)
    options = [*WIDTHS[request.param], "-O2", "-shared", "-fPIC"]
    subprocess.run([compiler(), *options, "all.cpp", "-o", "all.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "all.so"))


def made(library, a, b, name):
    (m, k), n = a.shape, b.shape[1]
    y = torch.full((m, n), torch.nan)
    getattr(library, f"{name}_{m}_{k}_{n}")(*(ctypes.c_void_p(t.data_ptr()) for t in (a, b, y)))
    return y


@pytest.mark.slow
def test_a_product_worked_out_by_hand(library):
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    assert made(library, a, b, "plain").tolist() == [[19.0, 22.0], [43.0, 50.0]]  # 1·5 + 2·7 = 19, …, 3·6 + 4·8 = 50


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_shape_and_layout(library, shape, layout):
    (m, k, n), (a_turned, b_turned) = shape, LAYOUTS[layout]
    g = torch.Generator().manual_seed(m * k * n)
    a = torch.randn(k, m, generator=g).t() if a_turned else torch.randn(m, k, generator=g)
    b = torch.randn(n, k, generator=g).t() if b_turned else torch.randn(k, n, generator=g)
    wanted = a.double() @ b.double()
    assert (made(library, a, b, layout) - wanted).norm() / wanted.norm() < 1e-6


@pytest.mark.slow
def test_every_sum_is_in_the_order_of_k_whatever_the_width(library):
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in ((5, 257), (257, 33)))
    blocks = []
    for part in (slice(0, 256), slice(256, 257)):  # as deep as a panel
        total = torch.zeros(5, 33)
        for x, y in zip(a[:, part].t().double(), b[part].double()):
            total = (x[:, None] * y + total.double()).float()  # one rounding, as in a fused multiply-add
        blocks.append(total)
    assert made(library, a, b, "plain").equal(blocks[1] + blocks[0])


@pytest.mark.matrix
def test_inductor_takes_it_for_float32_and_the_library_for_the_rest(tmp_path):
    def both(a, b, c, d):
        row = a.reshape(-1)
        overlapping = row.as_strided((20, 12), (3, 1), 5) @ row.as_strided((12, 23), (1, 5), 7)  # views of one buffer
        return a @ b, c @ d, a @ a.t(), overlapping, a[:1].expand(20, 32) @ b, a[2:15, 3:] @ b[3:, 5:], a[:0] @ b

    given = [torch.randn(20, 32), torch.randn(24, 32).t(), torch.randn(10, 12).double(), torch.randn(12, 11).double()]
    graph = make_fx(both)(*given)
    _compile(graph, tuple(given), tmp_path, tmp_path / "both.so")
    run = load(tmp_path / "both.so")
    for ours, wanted in zip(run(given), both(*given)):
        assert ours.shape == wanted.shape
        assert (ours - wanted).norm() <= 1e-6 * wanted.norm()
    code = (tmp_path / "both.so").read_bytes()
    assert (b"rookery7productILl20ELl32ELl24E" in code) == OURS
    assert b"rookery7productILl10E" not in code
    assert (b"rookery7productILl20ELl12ELl23E" in code) == OURS


def test_whoever_forbids_wide_registers_gets_none(monkeypatch):
    for capability, wide in (("AVX512", True), ("AVX2", False)):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda told=capability: told)
        assert ("#define ROOKERY_WIDE" in matmul.source()) is wide


def matrix(rows, columns, dtype=torch.float32, stride=None, device="cpu"):
    return SimpleNamespace(
        get_dtype=lambda: dtype,
        get_device=lambda: torch.device(device),
        get_size=lambda: [rows, columns],
        get_stride=lambda: stride or [columns, 1],
        stride=stride or [columns, 1],
    )


@pytest.mark.parametrize(
    ("a", "b", "y", "threads", "capability", "wanted"),
    [
        (matrix(64, 32), matrix(32, 16), matrix(64, 16), 1, "AVX2", True),
        (matrix(64, 32, stride=[2, 64]), matrix(32, 16, stride=[1, 32]), matrix(64, 16), 1, "AVX2", True),
        (matrix(64, 32), matrix(32, 16), matrix(64, 16), 2, "AVX2", False),  # the library shares the work
        (matrix(64, 32), matrix(32, 16), matrix(64, 16), 1, "AVX512", True),
        (matrix(64, 32), matrix(32, 16), matrix(64, 16), 1, "DEFAULT", False),
        (matrix(64, 32, torch.float64), matrix(32, 16, torch.float64), matrix(64, 16), 1, "AVX2", False),
        (matrix(64, 32), matrix(32, 16, stride=[32, 2]), matrix(64, 16), 1, "AVX2", False),
        (matrix(64, 32), matrix(32, 16), matrix(64, 16, stride=[1, 64]), 1, "AVX2", False),
        (matrix(64, "s0"), matrix("s0", 16), matrix(64, 16), 1, "AVX2", False),  # a size that is not known yet
        (matrix(0, 32), matrix(32, 16), matrix(0, 16), 1, "AVX2", False),
        (matrix(64, 32, device="meta"), matrix(32, 16, device="meta"), matrix(64, 16), 1, "AVX2", False),
    ],
)
def test_where_it_suits(monkeypatch, a, b, y, threads, capability, wanted):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert matmul.suits(a, b, y) is wanted
