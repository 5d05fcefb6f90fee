"""The mistakes Rookery knows by name. The command line turns each into one sentence and its exit code."""

from __future__ import annotations


class RookeryError(Exception):
    """Base of every error that is told to the user as a sentence, without a traceback."""

    exit_code = 1
    shown = False  # whether the traceback of its cause, an error in somebody's own code, was shown already


ERRORS = (Exception, SystemExit)  # of somebody's own code: sys.exit in it would end a run as if all were well


class Interrupted(BaseException):
    """A signal has asked the run to end: what takes long is given up. It is nobody's error, so nobody may handle it as
    one."""


class UsageError(RookeryError):
    """The command line or an API was called in a way that cannot work."""

    exit_code = 2


class ConfigError(RookeryError):
    """The configuration is wrong: unknown key, wrong type, contradiction, unsupported combination."""

    exit_code = 2


class EnvError(RookeryError):
    """An environment (or the worker that steps it) failed or broke its own contract."""

    exit_code = 3


class LearnerLost(RookeryError):
    """A process that learns with others died or does not answer;
    all go on from the last checkpoint, or the run ends.
    """

    exit_code = 3


class CheckpointError(RookeryError):
    """A checkpoint cannot be written, read or trusted."""

    exit_code = 4


class Diverged(RookeryError):
    """Learning produced NaN, infinity or an exploding loss."""

    exit_code = 5


class CompileError(RookeryError):
    """An update cannot be compiled, or the compiled artefact no longer matches what it is asked to do."""

    exit_code = 2


class BatchError(RookeryError):
    """A batch is not the one the update was built for (shape, dtype, memory layout, missing field)."""

    exit_code = 1


class BrokenView(RookeryError):
    """A parameter no longer lies in its network's flat vector: it would silently stop learning."""

    exit_code = 1
