"""The rows of a folder's index. Each function runs within a transaction of `Index.write`."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Literal

from mmspec.encoders.cache.entry import Description
from mmspec.encoders.cache.keys import FeatureKey

_COLUMNS = "name, encoder, namespace, model, dtype, shape, bytes, made, used"
_BLOCK = 4096


@dataclass(frozen=True)
class Record:
    """One entry as the index knows it.

    Attributes:
        key: what it was stored under.
        bytes: what its file takes of the limit: its length in whole blocks.
        made, used: when it was stored and last found, in nanoseconds since 1970.
    """

    key: FeatureKey
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    made: int
    used: int

    @classmethod
    def of(cls, described: Description, file_bytes: int, when: int) -> "Record":
        return cls(described.key, described.dtype, described.shape, on_disk(file_bytes), when, when)


@dataclass(frozen=True)
class Totals:
    entries: int = 0
    bytes: int = 0
    evictions: int = 0
    corrupt: int = 0


def on_disk(file_bytes: int) -> int:
    """What a file takes of a disk, in whole blocks."""
    return -(-file_bytes // _BLOCK) * _BLOCK


def add(db: sqlite3.Connection, record: Record) -> None:
    """Adds a row, or replaces the one of that name."""
    forget(db, record.key.name)  # INSERT OR REPLACE would not run the trigger that counts
    key = record.key
    row = (key.name, key.encoder, key.namespace, key.model, record.dtype, json.dumps(record.shape))
    db.execute(
        f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, record.bytes, record.made, record.used),
    )


def forget(db: sqlite3.Connection, name: str) -> None:
    db.execute("DELETE FROM entries WHERE name = ?", (name,))


def named(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM entries WHERE name = ?", (name,)).fetchone() is not None


def count(db: sqlite3.Connection, what: Literal["evictions", "corrupt"], by: int = 1) -> None:
    db.execute(f"UPDATE totals SET {what} = {what} + ?", (by,))


def totals(db: sqlite3.Connection) -> Totals:
    return Totals(*db.execute("SELECT entries, bytes, evictions, corrupt FROM totals").fetchone())


def oldest(db: sqlite3.Connection) -> tuple[str, int] | None:
    """The name of the entry that was used longest ago, and when."""
    found: tuple[str, int] | None = db.execute(
        "SELECT name, used FROM entries ORDER BY used LIMIT 1"
    ).fetchone()
    return found


def set_used(db: sqlite3.Connection, name: str, when: int) -> None:
    db.execute("UPDATE entries SET used = ? WHERE name = ?", (when, name))


def sizes(db: sqlite3.Connection) -> dict[str, int]:
    """Bytes by name."""
    return dict(db.execute("SELECT name, bytes FROM entries"))


def records(db: sqlite3.Connection) -> list[Record]:
    return [_record(*row) for row in db.execute(f"SELECT {_COLUMNS} FROM entries")]


def _record(
    name: str,
    encoder: str,
    namespace: str,
    model: str,
    dtype: str,
    shape: str,
    size: int,
    made: int,
    used: int,
) -> Record:
    return Record(
        FeatureKey(name, encoder, namespace, True, model), dtype, tuple(json.loads(shape)), size, made, used
    )
