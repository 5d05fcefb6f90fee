"""Checks of the pages: relative links lead somewhere, and quoted commands are commands.

A command line of `rookery` is parsed by the real command line (not run); where it names a preset or an
algorithm, its config is resolved too, so an option that was renamed is noticed. `make VERB` must be a verb of
the Makefile, `python FILE` a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """(info string, body) of every fenced block."""
    for match in _FENCE.finditer(text):
        yield match["info"].strip(), match["body"]


def anchors(text: str) -> set[str]:
    """Names under which the headings of a page can be linked to, as GitHub makes them."""
    plain = _FENCE.sub("", text)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(plain))
    return set(words)


def broken_links(root: Path, pages: list[Path]) -> list[str]:
    """Relative links that lead nowhere."""
    problems = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in _LINK.findall(_FENCE.sub("", text)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                problems.append(f"{page.relative_to(root)}: the link {target} leads nowhere")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                problems.append(f"{page.relative_to(root)}: {file.name} has no heading #{anchor}")
    return problems


def commands(text: str) -> Iterator[str]:
    """Command lines of console blocks (after `$`) and bash blocks, continued lines joined, comments left out."""
    for info, body in blocks(text):
        if info not in ("console", "bash"):
            continue
        for line in body.replace("\\\n", " ").splitlines():
            if info == "bash" or line.startswith("$ "):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words:
                    yield shlex.join(words)


def broken_commands(root: Path, pages: list[Path]) -> list[str]:
    """Quoted commands that would not even be understood."""
    problems = []
    for page in pages:
        for line in commands(page.read_text(encoding="utf-8")):
            if why := wrong(root, shlex.split(line)):
                problems.append(f"{page.relative_to(root)}: `{line}`: {why}")
    return problems


def wrong(root: Path, words: list[str]) -> str | None:
    """What is wrong with a command line, if anything."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "make":
        verbs = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        unknown = [word for word in rest if "=" not in word and word not in verbs]
        return f"the Makefile has no verb {unknown[0]!r}" if unknown else None
    if program.startswith("python") and rest and rest[0].endswith(".py"):
        return None if (root / rest[0]).exists() else f"there is no file {rest[0]}"
    return wrong_arguments(root, rest) if program == "rookery" else None


def wrong_arguments(root: Path, words: list[str]) -> str | None:
    """Parse as the command line does, without running anything."""
    import typer

    from rookery.cli.main import app
    from rookery.core.errors import RookeryError

    command: Any = typer.main.get_command(app)
    words = [word for word in words if word != "--debug"]
    try:
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command, words = command.commands[words[0]], words[1:]
        if hasattr(command, "commands"):
            return None if words in (["--help"], ["--version"]) else f"there is no command {' '.join(words)!r}"
        context = command.make_context(command.name, list(words))
        understand(root, command.name, context.params)
    except typer.Exit:
        return None
    except RookeryError as error:
        return None if 'not installed: pip install "rookery[' in str(error) else str(error)  # an extra is missing here
    except Exception as error:  # noqa: BLE001 - click's errors; typer may bring its own copy of click
        return f"{type(error).__name__}: {error}"
    return None


def understand(root: Path, name: str, given: dict[str, Any]) -> None:
    """Names and config keys in a command line that was parsed; raises what the command itself would."""
    from rookery.cli import names, sources
    from rookery.core import registry
    from rookery.core.errors import UsageError
    from rookery.studies.verify import gate_of

    if name == "list" and given["kind"] not in names._KINDS:
        raise UsageError(f"cannot list {given['kind']!r}")
    if name in ("explain", "schema", "keys") and ":" not in (given.get("name") or ""):
        registry.entry("algo", given.get("name") or given["algo"])
    for preset in [word for word in given.get("names") or () if "/" not in word]:  # of `plot`; else a run's folder
        registry.entry("preset", preset)
    if name == "verify":
        for preset in [word for word in given["words"] if "=" not in word]:
            gate_of(preset)
    if name in ("train", "show", "doctor"):
        words, file = sources.sort_words(given["words"]), given["file"]
        if file is not None and not (root / file).is_file():
            raise UsageError(f"there is no file {file}")
        elsewhere = given.get("resume") is not None or "/" in (words.preset or "")
        own = ":" in (given["env"] or "")  # a module that only the reader has
        if not elsewhere and not own:
            extra = sources.as_overrides(given["algo"], given["env"], given.get("seed"))
            sources.make_config(words, file and root / file, extra)
