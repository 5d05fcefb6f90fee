"""What a cluster is asked for: a Slurm script, a KubeRay RayJob. Text only; `rookery launch` prints or submits it.

In both, one node (the head) runs the learner, and Ray runs collectors wherever there is room. A job that is stopped and
started again goes on where it was, since its command says `--on-exists resume`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

PREEMPTED = 128 + 10  # exit code of a run that saved and ended because of SIGUSR1
RUNS = "/runs"  # where the volume of runs is mounted in a pod


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same on every kind of cluster."""

    name: str
    train: list[str]  # words after `rookery train`, without --out and --cluster
    out: str
    nodes: int
    cpus: int  # per node, as the next two
    gpus: int
    memory: str | None
    hours: float
    learner_gpu: bool = False  # whether the learner has one of the head's GPUs to itself

    @property
    def head_cpus(self) -> int:
        """CPUs of the head that collectors may have: the learner keeps one."""
        return self.cpus - 1

    @property
    def head_gpus(self) -> int:
        return self.gpus - (self.learner_gpu and self.gpus > 0)

    @property
    def room(self) -> tuple[int, int]:
        """(CPUs, GPUs) for collectors in all."""
        return self.nodes * self.cpus - 1, (self.nodes - 1) * self.gpus + self.head_gpus


@dataclass(frozen=True, slots=True)
class Slurm:
    """What only Slurm asks."""

    folder: str  # in which the job runs
    programs: str  # folder of `rookery` and `ray`
    grace: int = 300  # seconds before the time limit at which the run is asked to save
    options: dict[str, str] = field(default_factory=dict)  # partition, account
    setup: tuple[str, ...] = ()  # lines of shell before anything else


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """What only Kubernetes asks."""

    image: str
    claim: str  # persistent volume that keeps the runs
    ray_version: str
    namespace: str | None = None
    retries: int = 10


def slurm_script(job: Job, slurm: Slurm) -> str:
    """A batch script: `sbatch` takes it as it is."""
    cluster = ["--cluster", '"$address"'] if job.nodes > 1 else []
    words = [shlex.join(["rookery", "train", *job.train]), *cluster]
    train = " ".join([*words, "--out", shlex.quote(job.out), "--on-exists resume"])
    parts = [
        [
            "#!/bin/bash",
            *(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in _asked(job, slurm)),
        ],
        [f"cd {shlex.quote(slurm.folder)} || exit 1", f"export PATH={shlex.quote(slurm.programs)}:$PATH", *slurm.setup],
        _ray(job).splitlines() if job.nodes > 1 else [],
        _WAIT.format(train=train, after="stop_ray\n" * (job.nodes > 1), preempted=PREEMPTED).splitlines(),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _asked(job: Job, slurm: Slurm) -> list[tuple[str, str]]:
    minutes = max(round(job.hours * 60), 1)
    options = {
        "job-name": job.name,
        "nodes": str(job.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(job.cpus),
        "gpus-per-node": str(job.gpus) if job.gpus else None,
        "mem": job.memory,
        "time": f"{minutes // 60:02d}:{minutes % 60:02d}:00",
        "signal": f"B:USR1@{slurm.grace}",  # B: to this script alone, else it would end Ray
        "output": "%x-%j.out",
        "open-mode": "append",
    }
    return [(name, value) for name, value in (options | slurm.options).items() if value] + [("requeue", "")]


def _ray(job: Job) -> str:
    return _CLUSTER.format(
        head=f"--num-cpus={job.head_cpus} --num-gpus={job.head_gpus}",
        worker=f"--num-cpus={job.cpus} --num-gpus={job.gpus}",
        others=job.nodes - 1,
        nodes=job.nodes,
        cpus=job.cpus,
    )


_CLUSTER = """\
# Ray: a head on this node, workers on the others
head=$SLURMD_NODENAME
address=$(hostname -I | awk '{{print $1}}'):$((20000 + SLURM_JOB_ID % 20000))
files=/tmp/ray-$SLURM_JOB_ID
stop_ray() {{
    kill $(jobs -p) 2>/dev/null
    srun --overlap --nodes={nodes} --ntasks={nodes} rm -rf "$files"
}}
srun --overlap --nodes=1 --ntasks=1 --cpus-per-task={cpus} --nodelist="$head" \\
    ray start --head --block --node-ip-address="${{address%:*}}" --port="${{address#*:}}" --temp-dir="$files" \\
    --include-dashboard=false --disable-usage-stats {head} &
for _ in $(seq 120); do ray status --address="$address" >/dev/null 2>&1 && break; sleep 1; done
srun --overlap --nodes={others} --ntasks={others} --cpus-per-task={cpus} --exclude="$head" \\
    ray start --address="$address" --block --disable-usage-stats {worker} &"""

_WAIT = """\
{train} &
run=$!
trap 'kill -USR1 $run 2>/dev/null' USR1 # the time limit is near
trap 'kill -TERM $run 2>/dev/null' TERM # preempted or cancelled
wait $run
code=$?
while kill -0 $run 2>/dev/null; do # a signal ends `wait` before the run has ended
    wait $run
    code=$?
done
{after}
if [ $code -eq {preempted} ]; then # saved, not finished: go on in another allocation
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code"""


def rayjob(job: Job, kubernetes: Kubernetes) -> dict[str, Any]:
    """A RayJob of KubeRay (ray.io/v1), as a tree."""
    words = [*job.train, "--cluster", "auto", "--out", f"{RUNS}/{job.out}", "--on-exists", "resume"]
    cluster: dict[str, Any] = {
        "rayVersion": kubernetes.ray_version,
        "headGroupSpec": {
            "rayStartParams": _start(job.head_cpus, job.head_gpus) | {"dashboard-host": "0.0.0.0"},
            "template": _pod("ray-head", job, kubernetes, keeps=True),
        },
    }
    if job.nodes > 1:
        count = job.nodes - 1
        cluster["workerGroupSpecs"] = [
            {
                "groupName": "collectors",
                "replicas": count,
                "minReplicas": count,
                "maxReplicas": count,
                "rayStartParams": _start(job.cpus, job.gpus),
                "template": _pod("ray-worker", job, kubernetes, keeps=False),
            }
        ]
    spec = {
        "entrypoint": shlex.join(["rookery", "train", *words]),
        "submissionMode": "K8sJobMode",
        "backoffLimit": kubernetes.retries,  # each on a new cluster; the run goes on
        "activeDeadlineSeconds": max(round(job.hours * 3600), 1),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 60,
        "rayClusterSpec": cluster,
    }
    metadata = {"name": resource_name(job.name)}
    metadata |= {"namespace": kubernetes.namespace} if kubernetes.namespace else {}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}


def _start(cpus: int, gpus: int) -> dict[str, str]:
    """Options of `ray start`; KubeRay wants text."""
    return {"num-cpus": str(cpus)} | ({"num-gpus": str(gpus)} if gpus else {})


def _pod(container: str, job: Job, kubernetes: Kubernetes, *, keeps: bool) -> dict[str, Any]:
    """`keeps`: the pod writes the run's folder."""
    resources = {"cpu": str(job.cpus)}
    resources |= {"memory": job.memory} if job.memory else {}
    resources |= {"nvidia.com/gpu": str(job.gpus)} if job.gpus else {}
    made: dict[str, Any] = {"name": container, "image": kubernetes.image}
    made["resources"] = {"limits": resources, "requests": dict(resources)}
    spec: dict[str, Any] = {"containers": [made]}
    if keeps:
        made["ports"] = [
            {"containerPort": port, "name": name}
            for port, name in ((6379, "gcs-server"), (8265, "dashboard"), (10001, "client"))
        ]
        made["volumeMounts"] = [{"name": "runs", "mountPath": RUNS}]
        spec["volumes"] = [{"name": "runs", "persistentVolumeClaim": {"claimName": kubernetes.claim}}]
    return {"spec": spec}


def resource_name(name: str) -> str:
    """A name that Kubernetes accepts, short enough for what KubeRay appends to it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "rookery"
