"""The server of child processes leaves no folder behind when its parent is killed."""

import subprocess
import sys
import time

import pytest

DYING = """
import os, sys, time
from rookery.core.system import forkserver
if os.fork():
    time.sleep(float(sys.argv[2]))  # its files are closed, as the server has seen, but it is still there
    os._exit(9)
forkserver._end(sys.argv[1], os.getpid(), os.getppid())
"""


def test_the_folder_goes_also_if_a_killed_parent_is_not_quite_dead_when_the_server_ends(tmp_path):
    folder = tmp_path / "pymp"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", DYING, str(folder), "0.5"], check=False, timeout=60)
    until = time.monotonic() + 10
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not folder.exists()


@pytest.mark.slow
def test_a_parent_that_lives_on_keeps_its_folder(tmp_path):
    folder = tmp_path / "pymp"
    folder.mkdir()
    script = DYING.replace("if os.fork", "forkserver.DYING = 0.1\nif os.fork")
    subprocess.run([sys.executable, "-c", script, str(folder), "3"], check=False, timeout=60)
    assert folder.exists()
