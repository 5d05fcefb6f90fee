"""Presets that exist in tests only, with figures and curves that nobody measured.

What a test says of statuses, figures, gates and curves it says of these: so measuring, retuning or adding a real preset
changes no test. The fixture `fake_zoo` (tests/conftest.py) registers them for one test.
"""

from rookery.core import registry
from rookery.studies.gates import GATES, Gate
from rookery.zoo import Result

POLE = {"algo": {"name": "ppo", "rollout": 32}, "env": {"id": "CartPole-v1", "num": 4}, "train": {"max_steps": 20_000}}
PRESETS = {  # name → what it would train
    "pole-fake": POLE,
    "pole-elsewhere-fake": POLE | {"pool": {"kind": "process", "workers": 2}},
    "swing-fake": {"algo": {"name": "sac"}, "env": {"id": "Pendulum-v1"}, "train": {"max_steps": 10_000}},
    "goal-fake": {"algo": {"name": "ppo"}, "env": {"id": "CartPole-v1"}, "train": {"max_steps": 10_000}},
    "draft-fake": {"algo": {"name": "dqn"}, "env": {"id": "CartPole-v1"}, "train": {"max_steps": 10_000}},
}
FAKE_GATES = {"pole-fake": Gate(5, 475.0), "swing-fake": Gate(3, -200.0), "goal-fake": Gate(5, 0.9, "success")}
MEANS = {  # figure of each seed
    "pole-fake": [500.0, 490.0, 500.0, 480.0, 500.0],
    "swing-fake": [-150.0, -170.0, -160.0],
    "goal-fake": [1.0, 0.95, 1.0, 0.9, 1.0],
}
INTERVALS = {"pole-fake": [482.5, 500.0], "swing-fake": [-170.0, -150.0], "goal-fake": [0.91, 1.0]}


def results():
    """Stands for `rookery.zoo.results`."""
    found = {name: Result() for name in PRESETS}
    for name, means in MEANS.items():
        gate = FAKE_GATES[name]
        figures = {"interval": INTERVALS[name], "steps": PRESETS[name]["train"]["max_steps"], "seeds": len(means)}
        middle = sorted(means)[len(means) // 2]
        found[name] = Result(
            "gold" if len(means) >= 5 else "silver",
            {f"{gate.figure}_iqm": middle, **figures, "gate": gate.wanted, "mode": "eager"},
        )
    return found


def curves_of(preset):
    """Stands for `rookery.zoo.curves_of`: each seed rises to its figure in four evaluations."""
    if preset not in MEANS:
        return None
    gate, steps = FAKE_GATES[preset], PRESETS[preset]["train"]["max_steps"]
    runs = [
        {
            "seed": seed,
            "mean": mean,
            "steps": steps,
            "mode": "eager",
            "curve": [[steps * quarter // 4, mean * quarter / 4] for quarter in range(1, 5)],
        }
        for seed, mean in enumerate(MEANS[preset])
    ]
    stored = {"preset": preset, "gate": gate.wanted, "met": True, "runs": runs}
    return stored if gate.figure == "return" else stored | {"figure": gate.figure}


def install(monkeypatch):
    """Register the presets and let everybody who reads the zoo's figures read these."""
    for name, tree in PRESETS.items():
        monkeypatch.setitem(registry._TABLE["preset"], name, registry.Entry("preset", name, tree, "invented for tests"))
    for name, gate in FAKE_GATES.items():
        monkeypatch.setitem(GATES, name, gate)
    for reader in ("rookery.zoo.results", "rookery.studies.verify.results"):
        monkeypatch.setattr(reader, results)
    monkeypatch.setattr("rookery.zoo.curves_of", curves_of)
