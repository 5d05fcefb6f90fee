"""The garbage collector rests while torch is imported, and leaves it out afterwards; nobody else's settings change."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from rookery.core.system.imports import lasting

COUNTED = """
import gc
passes = []
gc.callbacks.append(lambda phase, info: passes.append(info["generation"]))
import rookery
before = len(passes)
{more}
rookery.Experiment
print(len(passes) - before, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "told"),
    [("", "0 True True"), ("gc.disable()", "0 False False")],  # whoever has switched it off decides alone
)
def test_no_collection_runs_while_the_libraries_are_imported(more: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED.format(more=more)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == told.split()


@pytest.mark.slow
def test_what_a_process_has_made_after_importing_torch_can_still_be_collected() -> None:
    more = "import torch; before = len(passes)"
    done = subprocess.run([sys.executable, "-c", COUNTED.format(more=more)], capture_output=True, text=True, check=True)
    passes, enabled, frozen = done.stdout.split()
    assert int(passes) > 0
    assert (enabled, frozen) == ("True", "False")


@pytest.mark.slow
def test_a_library_that_counts_its_objects_at_the_end_has_nothing_to_complain_of() -> None:
    words = "import ale_py, rookery; env = ale_py.ALEInterface(); loop = [env]; loop.append(loop); rookery.Experiment"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert "leaked" not in done.stderr


def test_the_collector_is_back_when_an_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    frozen, seen = gc.get_freeze_count(), []

    def fail() -> None:
        with lasting():
            seen.append(gc.isenabled())
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert seen == [False]
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
