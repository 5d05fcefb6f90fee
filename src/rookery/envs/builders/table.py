"""From a config to envs at their table, whatever their API: all that a run asks for."""

from __future__ import annotations

from rookery.core.rng import Streams
from rookery.envs.builders.multi import make_multi
from rookery.envs.builders.single import Factory, Purpose, make
from rookery.envs.config import EnvConfig
from rookery.envs.multi.env import MultiEnv
from rookery.envs.multi.one_agent import at_table


def make_table(
    config: EnvConfig,
    *,
    count: int,
    purpose: Purpose,
    streams: Streams,
    worker: int = 0,
    factory: Factory | None = None,
) -> MultiEnv:
    """`count` envs of one worker. Env i is reset for its episode e with `streams.seed_of(purpose, worker, i, e)`."""
    maker = make if config.agents == 1 else make_multi
    return at_table(maker(config, count=count, purpose=purpose, streams=streams, worker=worker, factory=factory))
