"""The benchmark's own modules, importable by tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = [str(ROOT / "bench"), str(ROOT / "bench" / "peers")]
sys.path += BENCH
sys.path.insert(0, str(ROOT / "docs"))

import bench_tables  # noqa: E402
import build  # noqa: E402

import rookery_run  # noqa: E402
import rows  # noqa: E402
import single_teams  # noqa: E402
import speed  # noqa: E402
import venvs  # noqa: E402
import works  # noqa: E402

# a contender's script puts its folder first, where `learn` is not the package of the tests
sys.path[:] = [*(path for path in sys.path if not path.startswith(str(ROOT / "bench"))), *BENCH]

__all__ = ["ROOT", "bench_tables", "build", "rookery_run", "rows", "single_teams", "speed", "venvs", "works"]
