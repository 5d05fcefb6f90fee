"""Cores: memory between the encoder and the heads. Recurrent cells, a transformer with memory, and one's own."""

from rookery.nets.cores.build import build_core, state_spec
from rookery.nets.cores.cells import Core, State
from rookery.nets.cores.gtrxl import GTrXL
from rookery.nets.cores.stepwise import Stepwise

__all__ = ["Core", "GTrXL", "State", "Stepwise", "build_core", "state_spec"]
