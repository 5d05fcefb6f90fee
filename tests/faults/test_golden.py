"""F28: a run made by each released version still loads, evaluates to the recorded returns, and can be gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from faults.commands import Cli, summary
from rookery import __version__
from rookery.run.machine import difference, fingerprint

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "config.yaml").exists())


def test_this_version_has_a_golden_run() -> None:
    assert __version__ in VERSIONS, f"run: python {GOLDEN / 'make.py'}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("which", ["last", "best"])
def test_a_golden_run_evaluates_to_the_recorded_returns(cli: Cli, version: str, which: str) -> None:
    expected = json.loads((GOLDEN / version / "expected.json").read_text())[which]
    assert len(set(expected)) > 1  # otherwise other weights could give the same
    ended = cli("eval", str(GOLDEN / version), "--json", "--checkpoint", which)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["returns"] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_run_can_be_gone_on_with_and_started_from(cli: Cli, tmp_path: Path, version: str) -> None:
    shutil.copytree(GOLDEN / version, tmp_path / "run")
    before = summary(tmp_path / "run")
    ended = cli("train", "--resume", "run", f"train.max_steps={before['steps'] + 40}")
    assert ended.code == 0, ended.err
    after = summary(tmp_path / "run")
    assert after["resumed_from"] == [before["steps"]]
    assert after["updates"] == before["updates"] + 40
    (saved,) = (GOLDEN / version / "checkpoints").glob("step-*/state.json")
    machine = json.loads(saved.read_text())["experiment"]["machine"]
    other = difference(
        machine, fingerprint() | {"threads": "1"}
    )  # bits are promised for one type of CPU and equal versions
    assert after["exact"] == (f"resumed with {other}" if other else True)
    assert after["weights_sha256"] != before["weights_sha256"]
    lines = [json.loads(line)["steps"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1] == before["steps"] + 40
    words = ["--algo", "dqn", "--env", "rookery/ProbeNested-v0", "model.hidden=[4]", "learning.mode=eager"]
    short = ["train.max_steps=40", "store.min_fill=32", "store.batch_size=16", "log.sinks=[jsonl]"]
    ended = cli("train", *words, *short, "--init-from", str(GOLDEN / version), "--out", "new")
    assert ended.code == 0, ended.err
