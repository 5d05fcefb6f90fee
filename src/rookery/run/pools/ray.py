"""RayPool: collectors as actors of a Ray cluster. The only module that imports Ray.

Weights are put into the object store once per round, whatever the number of workers; chunks come back through it. An
actor that is gone, with its node or alone, is replaced wherever the cluster has room.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from rookery.core.errors import ConfigError, EnvError, RookeryError, UsageError
from rookery.core.system.child import NOT_SENT, pack, unpack
from rookery.core.system.process import WorkerLost
from rookery.envs.watchdog import end_with
from rookery.learning.published import Weights
from rookery.run.experiment.signals import SIGNALS
from rookery.run.pools import ray_cleanup
from rookery.run.pools.protocol import UNREADY
from rookery.run.pools.remote import RemotePool
from rookery.run.pools.worker import CollectorWorker, CollectRequest, WorkerSpec

INSTALL = 'pool=ray needs the package ray: pip install "rookery[ray]"'
LONGEST_PATH = 107 - len(
    "/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
)  # of a folder for Ray's sockets
LOOK = 1.0  # seconds between looks at whether the run has been told to end, and at the cluster's head
GONE = 20.0  # seconds without an answer after which the head counts as gone; after 60 Ray ends the process by itself
REACHED = 20.0  # seconds for a cluster that is just being started to listen


def ray_module() -> Any:
    """Ray, or one sentence about how to get it."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigError(INSTALL) from error
    return ray


class Cluster:
    """The connection to a cluster: one that was started here goes with it, another one is left alone."""

    def __init__(self, address: str, cpus: float = 0.0):
        """`cpus`: for how many workers a cluster that is started here has room, however many CPUs there are."""
        if address == "local":  # on the loopback interface, as on a Mac; Ray looks at it when it is imported
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        self.ray = ray_module()
        self._folder: Folder | None = None
        if self.ray.is_initialized():
            return  # whoever connected will part, too
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of GPUs that nobody uses
        options: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False, "logging_level": "ERROR"}
        if address == "local":
            self._folder = Folder()
            options |= {"_temp_dir": self._folder.path, "num_cpus": max(os.cpu_count() or 1, math.ceil(cpus))}
        else:
            options.pop("include_dashboard")
        try:
            look_for(address)
            with kept_signals():
                self.ray.init(address=address, **options)
        except (OSError, RuntimeError, ValueError) as error:
            self.part()
            raise ConfigError(
                f"no Ray cluster at pool.cluster={address}: {str(error).strip().rstrip('.')}. Start one with `ray "
                f"start --head`, or set pool.cluster=local."
            ) from error
        self._mine = True
        self._over = threading.Event()
        threading.Thread(target=self._watch, args=(address,), name="rookery ray head", daemon=True).start()

    _mine = False

    def _watch(self, address: str) -> None:
        """Notice that the head is gone: whoever waits for an answer of Ray's then would do so until Ray ends the
        process, without a word."""
        host, _, port = str(self.ray.get_runtime_context().gcs_address).rpartition(":")
        seen = math.inf  # never: from here it may be out of reach
        while not self._over.wait(LOOK):
            with suppress(OSError, ValueError):
                socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()
                seen = time.monotonic()
            if time.monotonic() - seen > GONE and not self._over.is_set():
                end_with(
                    EnvError(
                        f"the head of the Ray cluster (pool.cluster={address}, {host}:{port}) has not answered for "
                        f"{GONE:g} s. A run cannot outlive it, but goes on in another cluster, or with pool=process."
                    )
                )

    def part(self) -> None:
        if self._mine:
            self.ray.shutdown()
            self._over.set()  # not before: without a head that does not come back either
        if self._folder is not None:
            self._folder.remove()


@contextmanager
def kept_signals() -> Iterator[None]:
    """The run's own handlers stay: Ray would put its own in their place, and SIGTERM would end the run unsaved."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def look_for(address: str) -> None:
    """Raises OSError if nobody listens at HOST:PORT: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    until = time.monotonic() + REACHED
    while host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=REACHED).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


class Folder:
    """A temporary folder that is removed also if this process is killed: by a child that waits for its end."""

    def __init__(self) -> None:
        prefix = f"rookery-ray-{os.getpid()}-"
        usual = tempfile.gettempdir()
        # Ray makes sockets in it, whose names must be short; /tmp is where Ray itself would make them
        self.path = tempfile.mkdtemp(
            prefix=prefix, dir=usual if len(usual) + len(prefix) + 9 <= LONGEST_PATH else "/tmp"
        )
        command = [sys.executable, "-IS", ray_cleanup.__file__, self.path]
        # a session of its own: what is sent to our group of processes is not for it
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def remove(self) -> None:
        self._child.communicate(b"parting")


class RayPool(RemotePool):
    """One actor per collector."""

    kind = "ray"

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self._cluster: Cluster | None = None
        self._weights: Any = None  # reference of what was published last
        ray_module()
        if self.config.pool.cluster != "local":
            self._connect()  # if there is none, better to know it before anything begins

    def _connect(self) -> Cluster:
        if self._cluster is None:
            pool = self.config.pool
            self._cluster = Cluster(pool.cluster, pool.workers * pool.cpus)
        return self._cluster

    def _link(self, spec: WorkerSpec) -> ActorLink:
        return ActorLink(self._connect().ray, spec, lambda: self._weights, self.interrupted)

    def _publish(self, weights: Weights, workers: Sequence[int]) -> None:
        assert self._cluster is not None
        self._weights = self._cluster.ray.put(weights)

    def close(self) -> None:
        super().close()
        if self._cluster is not None:
            self._cluster.part()
            self._cluster = None


class RayWorker:
    """What lives in the actor."""

    def __init__(self, paths: list[str], spec: bytes):
        sys.path += [path for path in paths if path not in sys.path]  # what the spec names must be found here, too
        self.worker = CollectorWorker(unpack(spec))

    def ask(self, name: str, *args: Any) -> Any:
        return getattr(self.worker, f"do_{name}")(*args)

    def collect(self, request: CollectRequest, weights: Weights) -> Any:
        return self.worker.do_collect(request, weights)

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.worker.close()


class ActorLink:
    """One actor, and the answer that it owes."""

    def __init__(self, ray: Any, spec: WorkerSpec, weights: Callable[[], Any], interrupted: Callable[[], Any]):
        self._ray, self._weights, self._interrupted, self._owed = ray, weights, interrupted, None
        pool, faults = spec.config.pool, spec.config.env.faults
        self._seconds = faults.reset_seconds
        actor = ray.remote(num_cpus=pool.cpus, num_gpus=pool.gpus, max_restarts=0, max_task_retries=0)(RayWorker)
        try:
            packed = pack(spec)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"the envs cannot be sent to another process ({error}). Name them by "
                f"env.id=package.module:Class, or use a "
                "factory that is defined at the top of a module."
            ) from error
        self._actor = actor.remote(list(sys.path), packed)
        self._owed = self._actor.pid.remote()
        self.pid = 0

    def ask(self, name: str, *args: Any) -> None:
        self._owed = self._actor.ask.remote(name, *args)

    def collect(self, request: CollectRequest) -> None:
        self._owed = self._actor.collect.remote(request, self._weights())

    def ready(self) -> bool:
        return bool(self._ray.wait([self._owed], timeout=0)[0])

    def answer(self, name: str) -> Any:
        errors = self._ray.exceptions
        # a round may take its time: the watchdog inside the actor ends an env that hangs, and Ray notices nodes that
        # are gone
        until = time.monotonic() + (float("inf") if name == "collect" else self._seconds)
        try:
            while not self._ray.wait([self._owed], timeout=LOOK)[0]:
                if time.monotonic() > until:
                    raise WorkerLost(
                        f"did not answer within {self._seconds:g} s ({name}). Has the cluster room for it? It wants "
                        f"{self._wants()}"
                    )
                if name == "start" and self._interrupted():
                    raise WorkerLost(UNREADY)
            answer = self._ray.get(self._owed)
        except errors.RayTaskError as error:
            self._failed(error, name)
        except errors.RayError as error:  # the actor, its node, or an object on that node is gone
            raise WorkerLost(f"is gone ({type(error).__name__}: {str(error).strip().splitlines()[0]})") from error
        if name == "start":
            self.pid = answer
        return answer

    def _failed(self, error: Any, name: str) -> NoReturn:
        """Raise what was raised in the actor: our own sentences as they are."""
        cause = error.cause
        if name in ("call", "apply") and not isinstance(cause, RookeryError):  # it did answer
            cause = UsageError(NOT_SENT.format(problem=f"{type(cause).__name__}: {cause}"))
        if isinstance(cause, UsageError):  # of whoever asked: as it would have been raised here
            mistake = UsageError(str(cause))
            mistake.add_note(f"Traceback of the worker:\n{error}")
            raise mistake
        if isinstance(cause, RookeryError):
            raise type(cause)(f"{cause}\nTraceback of the worker:\n{error}") from error
        raise EnvError(
            f"a pool worker failed: {type(cause).__name__}: {cause}\nTraceback of the worker:\n{error}"
        ) from error

    def _wants(self) -> str:
        return "the CPUs and GPUs of pool.cpus and pool.gpus"

    def part(self) -> None:
        with suppress(self._ray.exceptions.RayError):  # it is gone
            self._owed = self._actor.close.remote()

    def end(self, seconds: float) -> None:
        if seconds:
            with suppress(self._ray.exceptions.RayError):  # it is gone, or too busy: the next line ends it
                self._ray.get(self._owed, timeout=seconds)
        self._ray.kill(self._actor)
