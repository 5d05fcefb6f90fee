"""One contender: Rookery, with logging, callbacks and checks on. Prints one JSON line.

python rookery_run.py WORK WARM STEPS [--seed N] --mode eager|compiled|"compiled, native engine"
                      (engine: gymnasium|native)
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from works import EPISODES, LOOK, SOLVED, WORKS, Mark, answer, arguments, batch_of, mark, since_start

QUIET = ["checkpoint.every_steps=0", "checkpoint.at_end=false"]
UNJUDGED = ["eval.every_steps=0", "eval.at_end=false"]
SINKS = "log.sinks=[jsonl,tensorboard]"
FAST = {"solve-ppo": "cartpole-ppo", "solve-dqn": "cartpole-dqn"}  # presets of `solve`, as they are


def overrides(settings: dict[str, Any], algo: str) -> list[str]:
    """The settings of a work in our words."""
    s, rate = settings, f"algo.lr={settings['lr']}"
    if algo in TEAMS:
        return TEAMS[algo](s)
    common = [f"algo.name={algo}", f"env.id={s['env']}", f"env.num={s['envs']}", f"algo.gamma={s['gamma']}", rate]
    common.append(f"model.hidden={s['hidden']}")
    if algo == "ppo":
        wanted = {"rollout", "epochs", "minibatches", "lam", "clip", "value_cost", "max_grad_norm"}
        return [*common, *(f"algo.{key}={s[key]}" for key in sorted(wanted))]
    store = {"batch_size": s["batch"], "capacity": s["capacity"], "min_fill": s["min_fill"]}
    store["updates_per_step"] = s["updates_per_step"]
    common += [f"store.{key}={value}" for key, value in store.items()]
    if algo == "sac":
        return [*common, f"algo.tau={s['tau']}", f"algo.alpha_lr={s['lr']}", "algo.warmup=100"]
    start, end = s["epsilon"]
    common += [
        "algo.double=false",
        f"algo.target_every={s['target_every']}",
        f"algo.max_grad_norm={s['max_grad_norm']}",
    ]
    common += [f"algo.epsilon={{kind: linear, start: {start}, end: {end}, steps: {s['epsilon_steps']}}}"]
    common += [f"algo.rollout={max(round(1 / (s['updates_per_step'] * s['envs'])), 1)}"]
    if s["env"].startswith("ALE/"):
        sign = "{name: reward_clip, kwargs: {sign: true}}"
        common += ["env.stack=4", "env.wrappers=[atari]", f"env.train_wrappers=[life_loss, {sign}]"]
    return common


def qmix(s: dict[str, Any]) -> list[str]:
    """Q-learning of a team of foragers; the env gets a limit that it never reaches, ours truncates."""
    start, end = s["epsilon"]
    decay = f"{{kind: linear, start: {start}, end: {end}, steps: {s['epsilon_steps']}}}"
    algo = {"name": "qmix", "gamma": s["gamma"], "lr": s["lr"], "tau": s["tau"], "target_every": 1, "double": "false"}
    algo |= {"embed": s["mixer"], "hyper": s["hyper"], "max_grad_norm": s["max_grad_norm"], "epsilon": decay}
    env = {"id": s["env"], "num": s["envs"], "api": "tuple", "world": "joined"}
    env |= {"kwargs.max_episode_steps": s["episode"] + 1, "max_episode_steps": s["episode"]}
    store = {"capacity": s["capacity"], "batch_size": s["batch"], "min_fill": s["min_fill"]}
    store |= {"updates_per_step": s["updates_per_step"]}
    return _words(algo=algo, env=env, store=store, model={"hidden": s["hidden"]})


def mappo(s: dict[str, Any]) -> list[str]:
    """PPO whose value alone sees the world, of agents that share a network and are told who they are."""
    same = ("gamma", "lr", "rollout", "epochs", "minibatches", "lam", "clip", "value_cost", "entropy_bonus")
    algo = {"name": "ppo", "critic": "world", "normalise_value": "true", "max_grad_norm": s["max_grad_norm"]}
    env = {"id": s["env"], "num": s["envs"], "api": "parallel", "ids": "true", "world": "state"}
    env |= {f"kwargs.{name}": str(value).lower() for name, value in s["kwargs"].items()}
    return _words(algo=algo | {key: s[key] for key in same}, env=env, model={"hidden": s["hidden"]})


def _words(**sections: dict[str, Any]) -> list[str]:
    return [f"{name}.{key}={value}" for name, section in sections.items() for key, value in section.items()]


TEAMS = {"qmix": qmix, "mappo": mappo}


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Times the part after the warm-up, from report to report."""
    import rookery

    work = WORKS[args.work]
    watch = _stopwatch(args.warm)
    total, s = args.warm + args.steps, work.settings
    every = s["envs"] * s["rollout"] if "rollout" in s else math.gcd(args.warm, args.steps)
    algo = args.work.split("-")[0] if "pong" not in args.work else "dqn"
    words = [*overrides(s, algo), *QUIET, *UNJUDGED]
    mode, _, engine = args.mode.partition(", ")
    words += [
        f"learning.mode={mode}",
        f"env.engine={('native' if algo in TEAMS else 'auto') if engine else 'gymnasium'}",
        f"train.max_steps={total}",
        f"log.every_steps={every}",
        f"run.seed={args.seed}",
    ]
    words.append(SINKS)
    with tempfile.TemporaryDirectory() as folder:
        experiment = rookery.Experiment(overrides=words, callbacks=[watch], out=Path(folder) / "run")
        experiment.train()
        learned = [net for net in experiment.trainer.learner.nets.values() if not net.is_target]
    shapes = (tuple(p.shape) for net in learned for p in net.module.parameters())
    return answer(watch.marks, shapes, batch_of(s))


def _stopwatch(warm: int) -> Any:
    import rookery

    class Stopwatch(rookery.Callback):
        """Remembers time, steps and updates at the first report after the warm-up, and at the last."""

        def __init__(self) -> None:
            self.marks: list[Mark] = []

        def report(self, progress: Any) -> None:
            if progress.steps >= warm:
                self.marks.append(mark(progress.steps, progress.updates))

    return Stopwatch()


def solve(args: argparse.Namespace) -> dict[str, Any]:
    """From the start of the process to the end of the closing evaluation; peers log nothing, ours one file."""
    import rookery

    class Stopwatch(rookery.Callback):
        """Remembers when the last evaluation ended."""

        seconds = 0.0

        def evaluation(self, evaluation: Any) -> None:
            self.seconds = since_start()

    imported = since_start()
    words = [*QUIET, f"eval.every_steps={LOOK}", f"eval.episodes={EPISODES}", f"eval.num={EPISODES}"]
    words += [f"train.stop={{eval/return_mean: {SOLVED}}}"]
    words += [f"learning.mode={args.mode}", "log.every_steps=5000", "log.sinks=[jsonl]", f"run.seed={args.seed}"]
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        result = rookery.Experiment(
            FAST[args.work], overrides=words, callbacks=[watch], out=Path(folder) / "run"
        ).train()
    done = {"steps": result.summary["steps"], "updates": result.summary["updates"], "imported": imported}
    return done | {"seconds": watch.seconds, "return": result.evaluation.mean}


def process(args: argparse.Namespace) -> dict[str, Any]:
    """How long a start takes."""
    if args.work == "start-help":
        from rookery.cli.main import run

        run(["--help"])
    elif args.work == "start-import":
        from rookery import Experiment
    else:
        from rookery import Experiment

        words = [
            *QUIET,
            *UNJUDGED,
            "train.max_updates=1",
            "learning.mode=compiled",
            SINKS,
        ]
        with tempfile.TemporaryDirectory() as folder:
            Experiment("cartpole-ppo", overrides=words, out=Path(folder) / "run").train()
    return {"seconds": since_start(), "steps": 0}


def main() -> None:
    args = arguments()
    kind = WORKS[args.work].kind
    if kind in ("operation", "engine", "own"):
        import rookery_parts

        told = rookery_parts.measure(args)
    else:
        told = {"train": train, "solve": solve, "process": process}[kind](args)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
