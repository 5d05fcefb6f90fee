"""Building an artefact: trace the update as pure tensor code, check the trace, compile it, commit it to the cache.

Traced by make_fx with ordinary autograd (not torch.func: BatchNorm in training mode would fail there).
What make_fx would silently bake into the graph — random draws, captured tensors — is refused.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
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
from rookery.learning.compiled.cache import PLAN, Cache
from rookery.learning.compiled.changes import CHANGES, Change, LeftOut, applied, decompositions, options, usable
from rookery.learning.compiled.internals import HINT, tested, version
from rookery.learning.compiled.key import circumstances
from rookery.learning.compiled.loading import CODE, FORMAT, Damaged, load, seal, sha256_of
from rookery.learning.update_words import Rows, Traced, split

log = logging.getLogger("rookery.learning")
Trace = tuple[Any, dict[str, Tensor], dict[str, Any]]  # graph, its named inputs, what it returns
ALIKE = 1e-3  # relative distance of an artefact's results from its trace's: rounding is smaller, foreign memory is not
# of a compiler: its own errors are RuntimeErrors; the last five tell of internals that another torch has elsewhere
FAILURES = (RuntimeError, OSError, AssertionError, ImportError, AttributeError, TypeError, ValueError, LookupError)


def trace(learner: Any, name: str, batch: dict[str, Any], changes: tuple[Change, ...] = CHANGES) -> Trace:
    """The update as one graph of tensor operations."""
    from torch.fx.experimental.proxy_tensor import make_fx

    update, flat = getattr(learner.algo, name), flatten(batch)
    copies = {key: t.clone() for key, t in learner.tensors.items()}

    def words(tensors: dict[str, Tensor], noise: list[Tensor]) -> Traced:
        return Traced(learner.nets, learner.optimisers, tensors, learner.knob_names, noise=noise)

    noise = learner.dry_run(name, batch).drawn()
    inputs = copies | {f"noise{i}": torch.zeros(shape, device="cpu") for i, (_, shape) in enumerate(noise)}
    inputs |= {f"batch.{key}": flat[key] for key in sorted(flat)}
    facts: dict[str, Any] = {"noise": noise}

    def pure(*tensors: Tensor) -> tuple[Tensor, ...]:
        t = dict(zip(inputs, tensors))
        s = words({k: t[k] for k in copies}, [t[f"noise{i}"] for i in range(len(noise))])
        s._batch = Rows(unflatten({k: t[f"batch.{k}"] for k in flat}))
        returned = update(s, s._batch)
        arrays, metrics = split(s._metrics, returned)
        facts.update(arrays=list(arrays), metrics=list(metrics))
        numbers = torch.stack([m.float() for m in metrics.values()]) if metrics else torch.zeros(0, device="cpu")
        s.commit()
        return numbers, *(a.clone() for a in arrays.values())

    table = decompositions(changes)
    tracer = make_fx(pure, decomposition_table=table) if table else make_fx(pure)
    graph = tracer(*(t.clone() for t in inputs.values()))
    check_trace(name, graph)
    for node, key in zip([n for n in graph.graph.nodes if n.op == "placeholder"], list(inputs)):
        if not node.users:
            graph.graph.erase_node(node)
            del inputs[key]
    graph.recompile()
    return graph, inputs, facts


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
                f"update {name!r} captures a tensor of shape {tuple(t.shape)}, which would be frozen when compiled. "
                "Make it a network's buffer, a knob, part of the batch or a plain number, or set learning.mode=eager."
            )


def build(learner: Any, name: str, batch: dict[str, Any], place: Cache, key: str) -> None:
    """Compile one named update into the cache. OSError: the cache has no room or cannot be written."""
    started = time.monotonic()
    memory = getattr(getattr(learner.algo, "model", None), "core", None) is not None
    takes = "up to some minutes, as time is unrolled into the code" if memory else "10 to 30 seconds"
    text = f"compiling update {name!r}: once for this code, shape and machine; takes {takes}"
    log.info("%s", text)
    with learner.busy(text) as say, place.scratch() as scratch:
        changes, left_out = usable()
        graph, inputs, facts = traced(learner, name, batch, changes)
        made = scratch / "artefact"
        made.mkdir(mode=0o700)
        facts["left_out"] = left_out | _compile_trying(graph, tuple(inputs.values()), made / CODE, changes)
        plan = {"format": FORMAT, "key": key, "what": f"{type(learner.algo).__name__} {name}"}
        plan |= {"circumstances": circumstances(), "sha256": sha256_of(made / CODE), "inputs": list(inputs), **facts}
        plan = json.loads(json.dumps(plan))  # tuples become lists, as they will be when it is read
        (made / PLAN).write_text(json.dumps(plan | {"seal": seal(plan)}))
        size = (made / CODE).stat().st_size / 1e6
        place.commit(made, key)
        text = f"compiled update {name!r} in {time.monotonic() - started:.0f} s ({size:.1f} MB)"
        log.info("%s", text)
        say(text)


def traced(learner: Any, name: str, batch: dict[str, Any], changes: tuple[Change, ...] = CHANGES) -> Trace:
    """`trace`, with what tracing says of a branch on data, .item() and foreign calls in words."""
    try:
        return trace(learner, name, batch, changes)
    except (RuntimeError, TypeError, ValueError, ImportError) as error:
        raise CompileError(
            f"update {name!r} cannot be traced: {_first_line(error)}. "
            "It must be straight-line tensor code; learning.mode=eager runs it as it is."
        ) from error


def _compile_trying(graph: Any, examples: tuple[Tensor, ...], path: Path, changes: tuple[Change, ...]) -> LeftOut:
    """Compile with as many of the changes as work.

    With a torch that was tested all do, and a failure is the update's own.
    """
    why = ""
    for without in attempts(changes):
        chosen = tuple(change for change in changes if change not in without)
        try:
            _compile(graph, examples, path.parent.parent, path, chosen)
            if not tested():
                _compare(graph, examples, path)
            return dict.fromkeys((change.name for change in without), why)
        except CompileError as error:
            if tested() or all(change.traced for change in chosen):
                raise
            why = why or f"tried, and failed: {_first_line(error.__cause__ or error)}"
            log.info("torch %s cannot compile this update with all our changes (%s): trying without", version(), why)
    raise AssertionError("the last attempt returns or raises")


def attempts(changes: tuple[Change, ...]) -> Iterator[tuple[Change, ...]]:
    """Which of these changes to inductor to leave out: none, one after the other, all."""
    inner = [change for change in reversed(changes) if not change.traced]
    return itertools.chain.from_iterable(itertools.combinations(inner, count) for count in range(len(inner) + 1))


def _compare(graph: Any, examples: tuple[Tensor, ...], path: Path) -> None:
    """Refuse machine code that computes something else than its trace,
    in what it returns or in what it writes into its inputs.
    """
    wanted, computed = ([t.clone() for t in examples] for _ in range(2))
    with torch.no_grad():
        wanted += graph(*wanted)
    try:
        computed += load(path)(computed)
    except (Damaged, RuntimeError) as error:
        raise CompileError(f"the compiled update cannot be run: {_first_line(error)}; {HINT}") from error
    for ours, trace in zip(computed, wanted, strict=True):
        ours, trace = (torch.nan_to_num(t.double()) for t in (ours, trace))
        if not bool((ours - trace).norm() <= ALIKE * trace.norm() + ALIKE**2):
            raise CompileError(f"the compiled update computes something else than the update; {HINT}")


def _compile(
    graph: Any, examples: tuple[Tensor, ...], scratch: Path, path: Path, changes: tuple[Change, ...] = CHANGES
) -> None:
    """The machine code of the graph at `path`; the compilers' own files stay in `scratch`."""
    args, package = tuple(t.clone() for t in examples), scratch / "update.pt2"
    try:
        import torch._inductor
        from torch._inductor.utils import fresh_inductor_cache  # torch 2.6 knows fresh_cache by this name only

        configs = options(changes)
        with (
            torch.no_grad(),
            warnings.catch_warnings(),
            _temporary_files(scratch),
            fresh_inductor_cache(dir=str(scratch)),
        ):
            warnings.simplefilter("ignore")  # torch warns of its own deprecated calls
            exported = torch.export.export(graph, args, strict=False)
            with applied(changes):
                torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=configs)
    except FAILURES as error:
        if os.strerror(errno.ENOSPC) in str(error):  # said by the system or by g++
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise CompileError(
            f"the update cannot be compiled here: {_first_line(error)}. Set learning.mode=eager to run it as it is."
        ) from error
    path.write_bytes(_code_of(package))


def _code_of(package: Path) -> bytes:
    """The machine code in what AOTInductor made."""
    with zipfile.ZipFile(package) as archive:
        code = [name for name in archive.namelist() if name.endswith(".so")]
        if len(code) != 1:
            raise CompileError(f"AOTInductor of torch {version()} made {len(code)} libraries, one was expected; {HINT}")
        # of operations that the machine code asks torch for by name
        if code[0].removesuffix(".so") + ".json" in archive.namelist():
            raise CompileError(
                "the update calls an operation of torch that machine code cannot reach (nn.LSTM is one; nets.cores "
                "has one of ours). Set learning.mode=eager to run it as it is."
            )
        return archive.read(code[0])


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


def _first_line(error: BaseException) -> str:
    """The first line of what it says, and the first complaint of the C++ compiler if there is one below."""
    first, *others = str(error).strip().splitlines() or [type(error).__name__]
    complaint = next((line.strip() for line in others if "error:" in line), "")
    return f"{first} ({complaint})" if complaint else first
