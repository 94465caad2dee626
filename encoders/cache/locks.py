"""A lock between processes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def private(path: str | Path, flags: int) -> int:
    """For `open`: makes files for their user alone, whatever the folder that they are in allows."""
    return os.open(path, flags, 0o600)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Holds the lock of a file, made for it, alone; the kernel lets it go when the process ends.

    Raises:
        OSError: the file cannot be made, or another process held it for `seconds`.
    """
    deadline = time.monotonic() + seconds
    with open(path, "ab", opener=private) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process held {path} for {seconds:g} s") from None
                time.sleep(0.001)
        yield
