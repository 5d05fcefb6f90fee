"""The first word of `rookery train` comes at once, and only to people."""

import os
import pty
import subprocess
import sys
import time

import pytest

CODE = "from rookery.cli.main import main; main()"


@pytest.mark.slow
def test_on_a_terminal_the_first_word_comes_before_torch_and_a_new_cache_is_told(tmp_path):
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", CODE, "train", "cartpole-ppo", "--out", str(tmp_path / "run")]
    small = ["train.max_steps=512", "learning.mode=eager", "eval.at_end=false"]
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "TERM": "xterm"}
    process = subprocess.Popen([*words, *small], env=env, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    seen, end = b"", time.monotonic() + 120
    try:
        while time.monotonic() < end and b"compiling kernels" not in seen:
            seen += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
    assert seen.startswith("starting …".encode())
    assert "compiling kernels (once on this machine) …".encode() in seen
