"""Every file in examples/ runs as a user would run it, and prints what it promises."""

import os
import subprocess
import sys

import pytest

from docs.pages import ROOT

EXAMPLES = {  # file → what its output must contain
    "own_env.py": ["Corridor: ok", "factory: greedy return -6.0", "module:Id: greedy return -6.0"],
    "own_network.py": ["lines with q/prediction_error: 3 of"],
    "own_callback.py": ["stopped: the pole stands", "lean_mean"],
    "own_loop.py": ["3000 steps", "1250 updates", "greedy return"],
    "trainer_loop.py": ["train.max_steps=4096 reached", "ac.value"],
    "two_players.py": ["greedy, both together: 10.0", "beside a frozen thinker: {'thinker': 5.0, 'doer': 5.0}"],
    "own_algorithm.py": ["train.max_steps=1500 reached", "run: "],
    "hierarchy.py": ["greedy: the planner finds the treasure in 100% of the episodes"],
    "load_policy.py": ["one episode in a plain loop:"],
}


def test_every_example_is_tested_and_mentioned_in_the_readme():
    files = {path.name for path in (ROOT / "examples").glob("*.py")}
    readme = (ROOT / "README.md").read_text()
    assert files == set(EXAMPLES)
    assert all(f"](examples/{name})" in readme for name in files)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tmp_path):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    file = str(ROOT / "examples" / name)
    done = subprocess.run([sys.executable, file], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    for text in EXAMPLES[name]:
        assert text in done.stdout
