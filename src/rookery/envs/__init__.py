"""Environments: vector engines, adapters, the boundary check, wrappers, the checker and probe envs."""

from rookery.envs.adapters import FourTuple
from rookery.envs.build import make
from rookery.envs.checker import check_env
from rookery.envs.config import EnvConfig
from rookery.envs.gymvector import FromVector
from rookery.envs.inprocess import InProcess
from rookery.envs.trial import Report
from rookery.envs.vector import Step, VectorEnv

__all__ = ["EnvConfig", "FourTuple", "FromVector", "InProcess", "Report", "Step", "VectorEnv", "check_env", "make"]
