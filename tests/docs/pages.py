"""The documentation's own tools, importable by tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import build  # noqa: E402
import checks  # noqa: E402
import figure  # noqa: E402

__all__ = ["DOCS", "ROOT", "build", "checks", "figure"]
