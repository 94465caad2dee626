"""The tier in a folder: on a disk, or in memory that looks like one."""

import os
import secrets
from io import FileIO
from pathlib import Path

from mmspec.encoders.cache import catalog, upkeep
from mmspec.encoders.cache.catalog import Record, Totals
from mmspec.encoders.cache.entry import Corrupt, Entry
from mmspec.encoders.cache.files import file_state, read_entry
from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.shelf import Shelf
from mmspec.encoders.cache.tier import Tier, TierStats, TierUnavailable, unavailable
from mmspec.encoders.cache.upkeep import Findings


class FolderTier(Tier):
    """Entries in a folder that processes share, the least recently used dropped first.

    Args:
        folder: made when something is first stored.
        limit: most bytes of the files; what is just being written, and what `hold` keeps, come on top.
        in_memory: whether the folder is in memory: files are mapped, and the checksum is left out.
    """

    def __init__(
        self,
        folder: Path,
        limit: int,
        *,
        name: str = "disk",
        persistent: bool = True,
        in_memory: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self.folder = folder
        self.limit = limit
        self._shelf = Shelf(folder, limit, in_memory=in_memory)
        self._paths = self._shelf.paths

    def get(self, key: FeatureKey) -> Entry | None:
        return self._shelf.load(self._paths.lookup(key.name), key)

    def contains(self, key: FeatureKey) -> bool:
        with unavailable(self.folder):
            return file_state(self._paths.lookup(key.name)) is not None

    def put(self, key: FeatureKey, entry: Entry) -> bool:
        if self.persistent and not key.persistable:
            return False
        return self._shelf.store(key, entry)

    def hold(self, key: FeatureKey) -> tuple[str, Entry] | None:
        """Keeps an entry readable, whatever is evicted or purged, until `release`; an hour at most.

        In a folder that may only be read, or that is too full for another name, it can be read as long as nobody
        else drops it.

        Returns:
            A token for `take`, in this process or another, and the entry as it was read to check it; None when
            there is no whole entry.
        """
        token = f"{key.name}-{secrets.token_hex(8)}"
        try:
            os.link(self._paths.entry(key.name), self._paths.held / token)
        except OSError:  # also where there is no entry, which reading it tells
            token = key.name
        entry = self.take(key, token)
        if entry is None:
            self.release(token)
            return None
        return token, entry

    def take(self, key: FeatureKey, token: str) -> Entry | None:
        """The entry that was held; None when it was released, or damaged since."""
        second_name = str(self._paths.held / token)
        return self._shelf.load(self._paths.lookup(token) if token == key.name else second_name, key)

    def release(self, token: str) -> None:
        if "-" not in token:  # no second name
            return
        with unavailable(self.folder):
            (self._paths.held / token).unlink(missing_ok=True)

    def stats(self) -> TierStats:
        found = self.totals()
        return TierStats(self.name, found.entries, found.bytes, self.limit, found.evictions, found.corrupt)

    def totals(self) -> Totals:
        """What the index counts; or the files, where it cannot be opened, as in a folder that may only be read."""
        try:
            return self._shelf.index.write(catalog.totals)
        except TierUnavailable:
            return upkeep.counted(self._paths)

    def records(self) -> list[Record]:
        """All entries, the latest used first."""
        return self._shelf.index.write(lambda db: upkeep.records(db, self._paths))

    def verify(self) -> Findings:
        """Reads every entry and drops the damaged ones; others may go on storing and dropping meanwhile."""
        self._shelf.mended()  # before: no news
        findings = self._shelf.index.write(lambda db: upkeep.reconcile(db, self._paths, self.limit))
        findings.add(self._shelf.mended())  # while the index was opened for this
        for record in self.records():
            damage = self._damage(record.key)
            if damage is not None:
                findings.dropped[record.key.name] = damage
                findings.entries -= 1
        return findings

    def purge(
        self, *, encoder: str | None = None, namespace: str | None = None, unused_since: float | None = None
    ) -> int:
        """As of any tier; `unused_since`, in seconds since 1970, spares what was stored or found later."""
        self._shelf.index.write(lambda db: upkeep.reconcile(db, self._paths, self.limit))
        names = [
            record.key.name
            for record in self.records()
            if encoder in (None, record.key.encoder)
            and namespace in (None, record.key.namespace)
            and (unused_since is None or record.used < unused_since * 1e9)
        ]
        self._shelf.remove(names)
        return len(names)

    def close(self) -> None:
        self._shelf.close()

    def _damage(self, key: FeatureKey) -> str | None:
        """What is wrong with an entry, which is dropped then."""
        with unavailable(self.folder):
            try:
                file = FileIO(self._paths.entry(key.name))
            except FileNotFoundError:  # evicted meanwhile
                return None
            with file:
                try:
                    read_entry(file, key.name)
                except Corrupt as reason:
                    self._shelf.discard(key.name, os.fstat(file.fileno()).st_ino, str(reason))
                    return str(reason)
        return None
