"""Rainbow (Hessel 2018): C51 with double choice, dueling and noisy heads, three-step returns and prioritised replay.

    L        = mean_i w_i D_KL(m_i ‖ p(s_i, a_i))       m: the three-step target of C51 for a* = argmax_a Q(s_{t+3}, a)
    priority = D_KL(m ‖ p(s, a))

It is C51 with other defaults and nothing else: every part can be switched off by its option.
"""

from __future__ import annotations

from typing import Literal

from rookery.algos.base import Positive
from rookery.algos.c51 import C51, CategoricalConfig
from rookery.core.schedule import Schedule


class RainbowConfig(CategoricalConfig):
    """Options of Rainbow: those of C51."""

    name: Literal["rainbow"] = "rainbow"  # of the algorithm
    lr: Schedule = Schedule(start=5e-4)  # learning rate of Adam
    n_step: Positive = 3  # rewards summed before the bootstrap
    double: bool = True  # choose the next action with the online network, judge it with the target
    dueling: bool = True  # a head for the value and one for the advantages, whose mean over the actions is taken off
    noisy: bool = True  # noisy linear head (Fortunato 2018); ε is then 0 unless given


class Rainbow(C51):
    """Off-policy, discrete and multi-discrete actions: C51 under another name, without a method of its own."""

    name = "rainbow"
    Config = RainbowConfig
    defaults = C51.defaults | {
        "store": {"priority": {"alpha": 0.5, "beta": {"kind": "linear", "start": 0.4, "end": 1.0}}}
    }
