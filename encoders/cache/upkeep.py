"""Makes the index what the files are, and looks for damaged ones."""

import os
import sqlite3
import time
from dataclasses import dataclass, field, replace
from io import FileIO

from mmspec.encoders.cache import catalog
from mmspec.encoders.cache.catalog import Record, Totals
from mmspec.encoders.cache.entry import Corrupt
from mmspec.encoders.cache.files import Paths, entry_name, file_state, read_header, remove_left_over

_HELD_SECONDS = 3600


@dataclass
class Findings:
    """What a look over a folder found.

    Attributes:
        entries: how many are whole.
        adopted: whole files that the index did not name.
        missing: rows without a file.
        dropped: names of damaged files that were removed, with the reason.
    """

    entries: int = 0
    adopted: int = 0
    missing: int = 0
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not (self.adopted or self.missing or self.dropped)

    def add(self, earlier: "Findings") -> None:
        """Takes over what was mended before; what is whole now is counted already."""
        self.adopted += earlier.adopted
        self.missing += earlier.missing
        self.dropped |= earlier.dropped


def reconcile(db: sqlite3.Connection, paths: Paths, limit: int) -> Findings:
    """Makes the rows those of the files: adopts, forgets, and removes what dead processes left.

    Reads headers and lengths only, and only those of files that the index does not name with their length. Files that
    are over the limit are removed, the longest unused first: a process died between forgetting and removing them.
    """
    paths.make()
    paths.keep_reserve()
    remove_left_over(paths.parts)
    _release_forgotten(paths)
    rows = catalog.sizes(db)
    unknown = _unknown_files(paths, rows)
    for name in {*rows, *unknown}:
        catalog.forget(db, name)
    findings = Findings(missing=len(rows))
    for name in sorted(unknown, key=unknown.__getitem__, reverse=True):
        _adopt(db, paths, name, limit, findings)
    findings.entries = catalog.totals(db).entries
    return findings


def records(db: sqlite3.Connection, paths: Paths) -> list[Record]:
    """All entries, the latest used first: a lookup notes its time as the file's, and nowhere else."""

    def as_used(record: Record) -> Record:
        state = file_state(paths.entry(record.key.name))
        return record if state is None else replace(record, used=max(record.used, state.st_mtime_ns))

    return sorted(map(as_used, catalog.records(db)), key=lambda record: -record.used)


def make_room(db: sqlite3.Connection, paths: Paths, needed: int, limit: int) -> list[str]:
    """Forgets the entries used longest ago, until `needed` bytes fit; returns their names."""
    victims: list[str] = []
    while catalog.totals(db).bytes + needed > limit and (found := catalog.oldest(db)) is not None:
        name, used = found
        state = file_state(paths.entry(name))
        if state is not None and state.st_mtime_ns > used:
            catalog.set_used(db, name, state.st_mtime_ns)
            continue
        catalog.forget(db, name)
        victims.append(name)
    catalog.count(db, "evictions", len(victims))
    return victims


def counted(paths: Paths) -> Totals:
    """Entries and bytes by the files alone, where the index cannot be opened."""
    sizes = []
    try:
        with os.scandir(paths.entries) as files:
            sizes = [file.stat().st_size for file in files if entry_name(file.name)]
    except OSError:  # no folder, or it changes meanwhile
        pass
    return Totals(len(sizes), sum(map(catalog.on_disk, sizes)))


def _unknown_files(paths: Paths, rows: dict[str, int]) -> dict[str, int]:
    """When files were last used that no row describes; takes from `rows` those that have a file."""
    unknown = {}
    with os.scandir(paths.entries) as files:
        for file in files:
            name = entry_name(file.name)
            if name is None:
                continue  # none of ours
            state = file.stat(follow_symlinks=False)
            if rows.pop(name, None) != catalog.on_disk(state.st_size):
                unknown[name] = state.st_mtime_ns
    return unknown


def _adopt(db: sqlite3.Connection, paths: Paths, name: str, limit: int, findings: Findings) -> None:
    path = paths.entry(name)
    try:
        with FileIO(path) as file:
            described = read_header(file, name)
            used = os.fstat(file.fileno()).st_mtime_ns
    except Corrupt as reason:
        catalog.count(db, "corrupt")
        path.unlink()
        findings.dropped[name] = str(reason)
        return
    record = Record.of(described, described.file_bytes, used)
    if catalog.totals(db).bytes + record.bytes > limit:
        path.unlink()
        return
    catalog.add(db, record)
    findings.adopted += 1


def _release_forgotten(paths: Paths) -> None:
    for path in paths.held.iterdir():
        state = file_state(path)
        if state is not None and time.time() - state.st_ctime > _HELD_SECONDS:
            path.unlink(missing_ok=True)
