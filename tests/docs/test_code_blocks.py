"""The Python blocks of every page run: those of one page one after the other, in an empty folder.

A block that begins with `# name.py` is a file of that name; `python notest` marks what must not run.
"""

import importlib
import re
import sys

import pytest

from docs.pages import build, checks
from rookery import Experiment
from rookery.core import registry
from selection import matrix_but

PAGES = {page.stem: page for page in build.pages()}
WITH_CODE = [
    name for name, page in PAGES.items() if any(info == "python" for info, _ in checks.blocks(page.read_text()))
]
_FILE = re.compile(r"# ([a-z_]+\.py)\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder from which modules can be imported; they, and what they
    registered, are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before, known = set(sys.modules), {kind: registry.names(kind) for kind in registry.KINDS}
    yield tmp_path
    for kind in registry.KINDS:
        for name in set(registry.names(kind)) - set(known[kind]):
            registry.unregister(kind, name)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write_modules(name, folder):
    """The page's files, and the rest of its code as one module; returns that module's name."""
    script = []
    for info, body in checks.blocks(PAGES[name].read_text()):
        if info != "python":
            continue
        file = _FILE.match(body)
        if file:
            (folder / file[1]).write_text(body)
        else:
            script.append(body)
    module = f"page_{name.lower().replace('-', '_')}"
    (folder / f"{module}.py").write_text("\n\n".join(script))
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", matrix_but(WITH_CODE, *(name for name in WITH_CODE if name != "doctor")))
def test_the_code_of_a_page_runs(name, folder):
    importlib.import_module(write_modules(name, folder))


def test_blocks_that_are_not_run_are_rare():
    infos = [info for page in PAGES.values() for info, _ in checks.blocks(page.read_text())]
    assert set(infos) <= {"python", "python notest", "bash", "console", "text", "yaml"}
    assert infos.count("python") >= 15
    assert infos.count("python notest") <= 3


@pytest.mark.slow
def test_the_actor_critic_of_the_page_on_own_algorithms_learns(folder):
    write_modules("own-algorithm", folder)
    algo = importlib.import_module("my_actor_critic").MyActorCritic
    words = ["train.max_steps=20480", "env.num=4", "learning.mode=eager", "eval.every_steps=0", "eval.at_end=false"]
    words.append("run.seed=3")
    result = Experiment(algo=algo, env="CartPole-v1", overrides=[*words, "log.sinks=[]"]).train()
    assert result.summary["return_mean"] > 35  # at random 22; with several epochs this seed collapsed to 9
