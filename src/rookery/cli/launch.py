"""`rookery launch slurm` and `rookery launch k8s`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rookery.cli import completion, recipes, sources
from rookery.core.errors import UsageError

if TYPE_CHECKING:
    from rookery.run.config.config import Config

app = typer.Typer(
    help="Train on a cluster: Slurm, or Kubernetes with KubeRay.", no_args_is_help=True, rich_markup_mode=None
)

WORDS = typer.Argument(
    None, metavar="PRESET|ALGO ENV|KEY=VALUE", help="As for `rookery train`.", autocompletion=completion.words
)
FILE = typer.Option(None, "--config", "-c", metavar="FILE", help="A .yaml, or a .py that defines `experiment`.")
ALGO = typer.Option(None, help="Algorithm, as in `rookery list algos`.")
ENV = typer.Option(None, help="Env: an id, or package.module:EnvId, which is imported first.")
SEED = typer.Option(None, help="Seed of everything: run.seed.")
NAME = typer.Option(None, help="Name of the job. [default: what is trained, and the seed]")
NODES = typer.Option(1, min=1, help="Machines; with more than one, Ray spreads pool.workers over them.")
CPUS = typer.Option(4, min=1, help="CPUs of each.")
GPUS = typer.Option(0, min=0, help="GPUs of each.")
MEMORY = typer.Option(None, help="Memory of each, in the cluster's own notation: 16G, 16Gi.")
HOURS = typer.Option(24.0, min=0.02, help="Time limit.")
DRY = typer.Option(False, "--dry-run", help="Print it and submit nothing.")


@app.command("slurm")
def slurm(
    words: list[str] = WORDS,
    file: Path = FILE,
    algo: str = ALGO,
    env: str = ENV,
    seed: int = SEED,
    name: str = NAME,
    out: str = typer.Option(None, metavar="DIR", help="Folder of the run. [default: the job's name, in run.out]"),
    nodes: int = NODES,
    cpus: int = CPUS,
    gpus: int = GPUS,
    memory: str = MEMORY,
    hours: float = HOURS,
    grace: int = typer.Option(300, min=1, help="Seconds before the time limit at which the run saves and is requeued."),
    partition: str = typer.Option(None, help="As `sbatch --partition`."),
    account: str = typer.Option(None, help="As `sbatch --account`."),
    setup: list[str] = typer.Option([], help="A line of shell before the run: module load cuda. May be repeated."),
    dry_run: bool = DRY,
) -> None:
    """Submit a Slurm job that saves before its time is over and goes on in the next allocation.

    rookery launch slurm cartpole-ppo --cpus 8 --hours 4 --dry-run
    """
    start, config = _described(words, file, algo, env, seed)
    name = _plain(name or _name(words, config))
    where = out or str(Path(config.run.out) / name)
    job = recipes.Job(name, start, where, nodes, cpus, gpus, memory, hours, _on_gpu(config))
    _check_room(job, config)
    if grace >= hours * 3600:
        raise UsageError(f"--grace {grace} is longer than the whole job, which may take {hours * 3600:.0f} s")
    options = {key: value for key, value in (("partition", partition), ("account", account)) if value}
    programs = str(Path(sys.executable).absolute().parent)
    script = recipes.slurm_script(job, recipes.Slurm(os.getcwd(), programs, grace, options, tuple(setup)))
    _hand_over(script, ["sbatch"], dry_run, "a login node of the cluster has it")


@app.command("k8s")
def k8s(
    words: list[str] = WORDS,
    file: Path = FILE,
    algo: str = ALGO,
    env: str = ENV,
    seed: int = SEED,
    name: str = NAME,
    out: str = typer.Option(None, metavar="NAME", help="Folder of the run on the volume. [default: the job's name]"),
    nodes: int = typer.Option(None, min=1, help="Pods. [default: as many as pool.workers collectors need]"),
    cpus: int = CPUS,
    gpus: int = GPUS,
    memory: str = MEMORY,
    hours: float = HOURS,
    image: str = typer.Option(..., help="Container image in which rookery[ray] is installed."),
    claim: str = typer.Option(..., help="Persistent volume claim that keeps the runs; mounted at /runs."),
    namespace: str = typer.Option(None, help="Of the job. [default: that of kubectl]"),
    ray_version: str = typer.Option(None, help="Of Ray in the image. [default: that installed here]"),
    retries: int = typer.Option(10, min=0, help="New clusters that the run may go on with after a failure."),
    dry_run: bool = DRY,
) -> None:
    """Submit a KubeRay RayJob that goes on from its last checkpoint when pods are lost.

    rookery launch k8s cartpole-ppo pool.workers=7 --image me/rookery:1 --claim runs --dry-run
    """
    from rookery.core.config.yaml import write_text

    start, config = _described(words, file, algo, env, seed)
    name = _plain(name or _name(words, config))
    job = recipes.Job(name, start, out or name, nodes or 1, cpus, gpus, memory, hours, _on_gpu(config))
    if nodes is None:
        job = _with_room(job, config)
    _check_room(job, config, needs_ray=True)
    cluster = recipes.Kubernetes(image, claim, ray_version or _ray_version(), namespace, retries)
    _hand_over(write_text(recipes.rayjob(job, cluster)), ["kubectl", "apply", "-f", "-"], dry_run, "see kubernetes.io")


def _described(
    words: list[str] | None, file: Path | None, algo: str | None, env: str | None, seed: int | None
) -> tuple[list[str], Config]:
    """(words for `rookery train`, the config they give):
    what is wrong must be said now, not when the queue is through.
    """
    named, extra = sources.sort_words(words), sources.as_overrides(algo, env, seed)
    config, _ = sources.described(named, file, extra)
    options = {"-c": file, "--algo": algo, "--env": env, "--seed": seed}
    flags = [text for option, value in options.items() if value is not None for text in (option, str(value))]
    return [*(words or []), *flags], config


def _name(words: list[str] | None, config: Config) -> str:
    what = sources.sort_words(words).preset or f"{config.learns}-{config.env.id or 'env'}"
    return config.run.name or f"{Path(what).name}-s{config.run.seed}"


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _with_room(job: recipes.Job, config: Config) -> recipes.Job:
    """The job on as few machines as have room for all collectors; on one, if more would not help."""
    pool = config.pool
    cpus, gpus = pool.workers * pool.cpus, pool.workers * pool.gpus
    sizes = (replace(job, nodes=nodes) for nodes in range(1, pool.workers + 2))
    return next((sized for sized in sizes if sized.room[0] >= cpus and sized.room[1] >= gpus), job)


def _on_gpu(config: Config) -> bool:
    return config.run.device.startswith(("cuda", "auto"))


def _check_room(job: recipes.Job, config: Config, needs_ray: bool = False) -> None:
    """Collectors for which there is no room would be waited for in vain;
    machines without collectors would be paid for in vain.
    """
    pool, (cpus, gpus) = config.pool, job.room
    if job.gpus and not (job.learner_gpu or pool.gpus):
        raise UsageError(
            f"--gpus {job.gpus}, but nobody would use them: run.device={config.run.device} and pool.gpus=0. "
            "Add run.device=cuda, or leave --gpus away."
        )
    if not job.gpus and config.run.device.startswith("cuda"):
        raise UsageError(f"run.device={config.run.device}, but --gpus 0. Add --gpus 1.")
    if job.nodes == 1 and not needs_ray:
        return
    wanted = pool.workers * pool.cpus, pool.workers * pool.gpus
    if job.nodes > 1 and pool.workers < job.nodes:
        raise UsageError(
            f"--nodes {job.nodes} have room for {int(cpus // (pool.cpus or 1))} collectors, but "
            f"pool.workers={pool.workers}. Say how many: pool.workers=N. Each brings env.num envs, so an on-policy "
            "algorithm learns from more steps at a time."
        )
    for have, want, what, key in ((cpus, wanted[0], "CPUs", "--cpus"), (gpus, wanted[1], "GPUs", "--gpus")):
        if want > have:
            raise UsageError(
                f"pool.workers={pool.workers} collectors want {want:g} {what}, but {job.nodes} node(s) leave them "
                f"{have} (the learner keeps its own). Raise --nodes or {key}, or lower pool.workers."
            )


def _ray_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ray")
    except PackageNotFoundError:
        raise UsageError("which Ray is in the image? Give --ray-version, for there is none here to compare") from None


def _hand_over(text: str, command: list[str], dry_run: bool, where: str) -> None:
    """Print, or submit and print what the cluster says."""
    if dry_run:
        typer.echo(text.rstrip())
        return
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no {command[0]} here ({where}). With --dry-run the job is printed instead.")
    done: Any = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"{' '.join(command)} refused the job: {(done.stderr or done.stdout).strip()}")
    typer.echo(done.stdout.strip())
