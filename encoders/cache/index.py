"""The SQLite index of a folder of entries: what is there, how large, and last used when.

The index serves eviction and people; a lookup never reads it. So it can be wrong or lost without a wrong answer: it is
made again from the files whenever it is missing, damaged, replaced, or of an older layout.
"""

import errno
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from mmspec.encoders.cache.entry import LAYOUT
from mmspec.encoders.cache.locks import locked, private
from mmspec.encoders.cache.tier import TierUnavailable

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

_WAIT_SECONDS = 5.0
_SCHEMA = f"""
CREATE TABLE entries (
    name TEXT PRIMARY KEY, encoder TEXT NOT NULL, namespace TEXT NOT NULL, model TEXT NOT NULL, dtype TEXT NOT NULL,
    shape TEXT NOT NULL, bytes INTEGER NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX by_use ON entries (used);
CREATE TABLE totals (
    entries INTEGER NOT NULL, bytes INTEGER NOT NULL, evictions INTEGER NOT NULL, corrupt INTEGER NOT NULL
);
INSERT INTO totals VALUES (0, 0, 0, 0);
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE totals SET entries = entries + 1, bytes = bytes + new.bytes;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - old.bytes;
END;
PRAGMA user_version = {LAYOUT};
"""
# A damaged file, another database, or another schema under the same name.
_NOT_OURS = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_CONSTRAINT,
}


# What a full disk shows itself as, among other things.
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


class _NotOurs(Exception):
    """The file is no index of this layout."""


class Index:
    """One connection to the index of a folder, opened at first use and again after any trouble.

    All writing in the folder happens under one lock between processes, so that what a transaction finds on the disk
    stays as it is until it ends.
    """

    def __init__(self, path: Path, reserve: Path, reconcile: Work[None]) -> None:
        """Opens nothing yet.

        Args:
            reserve: a file that is given up when the disk is full.
            reconcile: makes the rows those of the files, in a transaction, whenever the index is opened.
        """
        self._path = path
        self._reserve = reserve
        self._reconcile = reconcile
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    def write(self, work: Work[Result]) -> Result:
        """Runs `work` alone in the folder, in a transaction; again on a new index where the old one was damaged.

        Raises:
            TierUnavailable: no room, no permission, or others kept the index busy for too long.
        """
        with self._lock:
            try:
                with locked(self._path.with_name("lock"), 2 * _WAIT_SECONDS):
                    return self._attempt(work)
            except (_NotOurs, sqlite3.Error, OSError) as error:
                self._drop_connection()
                raise TierUnavailable(f"{self._path}: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._drop_connection()

    def _attempt(self, work: Work[Result]) -> Result:
        try:
            return self._transact(self._open(), work)
        except (_NotOurs, sqlite3.Error, OSError) as error:
            self._drop_connection()
            if _is_not_ours(error):
                self._remove()
            elif lacks_room(error):
                # Even dropping entries needs some; the log, too, was given back with the connection.
                self._reserve.unlink(missing_ok=True)
            else:
                raise
            return self._transact(self._open(), work)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._inode == _inode(self._path):
            return self._connection
        self._drop_connection()
        if self._path.is_dir():  # to SQLite just a file that does not open
            raise TierUnavailable(
                f"{self._path} is a folder, where the index's file belongs; remove it, and the index is made again"
            )
        open(self._path, "ab", opener=private).close()  # its log takes its permissions over
        connection = sqlite3.connect(
            self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
            self._transact(connection, self._reconcile)
        except BaseException:
            connection.close()
            raise
        self._connection, self._inode = connection, _inode(self._path)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        # A crash of the machine may lose rows, not the index.
        connection.execute("PRAGMA synchronous = NORMAL")
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if layout == 0 and tables == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        elif layout > LAYOUT:
            raise TierUnavailable(
                f"{self._path.parent} was written by a newer mmspec (layout {layout}); give another folder"
            )
        elif layout != LAYOUT or connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise _NotOurs("an index of an older layout, or a damaged one")

    def _remove(self) -> None:
        for suffix in ("-wal", "-shm", ""):  # a log that is left behind would be read into the next index
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    @staticmethod
    def _transact(connection: sqlite3.Connection, work: Work[Result]) -> Result:
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return result


def _is_not_ours(error: Exception) -> bool:
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, _NotOurs)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # values of other types carry no code
    return code & 0xFF in _NOT_OURS or code == sqlite3.SQLITE_READONLY_DBMOVED


def lacks_room(error: BaseException | None) -> bool:
    """Whether a full disk is behind an error of this module's or of the operating system's."""
    if isinstance(error, TierUnavailable):
        return lacks_room(error.__cause__)
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_ROOM


def _inode(path: Path) -> int:
    """The file's number, 0 when there is none."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
