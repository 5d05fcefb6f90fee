"""Attacks on running trainers, by the tests and by bench/chaos.py; `python -m faults.attacks nodes
…` needs a process of its own.

Each trains CartPole with PPO until it is solved to some degree, and tells how often something was taken away meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress

from rookery import Callback, Trainer, load_config

SELDOM = 8192  # steps between evaluations, so that there is time for attacks


def trainer_of(kind, target, *words, callbacks=(), every=SELDOM):
    overrides = [
        f"pool={kind}",
        "pool.workers=2",
        "eval.episodes=10",
        f"eval.every_steps={every}",
        "learning.mode=eager",
    ]
    goal = [f"train.stop={{eval/return_mean: {target}}}", "train.max_steps=200000", "log.every_steps=4096"]
    config = load_config("cartpole-ppo", overrides=[*overrides, *goal, *words])
    return Trainer(config, callbacks=callbacks)


def trained(trainer):
    """Train to the end; what must hold whatever happened."""
    for _ in trainer:
        pass
    assert sum(trainer.worker_steps) == trainer.steps
    return {"reason": trainer.reason, "steps": trainer.steps, "best": trainer.best, "exact": trainer.exact()}


class Killer(threading.Thread):
    """Kills pool workers with SIGKILL at random moments, about every `mean` seconds; but none
    before it has done something."""

    def __init__(self, trainer, rng, mean):
        super().__init__(daemon=True)
        self.pool, self.rng, self.mean, self.kills, self.over = trainer.pool, rng, mean, 0, threading.Event()

    def run(self):
        while not self.over.wait(self.rng.expovariate(1 / self.mean)):
            workers = zip(list(self.pool._links), list(self.pool._since))
            victims = [line.pid for line, done in workers if done and line.pid]
            if victims:
                with suppress(ProcessLookupError):
                    os.kill(self.rng.choice(victims), signal.SIGKILL)
                    self.kills += 1


def workers_killed(kind, target, mean=2.0, seed=0, *words, every=SELDOM):
    """Pool workers (of a Ray cluster: actors) killed at random moments."""
    with trainer_of(kind, target, *words, every=every) as trainer:
        killer = Killer(trainer, random.Random(seed), mean)
        trainer.round()  # the workers are there
        killer.start()
        told = trained(trainer)
        killer.over.set()
        killer.join()
        return told | {"kills": killer.kills, "renewals": trainer.pool.metrics().get("pool/renewals", 0.0)}


class Nodes(Callback):
    """Takes one of the nodes away every few rounds and adds another."""

    def __init__(self, cluster, every):
        self.cluster, self.every, self.rounds, self.changes = cluster, every, 0, 0
        self.nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]

    def round_end(self, progress):
        self.rounds += 1
        if self.rounds % self.every == 0:
            self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)
            self.nodes.append(self.cluster.add_node(num_cpus=2))
            self.changes += 1


def nodes_come_and_go(target, every):
    """A Ray cluster whose head has no room for workers: they live on nodes that are removed."""
    from ray.cluster_utils import Cluster

    from rookery.run.pools.ray import Folder

    folder = Folder()
    os.environ["RAY_TMPDIR"] = folder.path
    os.mkdir(f"{folder.path}/ray")
    noticed = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 0, "_system_config": noticed, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = Nodes(cluster, every)
        with trainer_of("ray", target, f"pool.cluster={cluster.address}", callbacks=[nodes]) as trainer:
            told = trained(trainer)
            told |= {"changes": nodes.changes, "renewals": trainer.pool.metrics().get("pool/renewals", 0.0)}
    finally:
        cluster.shutdown()
        folder.remove()
    return told


def main():
    what, target, number = sys.argv[1:4]
    begun = time.monotonic()
    attack = {
        "nodes": lambda: nodes_come_and_go(float(target), int(number)),
        "process": lambda: workers_killed("process", float(target), float(number)),
        "ray": lambda: workers_killed("ray", float(target), float(number)),
    }[what]
    print(json.dumps(attack() | {"seconds": round(time.monotonic() - begun, 1)}))


if __name__ == "__main__":
    main()
