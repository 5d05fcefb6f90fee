"""Environments: vector engines, adapters, the boundary check, wrappers, the checker and probe envs."""

from rookery.envs.adapters import FourTuple
from rookery.envs.agents import DictAgents, ParallelAgents, TurnAgents
from rookery.envs.build import make
from rookery.envs.buildmulti import make_multi
from rookery.envs.checker import check_env
from rookery.envs.config import EnvConfig
from rookery.envs.gymvector import FromVector
from rookery.envs.inprocess import InProcess
from rookery.envs.multi import MultiEnv, MultiStep
from rookery.envs.trial import Report
from rookery.envs.vector import Step, VectorEnv

__all__ = [
    "DictAgents",
    "EnvConfig",
    "FourTuple",
    "FromVector",
    "InProcess",
    "MultiEnv",
    "MultiStep",
    "ParallelAgents",
    "Report",
    "Step",
    "TurnAgents",
    "VectorEnv",
    "check_env",
    "make",
    "make_multi",
]
