"""Building an artefact: trace the update as pure tensor code, check the trace, compile it, commit it to the cache.

Traced by make_fx with ordinary autograd (not torch.func: BatchNorm in training mode would fail there). What make_fx would
silently bake into the graph — random draws, captured tensors — is refused.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery.core.errors import CompileError
from rookery.core.tree import flatten, unflatten
from rookery.learning.artefact import FORMAT, read_plan, sha256_of
from rookery.learning.words import Rows, Traced, split

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
        numbers = torch.stack(list(metrics.values())) if metrics else torch.zeros(0, device="cpu")
        s.commit()
        return numbers, *(a.clone() for a in arrays.values())

    graph = make_fx(pure)(*(t.clone() for t in inputs.values()))
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


def build(learner: Any, name: str, batch: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compile one named update into `folder`; two processes may build the same thing, the first rename wins."""
    started = time.monotonic()
    log.info("compiling update %r: once for this code, shape and machine; takes 10 to 30 seconds", name)
    try:
        graph, inputs, found = trace(learner, name, batch)
    except (
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:  # what tracing says of a branch on data, .item(), foreign calls
        raise CompileError(
            f"update {name!r} cannot be traced: {_first_line(error)}. It must be straight-line tensor code; learning.mode=eager runs it "
            "as it is."
        ) from error
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix="building-"))
    except OSError as error:
        raise CompileError(
            f"the cache folder {folder.parent} cannot be written ({error}): set learning.cache"
        ) from error
    try:
        _compile(graph, tuple(inputs.values()), scratch / "update.pt2")
        plan = {"format": FORMAT, "file": "update.pt2", "sha256": sha256_of(scratch / "update.pt2")}
        plan |= {"inputs": list(inputs), **found}
        (scratch / "plan.json").write_text(json.dumps(plan))
        commit(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    log.info("compiled update %r in %.0f s", name, time.monotonic() - started)
    return plan


def _compile(graph: Any, examples: tuple[Tensor, ...], path: Path) -> None:
    import torch._inductor

    args = tuple(t.clone() for t in examples)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own deprecated calls
            exported = torch.export.export(graph, args, strict=False)
            torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    except (RuntimeError, OSError) as error:  # torch's export and inductor errors are RuntimeErrors
        raise CompileError(
            f"the update cannot be compiled here: {_first_line(error)}. Set learning.mode=eager to run it as it is."
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def commit(scratch: Path, folder: Path) -> None:
    """One rename makes it visible; a damaged older one is moved away first."""
    if folder.exists() and read_plan(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        scratch.rename(folder)
    except OSError:
        if read_plan(folder) is None:
            raise
