"""Loading a trained policy: `load_policy(run)` for a user's own loop, `load_run` for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.acting.actor import Actor
from rookery.acting.players import MAIN
from rookery.acting.policy import Policy
from rookery.algos.base import Algorithm
from rookery.core.errors import UsageError
from rookery.core.rng import Streams
from rookery.core.spec import stacked_spec
from rookery.core.tree import Tree
from rookery.envs.multi.env import MultiEnv
from rookery.envs.vector import VectorEnv
from rookery.learning.learner import Learner
from rookery.run.build import EnvFactory, make_env, seeded_for
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.manifest import understood
from rookery.run.config.resolve import Config, load_config
from rookery.run.evaluate import purpose_of
from rookery.run.experiment.folder import RunFolder
from rookery.run.machine import settings
from rookery.run.players import Players, actor_of
from rookery.run.several import make_several, players_in, seated


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

    players: Players | None = None  # None: `actor` is the only one

    def make_env(self, num: int, seed: int | None = None) -> VectorEnv:
        """Evaluation envs; seed None: the seeds of the run's own evaluations."""
        streams, purpose = self._seeds(seed)
        return make_env(self.config, streams, num, "eval", factory=self.env_factory, seeds=purpose)

    def make_table(self, num: int, seed: int | None = None) -> MultiEnv:
        """The same with several agents."""
        streams, purpose = self._seeds(seed)
        return make_several(self.config, seeded_for(streams, "eval", purpose), num, "eval", factory=self.env_factory)

    def _seeds(self, seed: int | None) -> tuple[Streams, str]:
        if seed is not None:
            return Streams(seed), "test"  # seeds that no training run has ever used for selection
        return Streams(self.config.run.seed), purpose_of(self.config.eval.seed_offset)


@contextmanager
def load_run(folder: Path | str, checkpoint: str | int = "last", env: EnvFactory | None = None) -> Iterator[Loaded]:
    """The policy of a run at a checkpoint: "best", "last" or a step."""
    run = RunFolder.read(Path(folder))
    if not run.config.exists():
        raise UsageError(f"{run.path} holds no config.yaml, so its networks cannot be built again")
    config = load_config(file=run.config)
    state, manifest = Checkpoints(run.checkpoints).load(checkpoint)
    with settings(threads=1):
        streams = Streams(config.run.seed)
        if config.players is not None:
            players = _players(config, streams, state, env)
            main = next(iter(players.values()))
            yield Loaded(config, main.algo, main.actor(), manifest.step, str(checkpoint), env, main.frame_spec, players)
            return
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


def _players(config: Config, streams: Streams, state: dict[str, Any], env: EnvFactory | None) -> Players:
    """Several players with their weights, to act and not to learn."""
    table = make_several(config, streams, 1, "eval", factory=env)
    try:
        modes = dict.fromkeys(config.players or (), "eager")
        players = players_in(config, table, seated(config, table), streams, modes, "cpu")
    finally:
        table.close()
    with understood():
        players.set_weights(state)
        for name, player in players.items():
            player.knob_values = dict(state["run"]["knobs"][name])
    return players


def load_policy(
    folder: Path | str, checkpoint: str | int = "best", *, env: EnvFactory | None = None, player: str | None = None
) -> Policy:
    """`load_policy(run)(Batch(obs=[obs])).action[0]`; of several players, the one called `player`."""
    with load_run(folder, checkpoint, env) as loaded:
        if loaded.players is not None:
            return _policy_of(loaded.players, player)
        if player not in (None, MAIN):
            raise UsageError(f"there is no player {player!r}: this run has one, without a name")
        seed = Streams(loaded.config.run.seed).seed_of("policy")
        return Policy(loaded.actor, loaded.frame_spec, loaded.algo.action_spec, seed)


def _policy_of(players: Players, name: str | None) -> Policy:
    if name not in players:
        raise UsageError(f"load_policy(…, player=…) must be one of the run's players {list(players)}, got {name!r}")
    player = players[str(name)]
    actor = player.actor()
    actor.knobs = player.knob_values
    return Policy(actor, player.frame_spec, player.algo.action_spec, player.streams.seed_of("policy"))
