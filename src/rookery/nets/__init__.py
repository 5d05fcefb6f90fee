"""Networks built from the spaces: encoders, normaliser, heads, and the blocks to build one's own."""

from rookery.nets.build import build_encoder
from rookery.nets.config import ModelConfig
from rookery.nets.heads import Critic, Dueling, Ensemble, QNetwork
from rookery.nets.modules import Scalar, linear, mlp, modules_with_own_loss, orthogonal_
from rookery.nets.noisy import Noisy, noisy, resample
from rookery.nets.normalise import Normalise, NormaliseObs, observation_of, observe
from rookery.nets.policy import ActorCritic, DeterministicPolicy, Policy, PolicyHead, SquashedPolicy, Value
from rookery.nets.renorm import BatchRenorm

__all__ = [
    "ActorCritic",
    "BatchRenorm",
    "Critic",
    "DeterministicPolicy",
    "Dueling",
    "Ensemble",
    "ModelConfig",
    "Noisy",
    "Normalise",
    "NormaliseObs",
    "Policy",
    "PolicyHead",
    "QNetwork",
    "Scalar",
    "SquashedPolicy",
    "Value",
    "build_encoder",
    "linear",
    "mlp",
    "modules_with_own_loss",
    "noisy",
    "observation_of",
    "observe",
    "orthogonal_",
    "resample",
]
