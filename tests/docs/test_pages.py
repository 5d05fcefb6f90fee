"""Links lead somewhere, quoted commands are commands, generated parts are what the code says."""

import inspect
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, build, checks
from rookery.core import registry


@pytest.fixture(autouse=True)
def forgotten():
    """What a command of a page imports from the examples is forgotten: a page may define the same name."""
    known, before = set(registry.names("algo")), set(sys.modules)
    yield
    for name in set(registry.names("algo")) - known:
        registry.unregister("algo", name)
    for name in set(sys.modules) - before:
        if "/examples/" in str(getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def test_every_relative_link_leads_somewhere():
    assert checks.broken_links(ROOT, build.pages()) == []


def test_every_quoted_command_is_understood():
    assert checks.broken_commands(ROOT, build.pages()) == []


def test_commands_are_really_found_in_the_pages():
    found = [line for page in build.pages() for line in checks.commands(page.read_text())]
    assert "rookery train cartpole-dqn --out runs/a" in found
    assert "make train" in found
    assert len([line for line in found if line.startswith("rookery")]) >= 20


def test_generated_parts_are_current():
    stale = [page.name for page, _ in build.out_of_date(skip=build.MEASURED)]
    assert stale == [], "run `make docs`"


def test_every_page_is_in_the_index_and_linked_from_the_readme():
    index, readme = (ROOT / "docs" / "index.md").read_text(), (ROOT / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "index.md":
            assert f"]({page.name})" in index
            assert f"](docs/{page.name})" in readme


def test_decisions_are_numbered_indexed_and_at_most_a_page_each():
    index, pages = (ROOT / "docs" / "index.md").read_text(), sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:03d}-" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text()
        assert f"](decisions/{page.name})" in index
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], page.name
        assert len(text.splitlines()) <= 60, page.name


def test_every_algorithm_has_a_page_that_the_table_of_algorithms_links_to():
    table = (ROOT / "docs" / "algorithms.md").read_text()
    assert build.algorithm_pages.missing() == []
    for name in build.algorithms():
        page = (ROOT / "docs" / "algorithms" / f"{name}.md").read_text()
        assert f"](algorithms/{name}.md)" in table
        assert f"<!-- generated: algorithm-{name} -->" in page
        assert f"<!-- generated: measured-{name} -->" in page


def test_a_page_of_an_algorithm_has_equations_options_and_metrics():
    page = (ROOT / "docs" / "algorithms" / "dqn.md").read_text()
    for part in ("```text\nR     = Σ", "| `algo.n_step` | `1` |", "| `td_abs` |", "`rookery train cartpole-dqn`"):
        assert part in page


def test_a_page_of_an_algorithm_has_its_presets_with_figures_and_curves(fake_zoo, tmp_path):
    (tmp_path / "pole-fake.json").write_text(json.dumps(fake_zoo.curves_of("pole-fake")))
    figures = {name: {"status": row.status, "measured": row.measured} for name, row in fake_zoo.results().items()}
    part = build.algorithm_pages.measured("ppo", figures, tmp_path)
    assert "| `rookery train pole-fake` | gold | 500 [482.5, 500] | 475 | 20 000 | 5 |" in part
    assert "| `rookery train pole-elsewhere-fake` | draft | not measured |" in part
    assert "`rookery verify pole-fake` measures it again." in part
    assert part.count("](../images/curves/") == part.count("](../images/curves/pole-fake.svg)") == 1


def test_every_docstring_of_an_algorithm_has_equations():
    for name in build.algorithms():
        assert "```text\n" in build.algorithm_pages.reference(name), f"{name}: no indented block in the docstring"


def test_the_page_that_advises_names_every_algorithm_and_only_presets_that_exist():
    page = (ROOT / "docs" / "which-algorithm.md").read_text()
    assert [name for name in build.algorithms() if f"](algorithms/{name}.md)" not in page] == []
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", page))
    assert len(named) > 20
    assert named <= set(registry.names("preset"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("rookery trian cartpole-dqn", "no command"),
        ("rookery train cartpole-dnq", "Did you mean"),
        ("rookery train cartpole-dqn algo.gama=0.9", "algo.gamma"),
        ("rookery train cartpole-dqn --sead 1", "--sead"),
        ("rookery train -c nothing.yaml", "no file"),
        ("rookery train -c examples/cartpole.yaml env.nmu=3", "env.num"),
        ("rookery explain dnq", "dqn"),
        ("rookery list presents", "cannot list"),
        ("rookery verify pole-fak", "pole-fake"),
        ("rookery verify draft-fake", "no gate"),
        ("rookery plot pole-fak", "pole-fake"),
        ("make trian", "no verb"),
        ("python examples/nothing.py", "no file"),
    ],
)
@pytest.mark.usefixtures("fake_zoo")
def test_a_wrong_command_is_noticed(line, complaint):
    assert complaint in (checks.wrong(ROOT, shlex.split(line)) or "")


@pytest.mark.parametrize(
    "line", ["rookery train cartpole-dqn algo.gamma=0.9 --seed 3", "rookery --version", "rookery config keys ppo"]
)
def test_a_right_command_is_accepted(line):
    assert checks.wrong(ROOT, shlex.split(line)) is None


def test_a_broken_link_and_a_missing_heading_are_noticed(tmp_path):
    (tmp_path / "other.md").write_text("# There\n## A heading, of two words\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](gone.md) [c](other.md#a-heading-of-two-words) [d](other.md#nowhere) "
        "[e](https://example.org)\n"
    )
    found = checks.broken_links(tmp_path, [page])
    assert found == ["page.md: the link gone.md leads nowhere", "page.md: other.md has no heading #nowhere"]


def test_a_generated_part_is_replaced_and_stays_the_same_the_second_time():
    page = "before\n<!-- generated: clocks -->\nold\n<!-- end: clocks -->\nafter\n"
    once = build.regenerated(page)
    assert "old" not in once
    assert "`time/seconds`" in once
    assert once.startswith("before\n")
    assert once.endswith("<!-- end: clocks -->\nafter\n")
    assert build.regenerated(once) == once
    assert build.regenerated(page, skip=("clocks",)) == page


def test_the_first_screen_shows_a_trained_agent_six_panels_and_ten_figures():
    readme = (ROOT / "README.md").read_text()
    first, table = readme.index("docs/images/lander.gif"), re.findall(r"^\| `rookery train ([\w-]+)` \|", readme, re.M)
    assert first < readme.index("pip install torch") < readme.index("docs/images/hero.svg") < readme.index("| command")
    assert len(build.HERO) == 6
    assert len(table) == 10
    assert set(build.HERO) <= set(table)


def test_the_readme_counts_the_algorithms_and_their_longest_file():
    sources = (inspect.getsourcefile(registry.lookup("algo", name)) or "" for name in registry.names("algo"))
    files = [Path(source) for source in sources if Path(source).parent.name == "algos"]  # tests have one of their own
    longest = max(len(file.read_text().splitlines()) for file in files)
    assert f"the {len(files)} algorithms have at most {longest} lines each" in (ROOT / "README.md").read_text()
