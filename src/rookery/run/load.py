"""Loading a trained policy: `load_policy(run)` for a user's own loop, `load_run` for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.acting.actor import Actor
from rookery.acting.policy import Policy
from rookery.algos.base import Algorithm
from rookery.core.errors import UsageError
from rookery.core.rng import Streams
from rookery.core.spec import stacked_spec
from rookery.core.tree import Tree
from rookery.envs.vector import VectorEnv
from rookery.learning.learner import Learner
from rookery.run.checkpoint import Checkpoints
from rookery.run.evaluate import purpose_of
from rookery.run.folder import RunFolder
from rookery.run.machine import settings, threads_for
from rookery.run.manifest import understood
from rookery.run.parts import EnvFactory, actor_of, make_env
from rookery.run.resolve import Config, load_config


@dataclass(slots=True)
class Loaded:
    """A policy with all that is needed to evaluate it."""

    config: Config
    algo: Algorithm
    actor: Actor
    steps: int
    checkpoint: str
    env_factory: EnvFactory | None
    frame_spec: Tree  # of one observation; networks see `env.stack` of them

    def make_env(self, num: int, seed: int | None = None) -> VectorEnv:
        """Evaluation envs; seed None: the seeds of the run's own evaluations."""
        streams = Streams(self.config.run.seed if seed is None else seed)
        purpose = purpose_of(self.config.eval.seed_offset)
        if seed is not None:
            purpose = "test"  # seeds that no training run has ever used for selection
        return make_env(self.config, streams, num, "eval", factory=self.env_factory, seeds=purpose)


@contextmanager
def load_run(folder: Path | str, checkpoint: str | int = "last", env: EnvFactory | None = None) -> Iterator[Loaded]:
    """The policy of a run at a checkpoint: "best", "last" or a step."""
    run = RunFolder.read(Path(folder))
    if not run.config.exists():
        raise UsageError(f"{run.path} holds no config.yaml, so its networks cannot be built again")
    config = load_config(file=run.config)
    state, manifest = Checkpoints(run.checkpoints).load(checkpoint)
    with settings(threads_for(config)):
        streams = Streams(config.run.seed)
        probe = make_env(config, streams, 1, "eval", factory=env)
        obs_spec, action_spec = probe.obs_spec, probe.action_spec
        probe.close()
        whole = stacked_spec(obs_spec, config.env.stack)
        algo = config.algorithm(config.algo, whole, action_spec, config.model)
        learner = Learner(algo, streams)
        with understood():
            learner.set_weights(state["learner"])
            actor = actor_of(algo, algo.rule(), learner, config.env.stack)
            actor.knobs = state["run"]["knobs"]
        yield Loaded(config, algo, actor, manifest.step, str(checkpoint), env, obs_spec)


def load_policy(folder: Path | str, checkpoint: str | int = "best", *, env: EnvFactory | None = None) -> Policy:
    """`load_policy(run)(Batch(obs=[obs])).action[0]`."""
    with load_run(folder, checkpoint, env) as loaded:
        seed = Streams(loaded.config.run.seed).seed_of("policy")
        return Policy(loaded.actor, loaded.frame_spec, loaded.algo.action_spec, seed)
