"""Stores entries behind the caller's back, in bounded memory."""

import threading
import time
from collections.abc import Callable

from mmspec.encoders.cache.entry import Entry
from mmspec.encoders.cache.keys import FeatureKey

Store = Callable[[FeatureKey, Entry], None]


class Writer:
    """A queue of entries and the thread that stores them. Safe to use from several threads.

    Args:
        store: does the work; what it raises is its own affair, so it had better raise nothing.
        limit: most bytes that wait; an entry that comes to an empty queue is always taken.
    """

    def __init__(self, name: str, store: Store, limit: int) -> None:
        self._name = name
        self._store = store
        self._limit = limit
        self._waiting: dict[str, tuple[FeatureKey, Entry]] = {}  # the first is being stored
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, key: FeatureKey, entry: Entry) -> bool:
        """Takes an entry, whose data must not change any more; False when there is no room for it now."""
        size = entry.data.nbytes
        with self._changed:
            if key.name in self._waiting:
                return True
            if self._closed or (self._waiting and self._bytes + size > self._limit):
                return False
            self._waiting[key.name] = (key, entry)
            self._bytes += size
            self._start()
            self._changed.notify_all()
            return True

    def waiting(self, key: FeatureKey) -> Entry | None:
        """An entry that was taken and is not stored yet."""
        found = self._waiting.get(key.name)
        return None if found is None else found[1]

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def flush(self, seconds: float, key: FeatureKey | None = None) -> bool:
        """Waits until all is stored, or what `key` names; False when time ran out."""

        def stored() -> bool:
            return not self._waiting if key is None else key.name not in self._waiting

        with self._changed:
            return self._changed.wait_for(stored, seconds)

    def close(self, seconds: float) -> bool:
        """Stores what waits, for `seconds` at most, and ends the thread; False when something was given up."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            stored = self._changed.wait_for(lambda: not self._waiting, seconds)
            if not stored:  # all but the one at work
                for name in list(self._waiting)[1:]:
                    self._bytes -= self._waiting.pop(name)[1].data.nbytes
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        return stored

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"mmspec-cache-{self._name}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            key, entry = item
            try:
                self._store(key, entry)
            finally:
                with self._changed:
                    del self._waiting[key.name]
                    self._bytes -= entry.data.nbytes
                    self._changed.notify_all()
            del item, entry  # an idle thread keeps no features

    def _next(self) -> tuple[FeatureKey, Entry] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return next(iter(self._waiting.values()), None)
