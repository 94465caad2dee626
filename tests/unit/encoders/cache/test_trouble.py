"""Disks that are full, read-only or forbidden: an error that the store turns into a miss, and recovery."""

import errno
import os
import re
from pathlib import Path

import pytest

from mmspec.encoders.cache import FolderTier, TieredStore, TierUnavailable
from tests.small_disk import SmallDisk, fill
from tests.unit.encoders.cache.clock import Clock, messages
from tests.unit.encoders.cache.entries import entry, is_right, key

MEGABYTE = 10**6


def test_a_full_disk(small_disk: SmallDisk, caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = small_disk(2), Clock()
    tier = FolderTier(disk / "cache", 10 * MEGABYTE)
    store = TieredStore([tier], clock=clock)
    store.put(key(0), entry(0, 1))
    assert store.flush()
    filler = fill(disk)
    for number in range(5, 10):
        store.put(key(number), entry(number, 2000))
        assert store.flush()

    assert not any(tier.contains(key(number)) for number in range(5, 10))
    assert not os.listdir(disk / "cache" / "parts")
    earlier, said = messages(caplog)
    assert "no room left" in earlier
    assert "writing the disk tier failed" in said and re.search("No space left on device|disk is full", said)
    assert store.stats()[0]["skipped"] == 5

    filler.unlink()
    clock.time += 60
    store.put(key(5), entry(5))
    assert store.flush()
    assert is_right(5, tier.get(key(5)))
    assert messages(caplog)[2:] == ["encoder cache: writing the disk tier works again"]
    assert tier.verify().clean
    store.close()


@pytest.mark.parametrize(("count", "rows"), [(60, 60_000), (900, 1500)], ids=["large", "small"])
def test_a_tier_larger_than_its_disk(
    small_disk: SmallDisk, caplog: pytest.LogCaptureFixture, count: int, rows: int
) -> None:
    disk = small_disk(20)
    tier = FolderTier(disk / "cache", 1000 * MEGABYTE)
    for number in range(count):
        assert tier.put(key(number), entry(number, rows))

    assert 8 < tier.totals().bytes / MEGABYTE < 20
    assert is_right(count - 1, tier.get(key(count - 1)), rows)
    (said,) = messages(caplog)
    assert "before its limit of 1 GB" in said
    assert tier.verify().clean


def test_purging_a_full_disk(small_disk: SmallDisk) -> None:
    disk = small_disk(24)
    tier = FolderTier(disk / "cache", 1000 * MEGABYTE)
    for number in range(300):
        tier.put(key(number), entry(number, 100))
    tier.close()
    fill(disk)
    again = FolderTier(disk / "cache", 1000 * MEGABYTE)

    assert len(again.records()) == 300 and again.verify().clean
    assert again.purge() == 300
    assert again.totals().entries == 0 and not os.listdir(disk / "cache" / "entries")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_an_error_in_the_middle_of_a_write(
    filled: FolderTier, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    write, calls = os.write, 0

    def failing(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:  # the header is written, then the data
            raise OSError(code, os.strerror(code))
        return write(descriptor, data)

    monkeypatch.setattr("mmspec.encoders.cache.files.os.write", failing)
    with pytest.raises(TierUnavailable, match=os.strerror(code)):
        filled.put(key(10), entry(10))

    assert not filled.contains(key(10)) and not os.listdir(filled.folder / "parts")
    monkeypatch.undo()
    assert filled.put(key(10), entry(10)) and is_right(10, filled.get(key(10)))
    assert filled.verify().clean


def test_a_read_only_folder_is_read(small_disk: SmallDisk, caplog: pytest.LogCaptureFixture) -> None:
    folder, clock = small_disk(2) / "cache", Clock()
    tier = FolderTier(folder, MEGABYTE)
    for number in range(5):
        tier.put(key(number), entry(number))
    tier.close()
    small_disk(read_only=True)

    store = TieredStore([FolderTier(folder, MEGABYTE)], clock=clock)
    assert all(is_right(number, store.get(key(number)).entry) for number in range(5))  # type: ignore[union-attr]
    assert store.stats()[0]["entries"] == 5
    for number in range(5):  # as an engine reads
        held = store.hold(key(number))
        assert held is not None and is_right(number, store.take(key(number), held))
        store.release(held)
    for number in range(5, 8):
        store.put(key(number), entry(number))
        assert store.flush()
    (said,) = messages(caplog)
    assert "writing the disk tier failed" in said and "Read-only file system" in said

    small_disk(read_only=False)
    clock.time += 60
    store.put(key(5), entry(5))
    store.close()
    assert is_right(5, FolderTier(folder, MEGABYTE).get(key(5)))


def test_what_cannot_be_let_go_of_keeps_nobody_from_reading(
    unprivileged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TieredStore([FolderTier(unprivileged / "cache", MEGABYTE)], clock=Clock())
    store.put(key(1), entry(1))
    assert store.flush()
    held = store.hold(key(1))
    assert held is not None
    (unprivileged / "cache" / "held").chmod(0o500)
    store.release(held)

    hit = store.get(key(1))
    assert hit is not None and is_right(1, hit.entry) and not messages(caplog)
    store.close()


def test_a_damaged_file_in_a_read_only_folder_is_a_miss(small_disk: SmallDisk) -> None:
    folder = small_disk(2) / "cache"
    tier = FolderTier(folder, MEGABYTE)
    tier.put(key(1), entry(1))
    tier.close()
    (file,) = (folder / "entries").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    small_disk(read_only=True)

    assert FolderTier(folder, MEGABYTE).get(key(1)) is None


def test_no_permission_to_write(unprivileged: Path, caplog: pytest.LogCaptureFixture) -> None:
    tier = FolderTier(unprivileged / "cache", MEGABYTE)
    tier.put(key(1), entry(1))
    tier.close()
    for folder, _, _ in list(os.walk(unprivileged)):
        os.chmod(folder, 0o500)
    store = TieredStore([FolderTier(unprivileged / "cache", MEGABYTE)])
    for number in (2, 3):
        store.put(key(number), entry(number))
        assert store.flush()

    hit, held = store.get(key(1)), store.hold(key(1))
    assert hit is not None and is_right(1, hit.entry)
    assert held is not None and is_right(1, store.take(key(1), held))
    store.release(held)
    assert store.get(key(2)) is None and store.hold(key(2)) is None
    (said,) = messages(caplog)
    assert "Permission denied" in said
    store.close()


def test_no_permission_at_all(unprivileged: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, locked = Clock(), unprivileged / "locked"
    locked.mkdir(mode=0)
    store = TieredStore([FolderTier(locked / "cache", MEGABYTE)], clock=clock)
    for number in (1, 2):
        assert store.contains(key(number)) is None
        assert store.get(key(number)) is None
        store.put(key(number), entry(number))
        assert store.flush()
    reading, writing = messages(caplog)
    assert "reading the disk tier failed" in reading and "writing the disk tier failed" in writing

    locked.chmod(0o700)
    clock.time += 60
    store.put(key(1), entry(1))
    assert store.flush()
    hit = store.get(key(1))
    assert hit is not None and is_right(1, hit.entry)
    assert len(messages(caplog)) == 4  # both work again
    store.close()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    store = TieredStore([FolderTier(tmp_path / "cache", MEGABYTE)])
    store.put(key(1), entry(1))

    assert store.flush() and store.get(key(1)) is None and store.stats()[0]["errors"] > 0
    store.close()
