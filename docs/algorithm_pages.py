"""One page per algorithm, from the algorithm's own file and from what was measured; and the table that lists them.

A page is docs/algorithms/NAME.md: its title, what people wrote about the algorithm, then two generated parts.
`algorithm-NAME` changes with the code, `measured-NAME` when gates are run.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from rookery.core import registry
from rookery.core.config.fields import Key, keys_of
from rookery.run.config.config import flat
from rookery.studies.gates import GATES

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "algorithms"
NEW = (
    "# {name}\n\n<!-- generated: algorithm-{name} -->\n<!-- end: algorithm-{name} -->\n\n"
    "<!-- generated: measured-{name} -->\n<!-- end: measured-{name} -->\n"
)
KINDS = {"box": "continuous", "nested": "Dict and Tuple"}  # kind of action space → its usual word
MEMORY = {"no": "", "may": "optional", "must": "yes"}


def algorithms() -> dict[str, Any]:
    """name → class, of the algorithms that come with the package."""
    found = registry.entries("algo")
    return {entry.name: registry.lookup("algo", entry.name) for entry in found if entry.where.startswith("rookery.")}


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


def metric_table(metrics: dict[str, str]) -> str:
    return table(["metric", "meaning"], [[f"`{name}`", text] for name, text in metrics.items()])


def prose(docstring: str) -> str:
    """A module's docstring as markdown: indented lines are equations and stay as they are."""
    out: list[str] = []
    for block in re.split(r"\n{2,}", inspect.cleandoc(docstring)):
        indented = all(line.startswith("    ") for line in block.splitlines())
        out.append("```text\n" + "\n".join(line[4:] for line in block.splitlines()) + "\n```" if indented else block)
    return "\n\n".join(out)


def presets_of(name: str) -> list[str]:
    return [p for p in registry.names("preset") if registry.lookup("preset", p)["algo"]["name"] == name]


def kinds(cls: Any) -> str:
    return ", ".join(KINDS.get(kind, kind.replace("_", "-")) for kind in cls.actions)


def reference(name: str) -> str:
    """What the code says: equations, source, options, metrics."""
    cls = registry.lookup("algo", name)
    where = cls.__module__.replace(".", "/")
    facts = {
        "actions": kinds(cls),
        "learns from": "a replay" if cls.store_kind == "replay" else "each rollout once",
        "memory (`model.core`)": {"no": "no", "may": "as an option", "must": "needed"}[cls.recurrent],
        "older policies' rollouts (`pool.mode=async`)": "corrected for" if cls.corrects_lag else "",
        "compiled updates": "yes" if cls.eager_only is None else f"no: {cls.eager_only}",
    }
    lines = [prose(sys.modules[cls.__module__].__doc__ or "")]
    lines.append(f"Source: [{where}.py](../../src/{where}.py). In a terminal: `rookery explain {name}`.")
    lines.append(table(["", ""], [[key, value] for key, value in facts.items() if value]))
    lines += ["## Options", options(keys_of(cls.Config, "algo"))]
    if cls.defaults:
        wanted = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in flat(cls.defaults).items())
        lines.append(f"Preferred in other sections: {wanted}.")
    lines += ["## Metrics", metric_table(cls.metrics)]
    return "\n\n".join(line.rstrip("\n") for line in lines) + "\n"


def measured(name: str, results: dict[str, Any], curves: Path) -> str:
    """What was measured: presets with status and figures, and the curves there are."""
    presets = presets_of(name)
    lines = ["## Presets", result_table({preset: results[preset] for preset in presets if preset in results})]
    shown = [preset for preset in presets if (curves / f"{preset}.json").exists()]
    if shown:
        again = [f" `rookery verify {preset}` measures it again." for preset in shown if preset in GATES][:1]
        lines.append(
            "Greedy evaluations during training, as `rookery plot` draws them; the gate is dashed." + "".join(again)
        )
    lines += [f"![Learning curve of {preset}](../images/curves/{preset}.svg)" for preset in shown]
    return "\n\n".join(line.rstrip("\n") for line in lines) + "\n"


def result_table(results: dict[str, Any]) -> str:
    """Figures of presets as results.json has them."""
    rows = []
    for preset, row in sorted(results.items()):
        m, command = row["measured"], f"`rookery train {preset}`"
        if not m:
            rows.append([command, row["status"], "not measured", "", "", ""])
            continue
        low, high = m["interval"]
        name, value = ("", m["return_iqm"]) if "return_iqm" in m else ("success ", m["success_iqm"])
        steps = f"{m['steps']:,}".replace(",", " ")
        interval = f" [{low:g}, {high:g}]" if m["seeds"] > 1 else ""  # of one seed there is none
        figures = [f"{name}{value:g}{interval}", "" if m["gate"] is None else f"{name}{m['gate']:g}", steps]
        rows.append([command, row["status"], *figures, str(m["seeds"])])
    return table(["command", "status", "return", "gate", "env steps", "seeds"], rows)


def index() -> str:
    """The table of the algorithms: what each is, where it can be used, and a preset to begin with."""
    rows = []
    for name, cls in algorithms().items():
        presets = presets_of(name)
        summary = registry.entry("algo", name).summary
        store = "replay" if cls.store_kind == "replay" else "rollouts" + " (async)" * cls.corrects_lag
        first = f"`{presets[0]}`" if presets else ""
        rows.append(
            [f"[{title(name)}](algorithms/{name}.md)", summary, kinds(cls), store, MEMORY[cls.recurrent], first]
        )
    return table(["algorithm", "what it is", "actions", "learns from", "memory", "a preset"], rows)


def title(name: str) -> str:
    """The first heading of an algorithm's page."""
    page = FOLDER / f"{name}.md"
    first = page.read_text(encoding="utf-8").partition("\n")[0] if page.exists() else ""
    return first.removeprefix("# ") or name


def missing() -> list[Path]:
    """Pages of algorithms that have none yet."""
    return [FOLDER / f"{name}.md" for name in algorithms() if not (FOLDER / f"{name}.md").exists()]


def begin(page: Path) -> None:
    """A page of which only the generated parts exist."""
    page.parent.mkdir(exist_ok=True)
    page.write_text(NEW.format(name=page.stem), encoding="utf-8")
