"""`rookery launch` and `rookery train --cluster`: scripts that bash accepts and that do what they say, a
RayJob with what KubeRay needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rookery.cli import recipes
from rookery.cli.main import run

RAYJOB = ("--image", "me/rookery:1", "--claim", "runs", "--ray-version", "2.40.0")


@pytest.fixture
def said(capsys, tmp_path, monkeypatch):
    """(exit code, output, errors) of a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*words):
        code = run(words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


# --- Slurm ---


@pytest.mark.parametrize("more", [[], ["--nodes", "3", "pool.workers=11"]])
def test_a_slurm_script_is_bash_and_asks_for_what_was_said(said, tmp_path, more):
    words = [
        "--cpus",
        "4",
        "--gpus",
        "2",
        "run.device=cuda",
        "--hours",
        "1.5",
        "--memory",
        "16G",
        "--partition",
        "long",
    ]
    code, script, _ = said("launch", "slurm", "cartpole-ppo", "--setup", "module load cuda", *words, *more, "--dry-run")
    assert code == 0
    (tmp_path / "job.sh").write_text(script)
    assert subprocess.run(["bash", "-n", tmp_path / "job.sh"], check=False).returncode == 0
    asked = {line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")}
    assert {"time=01:30:00", "cpus-per-task=4", "gpus-per-node=2", "mem=16G", "partition=long"} <= asked
    assert {"signal=B:USR1@300", "requeue", "open-mode=append", f"nodes={3 if more else 1}"} <= asked
    assert script.splitlines()[0] == "#!/bin/bash"
    assert "module load cuda" in script
    assert "--out runs/cartpole-ppo-s0 --on-exists resume &" in script
    assert ("srun" in script) == ('--cluster "$address"' in script) == bool(more)


def test_words_of_a_job_come_through_the_shell_as_they_were(said, tmp_path):
    stop = "train.stop={eval/return_mean: 475, a'b: 1}"
    words = ["cartpole-ppo", stop, "--seed", "3", "--name", "my job"]
    _, script, _ = said("launch", "slurm", *words, "--dry-run")
    line = next(line for line in script.splitlines() if line.startswith("rookery train"))
    program(tmp_path / "bin", "rookery", 'printf "%s\\n" "$@" > said')
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line + " wait"], cwd=tmp_path, env=environment, check=True)
    found = (tmp_path / "said").read_text().splitlines()
    assert found == ["train", "cartpole-ppo", stop, "--seed", "3", "--out", "runs/my-job", "--on-exists", "resume"]


def started(tmp_path: Path, nodes: int) -> subprocess.Popen[str]:
    """The script of a job, really run, with programs that only write down how they were called."""
    folder = tmp_path / "bin"
    told = tmp_path / "told"
    for name in ("srun", "ray", "scontrol"):
        program(folder, name, f'echo {name} "$@" >> {told}')
    program(folder, "srun", f'echo srun "$@" >> {told}\ncase "$*" in *--block*) exec sleep 60;; esac')
    program(folder, "hostname", "echo 10.0.0.7 172.16.0.1")
    code = "import signal, sys, time, pathlib\n"
    code += "for n in (10, 15): signal.signal(n, lambda n, _: sys.exit(128 + n))\n"
    code += f"words = pathlib.Path({str(tmp_path / 'args.part')!r})\n"
    code += f"words.write_text(' '.join(sys.argv[1:])); words.rename({str(tmp_path / 'args')!r})\n"  # there means whole
    code += "time.sleep(float(sys.argv[-1]))\n"
    (tmp_path / "run.py").write_text(code)
    program(folder, "rookery", f'exec {sys.executable} {tmp_path / "run.py"} "$@" ${{LASTS:-30}}')
    job = recipes.Job("job", ["cartpole-ppo"], "runs/job", nodes, 4, 0, None, 1.0)
    script = recipes.slurm_script(job, recipes.Slurm(str(tmp_path), str(folder)))
    environment = os.environ | {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "n1"}
    return subprocess.Popen(["bash", "-c", script], env=environment, text=True)


def calls(tmp_path):
    return (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []


def wait_for(path):
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("nodes", "sent", "code", "requeued"),
    [(1, signal.SIGUSR1, 138, True), (1, signal.SIGTERM, 143, False), (3, signal.SIGUSR1, 138, True)],
)
def test_a_job_near_its_limit_lets_the_run_save_and_is_requeued(tmp_path, nodes, sent, code, requeued):
    with started(tmp_path, nodes) as job:
        wait_for(tmp_path / "args")
        job.send_signal(sent)
        assert job.wait(20) == code
    assert ("scontrol requeue 42" in calls(tmp_path)) == requeued
    if nodes > 1:
        assert (
            "train cartpole-ppo --cluster 10.0.0.7:20042 --out runs/job --on-exists resume"
            in (tmp_path / "args").read_text()
        )
        started_ones = [line for line in calls(tmp_path) if "--block" in line]
        head, worker = sorted(started_ones, key=lambda line: "--head" not in line)  # both run at once
        assert "--nodelist=n1 ray start --head" in head
        assert "--num-cpus=3 " in head
        assert "--nodes=2 --ntasks=2 --cpus-per-task=4 --exclude=n1 ray start --address=10.0.0.7:20042" in worker
        assert calls(tmp_path)[-2].endswith("rm -rf /tmp/ray-42")  # before the requeue, which ends this script


def test_a_job_whose_run_finishes_is_not_requeued(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTS", "0")
    with started(tmp_path, 1) as job:
        assert job.wait(20) == 0
    assert calls(tmp_path) == []


def test_sbatch_gets_the_script_and_its_answer_is_shown(said, tmp_path, monkeypatch):
    program(tmp_path / "bin", "sbatch", "cat > submitted\necho Submitted batch job 7")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert said("launch", "slurm", "cartpole-ppo") == (0, "Submitted batch job 7\n", "")
    assert (tmp_path / "submitted").read_text().startswith("#!/bin/bash\n#SBATCH --job-name=cartpole-ppo-s0\n")
    program(tmp_path / "bin", "sbatch", "echo invalid partition >&2; exit 1")
    assert said("launch", "slurm", "cartpole-ppo") == (2, "", "error: sbatch refused the job: invalid partition\n")


def test_without_the_cluster_s_own_command_it_says_so(said, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for words, name in ((["slurm", "cartpole-ppo"], "sbatch"), (["k8s", "cartpole-ppo", *RAYJOB], "kubectl")):
        code, out, err = said("launch", *words)
        assert (code, out) == (2, "")
        assert f"there is no {name} here" in err
        assert "--dry-run" in err


# --- Kubernetes ---


def test_a_rayjob_has_what_kuberay_needs(said):
    words = ["pool.workers=11", "--nodes", "3", "--cpus", "4", "--gpus", "1", "run.device=cuda", "--memory", "8Gi"]
    code, text, _ = said("launch", "k8s", "cartpole-ppo", *words, "--namespace", "lab", *RAYJOB, "--dry-run")
    assert code == 0
    tree = yaml.safe_load(text)
    assert (tree["apiVersion"], tree["kind"]) == ("ray.io/v1", "RayJob")
    assert tree["metadata"] == {"name": "cartpole-ppo-s0", "namespace": "lab"}
    spec = tree["spec"]
    assert spec["entrypoint"] == (
        "rookery train cartpole-ppo pool.workers=11 run.device=cuda --cluster auto --out /runs/cartpole-ppo-s0 "
        "--on-exists resume"
    )
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["shutdownAfterJobFinishes"]) == (10, 86400, True)
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == "2.40.0"
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    # the learner keeps a CPU and the GPU of the head; Ray's options are texts
    assert head["rayStartParams"] == {"num-cpus": "3", "dashboard-host": "0.0.0.0"}
    assert workers["rayStartParams"] == {"num-cpus": "4", "num-gpus": "1"}
    assert (workers["groupName"], workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (
        "collectors",
        2,
        2,
        2,
    )
    for group in (head, workers):
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"] == "me/rookery:1"
        asked = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
        assert container["resources"] == {"limits": asked, "requests": asked}
    assert head["template"]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "runs"}
    assert container["name"] == "ray-worker"


def test_one_node_is_a_head_alone_and_names_are_those_of_kubernetes(said, tmp_path, monkeypatch):
    words = ["launch", "k8s", "cartpole-ppo", "--name", "My_run.3", *RAYJOB]
    tree = yaml.safe_load(said(*words, "--dry-run")[1])
    assert tree["metadata"] == {"name": "my-run-3"}
    assert "workerGroupSpecs" not in tree["spec"]["rayClusterSpec"]
    program(tmp_path / "bin", "kubectl", 'cat > "submitted $*"\necho rayjob created')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert said(*words)[:2] == (0, "rayjob created\n")
    assert yaml.safe_load((tmp_path / "submitted apply -f -").read_text()) == tree


@pytest.mark.parametrize(
    ("words", "pods"), [(["pool.workers=3"], 0), (["pool.workers=4"], 1), (["pool.workers=8", "--cpus", "3"], 2)]
)
def test_a_rayjob_has_as_many_pods_as_its_collectors_need(said, words, pods):
    code, out, err = said("launch", "k8s", "cartpole-ppo", *words, *RAYJOB, "--dry-run")
    assert code == 0, err
    groups = yaml.safe_load(out)["spec"]["rayClusterSpec"].get("workerGroupSpecs", [])
    assert [group["replicas"] for group in groups] == [pods] * bool(pods)


# --- what is refused before it waits in a queue ---


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["algo.gama=1"], "Did you mean 'algo.gamma'"),
        (["--nodes", "3"], "--nodes 3 have room for 11 collectors, but pool.workers=1"),
        (["--nodes", "2", "pool.workers=8"], "8 collectors want 8 CPUs, but 2 node(s) leave them 7"),
        (["--nodes", "2", "pool.workers=4", "pool.gpus=1", "--gpus", "1"], "want 4 GPUs, but 2 node(s) leave them 2"),
        (["--gpus", "1"], "nobody would use them"),
        (["run.device=cuda"], "Add --gpus 1"),
        (["--hours", "0.1", "--grace", "600"], "--grace 600 is longer than the whole job"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_submitted(said, words, told):
    code, out, err = said("launch", "slurm", "cartpole-ppo", *words)
    assert (code, out) == (2, "")
    assert told in err


# --- train --cluster ---


@pytest.mark.parametrize("words", [["--cluster", "local"], ["pool=ray"]])
def test_without_ray_one_line_says_what_to_install_and_nothing_is_left(said, tmp_path, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "ray", None)  # `import ray` fails as if it were not there
    code, out, err = said("train", "cartpole-ppo", *words, "--out", "run")
    assert (code, out, err) == (2, "", 'error: pool=ray needs the package ray: pip install "rookery[ray]"\n')
    assert not (tmp_path / "run").exists()


def test_cluster_is_short_for_pool_and_contradictions_are_noticed(said, tmp_path, monkeypatch):
    from rookery.cli import sources
    from rookery.run.config.resolve import load_config

    config = load_config("cartpole-ppo", overrides=sources.as_overrides(None, None, None, "10.0.0.7:6379"))
    assert (config.pool.kind, config.pool.cluster) == ("ray", "10.0.0.7:6379")
    code, _, err = said("train", "cartpole-ppo", "--cluster", "auto", "pool.kind=process", "--out", "run")
    assert code == 2
    assert "pool.kind" in err
    assert not (tmp_path / "run").exists()
