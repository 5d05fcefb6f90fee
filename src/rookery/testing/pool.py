"""What the trainer relies on in a pool: chunks come back in the order of the workers, limits are met, states go on to
the bit, nobody stays.

    from rookery.testing.pool import PoolContract

    @pytest.mark.slow
    class TestMyPool(PoolContract):
        words = ("pool=process", "pool.workers=2")

Whatever the pool, it collects what `pool=local` does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rookery.acting.actor import Message
from rookery.core.chunk import MAIN, Collected
from rookery.run.config.resolve import load_config
from rookery.run.trainer import Trainer
from rookery.testing.comparing import assert_same, through_checkpoint

WORDS = (
    "env.num=2",
    "model.hidden=[8]",
    "learning.mode=eager",
    "log.sinks=[]",
    "algo.epsilon=0.5",
    "train.max_steps=5000",
)
KNOBS = {"epsilon": 0.5, "lr": 1e-3}
GONE_WITHIN = 10.0  # seconds for processes to vanish after close()
Gathered = list[tuple[int, Collected]]


def process_of(collector: Any) -> int:
    """The process in which a collector lives; asked through `foreach_worker`."""
    return os.getpid()


class PoolContract:
    """Inherit it and say in `words` which pool it is."""

    words: tuple[str, ...] = ("pool=local", "pool.workers=2")
    workers = 2
    exact = True  # false: what it collects depends on the clock

    def trainer(self, *words: str) -> Trainer:
        """A run of DQN on CartPole with this pool."""
        last = {word.partition("=")[0]: word for word in (*WORDS, *(words or self.words))}
        return Trainer(load_config(algo="dqn", env="CartPole-v1", overrides=list(last.values())))

    # --- what must hold ---

    def test_chunks_come_back_in_the_order_of_the_workers_with_the_rows_asked_for(self) -> None:
        with pool_of(self) as pool:
            for rows in (1, 5, 3):
                gathered = collect(pool, rows)
                assert [number for number, _ in gathered] == list(range(self.workers)), (
                    "not in the order of the workers"
                )
                for number, chunks in gathered:
                    assert list(chunks) == [MAIN]
                    valid = chunks[MAIN].rows["valid"]
                    assert valid.shape == (rows, 2), (
                        f"worker {number} was asked for {rows} rows of 2 envs: {valid.shape}"
                    )
                    assert chunks[MAIN].version == 3, "a chunk says which weights collected it"
            assert pool.gather(False) == [], "what was gathered comes again"

    def test_it_collects_what_one_process_does(self) -> None:
        if not self.exact:
            return
        with pool_of(self) as pool, pool_of(self, "pool=local", f"pool.workers={self.workers}") as local:
            for rows in (4, 9, 1):
                assert_same(
                    rows_of(collect(local, rows)), rows_of(collect(pool, rows)), "rows of pool=local and of this pool"
                )
            assert pool.exactness == local.exactness

    def test_limits_of_steps_and_episodes_are_met_exactly(self) -> None:
        with pool_of(self) as pool:
            assert sum(chunks.steps for _, chunks in collect(pool, 8, steps=13)) == 13
            ended = 0
            for _ in range(40):
                ended = sum(len(chunks.episodes) for _, chunks in collect(pool, 8, episodes=1))
                assert ended <= 1, f"episodes=1, but {ended} ended"
                if ended:
                    break
            assert ended == 1, "no episode ended in 40 rounds"

    def test_the_time_in_envs_and_in_acting_only_grows(self) -> None:
        with pool_of(self) as pool:
            before = (0, 0)
            for _ in range(3):
                collect(pool, 20)
                now = pool.times()
                assert all(b > a for a, b in zip(before, now)), (
                    f"nanoseconds in envs and acting went from {before} to {now}"
                )
                before = now

    def test_every_env_and_every_worker_is_asked_in_order(self) -> None:
        with pool_of(self) as pool:
            collect(pool, 1)
            assert pool.foreach_env("gravity") == [9.8] * (2 * self.workers)
            assert len(pool.foreach_worker(process_of)) == self.workers
            more = 10
            assert pool.foreach_worker(lambda c: c.index + more) == [more + w for w in range(self.workers)], (
                "a lambda is called in every worker, in order"
            )
        with pool_of(self, *self.words, "env.engine=gymnasium") as pool:
            collect(pool, 1)
            assert pool.foreach_env(lambda env, to: env.unwrapped.gravity * to, 2) == [19.6] * (2 * self.workers)
            assert "foreach_env" in pool.exactness, "nobody knows what it did to the envs"

    def test_a_restored_pool_goes_on_to_the_bit(self) -> None:
        if not self.exact:
            return
        with self.trainer() as first, self.trainer() as second:
            collect(first.pool, 30)
            second.restore(through_checkpoint(first.state()))
            for rows in (7, 20):
                a, b = (rows_of(collect(trainer.pool, rows)) for trainer in (first, second))
                assert_same(a, b, "a pool and the one that was restored from its state")

    def test_closing_leaves_no_process_and_may_be_done_twice(self) -> None:
        with pool_of(self) as pool:
            collect(pool, 1)
            there = set(pool.foreach_worker(process_of)) - {os.getpid()}
            pool.close()
            pool.close()
        end = time.monotonic() + GONE_WITHIN
        while (left := {pid for pid in there if alive(pid)}) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, f"processes {sorted(left)} are still there {GONE_WITHIN:g} s after close()"


@contextmanager
def pool_of(suite: PoolContract, *words: str) -> Iterator[Any]:
    """The pool of a new run; closed afterwards."""
    with suite.trainer(*words) as trainer:
        yield trainer.pool


def collect(pool: Any, rows: int, **limits: int) -> Gathered:
    """One round."""
    pool.submit({MAIN: Message(3, KNOBS)}, rows, **limits)
    return pool.gather()


def rows_of(gathered: Gathered) -> list[Any]:
    """All that was collected, as copies."""
    return [
        (number, {name: array.copy() for name, array in chunks[MAIN].rows.items()}, chunks[MAIN].final_at.copy())
        for number, chunks in gathered
    ]


def alive(pid: int) -> bool:
    """Whether a process runs here; one that has ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is there, but this system has no /proc
