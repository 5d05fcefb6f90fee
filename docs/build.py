"""Regenerates the generated parts of the documentation, draws the learning curves, and checks links and commands.

    python docs/build.py             write what is out of date, then check
    python docs/build.py --check     write nothing; exit 1 if something is out of date or broken

A generated part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->` in a page; NAME is a key of PARTS. Nothing
between the two is typed by hand: it comes from the code (configs, docstrings, `Algorithm.metrics`) or from what was measured.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench_tables
import checks
import figure
from words import CLOCKS, GENERAL, KNOBS, STORES

from rookery.core import registry
from rookery.core.fields import Key, comments_of, keys_of
from rookery.run.resolve import flat, models_of

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "src" / "rookery" / "zoo" / "results.json"
CURVES = ROOT / "docs" / "curves"
SPEED = ROOT / "bench" / "results" / "latest.json"
PICTURE = ROOT / "docs" / "images" / "curves.svg"
MEASURED = (
    "results",
    "curves",
    "speed",
    "speed-all",
)  # parts that change when the gates are run, not when the code changes
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(<!-- end: (?P=name) -->)", re.DOTALL)


def algorithms() -> dict[str, Any]:
    """name → class, of the algorithms that come with the package."""
    found = registry.entries("algo")
    return {entry.name: registry.lookup("algo", entry.name) for entry in found if entry.where.startswith("rookery.")}


# --- what the code says ---


def table(head: list[str], rows: list[list[str]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells)


def options(keys: tuple[Key, ...]) -> str:
    rows = []
    for key in keys:
        required = isinstance(key.default, str) and key.default.startswith("(")
        default = "required" if required else f"`{json.dumps(key.default, ensure_ascii=False)}`"
        rows.append([f"`{key.key}`", default, key.comment, key.accepts])
    return table(["key", "default", "meaning", "accepts"], rows)


def sections() -> str:
    """One table per section, but for `algo`, whose options are on the page of the algorithms."""
    replay, rollout = models_of("dqn"), models_of("ppo")
    parts = []
    for name, model in replay.items():
        if name == "algo":
            continue
        told = inspect.cleandoc(model.__doc__ or "")
        parts.append(f"### `{name}`\n\n{told}\n\n{options(keys_of(model, name))}")
        if rollout[name] is not model:
            parts.append(f"On-policy algorithms: {inspect.cleandoc(rollout[name].__doc__ or '')} It has no options.\n")
    return "\n".join(parts)


def prose(docstring: str) -> str:
    """A module's docstring as markdown: indented lines are equations and stay as they are."""
    out: list[str] = []
    for block in re.split(r"\n{2,}", docstring.strip()):
        indented = all(line.startswith("    ") for line in block.splitlines())
        out.append("```text\n" + "\n".join(line[4:] for line in block.splitlines()) + "\n```" if indented else block)
    return "\n\n".join(out)


def algorithm(name: str) -> str:
    """The section of one algorithm: equations, options, preferences, metrics, presets."""
    cls = registry.lookup("algo", name)
    where = cls.__module__.replace(".", "/")
    lines = [prose(sys.modules[cls.__module__].__doc__ or ""), f"Source: [{where}.py](../src/{where}.py)"]
    lines.append("Actions: " + ", ".join(kind.replace("_", "-") for kind in cls.actions) + ".")
    lines.append(options(keys_of(cls.Config, "algo")))
    if cls.defaults:
        wanted = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in flat(cls.defaults).items())
        lines.append(f"Preferred in other sections: {wanted}.")
    lines.append(metric_table(cls.metrics))
    presets = [p for p in registry.names("preset") if registry.lookup("preset", p)["algo"]["name"] == name]
    lines.append("Presets: " + ", ".join(f"`{preset}`" for preset in presets) + ".")
    return "\n\n".join(line.rstrip("\n") for line in lines) + "\n"


def metric_table(metrics: dict[str, str]) -> str:
    return table(["metric", "meaning"], [[f"`{name}`", text] for name, text in metrics.items()])


def knobs(cls: Any) -> dict[str, str]:
    """knob → what it is, from the comment of the option it belongs to."""
    blank = object.__new__(cls)
    blank.config = cls.Config()
    comments = comments_of(cls.Config)
    return {name: comments.get(name) or KNOBS[name] for name in blank.knobs()}


def all_knobs() -> str:
    rows = [[f"`knob/{k}`", name, text] for name, cls in algorithms().items() for k, text in knobs(cls).items()]
    return table(["metric", "algorithm", "meaning"], rows)


def algorithm_metrics() -> str:
    return "\n".join(f"### {name}\n\n{metric_table(cls.metrics)}" for name, cls in algorithms().items())


# --- what was measured ---


def results() -> str:
    """The table of measured figures, from results.json alone; presets that were not measured are only counted."""
    rows, found = [], json.loads(RESULTS.read_text(encoding="utf-8"))
    for preset, row in sorted(found.items()):
        m = row["measured"]
        command = f"`rookery train {preset}`"
        if not m:
            continue
        low, high = m["interval"]
        name, value = ("", m["return_iqm"]) if "return_iqm" in m else ("success ", m["success_iqm"])
        steps = f"{m['steps']:,}".replace(",", " ")
        figures = [f"{name}{value:g} [{low:g}, {high:g}]", "" if m["gate"] is None else f"{name}{m['gate']:g}", steps]
        rows.append([command, row["status"], *figures, str(m["seeds"])])
    drafts = f"\n{len(found) - len(rows)} further presets are drafts, not measured yet: `rookery list presets`.\n"
    return table(["command", "status", "return", "gate", "env steps", "seeds"], rows) + drafts


def curves() -> str:
    if not PICTURE.exists():
        return "No curves are stored yet: `make learn` measures them, `make docs` draws them.\n"
    told = "Greedy return during training: mean over the seeds, band from the worst to the best seed, the gate dashed"
    return f"![{told}](docs/images/curves.svg)\n"


def compiled_algorithms() -> str:
    rows = [[f"`{name}`", cls.eager_only or "yes"] for name, cls in algorithms().items()]
    return table(["algorithm", "compiles"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "results": results,
    "speed": lambda: bench_tables.short(SPEED, table),
    "speed-all": lambda: bench_tables.whole(SPEED, table),
    "curves": curves,
    "sections": sections,
    "general": lambda: metric_table(GENERAL),
    "clocks": lambda: metric_table(CLOCKS),
    "stores": lambda: metric_table(STORES),
    "knobs": all_knobs,
    "algorithm-metrics": algorithm_metrics,
    "compiled-algorithms": compiled_algorithms,
    **{f"algorithm-{name}": lambda name=name: algorithm(name) for name in algorithms()},  # type: ignore[misc]
}


# --- pages ---


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def regenerated(text: str, skip: tuple[str, ...] = ()) -> str:
    """A page with its generated parts made anew."""

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        if name in skip:
            return match[0]
        if name not in PARTS:
            raise SystemExit(f"unknown generated part {name!r}; known: {', '.join(PARTS)}")
        return f"{match[1]}{PARTS[name]()}{match[4]}"

    return _PART.sub(part, text)


def out_of_date(skip: tuple[str, ...] = ()) -> list[tuple[Path, str]]:
    """(page, its new text) where the two differ."""
    found = []
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = regenerated(before, skip)
        if after != before:
            found.append((page, after))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if something is out of date or broken"
    )
    only_check = parser.parse_args().check
    say = sys.stdout.write
    problems: list[str] = []
    if not figure.current(CURVES, PICTURE):
        if only_check:
            problems.append(f"{PICTURE.relative_to(ROOT)} is out of date")
        else:
            figure.draw(CURVES, PICTURE)
            say(f"drawn: {PICTURE.relative_to(ROOT)}\n")
    for page, text in out_of_date():
        if only_check:
            problems.append(f"{page.relative_to(ROOT)} is out of date")
        else:
            page.write_text(text, encoding="utf-8")
            say(f"written: {page.relative_to(ROOT)}\n")
    problems += checks.broken_links(ROOT, pages()) + checks.broken_commands(ROOT, pages())
    for problem in problems:
        say(f"{problem}\n")
    say("documentation: " + ("up to date\n" if not problems else f"{len(problems)} problem(s)\n"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
