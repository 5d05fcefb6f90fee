"""Sections of a config that belong to the run: when to stop, evaluate, save and report, on what device, in which
folder.

All counts are env steps summed over envs unless their comment says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rookery.core.config.section import Section

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Text = Annotated[str, Field(min_length=1)]
FolderName = Annotated[str, Field(pattern=r"^\w[\w.+-]*$", max_length=100)]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")]


class TrainConfig(Section):
    """When training ends: at the first limit that is reached, exactly there. At least one limit is needed."""

    max_steps: Positive | None = 100_000  # env steps; null: no limit
    max_updates: Positive | None = None  # optimiser steps
    max_episodes: Positive | None = None  # finished episodes
    max_seconds: Seconds | None = (
        None  # wall-clock seconds, resumed parts included; such a run cannot be repeated exactly
    )
    stop: dict[str, float] = {}  # metric → value at which the run has reached its goal, e.g. {eval/return_mean: 475}

    @model_validator(mode="after")
    def _limited(self) -> TrainConfig:
        if not (self.max_steps or self.max_updates or self.max_episodes or self.max_seconds):
            raise ValueError(
                "expected at least one limit, but train.max_steps, train.max_updates, train.max_episodes and "
                "train.max_seconds are all null"
            )
        return self


class EvalConfig(Section):
    """Evaluation in envs of its own, greedily, on raw rewards."""

    every_steps: Count = 10_000  # env steps between evaluations; 0: only at the end
    episodes: Positive = 10  # per evaluation
    num: Annotated[int, Field(ge=1, le=100_000)] = 5  # envs side by side; each plays episodes / num episodes
    at_end: bool = True  # evaluate the last policy when the run ends
    seed_offset: Count = 0  # every evaluation repeats the same episodes; another number gives other ones
    max_steps: Positive = 100_000  # env steps after which an evaluation episode is cut: its return so far counts

    @model_validator(mode="after")
    def _equal_share(self) -> EvalConfig:
        if self.episodes % self.num:
            apart = (n for d in range(self.num) for n in (self.num - d, self.num + d) if self.episodes % n == 0)
            near = next(apart)  # 1 at the latest
            raise ValueError(
                f"eval.episodes={self.episodes} cannot be shared equally by eval.num={self.num} envs: short episodes "
                f"would count more. Set eval.num={near}, or "
                f"eval.episodes={self.num * max(1, round(self.episodes / self.num))}"
            )
        return self


class CheckpointConfig(Section):
    """Saving, so that a killed run goes on exactly."""

    every_steps: Count = 10_000  # env steps between checkpoints; 0: only at the end and on a signal
    keep: Positive = 2  # newest checkpoints kept, besides `best`
    at_end: bool = True  # save when the run ends


class LogConfig(Section):
    """Reporting."""

    every_steps: Positive = 1_000  # env steps between reports: a line of metrics.jsonl, a turn of the trainer
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"] = "INFO"  # least serious message that is written
    window: Positive = 100  # episodes over which returns and lengths are averaged
    update_window: Positive | None = (
        None  # updates over which their numbers are averaged, with min, max and std; null: all since the last report
    )
    sinks: tuple[str, ...] = ("console", "jsonl", "tensorboard")  # where reports go, as in `rookery.core.registry`
    progress: bool = True  # live progress bar, if the console is a terminal


class RunConfig(Section):
    """The run itself."""

    seed: Seed = 0  # of every generator in the run
    name: FolderName | None = None  # of the run's folder; null: made from algorithm, env, seed and time
    out: Text = "runs"  # folder in which the run's folder is made
    device: Device = "cpu"  # of the learner: auto, cpu, cuda, cuda:1, mps
    threads: Threads | Literal["auto"] = 1  # of the learner; auto: from the work of one update and the CPU quota
    seating: Text | None = None  # module:function that seats players, once per episode; null: drawn by `seats`
    on_exists: Literal["fail", "resume", "new"] = "fail"  # if the folder holds a run: stop, go on, or take a new folder


class LearningConfig(Section):
    """How updates are executed. The mode is chosen before the run and never changes in it.

    `auto` compiles iff a compiler exists, the update exports and at least `compile_after` updates are planned.
    """

    mode: Literal["auto", "eager", "compiled"] = "auto"  # ordinary autograd, or one compiled artefact per update
    cache: Text | None = None  # folder of compiled artefacts; null: the user's cache folder
    cache_bytes: Count = (
        2_000_000_000  # size of that folder; above it, artefacts that no run uses go, longest unused first
    )
    cache_days: Annotated[float, Field(gt=0)] = 90.0  # days after which an artefact that no run has used is removed
    compile_after: Count = 20_000  # planned updates from which `auto` compiles
    learners: Annotated[int, Field(ge=1, le=256)] = (
        1  # processes that share every update: each computes the gradient of an equal part of the batch, eagerly
    )
    deadline: Seconds = 300.0  # seconds that several learners wait for one another before all are started again
    restarts: Count = 3  # times in a row that they are, from the last checkpoint, before the run ends with exit code 3


class PoolConfig(Section):
    """Where collectors live."""

    kind: Literal["local", "process", "ray"] = (
        "local"  # in this process, one after the other; in a process each; as actors of a Ray cluster
    )
    workers: Annotated[int, Field(ge=1, le=4096)] = 1  # collectors, each with env.num envs and streams of its own
    mode: Literal["sync", "async"] = (
        "sync"  # sync: rounds, bit for bit as in one process; async: workers go on while updates are done
    )
    max_lag: Annotated[int, Field(ge=0)] = (
        1_000  # async: chunks chosen by weights so many updates old are not learnt from
    )
    ahead: Annotated[int, Field(ge=1)] | None = (
        None  # async: chunks per worker that may wait to be learnt from before workers wait, too; null: they never wait
    )
    start: Literal["auto", "forkserver", "spawn", "fork"] = (
        "auto"  # process: how a worker is started; auto: forkserver on Linux, spawn elsewhere
    )
    cluster: Text = "local"  # ray: local starts one on this machine; auto finds one that runs here; or its address
    cpus: Annotated[float, Field(ge=0)] = 1.0  # ray: CPUs that a worker asks for
    gpus: Annotated[float, Field(ge=0)] = 0.0  # ray: GPUs that a worker asks for; fractions share one

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data


class SentinelConfig(Section):
    """What happens when learning goes wrong."""

    on_nan: Literal["stop", "rollback"] = "stop"  # on NaN or explosion: exit 5, or go back to the last good checkpoint
    rollbacks: Positive = 3  # times a run may go back before it stops
    max_loss: Annotated[float, Field(gt=0)] = 1e10  # absolute loss or gradient norm that counts as an explosion
    save_batch: bool = True  # save the offending batch into the run's folder
    warn_entropy: bool = True  # warn when the policy's entropy has collapsed
    warn_critic: bool = True  # warn when the critic explains nothing of the returns any more
