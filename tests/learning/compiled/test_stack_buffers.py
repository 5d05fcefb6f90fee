"""Intermediate results of small updates lie on the stack, aligned; those of large ones are tensors."""

import threading

import pytest
import torch
from torch._inductor.codegen import common
from torch.fx.experimental.proxy_tensor import make_fx

from rookery.learning.compiled.artefact import unavailable
from rookery.learning.compiled.build import _compile
from rookery.learning.compiled.loading import load
from rookery.learning.compiled.stack_buffers import MOST, OnStack


@pytest.fixture
def allocations(monkeypatch):
    """Lines that the compiler wrote to make an array or a tensor: (declaration, last line before it)."""
    seen, make = [], OnStack.make_allocation

    def recorded(self, *args, **options):
        line = make(self, *args, **options)
        seen.append((line, self.wrapper_call._lines[-1]))
        return line

    monkeypatch.setattr(OnStack, "make_allocation", recorded)
    return seen


def built(update, given, folder):
    _compile(make_fx(update)(*given), tuple(given), folder, folder / "update.so")
    return load(folder / "update.so")


def update(x, w):
    """Sums between which the whole matrix must be known, so that they cannot become one loop."""
    y = torch.relu(x @ w)
    y = y / y.sum(0, keepdim=True)
    y = y / y.sum(1, keepdim=True)
    return y, y.sum(), y[1:3], y  # a part of a result, and the same again


def given(size, seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.rand(size, size, generator=g) for _ in range(2)]


def agree(ours, wanted):
    return all((a - b).norm() <= 1e-5 * b.norm() for a, b in zip(ours, wanted, strict=True))


@pytest.mark.matrix
def test_small_results_on_the_stack(tmp_path, allocations):
    torch.compile(lambda x: x + 1)(torch.zeros(3))  # inductor has chosen how it writes for CPUs before
    before = common.device_codegens["cpu"]
    run = built(update, given(24, 0), tmp_path)
    assert common.device_codegens["cpu"] is before
    on_stack = [place for line, place in allocations if line.startswith("ArrayRefTensor")]
    assert on_stack
    assert all("alignas(64)" in place for place in on_stack)
    for seed in (1, 2):
        assert agree(run(given(24, seed)), update(*given(24, seed)))


@pytest.mark.matrix
def test_large_results_are_tensors(tmp_path, allocations):
    size = 520
    assert size**2 > MOST
    run = built(update, given(size, 0), tmp_path)
    assert not [line for line, _ in allocations if line.startswith("ArrayRefTensor")]
    assert agree(run(given(size, 1)), update(*given(size, 1)))


def test_threads_with_a_small_stack_run_eagerly():
    before = threading.stack_size(512 * 1024)
    try:
        assert "stack of 512 kB, 4096 are needed" in unavailable()
    finally:
        threading.stack_size(before)
    assert unavailable() is None
