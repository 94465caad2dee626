"""The tier in host memory: a folder in /dev/shm, one copy of each entry for all processes of an engine.

It goes with its engine. Each process of the engine holds a shared lock on the folder, which the kernel lets go even
after kill -9; whoever makes a host tier next removes the folders that nobody holds.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmspec.encoders.cache.files import Paths
from mmspec.encoders.cache.folder import FolderTier
from mmspec.encoders.cache.locks import locked
from mmspec.encoders.cache.sizes import format_size
from mmspec.encoders.cache.upkeep import counted
from mmspec.errors import MmspecError

_log = logging.getLogger(__name__)
_MEMORY = Path("/dev/shm")
_CLAIM = "claim"
_LOCK_SECONDS = 60.0  # what was abandoned may take a while to remove
_SHARE = 0.9  # of the room: the index and what is being written take some, too


class HostTier(FolderTier):
    """Entries in memory that the processes of one engine share.

    Args:
        engine: any text that these processes have in common, and no other engine has.
        limit: most bytes; less when there is less room.
        memory: a tmpfs.

    Raises:
        MmspecError: there is no such memory, or it may not be used.
    """

    def __init__(self, engine: str, limit: int, memory: Path = _MEMORY) -> None:
        self._ours = memory / f"mmspec-{os.getuid()}"
        folder = self._ours / hashlib.sha256(engine.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        try:
            with self._alone():
                self._remove_abandoned()
                folder.mkdir(mode=0o700, exist_ok=True)
                self._claim = os.open(folder / _CLAIM, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._claim, fcntl.LOCK_SH)
            limit = _what_fits(limit, memory, counted(Paths(folder)).bytes)
        except OSError as error:
            raise MmspecError(
                f"the encoder cache cannot use {memory} ({error.strerror or error}); leave memory_size out"
            ) from error
        super().__init__(folder, limit, name="host", persistent=False, in_memory=True)

    def close(self) -> None:
        """Lets go of the folder, and removes it when no other process holds it."""
        super().close()
        claim, self._claim = self._claim, -1
        if claim >= 0:
            os.close(claim)
            with self._alone():
                self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        for folder in self._ours.iterdir():
            if folder.is_dir() and not _is_claimed(folder):
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock of all host tiers of this user, so that no folder is removed before it is claimed."""
        self._ours.mkdir(mode=0o700, exist_ok=True)
        state = self._ours.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
            # Anyone may write to /dev/shm, and features that another user put there would be served.
            raise PermissionError(0, f"{self._ours} is not this user's own folder")
        with locked(self._ours / "lock", _LOCK_SECONDS):
            yield


def _is_claimed(folder: Path) -> bool:
    try:
        with (folder / _CLAIM).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _what_fits(limit: int, memory: Path, taken: int) -> int:
    """`limit`, or what the memory has room for beside others; in containers /dev/shm has often 64 MiB."""
    free = int(_SHARE * (shutil.disk_usage(memory).free + taken))
    if limit <= free:
        return limit
    _log.warning(
        "encoder cache: memory_size asks for %s but %s has room for %s, which is used; "
        "enlarge it (docker run --shm-size) or lower memory_size",
        format_size(limit),
        memory,
        format_size(free),
    )
    return free
