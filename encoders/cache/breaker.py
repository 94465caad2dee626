"""Leaves a part that fails alone for a while, and says so once."""

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Breaker:
    """Says whether a part may be tried, from how its last try went. Safe to use from several threads.

    Args:
        what: the part, for the log.
        retry_seconds: how long a part that failed is left alone; then one caller tries it for all.
    """

    def __init__(
        self, what: str, retry_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._next_try: float | None = None  # None: all is well

    @property
    def well(self) -> bool:
        return self._next_try is None

    @property
    def due(self) -> bool:
        """Whether `allows` would say yes."""
        next_try = self._next_try
        return next_try is None or self._clock() >= next_try

    def allows(self) -> bool:
        """Whether to try now; of those who ask after a failure, one is let through each `retry_seconds`."""
        with self._lock:
            if self._next_try is None:
                return True
            if self._clock() < self._next_try:
                return False
            self._next_try = self._clock() + self._retry_seconds
            return True

    def failed(self, reason: str) -> None:
        with self._lock:
            first = self._next_try is None
            self._next_try = self._clock() + self._retry_seconds
        if first:
            _log.warning(
                "encoder cache: %s failed and is left out, tried again every %g s: %s",
                self._what,
                self._retry_seconds,
                reason,
            )

    def succeeded(self) -> None:
        with self._lock:
            recovered, self._next_try = self._next_try is not None, None
        if recovered:
            _log.warning("encoder cache: %s works again", self._what)
