"""Functions on their way to another of our own live processes: lambdas and closures too, by value.

The only place that uses cloudpickle, and never on what comes from a file or a stranger: it stands alone for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rookery.core.errors import UsageError


class Sent:
    """Pickled in place of a function; what arrives is the function itself."""

    def __init__(self, function: Callable[..., Any]):
        import cloudpickle

        try:
            self._bytes: bytes = cloudpickle.dumps(function)
        except Exception as error:  # whatever a captured object raises when it is pickled
            raise UsageError(
                f"the function {getattr(function, '__qualname__', function)!r} cannot be sent to the workers "
                f"({type(error).__name__}: {error}). It may use only what can be pickled: no trainer, env, file or lock"
            ) from error

    def __reduce__(self) -> Any:
        import cloudpickle

        return cloudpickle.loads, (self._bytes,)
