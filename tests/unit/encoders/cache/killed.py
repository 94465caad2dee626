"""Writers that die: run as `python -m tests.unit.encoders.cache.killed MODE FOLDER`. Free of torch: forks are cheap.

`rounds`: for every line read, forks two processes that store and read entries until they are killed; prints their ids,
and once they are dead, how many wrong entries they had read. A name of `WORK`: does that in a forked process that dies
at its first line of the cache's code, then in one that dies at its second, and so on; prints how many there were.
"""

import os
import random
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import mmspec.encoders.cache
from mmspec.encoders.cache import FolderTier
from tests.unit.encoders.cache import state
from tests.unit.encoders.cache.entries import entry, is_right, key

NUMBERS = 40
LIMIT = 300_000  # about a third of all entries, so that every few stores evict
WORK: dict[str, Callable[[FolderTier], object]] = {
    "store": lambda tier: tier.put(key(35), entry(35)),
    "purge": lambda tier: tier.purge(),
    "open": lambda tier: tier.totals(),
}
_PACKAGE = str(Path(mmspec.encoders.cache.__file__).parent)


def rounds(folder: Path) -> None:
    for line in sys.stdin:
        wrong_read, wrong_write = os.pipe()
        writers = [_fork(folder, f"{line} {which}", wrong_write) for which in range(2)]
        os.close(wrong_write)
        print(*writers, flush=True)
        for writer in writers:
            os.waitpid(writer, 0)
        with os.fdopen(wrong_read, "rb") as wrong:
            print(len(wrong.read()), flush=True)


def _fork(folder: Path, seed: str, wrong: int) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(120)  # should nobody kill it
    draw = random.Random(seed)
    tier = FolderTier(folder, LIMIT)
    while True:
        number = draw.randrange(NUMBERS)
        if draw.random() < 0.3:
            found = tier.get(key(number))
            if found is not None and not is_right(number, found):
                os.write(wrong, b"x")
        else:
            tier.put(key(number), entry(number))


def points(folder: Path, work: Callable[[FolderTier], object]) -> None:
    start = folder / "start"
    tier = FolderTier(start, LIMIT)
    for number in range(30):
        tier.put(key(number), entry(number))
    assert tier.stats().evictions
    tier.close()
    _leave_as_if_killed(start)
    point = 0
    while True:
        point += 1
        copy = folder / "copy"
        shutil.copytree(start, copy)
        died = _dies_at(point, copy, work)
        faults = state.faults(copy, LIMIT, NUMBERS)
        if faults:
            sys.exit(f"killed at line {point}: {'; '.join(faults)}")
        shutil.rmtree(copy)
        if not died:
            break
    print(point, flush=True)


def _leave_as_if_killed(folder: Path) -> None:
    """Takes the row of a file away, and leaves a part, so that there is something to clear up."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as db, db:
        db.execute("DELETE FROM entries WHERE name = (SELECT max(name) FROM entries)")
    (folder / "parts" / "left").touch()


def _dies_at(point: int, folder: Path, work: Callable[[FolderTier], object]) -> bool:
    child = os.fork()
    if not child:
        left = point

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(_PACKAGE):
                return None
            left -= event == "line"
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return count

        tier = FolderTier(folder, LIMIT)
        sys.settrace(count)
        work(tier)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    mode, where = sys.argv[1], Path(sys.argv[2])
    if mode == "rounds":
        rounds(where)
    else:
        points(where, WORK[mode])
