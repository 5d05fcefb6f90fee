"""Environments: vector engines, adapters, the boundary check, wrappers, the checker and probe envs."""

from rookery.envs.adapters import FourTuple
from rookery.envs.builders.make import make, make_multi, make_table
from rookery.envs.check.checker import check_env
from rookery.envs.check.trial import Report
from rookery.envs.config import EnvConfig
from rookery.envs.engines.gym_vector import FromVector
from rookery.envs.engines.inprocess import InProcess
from rookery.envs.multi.engine import DictAgents, ParallelAgents, TupleAgents, TurnAgents
from rookery.envs.multi.env import MultiEnv, MultiStep
from rookery.envs.multi.one_agent import OneAgent
from rookery.envs.vector import Step, VectorEnv

__all__ = [
    "DictAgents",
    "EnvConfig",
    "FourTuple",
    "FromVector",
    "InProcess",
    "MultiEnv",
    "MultiStep",
    "OneAgent",
    "ParallelAgents",
    "Report",
    "Step",
    "TupleAgents",
    "TurnAgents",
    "VectorEnv",
    "check_env",
    "make",
    "make_multi",
    "make_table",
]
