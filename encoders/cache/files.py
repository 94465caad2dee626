"""Reading entries from files, and writing them so that no half of one is ever seen."""

import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import numpy as np

from mmspec.encoders.cache.entry import Corrupt, Description, Entry, assemble, describe
from mmspec.encoders.cache.locks import private

SUFFIX = ".safetensors"
_NAME = re.compile(r"[0-9a-f]{64}")
RESERVE = 2 * 1024**2
_MAX_WRITE = 1 << 30  # Linux writes at most 2 GiB a call
_HEADER_BYTES = 4096  # a model's name is bounded, so every header is smaller


class Paths:
    """What lies where in a folder of entries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / "index.sqlite"
        self.reserve = folder / "reserve"  # room for the index on a full disk
        self.entries = folder / "entries"
        self._prefix = f"{self.entries}{os.sep}"
        self.parts = folder / "parts"  # what is being written
        self.held = folder / "held"  # second names of entries that are about to be read

    def make(self) -> None:
        for path in (self.folder, self.entries, self.parts, self.held):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep_reserve(self, *, if_free: int = 8 * RESERVE) -> None:
        """Sets room aside: dropping entries from a full disk needs some for the index."""
        if self.reserve.exists() or shutil.disk_usage(self.folder).free < if_free:
            return
        with open(self.reserve, "wb", opener=private) as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE)

    def entry(self, name: str) -> Path:
        return Path(self.lookup(name))

    def lookup(self, name: str) -> str:
        """The same as text: making a `Path` costs as much as a small read."""
        return f"{self._prefix}{name}{SUFFIX}"


def entry_name(file_name: str) -> str | None:
    """The name of the entry that a file holds, None for a file that is none of ours."""
    name = file_name.removesuffix(SUFFIX)
    return name if file_name.endswith(SUFFIX) and _NAME.fullmatch(name) else None


def file_state(path: Path | str) -> os.stat_result | None:
    """None when there is no such file."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def inode_of(path: Path | str) -> int | None:
    state = file_state(path)
    return None if state is None else state.st_ino


def mark_used(path: str) -> None:
    """Notes the time for eviction: as the file's own, so that a lookup needs no lock."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def touch(path: str) -> bool:
    """Marks an entry as just used; False when there is none."""
    try:
        mark_used(path)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def read_header(file: FileIO, name: str) -> Description:
    """What a file says of its entry, once key and length are those that are expected.

    Raises:
        Corrupt: a header that is not ours, another key, or another length.
    """
    described = describe(memoryview(os.pread(file.fileno(), _HEADER_BYTES, 0)))
    described.expect(name, os.fstat(file.fileno()).st_size)
    return described


def read_entry(file: FileIO, name: str, *, verify: bool = True) -> tuple[Description, Entry]:
    """The entry in a file, in memory of its own: what was checked stays as it is, and is the reader's to keep.

    Raises:
        Corrupt: as `read_header`, cut short meanwhile, or a wrong checksum.
    """
    described = read_header(file, name)  # before memory is asked for
    start = len(described.header)
    data = np.empty(described.file_bytes - start, np.uint8).data
    done = 0
    while done < data.nbytes:
        read = os.preadv(file.fileno(), [data[done:]], start + done)
        if not read:
            raise Corrupt("a file that was cut short")
        done += read
    return described, assemble(described, data, verify=verify)


@contextmanager
def part_file(folder: Path, *pieces: bytes | memoryview) -> Iterator[Path]:
    """Writes a file under a name of its own, to be renamed; it is gone afterwards unless it was renamed.

    While it is written its lock is held, so that `remove_left_over` knows the parts of dead processes.
    """
    path, descriptor = _new_part(folder)
    try:
        for piece in pieces:
            _write(descriptor, memoryview(piece).cast("B"))
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def remove_left_over(folder: Path) -> None:
    """Removes the parts of processes that died while they wrote."""
    for path in folder.iterdir():
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except (BlockingIOError, FileNotFoundError):
            continue


def _new_part(folder: Path) -> tuple[Path, int]:
    while True:
        path = folder / secrets.token_hex(8)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:  # not taken for a left-over before it was locked
            return path, descriptor
        os.close(descriptor)


def _write(descriptor: int, piece: memoryview) -> None:
    done = 0
    while done < piece.nbytes:
        done += os.write(descriptor, piece[done : done + _MAX_WRITE])
