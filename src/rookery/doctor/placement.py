"""Candidates that change where work is done: envs in processes, collectors in processes, several learners.

    envs of a collector in p processes   sleep · ⌈n/p⌉/n + computing · max(⌈n/p⌉/n, 1/quota) + hand-over(p)      n: envs
    collectors in N processes            sleep / N + computing / min(N, quota) + hand-over(N) / rows of a round
    asynchronously                       the longer of collecting and learning, not their sum
    two learners                         half of an update + exchange

Sleep is shared by as many processes as there are envs, computing by as many as there are CPUs: p = quota / share
of computing. The hand-overs are what bench/workers.py, bench/learners.py and rounds of CartPole showed on a
machine with 2 cores; trials decide.
"""

from __future__ import annotations

import math

from rookery.doctor.suggestions import (
    CANDIDATES,
    COMPILED,
    LARGE,
    OTHER,
    ROUNDING,
    SAME,
    Candidate,
    Finding,
    Maker,
    amdahl,
)
from rookery.run.config.config import Config
from rookery.run.threads import thread_gain

MOST = 64  # processes of envs; each takes memory for an interpreter
FEW = 8  # envs in place of one, at most
WORKERS = 2  # pool workers per CPU, at most: each has networks, and torch
EXCHANGE = 1.5e6  # nanoseconds of an update that several learners wait for one another


def duration(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.3g} µs" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:.3g} ms"


def handing_row(processes: int) -> float:
    """Nanoseconds until so many env workers have their actions and the row is complete, apart from stepping."""
    return 5e4 + 5.5e4 * processes


def handing_round(workers: int) -> float:
    """Nanoseconds to publish weights, give orders and take chunks."""
    return 3e5 + 3e5 * workers


def useful(most: int, finding: Finding, collectors: int = 1) -> int:
    """Processes that help: as many as CPUs are kept busy by, since a process that sleeps needs none."""
    each = max(1, finding.quota // collectors) / max(finding.computing, 1e-3)
    return max(1, min(most, MOST, int(each)))


def row_in(processes: int, num: int, finding: Finding, collectors: int = 1) -> float:
    """Nanoseconds of a row of `num` envs in so many processes."""
    largest = math.ceil(num / processes) / num  # share of the envs in the largest group
    cpus = max(1, finding.quota // collectors)
    sleep, computing = (1 - finding.computing) * largest, finding.computing * max(largest, 1 / cpus)
    return finding.row * (sleep + computing) + handing_row(processes)


def _at_once(config: Config) -> int:
    """Collectors that step at the same time."""
    return config.pool.workers if config.pool.kind != "local" else 1


def _described(config: Config, finding: Finding) -> str:
    count = f"all {config.env.num} envs" if config.env.num > 1 else "the env"
    return f"a step of {count} takes {duration(finding.row)}, {finding.computing:.0%} of it computing"


def _envs_faster(config: Config, finding: Finding, row: float, most: float = math.inf) -> float:
    """Gain if a row of every collector takes so long, `most` times shorter at most;
    evaluations step their envs in the same way.
    """
    now = finding.shares["env"] * finding.step * config.env.num * _at_once(config)
    times = min(max(now, 1.0) / max(row, 1.0), most)
    return amdahl(finding.shares, {"env": times, "eval": min(max(times, 1.0), float(config.eval.num))})


def env_workers(config: Config, finding: Finding) -> Candidate | None:
    """As many processes as help, if that is not what the config has."""
    env, at_once = config.env, _at_once(config)
    if env.agents != 1 or env.engine in ("native", "envpool") or env.workers.mode == "async":
        return None
    processes = useful(env.num, finding, at_once)
    inline = env.workers.mode == "inline"
    there = 1 if inline else min(env.shared_by(at_once).workers.processes or 1, env.num)
    if env.num == 1 or (not inline and processes in (there, 1)):
        return None
    processes = max(processes, 2)
    row = row_in(processes, env.num, finding, at_once)
    predicted = _envs_faster(config, finding, row, most=processes / there)
    note = (
        f"{_described(config, finding)}, handing it to {processes} processes about {duration(handing_row(processes))}"
    )
    change = ("env.workers=subprocess",) if inline else ()
    return Candidate((*change, f"env.workers.processes={processes}"), predicted, SAME, note)


def several_envs(config: Config, finding: Finding) -> Candidate | None:
    """One env cannot be shared by processes; several can, but they change learning."""
    env = config.env
    count = useful(FEW, finding, _at_once(config))
    if (
        env.num > 1
        or env.agents != 1
        or env.engine in ("native", "envpool")
        or env.workers.mode != "inline"
        or count < 2
    ):
        return None
    row = finding.row + handing_row(count)  # each in its own process, and useful() leaves no CPU too few
    now = finding.shares["env"] * finding.step * _at_once(config)
    predicted = amdahl(finding.shares, {"env": min(count * max(now, 1.0) / max(row, 1.0), float(count))})
    changes = (f"env.num={count}", "env.workers=subprocess", f"env.workers.processes={count}")
    return Candidate(changes, predicted, OTHER, f"{_described(config, finding)}; only several envs can be shared out")


def inline_envs(config: Config, finding: Finding) -> Candidate | None:
    if config.env.workers.mode == "inline":
        return None
    effect = SAME if config.env.workers.mode == "subprocess" else OTHER  # async learns from steps as they come
    note = f"{_described(config, finding)} where nothing is handed over"
    return Candidate(("env.workers=inline",), _envs_faster(config, finding, finding.row), effect, note)


def _split(config: Config, finding: Finding) -> tuple[int, tuple[str, ...]] | None:
    """(workers, changes) of a process pool with the same envs in all."""
    num, workers = config.env.num, config.pool.workers
    if workers > 1:
        return workers, ("pool=process",)
    most = min(useful(num, finding), WORKERS * finding.quota)
    divisors = [n for n in range(2, most + 1) if num % n == 0]
    if not divisors:
        return (2, ("pool=process", "pool.workers=2", f"env.num={num // 2}")) if num % 2 == 0 else None
    return divisors[-1], ("pool=process", f"pool.workers={divisors[-1]}", f"env.num={num // divisors[-1]}")


def _collecting(config: Config, finding: Finding, workers: int) -> float:
    """Nanoseconds per env step in which so many processes collect what one does now."""
    env, act = (finding.shares[name] * finding.step for name in ("env", "act"))
    cpus = min(workers, finding.quota)
    env *= (1 - finding.computing) / workers + finding.computing / cpus
    # the same envs in smaller groups: each chooses as often as before; one collector after the other: they share it
    act *= 1 / cpus if config.pool.workers > 1 else max(1.0, workers / finding.quota)
    return env + act + handing_round(workers) / (finding.rows * config.env.num * config.pool.workers)


def process_pool(config: Config, finding: Finding) -> Candidate | None:
    """The same envs, shared out among collectors in processes."""
    split = _split(config, finding) if config.pool.kind == "local" else None
    if split is None or not finding.step:
        return None
    workers, changes = split
    rest = finding.step * (1 - finding.shares["env"] - finding.shares["act"])
    exactness = "other random numbers in envs and actions" if len(changes) > 1 else "bit for bit the same"
    per_round = f"a round hands over once, about {duration(handing_round(workers))}"
    predicted = finding.step / (rest + _collecting(config, finding, workers))
    return Candidate(changes, predicted, SAME, f"{exactness}; {per_round}")


def local_pool(config: Config, finding: Finding) -> Candidate | None:
    if config.pool.kind != "process" or not finding.step:
        return None
    shares, workers = finding.shares, config.pool.workers
    changes: tuple[str, ...] = ("pool=local",)
    row = (
        finding.row if config.env.workers.mode == "inline" else shares["env"] * finding.step * config.env.num * workers
    )
    act = shares["act"] * finding.step * workers  # of one worker on average; here they act one after the other
    rest = finding.step * (1 - shares["env"] - shares["act"] - shares["transport"])
    effect, note = SAME, "bit for bit the same"
    if config.pool.mode == "async":
        changes, effect, note = (*changes, "pool.mode=sync"), OTHER, "exact, and data of the newest weights only"
    return Candidate(changes, finding.step / (rest + act + row / config.env.num), effect, note)


def asynchronous(config: Config, finding: Finding) -> Candidate | None:
    """Where the algorithm allows it;
    `pool.ahead=1` keeps the ratio of updates and steps, so that speeds can be compared.
    """
    allowed = all(not p.store_kind.once or p.algorithm.corrects_lag for p in config.views.values())
    if not allowed or config.pool.mode == "async" or config.train.max_episodes is not None or not finding.step:
        return None
    if finding.quota == 1 and finding.computing > 0.5:
        return None
    shares = finding.shares
    if config.pool.kind == "local":
        split = _split(config, finding)
        if split is None:
            return None
        workers, changes = split
        collecting = _collecting(config, finding, workers)
        rest = finding.step * (1 - shares["env"] - shares["act"])
    else:
        changes = ()
        collecting = finding.step * (shares["env"] + shares["act"] + shares["transport"])
        rest = finding.step - collecting
    note = "older weights choose some of the actions, and a run cannot be repeated"
    predicted = finding.step / max(collecting, rest)
    return Candidate((*changes, "pool.mode=async", "pool.ahead=1"), predicted, OTHER, note)


def two_learners(config: Config, finding: Finding) -> Candidate | None:
    learning = config.learning
    if finding.quota < 2 or learning.learners > 1 or learning.mode == "compiled" or config.run.device != "cpu":
        return None
    if not finding.updates:
        return None
    update = finding.shares["update"] * finding.step / finding.updates
    factor = COMPILED["small" if finding.work < LARGE else "large"] if finding.mode == "compiled" else 1.0
    threads = max(1, min(finding.threads, finding.quota // 2))
    faster = 2 * thread_gain(finding.work // 2, threads) / thread_gain(finding.work, finding.threads)
    times = update / (update * factor / faster + EXCHANGE)
    note = f"an update takes {duration(update)}, the exchange about {duration(EXCHANGE)}"
    return Candidate(("learning.learners=2",), amdahl(finding.shares, {"update": times}), ROUNDING, note)


PLACES: tuple[Maker, ...] = (
    env_workers,
    several_envs,
    inline_envs,
    process_pool,
    local_pool,
    asynchronous,
    two_learners,
)
ALL: tuple[Maker, ...] = (*CANDIDATES, *PLACES)
