"""The cache as an engine sees it: tiers from the fastest to the farthest."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mmspec.encoders.cache.entry import Entry
from mmspec.encoders.cache.folder import FolderTier
from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.level import Level
from mmspec.encoders.cache.sizes import format_size
from mmspec.encoders.cache.tier import Held, Hit, Tier

_log = logging.getLogger(__name__)
_STORE_SECONDS = 5.0  # that a search waits for an entry to be stored


class TieredStore:
    """Looks through the tiers in order, stores in all of them, and never fails.

    Safe to use from several threads. A process makes its own, after any fork; processes that open the same folder
    see each other's entries.

    What costs how much: `contains` is one `stat` call a local tier, and fit for a scheduler; it says what is likely.
    `get` reads, and from the remote tier waits for the network, up to its deadline once in each outage. `put` returns
    at once. To promise an entry to another process, `hold` it: `contains` alone does not keep it from being evicted,
    nor does it know that a file is damaged.

    Args:
        tiers: the fastest first.
        queue_limit: most bytes that wait to be stored, for each tier.
        retry_seconds: how long a tier that failed is left out.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        *,
        queue_limit: int = 256 * 1024**2,
        retry_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._levels = [Level(tier, queue_limit, retry_seconds, clock) for tier in tiers]
        self._kept: dict[str, Entry] = {}  # by token
        self._kept_limit = queue_limit

    def get(self, key: FeatureKey) -> Hit | None:
        """The entry from the first tier that has it; the tiers before are given it, in the background."""
        return self._get_from(self._levels, key)

    def put(self, key: FeatureKey, entry: Entry) -> bool:
        """Stores the entry in the background, where its key may go; its data must not change any more.

        Returns:
            False when no tier is going to store it.
        """
        taken = [level.offer(key, entry) for level in self._levels if level.takes(key)]
        return any(taken)

    def contains(self, key: FeatureKey, *, local: bool = False) -> str | None:
        """The name of the first tier that seems to have the entry.

        Args:
            local: ask only tiers on this machine: no network.
        """
        for level in self._levels:
            if level.takes(key) and (level.tier.local or not local) and level.contains(key):
                return level.tier.name
        return None

    def missed(self, key: FeatureKey) -> None:
        """Counts a lookup that went no further than `contains`: a miss in all tiers."""
        for level in self._levels:
            if level.takes(key):
                level.missed()

    def skipped(self, key: FeatureKey) -> None:
        """Counts an entry that was not even handed in, for want of room: skipped by all tiers."""
        for level in self._levels:
            if level.takes(key):
                level.skipped()

    def far(self, key: FeatureKey) -> bool:
        """Whether a tier on another machine might have the entry: only `hold` and `get` find out."""
        return any(not level.tier.local and level.takes(key) for level in self._levels)

    def hold(self, key: FeatureKey, *, keep: bool = False) -> Held | None:
        """Checks an entry and keeps it readable until `release`, or for an hour.

        This reads the entry, and waits for the network where only the remote tier has it: to be called from a thread
        beside the engine's loop. What is in no folder yet is written to the fastest one first; the tiers before the
        one that has it are given it, in the background.

        Args:
            keep: this process is going to `take` it, so what was read is kept, as far as `queue_limit` goes.
        """
        folders = [level for level in self._levels if isinstance(level.tier, FolderTier) and level.takes(key)]
        for depth, level in enumerate(folders):
            level.flush(_STORE_SECONDS, key)  # it may be on its way
            if (held := self._hold_in(level, key, keep, folders[:depth])) is not None:
                return held
        others = [level for level in self._levels if level not in folders]
        if not folders or (hit := self._get_from(others, key)) is None:
            return None
        for folder in folders:
            folder.offer(key, hit.entry)
        folders[0].flush(_STORE_SECONDS, key)
        held = self._hold_in(folders[0], key, keep, (), counts=False)
        return None if held is None else replace(held, found=hit.tier)

    def take(self, key: FeatureKey, held: Held) -> Entry | None:
        """The entry that was held, here or in another process; may be called more than once."""
        if (kept := self._kept.pop(held.token, None)) is not None:
            return kept
        level = self._named(held.tier)
        return None if level is None else level.take(key, held.token)

    def release(self, held: Held) -> None:
        """Lets an entry be evicted again."""
        self._kept.pop(held.token, None)
        if (level := self._named(held.tier)) is not None:
            level.release(held.token)

    def stats(self) -> list[dict[str, Any]]:
        """Figures of each tier, fit for JSON: those of `TierStats` and `Counters`."""
        return [level.stats() for level in self._levels]

    def counters(self) -> dict[str, dict[str, float]]:
        """Of each tier by name, what this process did with it: cheap, unlike `stats`."""
        return {level.tier.name: level.counters() for level in self._levels}

    @property
    def changes(self) -> int:
        """How often `counters` have changed."""
        return sum(level.changes for level in self._levels)

    def report(self) -> list[str]:
        """What was found, a line a tier, for the log of a start."""
        return [_line(stats) for stats in self.stats()]

    def purge(self, *, encoder: str | None = None, namespace: str | None = None) -> int:
        """Drops entries in all tiers, as `Tier.purge`; returns how many."""
        self.flush()
        return sum(
            level.attempt(partial(level.tier.purge, encoder=encoder, namespace=namespace), 0)
            for level in self._levels
        )

    def flush(self, seconds: float = 60.0) -> bool:
        """Waits until what was put is stored; False when time ran out."""
        deadline = time.monotonic() + seconds
        stored = [level.flush(max(0.0, deadline - time.monotonic())) for level in self._levels]
        return all(stored)

    def close(self, seconds: float = 10.0) -> None:
        """Stores what waits, for `seconds` at most in each tier, and lets go of everything."""
        for level in self._levels:
            level.close(seconds)

    def _get_from(self, levels: Sequence[Level], key: FeatureKey) -> Hit | None:
        for depth, level in enumerate(levels):
            entry = level.get(key) if level.takes(key) else None
            if entry is not None:
                for faster in levels[:depth]:
                    if faster.takes(key):
                        faster.offer(key, entry)
                return Hit(entry, level.tier.name)
        return None

    def _hold_in(
        self, level: Level, key: FeatureKey, keep: bool, faster: Sequence[Level], *, counts: bool = True
    ) -> Held | None:
        found = level.hold(key, counts=counts)
        if found is None:
            return None
        token, entry = found
        for other in faster:
            other.offer(key, entry)
        if keep and sum(kept.data.nbytes for kept in list(self._kept.values())) < self._kept_limit:
            self._kept[token] = entry
        return Held(level.tier.name, token, level.tier.name)

    def _named(self, name: str) -> Level | None:
        return next((level for level in self._levels if level.tier.name == name), None)


def _line(stats: dict[str, Any]) -> str:
    name = stats["name"]
    if "error" in stats:
        return f"encoder cache: the {name} tier cannot be used: {stats['error']}"
    if stats["entries"] is None:
        return f"encoder cache: the {name} tier is there"
    return (
        f"encoder cache: the {name} tier holds {stats['entries']} pictures in {format_size(stats['bytes'])} "
        f"of {format_size(stats['limit'])}"
    )
