"""Small algorithms that exercise every word of an update, without envs and stores."""

from __future__ import annotations

import torch
from torch import nn

from rookery.core.rng import Streams
from rookery.core.schedule import Schedule
from rookery.learning.learner import Learner
from rookery.learning.optim import SGD, Adam, RMSprop


def linear(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


class Toy:
    """Regression with noise, a target and a second network: every word once."""

    targets = {"q_target": "q"}
    schedule = {"update": 1, "move": 3}

    def __init__(self, scale=1.0):
        self.scale = scale

    def networks(self):
        return {"q": linear(4, 2), "p": linear(4, 3)}

    def optimisers(self):
        return {"q": Adam(clip_norm=1.0), "p": RMSprop(clip_value=0.1)}

    def chosen(self, own):
        return own

    def knobs(self):
        return {"lr": Schedule(start=1e-2), "mix": Schedule(start=0.5)}

    def prepare(self, s, b):
        return dict(b)

    def update(self, s, b):
        noise = s.normal(*b.y.shape)
        y = b.y + s.knob.mix * s.q_target(b.x) + 0.1 * noise + s.uniform(len(b.y), 1)

        def loss(q):
            error = y - q(b.x)
            return self.scale * error.pow(2).mean(), error

        error = s.minimise("q", loss)
        s.minimise("p", lambda p: (p(b.x).mean(-1, keepdim=True) - s.q(b.x)).pow(2).mean())
        return {"error": error.abs().mean(-1), "y_mean": y.mean()}

    def move(self, s, b):
        s.follow("q_target", "q", 0.5)


class Plain:
    """One linear layer and gradient descent: numbers that can be worked out by hand."""

    targets: dict[str, str] = {}
    schedule = {"update": 1}

    def networks(self):
        net = nn.Linear(1, 1)
        nn.init.constant_(net.weight, 2.0)
        nn.init.constant_(net.bias, 0.0)
        return {"q": net}

    def optimisers(self):
        return {"q": SGD()}

    def chosen(self, own):
        return own

    def knobs(self):
        return {"lr": Schedule(start=0.1)}

    def update(self, s, b):
        s.minimise("q", lambda q: (0.5 * (q(b.x) - b.y).pow(2)).mean())


def toy_batch(seed=0, rows=32):
    g = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(rows, 4, generator=g), "y": torch.randn(rows, 2, generator=g)}


def learner(algo, mode="eager", cache=None, seed=0):
    made = Learner(algo, Streams(seed), mode=mode, cache=cache)
    made.set_knobs({name: schedule.at(0) for name, schedule in algo.knobs().items()})
    return made


def distance(a, b):
    """Relative L2 distance."""
    return ((a - b).norm() / b.norm().clamp(min=1e-12)).item()
