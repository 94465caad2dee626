"""Entries in a folder: one file each, found by name, and an index for eviction.

A lookup opens the file that the key names and checks it; it touches neither index nor lock. Storing and dropping go
through the index, one process at a time, in an order that holds up against kill -9 between any two instructions:

- a file is whole before it gets its name, and has its name before its row is committed;
- a row is gone, and committed, before its file is removed; and the file is removed only while there is no row.

So every row names a whole file. A file without a row can be left behind; opening the index adopts it.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path

from mmspec.encoders.cache import catalog, upkeep
from mmspec.encoders.cache.catalog import Record
from mmspec.encoders.cache.entry import Corrupt, Entry, describe, encode
from mmspec.encoders.cache.files import RESERVE, Paths, inode_of, mark_used, part_file, read_entry, touch
from mmspec.encoders.cache.index import Index, lacks_room
from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.mappings import Mappings
from mmspec.encoders.cache.sizes import format_size
from mmspec.encoders.cache.tier import TierUnavailable, unavailable
from mmspec.encoders.cache.upkeep import Findings

_log = logging.getLogger(__name__)

_RECONCILE_SECONDS = 600.0
_ATTEMPTS = 100
_BATCH = 100
_SLACK = 256 * 1024  # for the index


class Shelf:
    """Loads, stores and drops the entries of a folder.

    Args:
        in_memory: whether the folder is in memory: files are mapped, and the checksum is left out.
    """

    def __init__(self, folder: Path, limit: int, *, in_memory: bool) -> None:
        self.paths = Paths(folder)
        self.index = Index(self.paths.index, self.paths.reserve, self._reconcile)
        self._limit = limit
        self._mappings = Mappings(limit) if in_memory else None
        self._reconciled = 0.0
        self._mended = Findings()  # by itself, since somebody asked
        self._told_full = False

    def load(self, path: str, key: FeatureKey) -> Entry | None:
        """The entry in a file, under its own or another name; a damaged one is dropped."""
        entry = None if self._mappings is None else self._mappings.find(path, key.name)
        if entry is None:
            with unavailable(self.paths.folder):
                entry = self._read(path, key.name)
        if entry is not None:
            with suppress(OSError):  # a folder that may only be read
                mark_used(path)
        return entry

    def _read(self, path: str, name: str) -> Entry | None:
        try:
            file = FileIO(path)
        except FileNotFoundError:
            return None
        with file:
            try:
                if self._mappings is not None:
                    return self._mappings.add(file, path, name)
                return read_entry(file, name)[1]
            except Corrupt as reason:
                self.discard(name, os.fstat(file.fileno()).st_ino, str(reason))
                return None

    def store(self, key: FeatureKey, entry: Entry) -> bool:
        """Stores an entry that is not there yet, and evicts others for room.

        Returns:
            False when it is larger than the limit.
        """
        with unavailable(self.paths.folder):
            self.paths.make()
            if touch(self.paths.lookup(key.name)):
                return True
            header = encode(key, entry)
            size = len(header) + entry.data.nbytes
            if catalog.on_disk(size) > self._limit:
                return False
            record = Record.of(describe(memoryview(header)), size, time.time_ns())
            try:
                self._write(record, header, entry.data)
            except (OSError, TierUnavailable) as error:
                if not lacks_room(error):
                    raise
                self._make_room_on_full_disk(record.bytes)
                self._write(record, header, entry.data)
        if time.monotonic() - self._reconciled > _RECONCILE_SECONDS:
            self.index.write(self._reconcile)
        return True

    def close(self) -> None:
        self.index.close()
        if self._mappings is not None:
            self._mappings.clear()

    def remove(self, names: Sequence[str]) -> None:
        """Drops entries that are wanted no more, a few at a time so that others get their turn."""

        def forget(db: sqlite3.Connection, some: Sequence[str]) -> None:
            for name in some:
                catalog.forget(db, name)

        for start in range(0, len(names), _BATCH):
            some = names[start : start + _BATCH]
            self.index.write(partial(forget, some=some))
            self.index.write(partial(self._unlink, names=some))

    def discard(self, name: str, inode: int, reason: str) -> None:
        """Drops a damaged entry, unless its file has been replaced by another since."""

        def forget(db: sqlite3.Connection) -> None:
            if inode_of(self.paths.entry(name)) == inode:
                catalog.forget(db, name)
                catalog.count(db, "corrupt")

        _log.warning(
            "encoder cache: %s holds %s; it is dropped and made again", self.paths.entry(name), reason
        )
        with suppress(TierUnavailable):  # where nothing can be dropped it stays a miss
            self.index.write(forget)
            self.index.write(lambda db: self._unlink(db, [name], inode))

    def _write(self, record: Record, header: bytes, data: memoryview) -> None:
        with part_file(self.paths.parts, header, data) as part:
            self._publish(part, record)
        if self._mappings is not None:
            with suppress(OSError, Corrupt):  # evicted already, or no file may be opened
                self._mappings.prepare(self.paths.lookup(record.key.name), record.key.name)

    def _make_room_on_full_disk(self, needed: int) -> None:
        """Evicts before the limit is reached: the disk is smaller than that, or others have filled it."""

        if not self._told_full:
            self._told_full = True
            _log.warning(
                "encoder cache: no room left in %s before its limit of %s; entries are evicted earlier",
                self.paths.folder,
                format_size(self._limit),
            )
        needed += _SLACK + (0 if self.paths.reserve.exists() else RESERVE)
        victims = self.index.write(
            lambda db: upkeep.make_room(db, self.paths, needed, limit=catalog.totals(db).bytes)
        )
        self.index.write(lambda db: self._unlink(db, victims))
        self.paths.keep_reserve(if_free=RESERVE)

    def _publish(self, part: Path, record: Record) -> None:
        victims: list[str] = []
        place = partial(self._place, part=part, record=record, victims=victims)
        for _ in range(_ATTEMPTS):  # other processes may take the room that was just made
            if self.index.write(place):
                return
            victims += self.index.write(
                lambda db: upkeep.make_room(db, self.paths, record.bytes, self._limit)
            )
        raise TierUnavailable(f"{self.paths.folder}: others fill it faster than room is made")

    def _place(self, db: sqlite3.Connection, part: Path, record: Record, victims: Sequence[str]) -> bool:
        """Gives a part its name, if there is room for it."""
        self._unlink(db, victims)
        if catalog.totals(db).bytes + record.bytes > self._limit:
            return False
        catalog.add(db, record)
        path = self.paths.entry(record.key.name)
        # Where a damaged index is written again, the part has its name already.
        if part.exists() or not path.exists():
            part.replace(path)
        return True

    def _unlink(self, db: sqlite3.Connection, names: Sequence[str], inode: int | None = None) -> None:
        """Removes files whose rows are gone for good: committed, and not stored again since."""
        for name in names:
            path = self.paths.entry(name)
            if not catalog.named(db, name) and inode in (None, inode_of(path)):
                path.unlink(missing_ok=True)
                if self._mappings is not None:
                    self._mappings.forget(name)

    def mended(self) -> Findings:
        """What was found since the last call when the index was opened or looked over by itself."""
        found, self._mended = self._mended, Findings()
        return found

    def _reconcile(self, db: sqlite3.Connection) -> None:
        self._mended.add(upkeep.reconcile(db, self.paths, self._limit))
        self._reconciled = time.monotonic()
