"""One worker process as its parent sees it: starting, asking, waiting with a deadline, ending."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import get_temp_dir
from threading import current_thread, main_thread
from typing import Any

from rookery.core.cpus import BOUND
from rookery.core.errors import ConfigError, EnvError, UsageError
from rookery.envs import preloaded
from rookery.envs.faults import FaultConfig, Patience
from rookery.envs.worker import END, FAILED, HUNG, Failure, pack, serve, unpack

GUARD = (
    'a script that starts worker processes is imported by them: what it does must stand under `if __name__ == "__main__":`, '
    "or set env.workers.start=fork"
)


class Lost(Exception):
    """A worker is dead or does not answer; the text says which."""


class Process:
    """A worker process and the pipe to it."""

    def __init__(
        self,
        number: int,
        rows: tuple[int, int],
        start: str,
        faults: FaultConfig,
        made_of: tuple[Any, ...],
        serve: Callable[..., None] = serve,
        title: str = "env worker",
    ):
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise UsageError(GUARD)
        self.number, self.rows, self._faults, self._made_of = number, rows, faults, made_of
        self._serve, self._title = serve, title
        self._context: Any = multiprocessing.get_context(start)
        if start == "forkserver":
            self._context.set_forkserver_preload(
                [preloaded.__name__, *([] if title == "env worker" else [serve.__module__])]
            )
        self.patience, self.steps = Patience(faults), 0  # since the last failure
        self.answered = False  # since it was started
        self.due = 0.0  # when it must have answered, by the monotonic clock
        self.start()

    @property
    def size(self) -> int:
        """Envs of this worker."""
        return self.rows[1] - self.rows[0]

    def start(self) -> None:
        self.pipe, theirs = self._context.Pipe()
        self.answered = False
        # the kernel can end a child with the thread that made it, which is the process only if it is the main thread
        ours = self._context.get_start_method() != "forkserver" and current_thread() is main_thread()
        parent = os.getpid() if ours else 0
        args = (theirs, *self._made_of, self.rows, parent, self._faults)
        self.process = self._context.Process(
            target=self._serve,
            args=args,
            daemon=self._title == "env worker",
            name=f"rookery {self._title} {self.number}",
        )
        try:
            with _environment(self._context.get_start_method() == "forkserver"):
                self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"the envs cannot be sent to a worker process ({error}). Name them by env.id=package.module:Class, "
                "use a factory that is defined at the top of a module, or set env.workers.start=fork"
            ) from error
        finally:
            theirs.close()

    def ask(self, name: str, *args: Any) -> None:
        self.send(pack((name, args)))

    def send(self, request: bytes) -> None:
        try:
            self.pipe.send_bytes(request)
        except (OSError, ValueError):
            raise Lost(self.epitaph()) from None

    def answer(self, seconds: float) -> bytes:
        """What the worker says within so many seconds; its own errors are raised here, with its traceback."""
        try:
            if not self.pipe.poll(seconds):
                raise Lost(f"did not answer within {seconds:g} s")
            answer: bytes = self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise Lost(self.epitaph()) from None
        if answer[:1] == HUNG:
            raise Lost("was ended: " + "\n".join(unpack(answer)))
        if answer[:1] == FAILED:
            failure: Failure = unpack(answer)
            told = failure.text if failure.known else f"{self._title} {self.number} failed: {failure.text}"
            raise EnvError(f"{told}\nTraceback of the worker process:\n{failure.traceback}")
        self.answered = True
        return answer

    def epitaph(self) -> str:
        """How it ended."""
        self.process.join(1)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code >= 0:
            if not self.answered:  # no accident: it would happen again
                raise EnvError(
                    f"worker process {self.number} ended with exit code {code} before it was ready. Perhaps {GUARD}"
                )
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = " (often: out of memory)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"

    def part(self) -> None:
        """Ask it to end. Closing the pipe does not suffice: workers that were forked later hold its other end, too."""
        with suppress(OSError, ValueError):
            self.pipe.send_bytes(END)
        self.pipe.close()

    def end(self, seconds: float = 0.0) -> None:
        """Gone for certain when this returns: killed, unless it goes by itself in time."""
        self.pipe.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()


@contextmanager
def _environment(served: bool) -> Iterator[None]:
    """Workers share the CPUs: their libraries start one thread each, unless the user has said otherwise."""
    more = dict.fromkeys(BOUND, "1") | ({preloaded.FOLDER: get_temp_dir()} if served else {})
    missing = {name: value for name, value in more.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
