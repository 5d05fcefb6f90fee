"""Quick acting: what an algorithm's `outputs` computes for a plain network, without torch's dispatch.

`outputs` runs once under a recorder that sees every tensor operation. Chains of linear layers and activations become
one call (`kernels.act`, on the live weights), the few operations around them numpy. Anything else, and any algorithm or
module that does not declare itself `plain` (`core.plain`: it might branch on what a recorder cannot see), stays with
torch. So nobody writes a network twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rookery.core.plain import plain_module
from rookery.core.tree import Tree, leaves, tree_map
from rookery.kernels.act import ACTIVATION, LANES, N_IN, N_OUT, NONE, RELU, TANH, perceptron

aten = torch.ops.aten
MOST = 150_000  # products per call: beyond, torch's matrix kernels win
ACTIVATIONS = {aten.relu.default: RELU, aten.tanh.default: TANH}
VIEWS = {aten.t.default, aten.select.int, aten.view.default, aten.detach.default, aten.unsqueeze.default}
CONSTANT = {aten.linspace.default}  # depends on numbers only: as good as a live tensor
Arrays = dict[str, np.ndarray]
Memory = list[Any]  # what has been computed so far, by the number of the value
Step = Callable[[Memory], None]
Quick = Callable[[Tree], tuple[Arrays, Tree]]


class Value(int):
    """Number of an observation or of the result of a recorded operation."""


@dataclass(slots=True)
class Op:
    """One recorded operation: arguments are Values, live tensors and plain numbers;
    `part`: which of several results.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Value
    part: int | None = None

    def step(self, batch: int) -> Step:
        fn, out, kwargs = NUMPY[self.func], self.out, {} if self.part is None else {"part": self.part}
        args = tuple(a.numpy() if isinstance(a, Tensor) else a for a in self.args)  # live tensors: their memory

        def run(memory: Memory) -> None:
            memory[out] = fn(*(_filled(a, memory) for a in args), **kwargs)

        return run


@dataclass(slots=True)
class Chain:
    """Linear layers with their activations, all in one flat vector; `layers` are rows of the kernel's table."""

    source: Value
    out: Value
    flat: Tensor
    layers: list[list[int]]

    def step(self, batch: int) -> Step:
        (flat, layers, scratch, into), source, out = self._arrays(batch), self.source, self.out

        def run(memory: Memory) -> None:
            perceptron(memory[source], flat, layers, scratch, into)
            memory[out] = into

        return run

    def alone(self, batch: int, name: str) -> Quick:
        """The whole program, if this is all: the only output is called `name`."""
        flat, layers, scratch, into = self._arrays(batch)

        def run(inputs: Tree) -> tuple[Arrays, Tree]:
            perceptron(inputs, flat, layers, scratch, into)
            return {name: into}, {}

        return run

    def _arrays(self, batch: int) -> tuple[np.ndarray, ...]:
        """(weights, table of layers, scratch, room for the result) of the kernel."""
        layers = np.array(self.layers, np.int64)
        scratch = np.zeros((3, layers[:, [N_IN, N_OUT]].max(), LANES), np.float32)
        return self.flat.numpy(), layers, scratch, np.zeros((batch, layers[-1, N_OUT]), np.float32)


class Recorder(TorchDispatchMode):
    """Notes the operations on observations; a view of a live tensor is a live tensor itself."""

    def __init__(self, obs: list[Tensor]):
        super().__init__()
        self.ops: list[Op] = []
        self._made = list(obs)  # kept, so that no identity is used twice
        self._live: list[Tensor] = []
        self.values = {id(t): Value(i) for i, t in enumerate(obs)}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler for two seconds to tell it not to look in here

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = self._known(args)
        made = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, list | tuple) else []
        if func in CONSTANT or (func in VIEWS and not any(isinstance(a, Value) for a in known)):
            self._live += made
            return result
        for i, tensor in enumerate(made):
            value = self.values[id(tensor)] = Value(len(self._made))
            self._made.append(tensor)
            self.ops.append(Op(func, known, kwargs or {}, value, i if len(made) > 1 else None))
        if not made:
            self.ops.append(Op(func, known, kwargs or {}, Value(-1)))  # a number was read: no program of numpy calls
        return result

    def _known(self, args: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(self._known(a) if isinstance(a, list | tuple) else self.values.get(id(a), a) for a in args)


def quick(outputs: Any, reader: Any, inputs: Tree, modules: Iterable[Any]) -> Quick | None:
    """`run(inputs) → (outputs, state after)`, arrays that the next call overwrites,
    for inputs shaped like these tensors.

    None: not that plain.
    """
    seen = leaves(inputs)
    if any(t.dtype != torch.float32 or t.device.type != "cpu" for t in seen):
        return None
    if not all(map(plain_module, modules)):
        return None
    recorder = Recorder(seen)
    try:
        with torch.no_grad(), recorder:
            out, after = outputs(reader, inputs, None)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None  # it looks at `first`, or at something else that is not there while recording; torch will say what
    made = [*out.values(), *leaves(after)]
    if not all(id(t) in recorder.values for t in made):
        return None
    results = {name: recorder.values[id(t)] for name, t in out.items()}
    states = tree_map(lambda t: recorder.values[id(t)], after)
    plan = _plan(recorder.ops, {recorder.values[id(t)] for t in made})
    if plan is None or len(seen[0]) * sum(layer[N_IN] * layer[N_OUT] for layer in _layers(plan)) > MOST:
        return None
    steps, room = [part.step(len(seen[0])) for part in plan], len(recorder.values)
    if len(plan) == 1 and len(made) == 1 and isinstance(inputs, Tensor) and isinstance(plan[0], Chain):
        return _checked(plan[0].alone(len(inputs), next(iter(out))), inputs, out, after)

    def run(arrays: Tree) -> tuple[Arrays, Tree]:
        memory: Memory = leaves(arrays) if isinstance(arrays, dict) else [arrays]
        memory += [None] * room
        for step in steps:
            step(memory)
        return {name: memory[value] for name, value in results.items()}, tree_map(memory.__getitem__, states)

    return _checked(run, inputs, out, after)


def _checked(run: Quick, inputs: Tree, out: dict[str, Tensor], after: Tree) -> Quick | None:
    """The program, if it gives what torch gave."""
    ours, state = run(tree_map(lambda t: t.numpy(), inputs))
    pairs = [(ours[name], t) for name, t in out.items()] + list(zip(leaves(state), leaves(after)))
    return run if all(np.allclose(mine, t.numpy(), 1e-3, 1e-5) for mine, t in pairs) else None


def _layers(plan: list[Op | Chain]) -> list[list[int]]:
    return [layer for part in plan if isinstance(part, Chain) for layer in part.layers]


def _plan(ops: list[Op], results: set[Value]) -> list[Op | Chain] | None:
    """The operations, linear layers gathered in chains; None if numpy does not know one of them."""
    ops = _needed(ops, results)
    used = [a for op in ops for a in _flat(op.args) if isinstance(a, Value)]
    plan: list[Op | Chain] = []
    for op in ops:
        last = plan[-1] if plan else None
        grows = isinstance(last, Chain) and used.count(last.out) == 1 and last.out not in results
        chain = _linear(op)
        if chain is not None:
            if isinstance(last, Chain) and grows and chain.source == last.out and _same_memory(chain.flat, last.flat):
                last.layers += chain.layers
                last.out = op.out
            else:
                plan.append(chain)
        elif isinstance(last, Chain) and grows and _activates(op, last):
            last.layers[-1][ACTIVATION] = ACTIVATIONS[op.func]
            last.out = op.out
        elif op.func in NUMPY and op.out >= 0 and set(op.kwargs) <= {"pin_memory"}:
            plan.append(op)
        else:
            return None
    return plan


def _activates(op: Op, last: Chain) -> bool:
    """Whether this is the activation of the chain's last layer, which has none yet."""
    return op.func in ACTIVATIONS and op.args[0] == last.out and last.layers[-1][ACTIVATION] == NONE


def _needed(ops: list[Op], results: set[Value]) -> list[Op]:
    """Without those whose result nobody uses, such as a value that acting does not ask for."""
    wanted, kept = set(results), []
    for op in reversed(ops):
        if op.out in wanted or op.out < 0:
            kept.append(op)
            wanted |= {a for a in _flat(op.args) if isinstance(a, Value)}
    return kept[::-1]


def _linear(op: Op) -> Chain | None:
    """x Wᵀ + b, if weight and bias lie in one flat vector."""
    if op.func is not aten.addmm.default or op.kwargs:
        return None
    bias, source, weight = op.args
    if not (isinstance(source, Value) and isinstance(bias, Tensor) and isinstance(weight, Tensor)):
        return None
    n_in, n_out = weight.shape
    if weight.stride() != (1, n_in) or bias.shape != (n_out,) or not _same_memory(weight, bias):
        return None
    flat = torch.empty(0, device="cpu").set_(weight.untyped_storage())
    layer = [n_in, n_out, int(weight.storage_offset()), int(bias.storage_offset()), NONE]
    return Chain(source, op.out, flat, [layer])


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _flat(args: tuple[Any, ...]) -> list[Any]:
    return [b for a in args for b in (_flat(a) if isinstance(a, tuple) else (a,))]


def _filled(a: Any, memory: Memory) -> Any:
    if isinstance(a, Value):
        return memory[a]
    return tuple(_filled(b, memory) for b in a) if isinstance(a, tuple) else a


def _slice(
    x: np.ndarray, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> np.ndarray:
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop, step),)]


def _split(x: np.ndarray, size: int | tuple[int, ...], axis: int = 0, part: int = 0) -> np.ndarray:
    edges = range(size, x.shape[axis], size) if isinstance(size, int) else np.cumsum(size)[:-1]
    return np.split(x, edges, axis)[part]


def _softmax(x: np.ndarray, axis: int, half: bool) -> np.ndarray:
    shares = np.exp(x - x.max(axis, keepdims=True))
    return shares / shares.sum(axis, keepdims=True)


def _layer_norm(x: np.ndarray, shape: tuple[int, ...], weight: Any, bias: Any, eps: float, part: int = 0) -> np.ndarray:
    """The first of the three results; nobody asks for the others when acting."""
    axes = tuple(range(-len(shape), 0))
    apart = x - x.mean(axes, keepdims=True)
    normal = apart / np.sqrt((apart * apart).mean(axes, keepdims=True) + np.float32(eps))
    return normal * (1 if weight is None else weight) + (0 if bias is None else bias)


NUMPY: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: np.add,
    aten.sub.Tensor: np.subtract,
    aten.mul.Tensor: np.multiply,
    aten.div.Tensor: np.divide,
    aten.tanh.default: np.tanh,
    aten.exp.default: np.exp,
    aten.sigmoid.default: lambda x: 0.5 * (1.0 + np.tanh(0.5 * x)),  # without overflow
    aten.sqrt.default: np.sqrt,
    aten.relu.default: lambda x: np.maximum(x, np.float32(0)),
    aten.clamp.default: lambda x, low=None, high=None: np.clip(x, low, high),
    aten.zeros_like.default: np.zeros_like,
    aten.detach.default: lambda x: x,
    aten.gt.Scalar: np.greater,
    aten.where.self: np.where,
    aten.slice.Tensor: _slice,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.mean.dim: lambda x, axes, keep=False: x.mean(axes, keepdims=keep),
    aten.cat.default: lambda parts, axis=0: np.concatenate(parts, axis),
    aten.unsqueeze.default: np.expand_dims,
    aten.view.default: np.reshape,
    aten.sum.dim_IntList: lambda x, axes, keep=False: x.sum(tuple(axes), keepdims=keep),
    aten._softmax.default: _softmax,
    aten.native_layer_norm.default: _layer_norm,
}
