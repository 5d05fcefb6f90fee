"""Is what was measured for a preset measured again?

Seeds are trained anew and compared with what `results.json` stores.

    holds  ⇔  IQM ≥ gate   and, where a band is stored,   high ≥ stored low: no worse than was measured
    score  =  1 + (figure − gate) / |gate|               1 at the gate, linear in the figure: comparable between presets

IQM and interval: `rookery.studies.statistics`. Bands are compared with two decimals, as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.core import registry
from rookery.core.errors import UsageError
from rookery.core.system.cpus import cpu_quota
from rookery.run.config.resolve import load_config
from rookery.studies.gates import EPISODES, GATES, TEST_SEED, Gate
from rookery.studies.seeds import Crew, Judged, Plan
from rookery.studies.statistics import interval, iqm, stratified_interval
from rookery.zoo import Result, results

Band = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the seeds of one preset came to, beside what was expected."""

    preset: str
    gate: Gate
    runs: list[Judged]
    status: str = "draft"  # of the stored result
    stored: Band | None = None  # None: nothing was measured before

    @property
    def values(self) -> list[float]:
        return [run.value for run in self.runs]

    @property
    def iqm(self) -> float:
        return float(iqm(self.values))

    @property
    def interval(self) -> Band:
        return interval(self.values)

    @property
    def met(self) -> bool:
        """Whether the gate is."""
        figure = round(self.iqm, 6)  # a mean of values that are all 0.9 may be a bit less
        return figure >= self.gate.wanted and (self.gate.most is None or figure <= self.gate.most)

    @property
    def overlap(self) -> bool | None:
        """None if there is no stored band."""
        if self.stored is None:
            return None
        low, high = (round(edge, 2) for edge in self.interval)
        return low <= self.stored[1] and self.stored[0] <= high

    @property
    def holds(self) -> bool:
        """Better than what is stored is no failure."""
        return self.met and not (self.stored is not None and round(self.interval[1], 2) < self.stored[0])

    @property
    def scores(self) -> list[float]:
        return [1.0 + (value - self.gate.wanted) / abs(self.gate.wanted) for value in self.values]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        seeds = [{"seed": run.seed, self.gate.figure: run.value, "steps": run.steps} for run in self.runs]
        record: dict[str, Any] = {
            "figure": self.gate.figure,
            "iqm": self.iqm,
            "interval": list(self.interval),
            "gate": self.gate.wanted,
        }
        record |= {"status": self.status, "stored": None if self.stored is None else list(self.stored)}
        return record | {"met": self.met, "overlap": self.overlap, "holds": self.holds, "seeds": seeds}


def gate_of(preset: str) -> Gate:
    """A preset that is unknown or has no gate is refused in one sentence."""
    registry.entry("preset", preset)
    if preset not in GATES:
        status = results().get(preset, Result()).status
        raise UsageError(
            f"{preset} has no gate, so there is nothing to verify: its status is {status!r}. "
            f"`rookery train {preset}` trains it; presets with a gate: {', '.join(GATES)}."
        )
    return GATES[preset]


def jobs_for(preset: str, overrides: Sequence[str], quota: int | None = None) -> int:
    """Runs at a time: as many as the CPU quota has room for;
    a run with workers needs a CPU for each besides its own.
    """
    pool = load_config(preset, overrides=overrides).pool
    each = 1 if pool.kind == "local" else 1 + pool.workers
    return max(1, (quota or cpu_quota()) // each)


@dataclass(frozen=True, slots=True)
class Options:
    """How to go about it; nothing here changes a result but `episodes`."""

    tell: Callable[[str], None]  # one line per seed
    jobs: int | None = None  # runs at a time; None: `jobs_for`
    episodes: int = EPISODES


def verify(preset: str, overrides: Sequence[str], seeds: Sequence[int], out: Path, options: Options) -> Verdict:
    """Train and judge the seeds, and compare."""
    gate, stored = gate_of(preset), results().get(preset, Result())
    plan = Plan(preset, tuple(overrides), out, gate.figure, options.episodes, TEST_SEED)
    with Crew(options.jobs or jobs_for(preset, overrides)) as crew:
        runs = crew.run(plan, seeds, lambda run: options.tell(line_of(preset, gate, run)))
    band = (stored.measured or {}).get("interval")
    return Verdict(preset, gate, runs, stored.status, None if band is None else (band[0], band[1]))


def line_of(preset: str, gate: Gate, run: Judged) -> str:
    success = f"success {run.value:.2f}, " if gate.figure == "success" else ""
    mean, deviation = run.returns
    outcome = f"{success}return {mean:.2f} ± {deviation:.2f}"
    return f"{preset} seed {run.seed}: {outcome}  ({run.steps} steps, {run.mode}, {run.seconds:.0f} s)"


def summary_of(verdict: Verdict) -> list[str]:
    """The figure, then one sentence that says what was compared and how it came out."""
    low, high = verdict.interval
    count, gate = len(verdict.runs), verdict.gate
    seeds = f"{count} seed{'s' * (count != 1)}"
    lines = [f"{verdict.preset}: IQM of the {gate.figure} {verdict.iqm:.2f} [{low:.2f}, {high:.2f}] over {seeds}"]
    bounds = f"{gate.wanted:g}" if gate.most is None else f"{gate.wanted:g} to {gate.most:g}"
    reached = f"the IQM {'reaches' if verdict.met else 'MISSES'} the gate {bounds}"
    if verdict.stored is None:
        why = f"nothing is stored for this preset ({verdict.status}), so the gate alone counts: {reached}"
    else:
        band = f"the stored one [{verdict.stored[0]:g}, {verdict.stored[1]:g}]"
        place = "overlaps with" if verdict.overlap else "lies BELOW" if high < verdict.stored[0] else "lies ABOVE"
        why = f"the new 95 % interval {place} {band}, and {reached}"
    lines.append(f"{verdict.preset}: {'holds' if verdict.holds else 'DOES NOT HOLD'}: {why}")
    return lines


def together(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One figure over several presets:
    the IQM of their scores, with an interval that redraws seeds within each preset.
    """
    scores = [verdict.scores for verdict in verdicts]
    everything = [score for preset in scores for score in preset]
    return {"score_iqm": iqm(everything), "interval": list(stratified_interval(scores)), "runs": len(everything)}
