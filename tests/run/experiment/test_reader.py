"""state.json, spaces.json and the reader of run folders: a run can be looked at from outside, without torch and
without its env."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rookery
from rookery import Batch, Callback, Experiment, UsageError, load_policy
from rookery.core.spec import spec_from_json, spec_of, spec_to_json
from rookery.run.experiment.reader import RunReader

SHORT = [
    "train.max_steps=400", "log.every_steps=100", "eval.every_steps=0", "eval.episodes=2", "eval.num=1",
    "model.hidden=[8]",
    "store.min_fill=50", "store.batch_size=16", "log.sinks=[jsonl]", "learning.mode=eager",
    "checkpoint.every_steps=200",
]  # fmt: skip


class Look(Callback):
    """What a reader sees while the run goes on."""

    def __init__(self, folder: Path):
        self.folder, self.seen = folder, []

    def checkpoint(self, path: Path) -> None:
        self.seen.append(RunReader(self.folder).status)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    look = Look(folder)
    Experiment(algo="dqn", env="CartPole-v1", overrides=SHORT, out=folder, callbacks=[look]).train()
    return folder, look


def test_a_reader_sees_what_a_run_is_and_was(run):
    folder, look = run
    reader = RunReader(folder)
    assert look.seen[0] == "running"
    assert reader.status == "finished"
    assert reader.config["algo"]["name"] == "dqn"
    assert [line["steps"] for line in reader.metrics()] == [100, 200, 300, 400]
    assert [line["steps"] for line in reader.metrics(after=200)] == [300, 400]
    assert reader.summary["players"]["main"]["weights_sha256"] == reader.summary["weights_sha256"]
    assert reader.state["ticks"] == reader.state["steps"] == 400
    assert reader.state["report"]["steps"] == 400
    assert {"best", "step-000000000400"} <= set(reader.checkpoints())
    assert reader.checkpoints()["best"]["kind"] == "weights"
    assert list(reader.spaces["agents"]) == ["agent"]


def test_a_run_whose_process_is_gone_was_killed(run, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    state = json.loads((run[0] / "state.json").read_text())
    (folder / "config.yaml").write_text("{}")
    odd = [(pid, "killed") for pid in (None, -1, 0, 1 << 40, "7")]
    for pid, status in ((int(child.stdout), "killed"), (os.getpid(), "running"), *odd):
        (folder / "state.json").write_text(json.dumps(state | {"status": "running", "pid": pid}))
        assert RunReader(folder).status == status
    (folder / "state.json").write_text(
        json.dumps(state | {"status": "running", "pid": int(child.stdout), "host": "elsewhere"})
    )
    assert RunReader(folder).status == "running"  # nobody here can know better


def test_half_a_line_does_not_count_and_damage_is_told(run, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"steps": 1}\n{"ste')
    reader = RunReader(folder)
    assert reader.metrics() == [{"steps": 1}]
    assert (reader.summary, reader.config, reader.checkpoints(), reader.status) == ({}, {}, {}, "unknown")
    (folder / "state.json").write_text("{")
    with pytest.raises(UsageError, match=r"state\.json cannot be read"):
        _ = reader.status
    with pytest.raises(UsageError, match="holds no run"):
        RunReader(tmp_path)


def test_reading_imports_no_torch(run):
    code = "from rookery.run.experiment.reader import RunReader"
    code += f"; r = RunReader({str(run[0])!r}); print(r.status, len(r.metrics()))"
    code += "; import sys; assert 'torch' not in sys.modules and 'gymnasium' not in sys.modules"
    source = str(Path(rookery.__file__).parent.parent)
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": source}
    )
    assert out.stdout.split() == ["finished", "4"], out.stderr


def test_a_policy_is_loaded_without_its_env(tmp_path):
    made = []

    def factory():
        import gymnasium

        made.append(1)
        return gymnasium.make("CartPole-v1")

    folder = tmp_path / "run"
    Experiment(algo="dqn", env=factory, overrides=SHORT, out=folder).train()
    before = len(made)
    policy = load_policy(folder)
    assert policy(Batch(obs=[np.zeros(4, np.float32)])).action[0] in (0, 1)
    assert len(made) == before
    (folder / "spaces.json").unlink()  # a run of an earlier version
    assert load_policy(folder, env=factory)(Batch(obs=[np.zeros(4, np.float32)])).action[0] in (0, 1)
    assert len(made) == before + 1


def test_specs_survive_json():
    from gymnasium import spaces

    space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3, 3), np.uint8),
            "place": spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([1.0, np.inf], np.float32)),
            "choice": spaces.Discrete(3, start=-1),
            "both": spaces.MultiDiscrete([2, 4]),
            "bits": spaces.MultiBinary(3),
        }
    )
    spec = spec_of(space)
    plain = json.loads(json.dumps(spec_to_json(spec)))
    again = spec_from_json(plain)
    assert again == spec
    assert plain["parts"]["image"]["high"] == 255  # one number where all are equal
    assert again["place"].low.tolist() == [-1.0, -np.inf]
    assert again["place"].high.dtype == np.float32


@pytest.mark.slow
def test_a_policy_is_loaded_where_the_modules_of_its_env_are_missing(tmp_path, caplog):
    (tmp_path / "gone_later.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('GoneLater-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    code = "from rookery import Experiment\n"
    code += f"Experiment(algo='dqn', env='gone_later:GoneLater-v0', overrides={[*SHORT, 'import=[gone_later]']!r}"
    code += ", out='run').train()"
    source = str(Path(rookery.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "gone_later.py").unlink()
    policy = load_policy(tmp_path / "run")
    assert "Going on without it" in caplog.text
    assert policy([0.0, 0.0, 0.0, 0.0]).action in (0, 1)
    assert policy.values([0.0, 0.0, 0.0, 0.0]).shape == (2,)
