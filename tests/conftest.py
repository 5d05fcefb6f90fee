"""Shared by all tests: the tests folder is importable, torch uses one thread, compiled artefacts go to one cache,
the state folder is one of their own."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
_state = tempfile.TemporaryDirectory(prefix="rookery-state-")  # the list of trusted runs; the user's own is left alone
os.environ["XDG_STATE_HOME"] = _state.name
torch.set_num_threads(1)
hypothesis.settings.register_profile("rookery", deadline=None)  # how long an example takes depends on what else runs
hypothesis.settings.load_profile("rookery")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell lets what runs in the background ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory, worker_id):
    """One cache of compiled updates for the whole session, shared by the processes of pytest-xdist."""
    root = tmp_path_factory.getbasetemp()
    root = root if worker_id == "master" else root.parent
    folder = root / "artefacts"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


COSTLY = ("cluster", "pair", "compiled")  # fixtures that take long: a Ray, runs that are compared, a build


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """All that use one costly fixture go to one process of pytest-xdist (`--dist loadgroup`): a second would make it
    again."""
    for item in items:
        for name in COSTLY:
            if name in getattr(item, "fixturenames", ()):
                case = item.callspec.id if hasattr(item, "callspec") and name == "pair" else ""
                item.add_marker(pytest.mark.xdist_group(f"{name} {case}"))


@pytest.fixture
def short_path():
    """A folder for one test whose name leaves room for sockets, as that of tmp_path does not."""
    with tempfile.TemporaryDirectory(prefix="rookery-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """One Ray for all tests that need it: starting one takes 8 s."""
    from rookery.run.pools.ray import Cluster

    started = Cluster("local", cpus=6)  # Ray starts an idle worker for each
    yield started
    started.part()


@pytest.fixture
def fake_zoo(monkeypatch):
    """Presets, gates, figures and curves that no measurement changes."""
    import fake_zoo

    fake_zoo.install(monkeypatch)
    return fake_zoo
