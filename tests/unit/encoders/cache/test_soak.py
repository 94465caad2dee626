"""Thousands of requests with eviction in every tier: no wrong answer, no growth of memory or of open files."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mmspec.encoders.cache import FolderTier, HostTier, TieredStore
from tests.unit.encoders.cache.entries import entry, is_right, key

PICTURES = 200
ROWS = 4000  # 64,000 bytes a picture
ENTRY = 69_632  # in whole blocks
GROWTH = 16 * 1024**2
FEW_FILES = 16


@pytest.mark.slow
def test_a_soak(tmp_path: Path) -> None:
    draw = random.Random(0)
    host = HostTier(str(tmp_path), 20 * ENTRY)
    disk = FolderTier(tmp_path / "cache", 60 * ENTRY)
    store = TieredStore([host, disk], queue_limit=10 * ENTRY)
    wrong = 0

    def request(number: int) -> int:
        """As an engine does it: look, load or encode, store."""
        held = store.hold(key(number)) if number % 5 == 0 else None
        hit = store.get(key(number)) if held is None else None
        found = store.take(key(number), held) if held else hit and hit.entry
        if held:
            store.release(held)
        if found is None:
            store.put(key(number), entry(number, ROWS))
            return 0
        return not is_right(number, found, ROWS)

    def run(count: int) -> int:
        # Popular pictures and rare ones.
        numbers = [int(PICTURES * draw.random() ** 2) for _ in range(count)]
        with ThreadPoolExecutor(4) as pool:
            return sum(pool.map(request, numbers))

    for number in range(PICTURES):
        entry(number, ROWS)  # the test's own memory, before it is measured
    wrong += run(500)
    store.flush()
    files, memory = _open_files(), _resident()
    wrong += run(2000)
    store.flush()

    assert wrong == 0
    # A leak would be of hundreds; a few open and close in the background.
    assert _open_files() <= files + FEW_FILES
    assert _resident() - memory < GROWTH
    # How many there are depends on how often the queues had room.
    assert host.stats().evictions > 20 and disk.stats().evictions > 20
    assert host.totals().bytes <= host.limit and disk.totals().bytes <= disk.limit
    assert sum(file.stat().st_size for file in (disk.folder / "entries").iterdir()) <= disk.limit
    assert not os.listdir(disk.folder / "held") and not os.listdir(disk.folder / "parts")
    hits = sum(stats["hits"] for stats in store.stats())
    assert hits > 500 and disk.verify().clean and host.verify().clean
    store.close()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _resident() -> int:
    """Bytes of this process in memory, without what it shares with files."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")
