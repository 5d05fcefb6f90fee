"""Loading a trained policy: `load_policy(run)` for a user's own loop, `load_run` for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.acting.policy import Policy
from rookery.core.errors import CheckpointError, ConfigError, UsageError
from rookery.core.restoring import restoring
from rookery.core.rng import Streams
from rookery.envs.multi.env import MultiEnv
from rookery.run.build import EnvFactory, build_players, make_env, purpose_of, seating
from rookery.run.checkpoints.checkpoints import Checkpoints
from rookery.run.checkpoints.durable import parse_json, read_file
from rookery.run.checkpoints.statefile import weights_of
from rookery.run.config.config import Config
from rookery.run.config.resolve import load_run_config
from rookery.run.experiment.folder import RunFolder
from rookery.run.machine import settings
from rookery.run.players import Players
from rookery.run.spaces import Spaces

MAX_SPACES_BYTES = 1 << 26  # bounds of every pixel may be written out


@dataclass(slots=True)
class Loaded:
    """The players of a run, to act and not to learn, with all that is needed to evaluate them."""

    config: Config
    streams: Streams
    players: Players
    steps: int
    checkpoint: str
    env_factory: EnvFactory | None

    def make_env(self, num: int, seed: int | None = None) -> MultiEnv:
        """Evaluation envs; seed None: the seeds of the run's own evaluations, else some that no run has ever used for
        selection."""
        streams = self.streams if seed is None else Streams(seed)
        purpose = purpose_of(self.config.eval.seed_offset) if seed is None else "test"
        return make_env(self.config, streams, num, "eval", factory=self.env_factory, seeds=purpose)


@contextmanager
def load_run(
    folder: Path | str, checkpoint: str | int = "last", env: EnvFactory | None = None, *, trust: bool = False
) -> Iterator[Loaded]:
    """The players of a run at a checkpoint: "best", "last" or a step. `trust`: even if its config is another's."""
    run = RunFolder.read(Path(folder))
    if not run.config.exists():
        raise UsageError(f"{run.path} holds no config.yaml, so its networks cannot be built again")
    config = load_run_config(run.config, trust=trust, needs_env=False)  # whoever makes one is told what is missing
    state, manifest = Checkpoints(run.checkpoints).load(checkpoint, weights_of)
    with settings(threads=1):
        streams = Streams(config.run.seed)
        spaces = _spaces(run, config, streams, env)
        players = build_players(config, spaces, seating(config, spaces), streams, None)
        with restoring():
            players.set_weights(state)
            for name, player in players.items():
                player.knob_values = dict(state["run"]["knobs"][name])
        yield Loaded(config, streams, players, manifest.step, str(checkpoint), env)


def _spaces(run: RunFolder, config: Config, streams: Streams, env: EnvFactory | None) -> Spaces:
    """As the run wrote them; of runs of earlier versions, from an env."""
    if run.spaces.exists():
        try:
            return Spaces.from_json(parse_json(read_file(run.spaces, MAX_SPACES_BYTES), run.spaces))
        except (ValueError, KeyError, TypeError, AttributeError, ConfigError, CheckpointError) as error:
            raise CheckpointError(f"{run.spaces} is damaged ({error}). Remove it: an env is asked instead.") from error
    with closing(make_env(config, streams, 1, "eval", factory=env, here=True)) as probe:
        return Spaces.of(probe)


def load_policy(
    folder: Path | str,
    checkpoint: str | int = "best",
    *,
    env: EnvFactory | None = None,
    player: str | None = None,
    trust: bool = False,
) -> Policy:
    """`load_policy(run)(obs).action`: the policy of a run, without its env.

    Args:
        folder: of the run.
        checkpoint: "best", "last" or a step.
        env: a factory, asked for its spaces only where the run wrote none (0.1.0).
        player: which one, where a run names several.
        trust: lets a run that is not your own import the code that its config names.
    """
    with load_run(folder, checkpoint, env, trust=trust) as loaded:
        chosen = loaded.players.named(player)
        return chosen.policy(chosen.knob_values)
