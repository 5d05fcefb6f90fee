"""Doctor: where the time of a config goes, and what would make it faster: predicted, then measured.

1  a trial of the config: shares of the time, steps per second
2  candidates (`rookery.doctor.suggestions`), each with a predicted gain
3  of those that promise something, most first, a trial beside one of the config as it is, in turns, so that other
   load on the machine hits both:
   measured gain = median over the turns of (time of a step as it is / time of a step changed)
4  what gains more than 5 % is advised; what changes learning is never advised, only told

Where work is done (`rookery.doctor.placement`) is predicted from the envs of one collector stepped alone
(`rookery.doctor.env_timing`).
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rookery.core.errors import CompileError, ConfigError
from rookery.core.system.cpus import cpu_quota
from rookery.doctor.env_timing import Row, step_alone
from rookery.doctor.machine_notes import remarks
from rookery.doctor.measure import SHARES, Trial, changed, open_trial
from rookery.doctor.placement import ALL as CANDIDATES
from rookery.doctor.suggestions import Candidate, Finding
from rookery.run.build import EnvFactory
from rookery.run.config.config import Config

PROMISING = 1.03  # predicted gain from which a change is measured
WORTH = 1.05  # measured gain from which it is advised
PROMISES = 1.2  # predicted gain that is not given up because a busy machine does not show it
FREE = 0.5  # idle CPUs below which a machine is busy
TURNS = 3  # of each of the two trials that are compared, at most
LONGEST = (
    1.5  # times `seconds`, at least LEAST seconds, after which nothing further is begun: building and long rollouts
)
LEAST = 30.0  # take their time, too
RIVALS = (("env.workers", "pool"), ("learning.learners", "run.threads"), ("learning.learners", "learning.mode"))
COLLECTING = ("env", "act", "transport")
Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """A candidate and what came of it."""

    overrides: list[str]
    predicted: float
    effect: str  # on what is learnt
    note: str
    measured: float | None = None  # None: not measured
    resume: str = ""  # "exact → exact": whether a killed run goes on exactly, before and after
    advised: bool = False
    why_not: str = ""


@dataclass(slots=True)
class Diagnosis:
    """What the doctor found; plain values only."""

    steps_per_second: float
    updates_per_second: float
    threads: int
    threads_reason: str
    mode: Any  # eager | compiled; by player if there are several
    engine: str
    envs: int
    quota: int
    bound: str  # what most of the time goes into, and what then cannot help, in words
    shares: dict[str, float] = field(default_factory=dict)
    microseconds: dict[str, float] = field(default_factory=dict)  # per env step
    outcomes: list[Outcome] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    bottleneck: str = ""  # env | learner | the name of the largest share
    env_row: float = 0.0  # microseconds in which the envs of one collector step once, in this process
    env_computing: float = 1.0  # share of that in which a CPU works; the rest is sleep

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(
    config: Config, seconds: float = 20.0, env: EnvFactory | None = None, say: Say = lambda text: None
) -> Diagnosis:
    """Try a config and what could make it faster; `seconds`: measuring in all, building and compiling come on top."""
    until = time.monotonic() + max(LONGEST * seconds, LEAST)
    with _folder(config) as folder, _quiet():
        say(f"trying the config for {seconds / 4:.3g} s")
        with contextlib.closing(open_trial(config, folder, env)) as trial:
            trial.run(seconds / 4)
            trial.time_seldom(patience=seconds / 4)
            diagnosis, finding = _diagnosed(config, trial, env, seconds)
            candidates = [candidate for make in CANDIDATES if (candidate := make(config, finding)) is not None]
            candidates.sort(
                key=lambda c: ("learning.mode=compiled" in c.overrides, -c.predicted)
            )  # building may take all the time
            count = sum(candidate.predicted >= PROMISING for candidate in candidates)
            share = 0.75 * seconds / max(count + (count > 1), 1)
            for candidate in dict.fromkeys(candidates):
                if candidate.predicted < PROMISING:
                    diagnosis.outcomes.append(_untried(candidate))
                elif time.monotonic() > until:
                    diagnosis.outcomes.append(_untried(candidate, "not measured, for the time was over"))
                else:
                    say(f"trying {' '.join(candidate.overrides)}")
                    diagnosis.outcomes += _tried(trial, candidate, share, folder, env)
            if time.monotonic() < until:
                diagnosis.outcomes += _together(trial, diagnosis.outcomes, share, folder, env)
    diagnosis.outcomes.sort(key=lambda o: (not o.advised, -(o.measured or 0)))
    return diagnosis


def _engine(engine: str, row: Row) -> str:
    """What was asked for, and what `auto` chose."""
    return f"auto: {'native' if row.native else 'gymnasium'}" if engine == "auto" else engine


def _diagnosed(config: Config, trial: Trial, env: EnvFactory | None, seconds: float) -> tuple[Diagnosis, Finding]:
    costs, trainer, quota = trial.costs(), trial.trainer, cpu_quota()
    total = sum(costs.values())
    shares = {name: costs[name] / total for name in SHARES}
    row = step_alone(trainer, env, min(1.0, seconds / 20))
    learner = trainer.players.main.learner.mode, trainer.threads.count, quota, trial.work()
    finding = Finding(shares, *learner, total, trial.updates_per_step(), trainer.rows, row.nanoseconds, row.computing)
    bottleneck, bound = _bound(shares, row.computing)
    diagnosis = Diagnosis(
        steps_per_second=1e9 / total,
        updates_per_second=1e9 / total * trial.updates_per_step(),
        threads=trainer.threads.count,
        threads_reason=trainer.threads.reason,
        mode=trainer.learner.mode,
        engine=_engine(config.env.engine, row),
        envs=config.env.num * config.pool.workers,
        quota=quota,
        bound=bound,
        shares=shares,
        microseconds={name: cost / 1e3 for name, cost in costs.items()},
        remarks=remarks(config, quota, trial.saved),
        bottleneck=bottleneck,
        env_row=row.nanoseconds / 1e3,
        env_computing=row.computing,
    )
    return diagnosis, finding


def _bound(shares: dict[str, float], computing: float) -> tuple[str, str]:
    """(bottleneck, a sentence about it): the most that a change elsewhere could gain is to make the rest vanish."""
    learning, collecting = shares["update"] + shares["store"], sum(shares[name] for name in COLLECTING)
    if shares["env"] >= 0.5:
        how = f"{shares['env']:.0%} of the time goes into stepping the envs, which compute for {computing:.0%} of it"
        gain = f"more threads or learners gain at most {1 / max(1 - learning, 1e-3):.2f} ×"
        return "env", f"env-bound: {how}; {gain}"
    if learning >= 0.5:
        how = f"{learning:.0%} of the time goes into updates and the store"
        gain = f"more actors (pool, env.workers) gain at most {1 / max(1 - collecting, 1e-3):.2f} ×"
        return "learner", f"learner-bound: {how}; {gain}"
    name = max(shares, key=lambda key: shares[key])
    return name, f"bound by nothing alone: the largest share is {name} with {shares[name]:.0%}"


def _tried(old: Trial, candidate: Candidate, seconds: float, folder: Path, env: EnvFactory | None) -> list[Outcome]:
    """The candidate in turns with the config as it is; nothing if it cannot be built."""
    outcome, config, before = _untried(candidate), old.config, len(old.slices)
    known = old.over > seconds  # one of its rollouts takes longer than all turns should: what it took before must do
    with contextlib.ExitStack() as opened:
        try:
            new = opened.enter_context(contextlib.closing(_open(changed(config, candidate.overrides), folder, env)))
        except (ConfigError, CompileError):
            return []
        until = time.monotonic() + 2 * seconds  # long rollouts get fewer turns
        while len(new.slices) < TURNS and (not new.slices or time.monotonic() < until):
            for trial in (new,) if known else (old, new):
                trial.run(seconds / (2 * TURNS))
        new.time_seldom(patience=seconds / 4)
        often = [sum(trial.seldom.values()) for trial in (old, new)]
        base = [statistics.median(old.slices)] * TURNS if known else old.slices[before:]
        pairs = zip(base, new.slices)
        outcome.measured = statistics.median((a + often[0]) / (b + often[1]) for a, b in pairs)
        outcome.resume = " → ".join(_exactness(trial) for trial in (old, new))
        _judge(outcome, candidate, config, old, new)
    return [outcome]


def _open(config: Config, folder: Path, env: EnvFactory | None) -> Trial:
    return open_trial(config, Path(tempfile.mkdtemp(dir=folder)), env)


def _judge(outcome: Outcome, candidate: Candidate, config: Config, old: Trial, new: Trial) -> None:
    gain, steps, outcome.why_not = outcome.measured or 0.0, config.train.max_steps, ""
    saved = old.per_step() * (1 - 1 / max(gain, 1e-3)) * 1e-9 * (steps or 0)  # by turns: neighbours slow down both
    more_setup = new.setup_seconds - old.setup_seconds
    if gain <= WORTH:
        outcome.why_not = f"measured {gain:.2f} ×"
        if candidate.predicted >= PROMISES and _uses_cpus(candidate) and old.idle is not None and old.idle < FREE:
            outcome.why_not = f"for other work leaves {old.idle:.1f} CPUs free now; try it on a quiet machine"
    elif not candidate.learns_the_same:
        outcome.why_not = candidate.effect
    elif steps and more_setup > 1 and more_setup > saved:
        outcome.why_not = (
            f"building takes {more_setup:.0f} s once, more than the run of {steps} steps saves ({saved:.0f} s)"
        )
    outcome.advised = not outcome.why_not


def _uses_cpus(candidate: Candidate) -> bool:
    keys = [text.partition("=")[0] for text in candidate.overrides]
    return any(key == name or key.startswith(f"{name}.") for key in keys for pair in RIVALS[:2] for name in pair)


def _untried(candidate: Candidate, reason: str = "") -> Outcome:
    reason = reason or f"predicted {candidate.predicted:.2f} ×"
    return Outcome(list(candidate.overrides), candidate.predicted, candidate.effect, candidate.note, why_not=reason)


def _together(
    trial: Trial, outcomes: list[Outcome], seconds: float, folder: Path, env: EnvFactory | None
) -> list[Outcome]:
    """Gains do not multiply: if several changes are advised,
    all of them at once (of two that exclude each other, the better).
    """
    chosen: list[Outcome] = []
    for outcome in sorted(outcomes, key=lambda o: -(o.measured or 0)):
        if outcome.advised and not any(_rivals(outcome, other) for other in chosen):
            chosen.append(outcome)
    if len(chosen) < 2:
        return []
    overrides = tuple(text for outcome in chosen for text in outcome.overrides)
    product = 1.0
    for outcome in chosen:
        product *= outcome.measured or 1.0
    effect = max((outcome.effect for outcome in chosen), key=len)  # `same learning, other rounding` is the longer one
    return _tried(trial, Candidate(overrides, product, effect, "all of these"), seconds, folder, env)


def _rivals(one: Outcome, other: Outcome) -> bool:
    """Whether they set the same key, or are two ways to use the same CPUs."""
    keys, others = ({text.partition("=")[0] for text in outcome.overrides} for outcome in (one, other))

    def has(names: set[str], key: str) -> bool:
        return any(name == key or name.startswith(f"{key}.") for name in names)

    both = [pair for a, b in RIVALS for pair in ((a, b), (b, a))]
    return bool(keys & others) or any(has(keys, a) and has(others, b) for a, b in both)


def _exactness(trial: Trial) -> str:
    exact = trial.trainer.exact()
    return "exact" if exact is True else f"approximate ({exact})"


@contextlib.contextmanager
def _folder(config: Config) -> Iterator[Path]:
    """A folder on the disk of run.out, gone afterwards."""
    place = Path(config.run.out).absolute()
    while not place.is_dir():
        place = place.parent
    try:
        made = tempfile.TemporaryDirectory(prefix=".rookery-doctor-", dir=place)
    except OSError:  # not ours to write in
        made = tempfile.TemporaryDirectory(prefix="rookery-doctor-")
    with made as name:
        yield Path(name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What a trial of seconds learns is nobody's concern: its warnings are not shown."""
    log, handler = logging.getLogger("rookery"), logging.NullHandler()
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
