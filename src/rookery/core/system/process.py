"""A child process as its parent sees it: starting, asking, waiting with a deadline, ending."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from threading import current_thread, main_thread
from typing import Any

from rookery.core.errors import CheckpointError, ConfigError, EnvError, UsageError
from rookery.core.system import forkserver, portable
from rookery.core.system.child import END, FAILED, HUNG, Failure, pack, unpack
from rookery.core.system.command import stand_somewhere
from rookery.core.system.cpus import BOUND

LEAST_BYTES = 30 << 20  # of memory that a process with torch needs for itself, whatever it shares
STARTING = 300.0  # seconds for a process to import torch and make what it is for
GUARD = (
    "a script that starts worker processes is imported by them: "
    'what it does must stand under `if __name__ == "__main__":`, '
    "or set {option}=fork"
)


class WorkerLost(Exception):
    """A process is dead or does not answer; the text says which."""


class Process:
    """A child process and the pipe to it. `serve(pipe, parent, *made_of)` is its life."""

    title = "worker"
    option = "env.workers.start"  # how it is started
    daemon = False  # a daemon may have no children, and goes with its parent
    preload: tuple[str, ...] = ()  # modules that all children need

    def __init__(self, number: int, start: str, serve: Callable[..., None], made_of: tuple[Any, ...]):
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise UsageError(GUARD.format(option=self.option))
        self.number, self._serve, self._made_of = number, serve, made_of
        start = portable.start_method(start)
        self._context: Any = multiprocessing.get_context(start)
        self._served = start == "forkserver"
        if self._served:
            self._context.set_forkserver_preload([forkserver.__name__, serve.__module__, *self.preload])
        self.answered = False  # since it was started
        self.start()

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    def start(self) -> None:
        self.pipe, theirs = self._context.Pipe()
        self.answered = False
        # the kernel can end a child with the thread that made it, which is the process only if it is the main thread
        ours = not self._served and current_thread() is main_thread()
        args = (theirs, os.getpid() if ours else 0, *self._made_of)
        name = f"rookery {self.title} {self.number}"
        self.process = self._context.Process(target=self._serve, args=args, daemon=self.daemon, name=name)
        stand_somewhere()
        try:
            with _environment(self._served):
                self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"the envs cannot be sent to a worker process ({error}). Name them by env.id=package.module:Class, "
                f"use a factory that is defined at the top of a module, or set {self.option}=fork"
            ) from error
        finally:
            theirs.close()
        # nothing may keep this process from ending, also not a child that is no daemon
        self._last = Finalize(self, portable.kill, (self.pid,), exitpriority=10)

    def ask(self, name: str, *args: Any) -> None:
        self.send(pack((name, args)))

    def send(self, request: bytes) -> None:
        try:
            self.pipe.send_bytes(request)
        except (OSError, ValueError):
            raise WorkerLost(self.exit_message()) from None

    def answer(self, seconds: float) -> bytes:
        """What the child says within so many seconds; its own errors are raised here, with its traceback."""
        try:
            if not self.pipe.poll(seconds):
                raise WorkerLost(f"did not answer within {seconds:g} s")
            answer: bytes = self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise WorkerLost(self.exit_message()) from None
        if answer[:1] == HUNG:
            raise WorkerLost("was ended: " + "\n".join(unpack(answer)))
        if answer[:1] == FAILED:
            failure: Failure = unpack(answer)
            if failure.error is CheckpointError:  # no fault of the envs: they were to go on with what is not there
                raise CheckpointError(failure.text)
            if failure.error is UsageError:  # of whoever asked: as it would have been raised here
                error = UsageError(failure.text)
                error.add_note(f"Traceback of the worker process:\n{failure.traceback}")
                raise error
            problem = failure.text if failure.error else f"{self.title} {self.number} failed: {failure.text}"
            raise EnvError(f"{problem}\nTraceback of the worker process:\n{failure.traceback}")
        self.answered = True
        return answer

    def exit_message(self) -> str:
        """How it ended."""
        self.process.join(1)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code >= 0:
            if not self.answered:  # no accident: it would happen again
                raise EnvError(
                    f"worker process {self.number} ended with exit code {code} before it was ready. Perhaps "
                    + GUARD.format(option=self.option)
                )
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = " (often: out of memory)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"

    def part(self) -> None:
        """Ask it to end. Closing the pipe does not suffice: children that were forked later hold its other end, too."""
        with suppress(OSError, ValueError):
            self.pipe.send_bytes(END)
        self.pipe.close()

    def end(self, seconds: float = 0.0) -> bool:
        """Gone for certain when this returns: killed, unless it goes by itself in time, which is the answer."""
        self._last.cancel()
        self.pipe.close()
        self.process.join(seconds)
        alive = self.process.is_alive()
        if alive:
            self.process.kill()
        self.process.join()
        self.process.close()
        return not alive


@contextmanager
def _environment(served: bool) -> Iterator[None]:
    """Children share the CPUs: their libraries start one thread each, unless the user has said otherwise."""
    more = dict.fromkeys(BOUND, "1") | ({forkserver.FOLDER: forkserver.server_folder()} if served else {})
    missing = {name: value for name, value in more.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
