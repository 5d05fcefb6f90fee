"""The tree itself: sizes, rooms, the direction of imports, and habits that must not creep in.

A size is a smoke alarm, not a target (docs/decisions/009-rooms.md): never split to meet a number. Each test names all
offenders at once. What an older tree still does stands in tests/tree_exceptions.py, which may only become shorter.
"""

import ast
import importlib.util
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("tree")  # one worker: every file is parsed once
ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "rookery"
FILES = sorted(SOURCE.rglob("*.py"))
LINES = {"function": 45, "class": 300, "module": 500, "algorithm": 200}
SMALL = 60  # lines below which a module with a single importer says why it stands alone
LONG_CLASSES = {  # classes that may have more than 300 lines, and why
    "envs/engines/inprocess.py:InProcess": "the hot path of every Python env: steps, faults, replay share its columns",
    "envs/workers/parent.py:Workers": "rounds, renewals and quarantine share the same few arrays",
    "run/pools/remote.py:RemotePool": "rounds, asynchronous requests and renewals share the same few lists",
    "run/trainer.py:Trainer": "the loop, its reports and its state must be read together",
}
ONE_EACH = ("algos", "cli", "zoo")  # rooms with one file per algorithm, command, task: that is reason enough
ARGUMENTS = {  # functions that may have more than eight arguments, and why
    "kernels": "a kernel takes plain arrays",
    "envs/engines/cartpole.py": "a kernel takes plain arrays",
    "envs/engines/matrix.py": "a kernel takes plain arrays",
    "envs/engines/native_rows.py": "a kernel takes plain arrays",
    "envs/engines/pendulum.py": "a kernel takes plain arrays",
    "envs/engines/spread.py": "a kernel takes plain arrays",
    "equations/returns.py": "the symbols of the equation",
    "data/replay/store.py": "what a store must know of the run",
    "data/recorded/replay.py": "the reserved fields of a step",
    "cli": "options of a command are parameters",
    "run/experiment/experiment.py": "options of a run, all by keyword",
    "run/config/resolve.py": "sources of a config, all optional",
}
FORBIDDEN = {  # pattern → why
    r"np\.random\.(seed|rand|randn|randint|choice|uniform|normal)\(|torch\.manual_seed\(|random\.seed\(": (
        "randomness comes from a named stream (rookery.core.rng)"
    ),
    r"pickle\.loads?\(|torch\.load\(|allow_pickle=True": "files never contain pickle",
    r"^\s*raise NotImplementedError": "leave out what is not there",
}
SAY_NOTHING = ("told", "found", "given", "asked", "held")  # names of locals that do not say what they hold
MAKERS = [
    "zeros",
    "ones",
    "empty",
    "full",
    "arange",
    "linspace",
    "eye",
    "rand",
    "randn",
    "tensor",
    "randint",
    "randperm",
]


@cache
def house():
    """bench/house.py, by its path: tests have a package called bench, too."""
    spec = importlib.util.spec_from_file_location("bench_house", ROOT / "bench" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def short(path):
    return path.relative_to(SOURCE).as_posix()


def nodes(*kinds):
    """(file, node) of every node of these kinds under src/rookery."""
    return [(short(path), node) for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, kinds)]


def none(offenders):
    """Fails with one line per offender."""
    assert not offenders, "\n" + "\n".join(offenders)


# --- sizes ---


def test_tests_of_one_group_run_in_one_process(request):
    """pytest-xdist tells groups by a suffix of the test's name, and forgets them without a word where it cannot."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@tree")


def test_modules_are_short():
    counts = [(path, len(path.read_text(encoding="utf-8").splitlines())) for path in FILES]
    limits = {path: LINES["algorithm" if path.parent.name == "algos" else "module"] for path in FILES}
    none([f"{short(path)}: {count} lines, {limits[path]} allowed" for path, count in counts if count > limits[path]])


def test_classes_are_short():
    counts = [(file, node.name, node.end_lineno - node.lineno + 1) for file, node in nodes(ast.ClassDef)]
    long = {f"{file}:{name}": count for file, name, count in counts if count > LINES["class"]}
    none([f"{name}: {count} lines, 300 allowed" for name, count in long.items() if name not in LONG_CLASSES])
    none([f"{name}: short enough now, take it off LONG_CLASSES" for name in sorted(set(LONG_CLASSES) - set(long))])


def test_functions_are_short_and_take_few_arguments():
    offenders = []
    for file, function in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        body = function.end_lineno - function.body[0].lineno + 1
        if body > LINES["function"]:
            offenders.append(f"{file}: {function.name} has {body} lines, {LINES['function']} allowed")
        count = len([a for a in [*function.args.args, *function.args.kwonlyargs] if a.arg not in ("self", "cls")])
        if count > 8 and not file.startswith(tuple(ARGUMENTS)):
            offenders.append(f"{file}: {function.name} takes {count} arguments, 8 allowed")
    none(offenders)


def test_lines_have_at_most_120_characters():
    offenders, places = [], ["src", "tests", "bench", "docs", "examples"]
    for path in [file for place in places for file in sorted((ROOT / place).rglob("*.py"))]:
        name, lines = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8").splitlines()
        long = [number for number, line in enumerate(lines, 1) if len(line) > 120]
        offenders += [f"{name}:{number}: {len(lines[number - 1])} characters" for number in long]
    none(offenders)


# --- rooms ---


def test_a_room_holds_at_most_14_modules():
    rooms = {room: count for room, count in house().folders(ROOT).items() if room != "rookery/algos"}
    none([f"{room}: {count} modules, 14 allowed" for room, count in rooms.items() if count > 14])


def test_no_room_is_called_by_a_word_that_says_nothing():
    names = {part for path in FILES for part in path.relative_to(SOURCE).with_suffix("").parts}
    none(sorted(names & {"utils", "util", "helpers", "helper", "misc", "manager", "managers", "base_utils"}))


def test_every_room_says_what_it_holds():
    rooms = {path.parent / "__init__.py" for path in FILES}
    none(sorted(f"{short(room)}: no docstring" for room in rooms if not ast.get_docstring(parsed(room))))


def test_a_small_module_with_a_single_importer_says_why_it_stands_alone():
    measured = house()
    known, importers = measured.modules(ROOT), defaultdict(set)
    for name, path in known.items():
        for imported in measured.imports_of(name, path, known):
            importers[imported].add(name)
    offenders = []
    for name, path in known.items():
        small = len(path.read_text(encoding="utf-8").splitlines()) < SMALL and path.name != "__init__.py"
        if not small or len(importers[name]) != 1 or short(path).startswith(ONE_EACH):
            continue
        if "alone" not in (ast.get_docstring(parsed(path)) or ""):
            offenders.append(f"{short(path)}: only {', '.join(importers[name])} imports it; say why it stands alone")
    none(offenders)


def test_no_module_imports_itself_in_a_circle():
    """Imports inside functions count: a late import hides a circle, it does not remove it."""
    none([" → ".join(cycle) for cycle in house().cycles(ROOT)])


def test_the_contract_of_run_names_every_algorithm():
    """import-linter cannot say "all but": so its list is compared with the folder."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    listed = {name for contract in contracts for name in contract.get("forbidden_modules", ()) if ".algos." in name}
    files = {f"rookery.algos.{path.stem}" for path in (SOURCE / "algos").glob("*.py")}
    assert listed == files - {
        f"rookery.algos.{name}" for name in ("__init__", "base", "choice", "config", "multi_discrete")
    }


# --- habits ---


def test_no_global_generator_no_pickle_nothing_left_open():
    offenders = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for pattern, why in FORBIDDEN.items():
            if path.name == "rng.py" and "random" in pattern:
                continue
            offenders += [f"{short(path)}: {match[0].strip()!r}: {why}" for match in re.finditer(pattern, text, re.M)]
    none(offenders)


def test_what_only_some_systems_have_is_asked_for_in_one_place():
    """core/system/portable.py knows what Windows and macOS do instead; ray_cleanup.py is a program that imports nothing
    of ours."""
    only = r"\b(fcntl|msvcrt|resource|ctypes)\b\.|\bimport (fcntl|msvcrt|resource|ctypes)\b|\bgetuid\b"
    only += r"|(Path|open)\(.\/(proc|sys)\b"
    only += r"|\bSIG(KILL|USR1|USR2|ALRM|CHLD)\b(?!\"?[^\n]*(: |ended))|\bO_(NOFOLLOW|DIRECTORY|NONBLOCK|CLOEXEC)\b"
    only += r"|\bos\.(fork|pread|pwrite|memfd_create|register_at_fork|posix_fallocate|getloadavg|statvfs)\("
    offenders = []
    for path in FILES:
        if short(path).startswith(("core/system/", "testing/", "run/pools/ray_cleanup")):
            continue
        for number, line in enumerate(code_lines(path), 1):
            offenders += [f"{short(path)}:{number}: {match[0]!r}" for match in re.finditer(only, line)]
    none(offenders)


def code_lines(path):
    """The lines of a file without comments and docstrings."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(parsed(path)):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            for number in range(body[0].lineno - 1, body[0].end_lineno):
                lines[number] = ""
    return [line.partition("#")[0] for line in lines]


def makes_a_tensor(called):
    return isinstance(called, ast.Attribute) and called.attr in MAKERS and ast.unparse(called.value) == "torch"


def test_tensors_are_created_on_an_explicit_device():
    calls = [(file, call) for file, call in nodes(ast.Call) if makes_a_tensor(call.func)]
    without = [(file, call) for file, call in calls if "device" not in {keyword.arg for keyword in call.keywords}]
    none([f"{file}:{call.lineno}: {ast.unparse(call.func)} without device=" for file, call in without])


def test_locals_say_what_they_hold():
    """Whatever is bound: by =, :=, for, with or a comprehension. Attributes and keys of checkpoints are not meant."""
    bound = [(file, name) for file, name in nodes(ast.Name) if isinstance(name.ctx, ast.Store)]
    bad = [(file, name) for file, name in bound if name.id in SAY_NOTHING]
    none([f"{file}:{name.lineno}: {name.id!r} says nothing: name the thing (metrics, problem)" for file, name in bad])


def test_every_option_is_documented():
    from rookery.core.config.fields import comments_of
    from rookery.core.registry import names as known
    from rookery.run.config.resolve import models_of

    offenders = []
    for algo in known("algo"):
        for section, model in models_of(algo).items():
            missing = set(model.model_fields) - set(comments_of(model))
            offenders += [f"{algo}: {section}.{name} has no comment" for name in sorted(missing)]
    none(offenders)
