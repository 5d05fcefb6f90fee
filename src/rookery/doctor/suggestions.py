"""Candidates: changes of a config that may make it faster,
each with the gain that its share of the time lets one expect.

    gain = 1 / (1 − share + share / factor)        Amdahl 1967; factor: how much faster that share becomes

One more function in CANDIDATES is one more piece of advice: it looks at a config and at where its time goes, and
returns a Candidate, or None where the change is impossible or is there already. What a change cannot know by
itself (an engine that the env does not have, minibatches that no longer divide) is found out when its trial is
built, and the candidate is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rookery.envs.builders.engines import own_task
from rookery.envs.builders.single import find_spec, target_of
from rookery.learning.compiled.artefact import unavailable
from rookery.run.config.config import Config
from rookery.run.threads import thread_gain

COMPILED = {"small": 3.0, "large": 1.5}  # how much faster compiled updates are, by the work of one
LARGE = 2e7  # multiply-adds from which arithmetic rules over the calls around it
NATIVE = 4.0  # how much faster a vectorised engine steps: a guess, as are the factors of `more_envs`; trials decide
OFTEN = 0.05  # share from which evaluations, checkpoints or reports are too many
WANTED = 0.02  # the share they should have

ROUNDING = "same learning, other rounding"
SAME = "same learning"
OTHER = "changes what is learnt"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a trial has shown."""

    shares: Mapping[str, float]  # of the time, adding up to 1
    mode: str  # eager | compiled
    threads: int
    quota: int
    work: int  # multiply-adds of one update
    step: float = 0.0  # nanoseconds of an env step, everything included
    updates: float = 0.0  # per env step
    rows: int = 1  # of a round: steps of all envs between two hand-overs
    row: float = 0.0  # nanoseconds in which the envs of one collector step once, in the process that asks them to
    computing: float = 1.0  # share of `row` in which a CPU works; the rest is sleep


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change and what to expect of it."""

    overrides: tuple[str, ...]
    predicted: float  # speed relative to the config as it is
    effect: str  # on what is learnt
    note: str = ""  # what else to know before taking it

    @property
    def learns_the_same(self) -> bool:
        return self.effect != OTHER


def amdahl(shares: Mapping[str, float], factors: Mapping[str, float]) -> float:
    """Speed if each named share becomes so many times faster."""
    return 1 / (1 - sum(shares[name] * (1 - 1 / factor) for name, factor in factors.items()))


def compiled(config: Config, finding: Finding) -> Candidate | None:
    possible = finding.mode == "eager" and config.algorithm.not_compiled(config) is None and unavailable() is None
    if not possible or config.run.device != "cpu":
        return None
    factor = COMPILED["small" if finding.work < LARGE else "large"]
    return Candidate(("learning.mode=compiled",), amdahl(finding.shares, {"update": factor}), ROUNDING)


def eager(config: Config, finding: Finding) -> Candidate | None:
    if finding.mode != "compiled":
        return None
    factor = COMPILED["small" if finding.work < LARGE else "large"]
    return Candidate(("learning.mode=eager",), amdahl(finding.shares, {"update": 1 / factor}), ROUNDING)


def _threads(finding: Finding, count: int) -> Candidate | None:
    if count == finding.threads or count > finding.quota:
        return None
    factor = thread_gain(finding.work, count) / thread_gain(finding.work, finding.threads)
    return Candidate((f"run.threads={count}",), amdahl(finding.shares, {"update": factor}), ROUNDING)


def one_thread(config: Config, finding: Finding) -> Candidate | None:
    return _threads(finding, 1)


def two_threads(config: Config, finding: Finding) -> Candidate | None:
    return _threads(finding, 2)


def all_threads(config: Config, finding: Finding) -> Candidate | None:
    return _threads(finding, finding.quota) if finding.quota > 2 else None


def native_engine(config: Config, finding: Finding) -> Candidate | None:
    if config.env.id is None or config.env.agents != 1 or config.env.engine not in ("auto", "gymnasium"):
        return None
    own = own_task(config.env) is not None
    if own and config.env.engine == "auto":  # it is there already, unless the config asks for what it lacks
        return None
    target = target_of(config.env.id)
    if not own and not (isinstance(target, str) and find_spec(target).vector_entry_point is not None):
        return None
    note = "the same numbers" if own else "other random numbers in the envs"
    return Candidate(("env.engine=native",), amdahl(finding.shares, {"env": NATIVE}), SAME, note)


def more_envs(config: Config, finding: Finding) -> Candidate | None:
    """Actions for several envs at once cost little more than for one."""
    times = 2 if config.env.num > 1 else 4
    factors = {"act": 0.8 * times, "transport": 0.8 * times}
    if config.store_kind.once:
        factors["update"] = 1.3  # as many minibatches, each `times` as large
        note = "rollouts and minibatches grow with it"
    else:
        note = "as many updates per env step, later ones"
    return Candidate((f"env.num={times * config.env.num}",), amdahl(finding.shares, factors), OTHER, note)


def _rarer(finding: Finding, share: str, key: str, every: int, note: str) -> Candidate | None:
    if not every or finding.shares[share] <= OFTEN:
        return None
    times = math.ceil(finding.shares[share] / WANTED)
    return Candidate((f"{key}={times * every}",), amdahl(finding.shares, {share: times}), SAME, note)


def fewer_evaluations(config: Config, finding: Finding) -> Candidate | None:
    note = "`best` is chosen among fewer; a goal in train.stop is noticed later"
    return _rarer(finding, "eval", "eval.every_steps", config.eval.every_steps, note)


def fewer_checkpoints(config: Config, finding: Finding) -> Candidate | None:
    note = "a killed run goes further back"
    return _rarer(finding, "checkpoint", "checkpoint.every_steps", config.checkpoint.every_steps, note)


def fewer_reports(config: Config, finding: Finding) -> Candidate | None:
    return _rarer(finding, "log", "log.every_steps", config.log.every_steps, "curves have fewer points")


Maker = Callable[[Config, Finding], Candidate | None]
CANDIDATES: tuple[Maker, ...] = (
    native_engine,
    compiled,
    eager,
    one_thread,
    two_threads,
    all_threads,
    fewer_evaluations,
    fewer_checkpoints,
    fewer_reports,
    more_envs,
)
