"""Building an artefact: trace the update as pure tensor code, check the trace, compile it, commit it to the cache.

Traced by make_fx with ordinary autograd (not torch.func: BatchNorm in training mode would fail there). What make_fx would
silently bake into the graph — random draws, captured tensors — is refused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery.core.errors import CompileError
from rookery.core.tree import flatten, unflatten
from rookery.learning.compiled.artefact import CODE, FORMAT, OPTIONS, seal, sha256_of
from rookery.learning.compiled.cache import PLAN, Cache
from rookery.learning.compiled.key import circumstances
from rookery.learning.compiled.small_matmul import decompositions
from rookery.learning.update_words import Rows, Traced, split

log = logging.getLogger("rookery.learning")


def trace(learner: Any, name: str, batch: dict[str, Any]) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """(graph, its named inputs, what it returns): the update as one graph of tensor operations."""
    from torch.fx.experimental.proxy_tensor import make_fx

    update, flat = getattr(learner.algo, name), flatten(batch)
    given = {key: t.clone() for key, t in learner.tensors.items()}

    def words(tensors: dict[str, Tensor], noise: list[Tensor]) -> Traced:
        return Traced(learner.nets, learner.optimisers, tensors, learner.knob_names, noise=noise)

    noise = learner.dry_run(name, batch).drawn()
    inputs = given | {f"noise{i}": torch.zeros(shape, device="cpu") for i, (_, shape) in enumerate(noise)}
    inputs |= {f"batch.{key}": flat[key] for key in sorted(flat)}
    found: dict[str, Any] = {"noise": noise}

    def pure(*tensors: Tensor) -> tuple[Tensor, ...]:
        t = dict(zip(inputs, tensors))
        s = words({k: t[k] for k in given}, [t[f"noise{i}"] for i in range(len(noise))])
        s._batch = Rows(unflatten({k: t[f"batch.{k}"] for k in flat}))
        returned = update(s, s._batch)
        arrays, metrics = split(s._metrics, returned)
        found.update(arrays=list(arrays), metrics=list(metrics))
        numbers = torch.stack([m.float() for m in metrics.values()]) if metrics else torch.zeros(0, device="cpu")
        s.commit()
        return numbers, *(a.clone() for a in arrays.values())

    graph = make_fx(pure, decomposition_table=decompositions())(*(t.clone() for t in inputs.values()))
    check_trace(name, graph)
    for node, key in zip([n for n in graph.graph.nodes if n.op == "placeholder"], list(inputs)):
        if not node.users:
            graph.graph.erase_node(node)
            del inputs[key]
    graph.recompile()
    return graph, inputs, found


def check_trace(name: str, graph: Any) -> None:
    """No random op and no captured tensor: both would be frozen into the machine code at their first value."""
    graph.graph.eliminate_dead_code()
    for node in graph.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CompileError(
                f"update {name!r} draws random numbers by itself ({node.target}), which would be frozen when compiled. "
                "Use s.normal(…) or s.uniform(…), or set learning.mode=eager."
            )
        if node.op == "get_attr":
            t = getattr(graph, node.target)
            raise CompileError(
                f"update {name!r} captures a tensor of shape {tuple(t.shape)}, which would be frozen when compiled. Make it a "
                "network's buffer, a knob, part of the batch or a plain number, or set learning.mode=eager."
            )


def build(learner: Any, name: str, batch: dict[str, Any], place: Cache, key: str) -> None:
    """Compile one named update into the cache. OSError: the cache has no room or cannot be written."""
    started = time.monotonic()
    memory = getattr(getattr(learner.algo, "model", None), "core", None) is not None
    takes = "up to some minutes, as time is unrolled into the code" if memory else "10 to 30 seconds"
    text = f"compiling update {name!r}: once for this code, shape and machine; takes {takes}"
    log.info("%s", text)
    with learner.busy(text) as say, place.scratch() as scratch:
        graph, inputs, found = traced(learner, name, batch)
        made = scratch / "artefact"
        made.mkdir(mode=0o700)
        _compile(graph, tuple(inputs.values()), scratch, made / CODE)
        plan = {"format": FORMAT, "key": key, "what": f"{type(learner.algo).__name__} {name}"}
        plan |= {"circumstances": circumstances(), "sha256": sha256_of(made / CODE), "inputs": list(inputs), **found}
        plan = json.loads(json.dumps(plan))  # tuples become lists, as they will be when it is read
        (made / PLAN).write_text(json.dumps(plan | {"seal": seal(plan)}))
        size = (made / CODE).stat().st_size / 1e6
        place.commit(made, key)
        text = f"compiled update {name!r} in {time.monotonic() - started:.0f} s ({size:.1f} MB)"
        log.info("%s", text)
        say(text)


def traced(learner: Any, name: str, batch: dict[str, Any]) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
    """`trace`, with what tracing says of a branch on data, .item() and foreign calls in words."""
    try:
        return trace(learner, name, batch)
    except (RuntimeError, TypeError, ValueError) as error:
        raise CompileError(
            f"update {name!r} cannot be traced: {_first_line(error)}. It must be straight-line tensor code; learning.mode=eager runs it "
            "as it is."
        ) from error


def _compile(graph: Any, examples: tuple[Tensor, ...], scratch: Path, path: Path) -> None:
    """The machine code of the graph at `path`; the compilers' own files stay in `scratch`."""
    import torch._inductor
    from torch._inductor.utils import fresh_cache

    from rookery.learning.compiled.matmul import own_products
    from rookery.learning.compiled.stack_buffers import on_stack

    args, package = tuple(t.clone() for t in examples), scratch / "update.pt2"
    try:
        with torch.no_grad(), warnings.catch_warnings(), _temporary_files(scratch), fresh_cache(dir=str(scratch)):
            warnings.simplefilter("ignore")  # torch warns of its own deprecated calls
            exported = torch.export.export(graph, args, strict=False)
            with own_products(), on_stack():
                torch._inductor.aoti_compile_and_package(
                    exported, package_path=str(package), inductor_configs=dict(OPTIONS)
                )  # it writes into them
    except (RuntimeError, OSError, AssertionError) as error:  # torch's export and inductor errors are RuntimeErrors
        if os.strerror(errno.ENOSPC) in str(error):  # said by the system or by g++
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise CompileError(
            f"the update cannot be compiled here: {_first_line(error)}. Set learning.mode=eager to run it as it is."
        ) from error
    with zipfile.ZipFile(package) as archive:
        (code,) = (name for name in archive.namelist() if name.endswith(".so"))
        if (
            code.removesuffix(".so") + ".json" in archive.namelist()
        ):  # of operations that the machine code asks torch for by name
            raise CompileError(
                "the update calls an operation of torch that machine code cannot reach (nn.LSTM is one; nets.cores has one of "
                "ours). Set learning.mode=eager to run it as it is."
            )
        path.write_bytes(archive.read(code))


@contextlib.contextmanager
def _temporary_files(folder: Path) -> Iterator[None]:
    """g++ keeps its temporary files here: they go with the folder, also if the build is killed."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


def _first_line(error: Exception) -> str:
    """The first line of what it says, and the first complaint of the C++ compiler if there is one below."""
    first, *others = str(error).strip().splitlines() or [type(error).__name__]
    found = next((line.strip() for line in others if "error:" in line), "")
    return f"{first} ({found})" if found else first
