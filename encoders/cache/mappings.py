"""Files in memory that stay mapped, so that a copy from them costs no more than any copy in memory.

Reading such a file costs about twice as much as copying it, and so does mapping it, for the page faults; a mapping that
stays pays for them once. So the process that stores maps at once, and any other reads, and maps for the next time.
"""

import mmap
import os
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from typing import Any

import numpy as np

from mmspec.encoders.cache.entry import Description, Entry, assemble
from mmspec.encoders.cache.files import file_state, read_entry, read_header

_MOST = 256  # each costs a file descriptor before Python 3.13
_LOOKS = 4
_POPULATE_READ = 22  # MADV_POPULATE_READ, since Linux 5.14
_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


@dataclass(frozen=True)
class _Mapping:
    path: str
    inode: int
    described: Description
    pages: mmap.mmap


class Mappings:
    """The entries that this process looked up last. Safe to use from several threads.

    A mapping keeps the memory of its file after the file is gone. This process lets go of what it drops itself, and
    looks at a few mappings with each new one, for what others dropped.

    Args:
        limit: most bytes that are kept mapped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._kept: OrderedDict[str, _Mapping] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, path: str, name: str) -> Entry | None:
        """A copy of the entry, when its file is mapped and still the one at `path`."""
        with self._lock:
            kept = self._kept.get(name)
        if kept is None:
            return None
        state = file_state(path)
        # A page beyond the end of a file that was cut short would kill the process.
        if state is None or (state.st_ino, state.st_size) != (kept.inode, kept.described.file_bytes):
            self.forget(name)
            return None
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
        return _copy(kept)

    def add(self, file: FileIO, path: str, name: str) -> Entry:
        """Reads the entry in a file, and maps the file.

        Raises:
            Corrupt: as `read_header`.
        """
        described, entry = read_entry(file, name, verify=False)
        with suppress(OSError):  # no more descriptors or mappings for this process
            self._keep(file, path, described)
        return entry

    def prepare(self, path: str, name: str) -> None:
        """Maps a file that was just stored and takes the page faults now, in the thread that stores."""
        with FileIO(path) as file:
            pages = self._keep(file, path, read_header(file, name))
            with suppress(OSError):  # an older kernel
                pages.madvise(_POPULATE_READ)

    def forget(self, name: str) -> None:
        with self._lock:
            if (dropped := self._kept.pop(name, None)) is not None:
                self._bytes -= dropped.described.file_bytes

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _keep(self, file: FileIO, path: str, described: Description) -> mmap.mmap:
        pages = mmap.mmap(file.fileno(), described.file_bytes, prot=mmap.PROT_READ, **_OPTIONS)
        mapping = _Mapping(path, os.fstat(file.fileno()).st_ino, described, pages)
        self._forget_gone()
        self.forget(described.key.name)
        with self._lock:
            self._kept[described.key.name] = mapping
            self._bytes += described.file_bytes
            while self._bytes > self._limit or len(self._kept) > _MOST:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.described.file_bytes
        return pages

    def _forget_gone(self) -> None:
        with self._lock:
            oldest = list(islice(self._kept.items(), _LOOKS))
        for name, mapping in oldest:
            state = file_state(mapping.path)
            if state is None or state.st_ino != mapping.inode:
                self.forget(name)


def _copy(mapping: _Mapping) -> Entry:
    """In memory of its own: the pages are shared, and must not be written into."""
    start = len(mapping.described.header)
    data = np.frombuffer(mapping.pages, np.uint8)[start:].copy()
    return assemble(mapping.described, data.data, verify=False)
