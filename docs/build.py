"""Regenerates the generated parts of the documentation, draws the learning curves, and checks links and commands.

    python docs/build.py             write what is out of date, then check
    python docs/build.py --check     write nothing; exit 1 if something is out of date or broken

A generated part stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->` in a page; NAME is a key of
PARTS. Nothing between the two is typed by hand: it comes from the code (configs, docstrings,
`Algorithm.metrics`) or from what was measured.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import algorithm_pages
import bench_tables
import checks
import figure
from algorithm_pages import algorithms, metric_table, options, result_table, table
from words import CLOCKS, GENERAL, KNOBS, STORES

from rookery.core.config.fields import comments_of, keys_of
from rookery.run.config.resolve import models_of
from rookery.run.experiment.resume import CHANGEABLE

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "src" / "rookery" / "zoo" / "results.json"
CURVES = ROOT / "docs" / "curves"
SPEED = ROOT / "bench" / "results" / "latest.json"
PICTURE = ROOT / "docs" / "images" / "curves.svg"
MEASURED = (  # parts that change when the gates are run, not when the code changes
    *("results", "results-all", "curves", "curves-all", "speed", "speed-all"),
    *(f"measured-{name}" for name in algorithms()),
)
CHOICE = (  # one preset for each kind of task
    *("cartpole-dqn", "cartpole-ppo", "cartpole-novel-r2d2", "lunarlander-ppo", "pendulum-sac"),
    *("acrobot-qrdqn", "halfcheetah-ppo", "hopper-ppo", "bitflip8-dqn-her", "chain20-ppo-rnd"),
)
HERO = (  # six panels that tell: values, memory, continuous actions, a lander, a walker, sparse rewards
    *("cartpole-dqn", "cartpole-novel-r2d2", "pendulum-sac"),
    *("lunarlander-ppo", "hopper-ppo", "acrobot-qrdqn"),
)
_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(<!-- end: (?P=name) -->)", re.DOTALL)


# --- what the code says ---


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
    """A choice of the measured figures, for the first screen: one preset for each kind of task."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    return result_table({preset: stored[preset] for preset in CHOICE if stored.get(preset, {}).get("measured")})


def all_results() -> str:
    """The table of measured figures, from results.json alone; presets that were not measured are only counted."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    seen = {preset: row for preset, row in stored.items() if row["measured"]}
    drafts = f"\n{len(stored) - len(seen)} further presets are drafts, not measured yet: `rookery list presets`.\n"
    return result_table(seen) + drafts


def measured(name: str) -> str:
    return algorithm_pages.measured(name, json.loads(RESULTS.read_text(encoding="utf-8")), CURVES)


def curves(path: str) -> str:
    if not PICTURE.exists():
        return "No curves are stored yet: `make learn` measures them, `make docs` draws them.\n"
    what = (
        "Greedy return during training: interquartile mean over the seeds, its 95 % bootstrap interval, the gate dashed"
    )
    return f"![{what}]({path})\n"


def compiled_algorithms() -> str:
    rows = [[f"`{name}`", cls.eager_only or "yes"] for name, cls in algorithms().items()]
    return table(["algorithm", "compiles"], rows)


def changeable() -> str:
    keys = (f"`{key}*`" if key.endswith(".") else f"`{key}`" for key in CHANGEABLE)
    return ", ".join(keys) + ".\n"


PARTS: dict[str, Callable[[], str]] = {
    "changeable": changeable,
    "results": results,
    "results-all": all_results,
    "speed": lambda: bench_tables.short(SPEED, table),
    "speed-all": lambda: bench_tables.whole(SPEED, table),
    "curves": lambda: curves("docs/images/hero.svg"),
    "curves-all": lambda: curves("images/curves.svg"),
    "sections": sections,
    "general": lambda: metric_table(GENERAL),
    "clocks": lambda: metric_table(CLOCKS),
    "stores": lambda: metric_table(STORES),
    "knobs": all_knobs,
    "algorithm-metrics": algorithm_metrics,
    "compiled-algorithms": compiled_algorithms,
    "algorithms": algorithm_pages.index,
    **{f"algorithm-{name}": partial(algorithm_pages.reference, name) for name in algorithms()},
    **{f"measured-{name}": partial(measured, name) for name in algorithms()},
}


# --- pages ---


def pages() -> list[Path]:
    folders = [ROOT / "docs", algorithm_pages.FOLDER, ROOT / "docs" / "decisions"]
    single = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    return [*single, *(page for folder in folders for page in sorted(folder.glob("*.md")))]


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
    problems += [f"{page.relative_to(ROOT)} is missing" for page in algorithm_pages.missing() if only_check]
    for page in algorithm_pages.missing():
        if not only_check:
            algorithm_pages.begin(page)
    for picture in (figure.stale if only_check else figure.update)(CURVES, PICTURE, HERO):
        if only_check:
            problems.append(f"{picture.relative_to(ROOT)} is out of date")
        else:
            say(f"drawn: {picture.relative_to(ROOT)}\n")
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
