"""A tier within the store: never fails, never stores in the caller's time, and counts."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from mmspec.encoders.cache.breaker import Breaker
from mmspec.encoders.cache.entry import Entry
from mmspec.encoders.cache.folder import FolderTier
from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.tier import Tier, TierUnavailable
from mmspec.encoders.cache.writer import Writer

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass
class Counters:
    """What this process did with a tier since it opened it.

    Attributes:
        hits, misses: lookups that reached the tier.
        stores: entries stored.
        refused: entries larger than the tier.
        skipped: entries that the queue had no room for, or the tier was left out.
        errors: operations that failed or came back too late.
        load_seconds, load_bytes: of hits; checking what is held, and taking it, are both loads.
        store_seconds, store_bytes: of stores, in the background.
    """

    hits: int = 0
    misses: int = 0
    stores: int = 0
    refused: int = 0
    skipped: int = 0
    errors: int = 0
    load_seconds: float = 0.0
    load_bytes: int = 0
    store_seconds: float = 0.0
    store_bytes: int = 0


class Level:
    """One tier with its queue and its breakers; reading and writing fail apart, as on a full disk."""

    def __init__(
        self, tier: Tier, queue_limit: int, retry_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tier = tier
        self._counters = Counters()
        self.changes = 0  # how often they have changed
        self._lock = threading.Lock()
        self._reading = Breaker(f"reading the {tier.name} tier", retry_seconds, clock)
        self._writing = Breaker(f"writing the {tier.name} tier", retry_seconds, clock)
        self._writer = Writer(tier.name, self._store, queue_limit)

    def takes(self, key: FeatureKey) -> bool:
        """Whether such keys may be in this tier at all."""
        return key.persistable or not self.tier.persistent

    def get(self, key: FeatureKey) -> Entry | None:
        entry = self._writer.waiting(key)
        seconds = 0.0
        if entry is None:
            reached, entry, seconds = self._try(self._reading, lambda: self.tier.get(key), None)
            if not reached:
                return None
        if entry is None:
            self._count(misses=1)
        else:
            self._count(hits=1, load_seconds=seconds, load_bytes=entry.data.nbytes)
        return entry

    def contains(self, key: FeatureKey) -> bool:
        if self._writer.waiting(key) is not None:
            return True
        return self._try(self._reading, lambda: self.tier.contains(key), False)[1]

    def missed(self) -> None:
        """Counts a lookup that `contains` has answered."""
        self._count(misses=1)

    def skipped(self) -> None:
        """Counts an entry that nobody had the room to hand in."""
        self._count(skipped=1)

    def offer(self, key: FeatureKey, entry: Entry) -> bool:
        """Stores the entry later; False when it is not going to be stored."""
        taken = self._writing.due and self._writer.offer(key, entry)
        if not taken:
            self.skipped()
        return taken

    def hold(self, key: FeatureKey, *, counts: bool = True) -> tuple[str, Entry] | None:
        """As `FolderTier.hold`: a lookup that counts, unlike the `take`s that follow in every worker.

        Args:
            counts: False where the entry is known to have come from elsewhere just now.
        """
        tier = self.tier
        if not isinstance(tier, FolderTier):
            return None
        reached, found, seconds = self._try(self._reading, lambda: tier.hold(key), None)
        if reached and counts:
            self._count(hits=int(found is not None), misses=int(found is None), load_seconds=seconds)
        return found

    def take(self, key: FeatureKey, token: str) -> Entry | None:
        tier = self.tier
        if not isinstance(tier, FolderTier):
            return None
        _, entry, seconds = self._try(self._reading, lambda: tier.take(key, token), None)
        if entry is not None:
            self._count(load_seconds=seconds, load_bytes=entry.data.nbytes)
        return entry

    def release(self, token: str) -> None:
        if isinstance(self.tier, FolderTier):
            try:
                self.tier.release(token)
            except TierUnavailable:  # reading may work all the same; it is let go of within the hour
                self._count(errors=1)

    def attempt(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """Runs something else that reads the tier, under the same breaker."""
        return self._try(self._reading, work, otherwise)[1]

    def stats(self) -> dict[str, Any]:
        """The tier's own figures, those of this process, and whether it works."""
        tier: dict[str, Any] = {"name": self.tier.name}
        try:
            tier = asdict(self.tier.stats())
        except TierUnavailable as error:
            tier["error"] = str(error)
        works = self._reading.well and self._writing.well
        return {**tier, **self.counters(), "queued_bytes": self._writer.waiting_bytes, "works": works}

    def counters(self) -> dict[str, float]:
        """What this process did with the tier, without asking the tier."""
        with self._lock:
            return asdict(self._counters)

    def flush(self, seconds: float, key: FeatureKey | None = None) -> bool:
        return self._writer.flush(seconds, key)

    def close(self, seconds: float) -> None:
        if not self._writer.close(seconds):
            _log.warning("encoder cache: the %s tier was closed before all was stored", self.tier.name)
        try:
            self.tier.close()
        except Exception as error:  # the other tiers are to be closed, too, and the engine ends as it would
            _log.warning("encoder cache: the %s tier was not closed properly: %s", self.tier.name, error)

    def _store(self, key: FeatureKey, entry: Entry) -> None:
        reached, stored, seconds = self._try(self._writing, lambda: self.tier.put(key, entry), False)
        if stored:
            self._count(stores=1, store_seconds=seconds, store_bytes=entry.data.nbytes)
        else:
            self._count(refused=int(reached), skipped=int(not reached))

    def _try(
        self, breaker: Breaker, work: Callable[[], Result], otherwise: Result
    ) -> tuple[bool, Result, float]:
        """Whether the tier answered, what, and in how many seconds."""
        if not breaker.allows():
            return False, otherwise, 0.0
        started = time.perf_counter()
        try:
            result = work()
        except Exception as error:  # whatever goes wrong in a cache, serving goes on without it
            if not isinstance(error, TierUnavailable):
                _log.exception("encoder cache: a fault in the %s tier", self.tier.name)
            self._count(errors=1)
            breaker.failed(str(error))
            return False, otherwise, 0.0
        seconds = time.perf_counter() - started
        if self.tier.deadline is not None and seconds > self.tier.deadline:
            self._count(errors=1)
            breaker.failed(f"it took {seconds:.1f} s, more than {self.tier.deadline:g} s")
        else:
            breaker.succeeded()
        return True, result, seconds

    def _count(self, **by: float) -> None:
        with self._lock:
            self.changes += 1
            for name, value in by.items():
                setattr(self._counters, name, getattr(self._counters, name) + value)
