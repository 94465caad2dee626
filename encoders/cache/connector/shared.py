"""One store an engine and process: with one worker, scheduler and worker are in the same process and share it."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from mmspec.encoders.cache.store import TieredStore

_lock = threading.Lock()
_open: dict[tuple[int, str], "_Shared"] = {}  # by process, since a fork copies this, and engine


@dataclass
class _Shared:
    store: TieredStore
    users: int


def borrow(engine: str, make: Callable[[], TieredStore]) -> tuple[TieredStore, bool]:
    """The engine's store in this process, and whether somebody here uses it already; to be given back."""
    with _lock:
        shared = _open.get((os.getpid(), engine))
        if shared is None:
            _open[os.getpid(), engine] = _Shared(make(), 1)
            return _open[os.getpid(), engine].store, False
        shared.users += 1
        return shared.store, True


def give_back(engine: str) -> None:
    """Closes the store when its last user has given it back."""
    with _lock:
        shared = _open.get((os.getpid(), engine))
        if shared is None:
            return
        shared.users -= 1
        if shared.users:
            return
        del _open[os.getpid(), engine]
    shared.store.close()
