"""How fast a cached picture comes from host memory and from the disk, beside a plain copy in memory.

python benchmarks/cache_tiers.py [--out benchmarks/results/cache_tiers.json]

One core. Sizes are those of Qwen2.5-VL-7B: a picture of 448×448 is 256 rows of 3,584 bfloat16 numbers, one of
1,344×1,344 is 2,304. Each round takes every picture once in each way, so that what slows the machine slows all ways:

- `memory_copy`: from one buffer to another;
- `host_hit`: from the host tier into memory of its own, as `get` returns it, in the process that stored it;
- `host_first_hit`: the same as another process sees it, the first time;
- `disk_hit`: from the disk tier, its file in the page cache, checksum included;
- `host_store`, `disk_store`: stored anew.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mmspec.bench.provenance import write_result
from mmspec.encoders.cache import Encoder, Entry, FolderTier, HostTier, Keys

_WIDTH = 3584
_PICTURES = {"448x448": 256, "1344x1344": 2304}
_BYTES = 256 * 1024**2  # of the pictures of a size: more than the processor's caches hold
_LIMIT = 10**9  # nothing is evicted
_KEYS = Keys(Encoder("none", "bfloat16", _WIDTH))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    result = {name: _measure(rows, given.rounds) for name, rows in _PICTURES.items()}
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result))


def _measure(rows: int, rounds: int) -> dict[str, object]:
    """Megabytes a second: the median of the rounds, and their spread."""
    draw = np.random.default_rng(0)
    size = 2 * rows * _WIDTH
    entries = [
        Entry("BF16", (rows, _WIDTH), memoryview(draw.integers(0, 256, size, dtype=np.uint8)))
        for _ in range(-(-_BYTES // size))
    ]
    speeds: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        host, other = HostTier(folder, _LIMIT), HostTier(folder, _LIMIT)
        disk = FolderTier(Path(folder), _LIMIT)
        for _ in range(rounds):
            for name, seconds in _round(host, other, disk, entries).items():
                speeds[name].append(len(entries) * size / seconds / 1e6)
        for tier in (host, other, disk):
            tier.close()
    ratios = [host / copy for host, copy in zip(speeds["host_hit"], speeds["memory_copy"], strict=True)]
    return {
        "bytes": size,
        "pictures": len(entries),
        **{name: _summary(found) for name, found in speeds.items()},
        "host_hit_over_memory_copy": round(statistics.median(ratios), 3),
    }


def _round(host: HostTier, other: HostTier, disk: FolderTier, entries: list[Entry]) -> dict[str, float]:
    """Seconds for all pictures, by each way."""
    count, target = len(entries), np.zeros(entries[0].data.nbytes, np.uint8)

    def load(tier: FolderTier, number: int) -> None:
        entry = tier.get(_KEYS.of_content(str(number)))
        assert entry is not None and entry.data.nbytes == target.nbytes

    def store(tier: FolderTier, number: int) -> None:
        assert tier.put(_KEYS.of_content(str(number)), entries[number])

    seconds = {
        "host_store": _seconds(count, lambda number: store(host, number)),
        "disk_store": _seconds(count, lambda number: store(disk, number)),
        "memory_copy": _seconds(count, lambda number: np.copyto(target, np.asarray(entries[number].data))),
        "host_hit": _seconds(count, lambda number: load(host, number)),
        "host_first_hit": _seconds(count, lambda number: load(other, number)),
        "disk_hit": _seconds(count, lambda number: load(disk, number)),
    }
    host.purge()
    disk.purge()
    return seconds


def _seconds(count: int, work: Callable[[int], object]) -> float:
    start = time.perf_counter()
    for number in range(count):
        work(number)
    return time.perf_counter() - start


def _summary(speeds: list[float]) -> dict[str, float]:
    return {
        "mb_per_s": round(statistics.median(speeds)),
        "lowest": round(min(speeds)),
        "highest": round(max(speeds)),
    }


if __name__ == "__main__":
    main()
