"""The tier in a folder: what goes in comes out, the least recently used goes first, and limits hold."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mmspec.encoders.cache import Entry, FolderTier
from tests.unit.encoders.cache.entries import entry, is_right, key

ROWS = 100  # one block of 4,096 bytes an entry, header included
BLOCK = 4096


def put(tier: FolderTier, *numbers: int) -> None:
    for number in numbers:
        assert tier.put(key(number), entry(number, ROWS))


def found(tier: FolderTier, numbers: range) -> list[int]:
    return [number for number in numbers if tier.contains(key(number))]


def test_what_goes_in_comes_out(tier: FolderTier) -> None:
    assert tier.get(key(1)) is None and not tier.contains(key(1))
    put(tier, 1)

    assert is_right(1, tier.get(key(1)), ROWS) and tier.contains(key(1))
    assert tier.get(key(2)) is None


def test_it_survives_its_process(filled: FolderTier) -> None:
    filled.close()
    again = FolderTier(filled.folder, filled.limit)

    assert all(is_right(number, again.get(key(number))) for number in range(10))
    assert again.totals() == filled.totals() and again.totals().entries == 10


def test_the_longest_unused_goes_first(tmp_path: Path) -> None:
    tier = FolderTier(tmp_path, 4 * BLOCK)
    put(tier, 0, 1, 2, 3)
    assert is_right(0, tier.get(key(0)), ROWS)
    put(tier, 1)  # stored again is used, too
    put(tier, 4, 5)

    assert found(tier, range(6)) == [0, 1, 4, 5]
    assert tier.stats().evictions == 2


def test_a_lookup_in_another_process_counts(tmp_path: Path) -> None:
    tier, other = FolderTier(tmp_path, 2 * BLOCK), FolderTier(tmp_path, 2 * BLOCK)
    put(tier, 0, 1)
    other.get(key(0))
    put(tier, 2)

    assert found(tier, range(3)) == [0, 2]


def test_the_limit_is_that_of_blocks_on_the_disk(tmp_path: Path) -> None:
    tier = FolderTier(tmp_path, 10 * BLOCK + 100)
    put(tier, *range(30))

    files = list((tmp_path / "entries").iterdir())
    assert len(files) == 10 == tier.totals().entries
    assert sum(512 * file.stat().st_blocks for file in files) <= tier.totals().bytes == 10 * BLOCK


def test_what_is_larger_than_the_tier_is_not_taken_and_evicts_nothing(tmp_path: Path) -> None:
    tier = FolderTier(tmp_path, 2 * BLOCK)
    put(tier, 0)

    assert not tier.put(key(1), entry(1, 10 * ROWS))
    assert found(tier, range(2)) == [0]


def test_many_small_ones_go_for_a_large_one(tmp_path: Path) -> None:
    tier = FolderTier(tmp_path, 10 * BLOCK)
    put(tier, *range(10))
    large = Entry("BF16", (8 * 2000,), memoryview(bytes(2 * 8 * 2000)))
    assert tier.put(key(10), large)

    assert found(tier, range(11)) == [8, 9, 10]


def test_another_limit_on_the_same_folder(tmp_path: Path) -> None:
    large, small = FolderTier(tmp_path, 10 * BLOCK), FolderTier(tmp_path, 3 * BLOCK)
    put(large, *range(9))
    large.put(key(20), entry(20, 2000))

    assert is_right(20, small.get(key(20)), 2000)  # may be read, though it would not be stored
    put(small, 30)
    assert large.totals().bytes <= 3 * BLOCK


def test_keys_that_are_not_persistable_stay_out(tier: FolderTier) -> None:
    from mmspec.encoders.cache import Encoder, Keys

    by_id = Keys(Encoder("w", "float32", 1)).of_id("page 1")

    assert not tier.put(by_id, entry(1))
    assert not tier.contains(by_id)


def test_purging_by_namespace_encoder_age_or_all(filled: FolderTier) -> None:
    from mmspec.encoders.cache import Encoder, Keys

    other = Keys(Encoder("other", "bfloat16", 8), "another tenant").of_content("x")
    filled.put(other, entry(1))
    assert filled.purge(namespace="0" * 16) == 0
    assert filled.purge(unused_since=1.0) == 0
    assert filled.purge(namespace=other.namespace) == 1
    filled.put(other, entry(1))
    assert filled.purge(encoder=key(1).encoder) == 10
    assert filled.contains(other)
    assert filled.purge() == 1
    assert filled.totals().entries == 0 == filled.totals().bytes
    assert not list((filled.folder / "entries").iterdir())


def test_what_is_held_survives_eviction_and_purge(tmp_path: Path) -> None:
    tier, other = FolderTier(tmp_path, 2 * BLOCK), FolderTier(tmp_path, 2 * BLOCK)
    put(tier, 0)
    held = tier.hold(key(0))
    assert held is not None and is_right(0, held[1], ROWS)
    token = held[0]
    put(tier, 1, 2, 3)
    tier.purge()

    assert not tier.contains(key(0))
    assert is_right(0, other.take(key(0), token), ROWS)
    assert other.take(key(1), token) is None
    tier.release(token)
    assert other.take(key(0), token) is None
    assert tier.hold(key(0)) is None
    tier.release(token)  # twice does no harm


def test_what_dead_engines_held_is_let_go(filled: FolderTier, monkeypatch: pytest.MonkeyPatch) -> None:
    assert filled.hold(key(0)) is not None
    monkeypatch.setattr("mmspec.encoders.cache.upkeep._HELD_SECONDS", -1)
    filled.verify()

    assert not list((filled.folder / "held").iterdir())


@pytest.mark.parametrize("in_memory", [False, True])
def test_an_entry_outlives_its_file_and_is_the_readers_own(tmp_path: Path, in_memory: bool) -> None:
    tier = FolderTier(tmp_path, 10**6, in_memory=in_memory)
    put(tier, 0)
    mine, again = tier.get(key(0)), tier.get(key(0))
    assert mine is not None and again is not None
    mine.data[0] ^= 1
    assert is_right(0, again, ROWS) and is_right(0, tier.get(key(0)), ROWS)
    tier.purge()
    tier.close()

    assert is_right(0, again, ROWS)


def test_threads_of_one_tier(tmp_path: Path) -> None:
    tier = FolderTier(tmp_path, 20 * BLOCK)

    def work(number: int) -> bool:
        tier.put(key(number % 50), entry(number % 50, ROWS))
        got = tier.get(key(number % 50))
        return got is None or is_right(number % 50, got, ROWS)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(300)))
    assert tier.totals().bytes <= 20 * BLOCK
    assert tier.verify().clean


WRITER = """
import sys
from pathlib import Path
from mmspec.encoders.cache import FolderTier
from tests.unit.encoders.cache.entries import entry, is_right, key
tier, wrong, over = FolderTier(Path(sys.argv[1]), 20 * 4096), 0, 0
for step in range(60):
    number = (step * int(sys.argv[2])) % 37
    tier.put(key(number), entry(number, 100))
    found = tier.get(key(number))
    wrong += found is not None and not is_right(number, found, 100)
    over += tier.totals().bytes > 20 * 4096
print(wrong, over)
"""


def test_processes_of_one_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    running = [
        subprocess.Popen([*command, str(stride)], stdout=subprocess.PIPE, text=True) for stride in (3, 5, 7)
    ]

    assert [process.communicate()[0].split() for process in running] == [["0", "0"]] * 3
    assert FolderTier(tmp_path, 20 * BLOCK).verify().clean
    files = list((tmp_path / "entries").iterdir())
    assert sum(file.stat().st_size for file in files) <= 20 * BLOCK
    assert not list((tmp_path / "parts").iterdir())


def test_a_lookup_waits_for_nobody(filled: FolderTier) -> None:
    blocker = sqlite3.connect(filled.folder / "index.sqlite", isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")

    assert filled.contains(key(1)) and is_right(1, filled.get(key(1)))
    blocker.close()


def test_no_file_stays_open(filled: FolderTier) -> None:
    def step(number: int) -> None:
        filled.put(key(number), entry(number))
        filled.get(key(number))
        filled.contains(key(number))
        filled.get(key(-1))
        filled.stats()
        held = filled.hold(key(number))
        assert held is not None
        filled.take(key(number), held[0])
        filled.release(held[0])

    step(10)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(11, 40):
        step(number)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_is_for_its_user_alone(filled: FolderTier) -> None:
    assert all(path.stat().st_mode & 0o077 == 0 for path in [filled.folder, *filled.folder.rglob("*")])


def test_what_is_in_a_folder_that_others_may_read_is_for_its_user_alone(tmp_path: Path) -> None:
    """One that was there before, and whose index is open, with its log."""
    tmp_path.chmod(0o755)
    tier = FolderTier(tmp_path, 10**9)
    tier.put(key(1), entry(1))

    made = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert set(made) >= {"index.sqlite", "index.sqlite-wal", "lock", "reserve", "entries"}
    assert set(made.values()) == {0}
    tier.close()
