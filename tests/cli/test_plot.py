"""`rookery plot`, called in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(cli: Cli, tmp_path: Path, fake_zoo: object) -> Cli:
    """In a folder with two runs, beside presets whose curves are invented."""
    for seed in range(2):
        folder = tmp_path / "runs" / f"s{seed}"
        folder.mkdir(parents=True)
        config = {"algo": {"name": "dqn"}, "env": {"id": "CartPole-v1"}, "run": {"seed": seed}}
        (folder / "config.yaml").write_text(json.dumps(config))
        lines = [{"eval/steps": step, "eval/return_mean": step + seed, "time/seconds": step} for step in (1, 2, 3)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return cli


@pytest.mark.slow
def test_runs_and_the_stored_curves_of_presets_are_drawn_together(cli: Cli) -> None:
    code, out, _ = cli("plot", "runs/s0", "runs/s1", "pole-fake", "swing-fake")
    assert code == 0
    assert out.splitlines() == [
        "CartPole-v1  dqn: mean of 2 runs, band from the lowest to the highest, 3 points",
        "CartPole-v1  pole-fake: IQM of 5 runs, band: 95 % bootstrap interval, 4 points",
        "Pendulum-v1  swing-fake: mean of 3 runs, band from the lowest to the highest, 4 points",
        "drawn: curves.png",
    ]
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_file_is_named_after_one_run_or_as_asked(cli: Cli) -> None:
    assert cli("plot", "runs/s0")[1].endswith("drawn: s0.png\n")
    assert Path("s0.png").exists()
    assert cli("plot", "runs/s0", "--x", "seconds", "--out", "sub/a.svg")[0] == 0
    assert "seconds" in Path("sub/a.svg").read_text()


def test_a_preset_that_is_judged_by_successes_is_drawn_by_successes(cli: Cli) -> None:
    assert cli("plot", "goal-fake", "--out", "a.svg")[0] == 0
    assert "eval/success_mean" in Path("a.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["runs/s0", "--x", "hours"], "expected steps or seconds"),
        (["runs/s0", "--metric", "eval/retrun_mean"], "Did you mean 'eval/return_mean'"),
        (["runs/s0", "--out", "a.bmp"], ".png, .svg, .pdf"),
        (["runs"], "not the folder of a run"),
        (["runs/s7"], "neither the folder of a run nor a preset"),
        (["pole-fak"], "Did you mean 'pole-fake'"),
        (["draft-fake"], "no curves are stored of draft-fake"),
        (["pole-fake", "goal-fake"], "judged by different metrics (eval/return_mean, eval/success_mean)"),
        (["pole-fake", "--metric", "steps"], "only evaluations by env steps are stored"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(cli: Cli, arguments: list[str], told: str) -> None:
    code, _, err = cli("plot", *arguments)
    assert code == 2
    assert told in err
    assert not list(Path().glob("*.png"))


def test_without_matplotlib_the_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = cli("plot", "runs/s0")
    assert code == 2
    assert "pip install 'rookery[plot]'" in err


@pytest.mark.slow
def test_plotting_does_not_import_torch(cli: Cli, tmp_path: Path) -> None:
    code = "import sys; from rookery.cli.main import run; run(['plot', 'runs/s0']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
