"""Threads of the learner: chosen by the work of one update, within the CPU quota, before the run; recorded with the
reason.

    work   = rows × (3 Σ learning networks + Σ targets) multiply-adds of a row        3: forward, gradients of inputs
                                                                                      and of weights
    a row  = Σ parameters × places where a layer applies them                         1, or the pixels of a
                                                                                      convolution's output
    rows   = batch × sequence length; on-policy: of a minibatch, not of the rollout
    auto   = ⌊work / GRAIN⌋ threads, at least 1, at most the quota

A memory's steps come one after the other and each is many small operations, so of it one step of the sequence counts.

Gain of 2 threads over 1, on a machine with 2 cores; in front of it, the millions of multiply-adds of one update:

    DQN 64² batch 64      1.2   0.70 ×      DQN 256² batch 64     17   0.94 ×      SAC 256² batch 256   270   1.6 ×
    DQN 128² batch 64     4.5   0.93 ×      DQN 256² batch 256    69   1.39 ×      DQN 512² batch 256   270   1.8 ×
    DQN 128² batch 128    8.9   1.07 ×

The four up to 17 million: fastest 5 % of eager updates, one run, on a machine busy with other work. The three from 69
million are those of the design notes (SAC compiled), not repeated here: on the busy machine every one of them lost.
Images and memories: no usable figure. GRAIN, HALF and WAITING are fitted to these seven and should be checked on a
quiet machine.

With other work on both cores two threads wait for each other at every product: updates then took from 1.5 to more than
40 times as long as with one. Collectors and evaluations act with one thread, whatever the learner has, so that an
action's bits do not depend on where it is chosen. Changing torch's number of threads there and back costs 0.2 µs and
does not slow the products after it; it is done once a round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rookery.core.rng import seeded
from rookery.core.spec import zeros
from rookery.core.system.cpus import cpu_quota
from rookery.core.tree import tree_map
from rookery.nets.build import OwnEncoder
from rookery.nets.cores import Core, Stepwise
from rookery.nets.encoders import Encoder
from rookery.run.config.config import Config
from rookery.run.players import Player

GRAIN = 20_000_000  # multiply-adds of one update that make another thread worth its waiting
HALF = 4.5e7  # multiply-adds at which half of an update's time can be shared by threads
WAITING = 0.1  # of the time that cannot be shared: what threads cost by being there
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True, slots=True)
class Threads:
    """How many, and why."""

    count: int
    reason: str


def threads_for(config: Config, players: Iterable[Player], quota: int | None = None) -> Threads:
    """A pure function of config and machine; `quota` None: this machine's."""
    allowed = cpu_quota() if quota is None else quota
    wanted, allowed = config.run.threads, max(1, allowed // config.learning.learners)  # each learner has so many
    if wanted != "auto":
        over = f", more than the {allowed} CPUs of the quota" if wanted > allowed else ""
        return Threads(int(wanted), f"run.threads={wanted}{over}")
    learning = [player for player in players if player.store is not None]
    if learning and learning[0].learner.device.type != "cpu":
        return Threads(1, f"auto: updates run on {learning[0].learner.device.type}")
    work = max((work_of(player) for player in learning), default=0)
    count = max(1, min(allowed, work // GRAIN))
    reason = f"auto: {work / 1e6:.3g} million multiply-adds per update"
    if count == 1 and work < 2 * GRAIN:
        return Threads(1, f"{reason}, fewer than the {2 * GRAIN / 1e6:g} million from which two threads pay")
    return Threads(count, f"{reason}, quota of {allowed} CPU{'s' * (allowed != 1)}")


def thread_gain(work: int, threads: int) -> float:
    """Expected speed of an update with so many threads, relative to one: a fit to the table above, for predictions
    only."""
    shared = work / (work + HALF)
    waiting = WAITING * (1 - shared) if threads > 1 else 0.0
    return 1 / (1 - shared + shared / threads + waiting)


def work_of(player: Player) -> int:
    """Multiply-adds of one update."""
    window = player.algo.window()
    length = 1 if window is None else window.burn_in + window.length
    if player.config.store_kind.once and player.algo.memory() is not None:
        length = player.config.algo.sequence or player.rows
    learner, rows, total = player.learner, rows_of(player, length), 0
    for network in learner.nets.values():
        passes = 3 if network.name in learner.optimisers else 1
        steps, places = _one_after_another(network.module), _places(network.module, player.algo.obs_spec)
        for module in network.module.modules():
            own = sum(p.numel() for p in module.parameters(recurse=False))
            total += passes * own * places.get(module, 1) * (rows // length if module in steps else rows)
    return total


def rows_of(player: Player, length: int = 1) -> int:
    """Rows of one update; `length`: rows of a sequence."""
    if not player.config.store_kind.once:
        return int(player.config.store.batch_size) * length
    return int(player.rows * player.columns // (player.config.algo.minibatches or 1))


def _one_after_another(network: nn.Module) -> set[nn.Module]:
    """Layers of a memory."""
    return {layer for core in network.modules() if isinstance(core, Core | Stepwise) for layer in core.modules()}


def _places(network: nn.Module, obs_spec: Any) -> dict[nn.Module, int]:
    """convolution → pixels of its output, seen by showing one row of zeros to the encoders."""
    pixels: dict[nn.Module, int] = {}
    layers = [module for module in network.modules() if isinstance(module, _CONVOLUTIONS)]
    if not layers:
        return pixels

    def note(module: nn.Module, _: Any, out: torch.Tensor) -> None:
        pixels[module] = math.prod(out.shape[2:])

    device = next(network.parameters()).device
    obs = tree_map(lambda array: torch.as_tensor(array, device=device), zeros(obs_spec, 1))
    modes = [(module, module.training) for module in network.modules()]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    network.eval()  # running statistics must not see the zeros
    try:
        with torch.no_grad(), seeded(0):
            for module in network.modules():
                if isinstance(module, Encoder | OwnEncoder):
                    module(obs)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    return pixels
