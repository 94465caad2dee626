"""Pictures that waiting requests want: looked up, and held where they are found, beside the engine's loop."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.store import TieredStore
from mmspec.encoders.cache.tier import Held

_log = logging.getLogger("vllm.plugins.mmspec")
_THREADS = 4
_PATIENCE_SECONDS = 10.0  # then a request goes on without what it waits for


@dataclass
class _Lookup:
    """One picture.

    Attributes:
        wanted: ids of the requests that may come to need it.
        future: of what is held; None where the picture is known not to be there.
    """

    key: FeatureKey | None
    future: "Future[Held | None] | None"
    started: float
    wanted: set[str] = field(default_factory=set)
    held: Held | None = None


class Lookups:
    """One lookup a picture, shared by the requests that want it. For the scheduler's thread only.

    Args:
        keep: whether the worker that takes what is held is in this process.
    """

    def __init__(
        self, store: TieredStore, *, keep: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._keep = keep
        self._clock = clock
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mmspec-cache-lookup")
        self._lookups: dict[str, _Lookup] = {}  # by the picture's identifier

    def pending(self, identifier: str, request_id: str, key: Callable[[], FeatureKey | None]) -> bool:
        """Whether it is not known yet if the picture is there; the first to ask starts the search.

        Args:
            key: makes the picture's key, None for a picture that has none.
        """
        lookup = self._lookups.get(identifier)
        if lookup is None:
            lookup = self._lookups[identifier] = self._start(key())
        lookup.wanted.add(request_id)
        if lookup.future is None or lookup.held is not None:
            return False
        if lookup.future.done():
            lookup.held = _result(lookup.future)
        elif self._clock() - lookup.started > _PATIENCE_SECONDS:
            self._drop(lookup)
        else:
            return True
        if lookup.held is None:
            lookup.future = None
        return False

    def held(self, identifier: str) -> tuple[FeatureKey, Held] | None:
        """What is ready to be loaded, by what was known when `pending` was last asked."""
        lookup = self._lookups.get(identifier)
        if lookup is None or lookup.held is None or lookup.key is None:
            return None
        return lookup.key, lookup.held

    def take(self, identifier: str) -> None:
        """Forgets a picture that is about to be loaded; whoever loads it releases what is held."""
        del self._lookups[identifier]

    def forget(self, identifier: str) -> None:
        """Forgets a picture that is about to be encoded: what was found out about it holds no longer."""
        if (lookup := self._lookups.pop(identifier, None)) is not None:
            self._drop(lookup)

    def release(self, held: Held) -> None:
        """Lets go of what was held, in the background."""
        if self._submit(lambda: self._store.release(held)) is None:
            self._store.release(held)

    def finished(self, request_id: str) -> None:
        """The request wants nothing any more."""
        for identifier, lookup in list(self._lookups.items()):
            lookup.wanted.discard(request_id)
            if not lookup.wanted:
                self._drop(self._lookups.pop(identifier))

    def clear(self) -> None:
        """Lets go of everything."""
        for lookup in self._lookups.values():
            self._drop(lookup)
        self._lookups.clear()

    def wait(self, seconds: float) -> None:
        """Waits until one of the searches ends, for `seconds` at most."""
        running = [
            lookup.future for lookup in self._lookups.values() if lookup.future and lookup.held is None
        ]
        if running:
            wait(running, seconds, FIRST_COMPLETED)

    def close(self) -> None:
        self.clear()
        self._threads.shutdown(wait=True, cancel_futures=False)

    def _start(self, key: FeatureKey | None) -> _Lookup:
        future = None
        if key is not None:
            # Mostly it is not there, which a look at the folders tells at once.
            if self._store.contains(key, local=True) or self._store.far(key):
                future = self._submit(partial(self._store.hold, key, keep=self._keep))
            else:
                self._store.missed(key)
        return _Lookup(key, future, self._clock())

    def _drop(self, lookup: _Lookup) -> None:
        """Lets go of what a search found, or is going to find."""
        if lookup.future is not None and not lookup.future.cancel():
            lookup.future.add_done_callback(self._release_result)
        lookup.held = None

    def _release_result(self, future: "Future[Held | None]") -> None:
        if (held := _result(future)) is not None:
            self.release(held)

    def _submit(self, work: Callable[[], Held | None]) -> "Future[Held | None] | None":
        try:
            return self._threads.submit(work)
        except RuntimeError:  # no more threads, or the engine ends
            return None


def _result(future: "Future[Held | None]") -> Held | None:
    try:
        return future.result()
    except Exception:
        _log.exception("encoder cache: a lookup failed")
        return None
